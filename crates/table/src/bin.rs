//! A bin, a slot and a linked line, as bytes.
//!
//! ```text
//! bin (64 bytes)                                    linked line (64 bytes)
//!  0      8      16         32         48            0         16         32         48
//! +------+------+----------+----------+----------+  +----------+----------+----------+----------+
//! |header| link |  slot 0  |  slot 1  |  slot 2  |  |  slot 3  |  slot 4  |  slot 5  |  slot 6  |
//! +------+------+----------+----------+----------+  +----------+----------+----------+----------+
//! link: number of one line in the low half, number of a pair of lines in the high half; 0 is none
//! slot: 8 bytes of key, 8 bytes of value
//! ```
//!
//! Invariant: only the thread that has claimed a slot writes the slot, and it writes before the header shows the slot.
//! A slot that the header shows does not change. So a reader needs no more than two equal headers.
//!
//! Paper: Katsarakis et al., HPDC 2024. There a replacement swaps the 16 bytes of a shown slot. Here it fills another
//! slot, and one change of the header exchanges the two (`docs/design/0022-hash-table.md`).

use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// The 8 bytes of a key or of a value. The type is a pointer, so that a word that holds a reference or a box keeps the
/// right to use it.
pub(crate) type Word = *mut ();

/// One entry's place.
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) key: AtomicPtr<()>,
    pub(crate) value: AtomicPtr<()>,
}

/// The cache line at which every operation begins.
#[repr(C, align(64))]
pub(crate) struct Bin {
    pub(crate) header: AtomicU64,
    pub(crate) link: AtomicU64,
    pub(crate) slots: [Slot; 3],
}

/// A cache line with four more slots. A free line keeps the number of the next free line in its first word.
#[repr(C, align(64))]
pub(crate) struct Line {
    pub(crate) slots: [Slot; 4],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Slot>() == 16);
    assert!(size_of::<Bin>() == 64 && size_of::<Line>() == 64);
    assert!(std::mem::offset_of!(Bin, slots) == 16);
};

impl Slot {
    /// Writes an entry into a claimed slot.
    ///
    /// `Release`: a reader that sees one of these words also sees the header's changes before the claim. Its second
    /// look at the header then differs from the first.
    #[inline]
    pub(crate) fn fill(&self, key: Word, value: Word) {
        self.key.store(key, Ordering::Release);
        self.value.store(value, Ordering::Release);
    }

    /// Reads the key. `Acquire` keeps the read before the reader's second look at the header.
    #[inline]
    pub(crate) fn key(&self) -> Word {
        self.key.load(Ordering::Acquire)
    }

    /// Reads the value, ordered as the key.
    #[inline]
    pub(crate) fn value(&self) -> Word {
        self.value.load(Ordering::Acquire)
    }
}

/// Returns the line and the pair that a link names; 0 is none.
#[inline]
pub(crate) fn lines_of(link: u64) -> (u32, u32) {
    (link as u32, (link >> 32) as u32)
}

#[cfg(loom)]
impl Default for Slot {
    fn default() -> Self {
        Self {
            key: AtomicPtr::new(std::ptr::null_mut()),
            value: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

#[cfg(loom)]
impl Default for Bin {
    fn default() -> Self {
        Self { header: AtomicU64::new(0), link: AtomicU64::new(0), slots: Default::default() }
    }
}

#[cfg(loom)]
impl Default for Line {
    fn default() -> Self {
        Self { slots: Default::default() }
    }
}
