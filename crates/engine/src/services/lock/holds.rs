//! What one transaction holds in one lock table.
//!
//! Invariants: each slot is held once by the transaction, whatever it asks for and how often: what it asks
//! for again it has, a writer may read, and the only reader may become the writer. Two of its names may
//! share a slot (once in 2^64 pairs of tables): then they share the hold, in the stronger of their modes, and
//! do not refuse one another. What is held is given up once.

use super::name::{LockMode, LockName, NameKind};
use super::table::{LockTable, Place};

/// A name that the transaction has locked.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// The name, field by field: whoever copies it whole, right after its fields were stored, waits for them.
    key: u64,
    table: u16,
    kind: NameKind,
    place: Place,
    /// How the name is locked.
    mode: LockMode,
    /// How its slot is; `None` if the slot is an earlier hold's.
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

/// See the module's text.
#[derive(Default, Debug)]
pub struct Holds {
    list: Vec<Hold>,
    /// One bit of 64 for each name's hash: what is not here is not in the list.
    seen: u64,
}

impl Holds {
    /// Locks `name`; whether it was granted. `on_write` is told of a write grant, as in
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

    /// The slot is the transaction's already.
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
        let slot = slot.expect("the first of a slot's holds has it");
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

    /// How a name is locked.
    #[inline]
    pub fn is_held(&self, name: LockName) -> Option<LockMode> {
        if self.seen & 1 << (name.hash() >> 58) == 0 {
            return None;
        }
        self.list.iter().find(|held| held.name() == name).map(|held| held.mode)
    }

    /// Whether nobody else holds a name's lock; also of a name that is not held.
    pub fn is_alone(&self, table: &LockTable, name: LockName) -> bool {
        let held = self.list.iter().find(|held| held.name() == name);
        held.is_none_or(|held| table.has_one_holder(held.place))
    }

    /// The names, in the order in which they were locked.
    pub fn names(&self) -> impl Iterator<Item = (LockName, LockMode)> {
        self.list.iter().map(|held| (held.name(), held.mode))
    }

    /// Names that are locked.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nothing is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Gives up all but the names that were locked first. A slot that became a writer's meanwhile stays so.
    pub fn keep_first(&mut self, table: &LockTable, count: usize) {
        for held in self.list.drain(count..) {
            if let Some(mode) = held.slot {
                table.release(held.place, mode, || held.name().hash());
            }
        }
    }

    /// Gives up everything.
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
