//! Errors that a test can plant, and places at which a test can stop a thread.
//!
//! Invariant: in a program all functions of this file do nothing and return constants, so that they cost nothing. Each
//! planted error must be found by a test (`src/tests`, `tests/loom.rs`).

use crate::bin::Bin;
use crate::header::Header;
use crate::index::Index;
use crate::look::Found;
use crate::raw::Edit;

/// An error that a test plants.
#[cfg_attr(not(any(test, loom)), expect(dead_code, reason = "programs plant no error"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A read that meets a moved bin goes to the newest index, not to the successor of the index it is on.
    NewestIndex,
    /// A replacement swaps the value in its slot, after it has looked at the header once.
    PutInPlace,
    /// As above, but the replacement looks at the header again after the swap, and then starts again.
    PutInPlaceThenLook,
    /// An insertion does not search again after the bin has changed.
    BlindConfirm,
    /// A caller locks a key without a look at the locks of other callers.
    SharedLock,
    /// An update does not look whether its key is locked.
    OverlooksLock,
    /// A growth moves entries, and leaves locks behind.
    LeavesLock,
}

/// A place in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// An update has found its entry, and has not changed anything.
    Validated,
    /// An update has written its claimed slot, and the header does not show the slot.
    Filled,
    /// A growth has frozen a bin, and has moved no entry.
    Frozen,
}

/// The planted error of a table, and the function that it calls at each place.
#[derive(Default)]
pub(crate) struct Plants {
    #[cfg(any(test, loom))]
    plant: Option<Plant>,
    #[cfg(any(test, loom))]
    hook: Option<Hook>,
}

#[cfg(any(test, loom))]
type Hook = Box<dyn Fn(Site) + Send + Sync>;

#[cfg(not(any(test, loom)))]
impl Plants {
    #[inline(always)]
    pub(crate) fn has(&self, _plant: Plant) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn at(&self, _site: Site) {}

    /// Returns whether an insertion overlooks that its bin has changed.
    #[inline(always)]
    pub(crate) fn is_blind(&self, _before: Header, _now: Header) -> bool {
        false
    }

    /// Performs a planted replacement. The outer `None` says that no such error is planted, the inner one that the
    /// update starts again.
    #[inline(always)]
    pub(crate) fn put_in_place(
        &self,
        _index: &Index,
        _bin: &Bin,
        _header: Header,
        _found: Option<Found>,
        _value: crate::bin::Word,
    ) -> Option<Option<Edit>> {
        None
    }
}

#[cfg(any(test, loom))]
impl Plants {
    /// Plants an error.
    pub(crate) fn plant(&mut self, plant: Plant) {
        self.plant = Some(plant);
    }

    /// Sets the function that is called at each place.
    #[cfg(test)]
    pub(crate) fn hook(&mut self, hook: impl Fn(Site) + Send + Sync + 'static) {
        self.hook = Some(Box::new(hook));
    }

    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    pub(crate) fn is_blind(&self, before: Header, now: Header) -> bool {
        let has_all = now.present() & before.present() == before.present();
        self.has(Plant::BlindConfirm) && now.phase() == crate::header::Phase::Open && has_all
    }

    pub(crate) fn at(&self, site: Site) {
        if let Some(hook) = &self.hook {
            hook(site);
        }
    }

    pub(crate) fn put_in_place(
        &self,
        index: &Index,
        bin: &Bin,
        header: Header,
        found: Option<Found>,
        value: crate::bin::Word,
    ) -> Option<Option<Edit>> {
        use crate::sync::Ordering;
        let looks = self.has(Plant::PutInPlaceThenLook);
        if !looks && !self.has(Plant::PutInPlace) {
            return None;
        }
        let entry = found?;
        let link = bin.link.load(Ordering::Acquire);
        let place = index.slot(bin, link, entry.slot)?;
        // The paper compares the slot's 16 bytes. With small numbers of keys, the comparison of the key and then of
        // the value is as good.
        if place.key() != entry.key {
            return Some(None);
        }
        let swapped =
            place.value.compare_exchange(entry.value, value, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() || looks && !crate::look::is_unchanged(bin, header) {
            return Some(None);
        }
        Some(Some(Edit::Written(found)))
    }
}
