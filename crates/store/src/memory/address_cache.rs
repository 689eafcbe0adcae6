//! A thread's cache of the addresses of records. With a cached address, an update can lock the record in its first
//! round.
//!
//! Invariant: a cached address may be wrong. A transaction that uses a cached address compares the key at this
//! address with the wanted key. So a wrong address costs a round, but never gives a wrong answer. The cache has a
//! fixed size and is direct-mapped. A newer address overwrites an older address in the same entry. No memory is
//! allocated after the cache was created.

use crate::schema::TableId;
use tarn_fabric::address::Address;

#[derive(Clone, Copy, Default)]
struct Cached {
    key: u64,
    table: u16,
    slot: Address,
    body: Address,
}

/// The cached addresses of records, found by table and key word.
#[derive(Clone)]
pub struct AddressCache {
    entries: Box<[Cached]>,
}

impl AddressCache {
    /// Creates a cache for `entries` addresses, and rounds this number up to a power of two. If `entries` is 0, the
    /// cache is switched off.
    pub fn new(entries: usize) -> AddressCache {
        let len = if entries == 0 { 0 } else { entries.next_power_of_two() };
        AddressCache { entries: vec![Cached::default(); len].into() }
    }

    #[inline]
    fn index(&self, table: TableId, key: u64) -> usize {
        let hash = tarn_fabric::rng::mix(key ^ (u64::from(table.0) << 48));
        hash as usize & (self.entries.len() - 1)
    }

    /// The addresses of the slot and body at which this key's record was last seen.
    #[inline]
    pub fn get(&self, table: TableId, key: u64) -> Option<(Address, Address)> {
        if self.entries.is_empty() {
            return None;
        }
        let cached = &self.entries[self.index(table, key)];
        let same = cached.key == key && cached.table == table.0 && !cached.slot.is_null();
        same.then_some((cached.slot, cached.body))
    }

    /// Stores the addresses at which a record was seen.
    #[inline]
    pub fn put(&mut self, table: TableId, key: u64, slot: Address, body: Address) {
        if !self.entries.is_empty() {
            let index = self.index(table, key);
            self.entries[index] = Cached { key, table: table.0, slot, body };
        }
    }

    /// Removes a key from the cache.
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
