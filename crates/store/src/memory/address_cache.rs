//! The addresses of records that a thread remembers, so that an update can lock in its first round.
//!
//! Invariant: a cached address is a guess. Its user compares the key that it finds there; a wrong guess costs
//! a round, never a wrong answer. The cache is bounded and direct-mapped: a newer address displaces an older
//! one, and nothing is allocated after the start.

use crate::schema::TableId;
use tarn_fabric::address::Address;

#[derive(Clone, Copy, Default)]
struct Cached {
    key: u64,
    table: u16,
    slot: Address,
    body: Address,
}

/// Addresses by table and key word.
#[derive(Clone)]
pub struct AddressCache {
    entries: Box<[Cached]>,
}

impl AddressCache {
    /// Room for `entries` addresses, rounded up to a power of two; 0 switches the cache off.
    pub fn new(entries: usize) -> AddressCache {
        let len = if entries == 0 { 0 } else { entries.next_power_of_two() };
        AddressCache { entries: vec![Cached::default(); len].into() }
    }

    #[inline]
    fn index(&self, table: TableId, key: u64) -> usize {
        let hash = tarn_fabric::rng::mix(key ^ (u64::from(table.0) << 48));
        hash as usize & (self.entries.len() - 1)
    }

    /// The slot and body that were last seen for this key.
    #[inline]
    pub fn get(&self, table: TableId, key: u64) -> Option<(Address, Address)> {
        if self.entries.is_empty() {
            return None;
        }
        let cached = &self.entries[self.index(table, key)];
        let same = cached.key == key && cached.table == table.0 && !cached.slot.is_null();
        same.then_some((cached.slot, cached.body))
    }

    /// Remembers where a record was seen.
    #[inline]
    pub fn put(&mut self, table: TableId, key: u64, slot: Address, body: Address) {
        if !self.entries.is_empty() {
            let index = self.index(table, key);
            self.entries[index] = Cached { key, table: table.0, slot, body };
        }
    }

    /// Forgets a key.
    pub fn forget(&mut self, table: TableId, key: u64) {
        if self.get(table, key).is_some() {
            let index = self.index(table, key);
            self.entries[index] = Cached::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::GroupId;

    #[test]
    fn remembers_displaces_and_forgets() {
        let at = |offset| Address::new(GroupId(0), offset);
        let mut cache = AddressCache::new(1);
        cache.put(TableId(0), 5, at(64), Address::NULL);
        assert_eq!(cache.get(TableId(0), 5), Some((at(64), Address::NULL)));
        assert_eq!(cache.get(TableId(1), 5), None);
        cache.put(TableId(0), 6, at(128), Address::NULL);
        assert_eq!(cache.get(TableId(0), 5), None);
        cache.forget(TableId(0), 6);
        assert_eq!(cache.get(TableId(0), 6), None);
        let mut off = AddressCache::new(0);
        off.put(TableId(0), 5, at(64), Address::NULL);
        assert_eq!(off.get(TableId(0), 5), None);
    }
}
