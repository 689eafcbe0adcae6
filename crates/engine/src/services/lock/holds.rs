//! The locks of one transaction in one lock table.
//!
//! Invariants: the transaction holds each slot once, however many of its names use the slot and however often it
//! requests them. A request for a lock that the transaction already holds is granted. A writer may read, and the only
//! reader may become the writer. Two names of the transaction may share a slot (once in 2^64 pairs of tables). In
//! that case, both names use one hold in the stronger of their two modes, and neither name causes a refusal of the
//! other. The transaction releases each hold once.

use super::name::{LockMode, LockName, NameKind};
use super::table::{LockTable, Place};

/// A lock that the transaction holds, by its name.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// The key of the name. The name's fields are stored one by one. A copy of the whole name, directly after its
    /// fields were stored, would have to wait for these stores.
    key: u64,
    table: u16,
    kind: NameKind,
    place: Place,
    /// The mode in which the name is locked.
    mode: LockMode,
    /// The mode in which this hold keeps the slot; `None` if an earlier hold in the list keeps the same slot.
    slot: Option<LockMode>,
}

const _: () = assert!(size_of::<Hold>() <= 24);

impl Hold {
    #[inline(always)]
    fn new(name: LockName, place: Place, mode: LockMode, slot: Option<LockMode>) -> Hold {
        let LockName { table, kind, key } = name;
        Hold { key, table, kind, place, mode, slot }
    }

    #[inline(always)]
    fn name(&self) -> LockName {
        LockName { table: self.table, kind: self.kind, key: self.key }
    }
}

/// The list of the transaction's holds; see the module's text.
#[derive(Default, Debug)]
pub struct Holds {
    list: Vec<Hold>,
    /// A filter with 64 bits. Each name's hash selects one bit. If the bit of a name is not set, the name is not in
    /// the list.
    seen: u64,
}

impl Holds {
    /// Locks `name`. Returns whether the lock was granted. `on_write` is called for a write grant, as in
    /// [`LockTable::acquire`].
    #[inline(always)]
    pub fn ask(
        &mut self,
        table: &LockTable,
        name: LockName,
        mode: LockMode,
        on_write: impl FnOnce(),
    ) -> bool {
        let hash = name.hash();
        let bit = 1 << (hash >> 58);
        if self.seen & bit != 0
            && let Some(at) = self.list.iter().position(|held| held.name().hash() == hash)
        {
            return self.ask_again(table, at, name, mode, on_write);
        }
        let Some(place) = table.acquire(hash, mode, on_write) else { return false };
        self.seen |= bit;
        self.list.push(Hold::new(name, place, mode, Some(mode)));
        true
    }

    /// Requests the lock of a name whose slot the transaction already holds.
    #[cold]
    fn ask_again(
        &mut self,
        table: &LockTable,
        at: usize,
        name: LockName,
        mode: LockMode,
        on_write: impl FnOnce(),
    ) -> bool {
        let Hold { place, slot, .. } = self.list[at];
        let slot = slot.expect("the first hold of a slot has the slot's mode");
        if mode == LockMode::Write && slot == LockMode::Read {
            if !table.upgrade(place, name.hash(), on_write) {
                return false;
            }
            self.list[at].slot = Some(LockMode::Write);
        }
        match self.list.iter_mut().find(|held| held.name() == name) {
            Some(held) => held.mode = held.mode.max(mode),
            None => self.list.push(Hold::new(name, place, mode, None)),
        }
        true
    }

    /// The mode in which the transaction has locked the name; `None` if it has not locked the name.
    #[inline]
    pub fn is_held(&self, name: LockName) -> Option<LockMode> {
        if self.seen & 1 << (name.hash() >> 58) == 0 {
            return None;
        }
        self.list.iter().find(|held| held.name() == name).map(|held| held.mode)
    }

    /// Whether no other transaction holds the lock of this name. Returns true also for a name that this transaction
    /// does not hold.
    pub fn is_alone(&self, table: &LockTable, name: LockName) -> bool {
        let held = self.list.iter().find(|held| held.name() == name);
        held.is_none_or(|held| table.has_one_holder(held.place))
    }

    /// The locked names, in the order in which they were locked.
    pub fn names(&self) -> impl Iterator<Item = (LockName, LockMode)> {
        self.list.iter().map(|held| (held.name(), held.mode))
    }

    /// The number of names that the transaction has locked.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the transaction has locked no name.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Releases all names except the `count` names that were locked first. If a later request upgraded a slot to a
    /// write lock, the slot keeps that mode.
    pub fn keep_first(&mut self, table: &LockTable, count: usize) {
        for held in self.list.drain(count..) {
            if let Some(mode) = held.slot {
                table.release(held.place, mode, || held.name().hash());
            }
        }
    }

    /// Releases all holds of the transaction.
    #[inline]
    pub fn release(&mut self, table: &LockTable) {
        for held in &self.list {
            if let Some(mode) = held.slot {
                table.release(held.place, mode, || held.name().hash());
            }
        }
        self.list.clear();
        self.seen = 0;
    }
}
