//! Names of locks, the modes of locks, and the hash that selects the bucket of a name's lock.
//!
//! Invariant: two different things have different names, and each name states the kind of thing that it identifies.
//! If records of two tables have the same key, the records have two different locks. (Algorithm 1 of Hu et al.,
//! "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks", hashes the key alone, so a transaction on
//! two tables refuses its own lock request.)

use tarn_fabric::address::Address;
use tarn_fabric::rng::mix;

/// The kind of thing that a lock's name identifies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum NameKind {
    /// A record, whether it exists or not. The record's packed key identifies it. If the key is longer than a word,
    /// the hash of the key identifies the record.
    Row = 0,
    /// A node of an ordered index, which its address identifies.
    Node = 1,
    /// A bucket of a hash index, which its address identifies.
    Bucket = 2,
}

impl NameKind {
    /// The kind of name with this number in a message.
    pub fn from_number(number: u8) -> Option<NameKind> {
        [NameKind::Row, NameKind::Node, NameKind::Bucket].get(usize::from(number)).copied()
    }
}

/// The name of a lock. A key longer than a word is represented by its hash. So two long keys may share a lock, which
/// sometimes causes an abort and has no other effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockName {
    /// The table of the record. For a node or a bucket of an index, the table to which the index belongs.
    pub table: u16,
    /// The kind of thing that the name identifies.
    pub kind: NameKind,
    /// For a record, the packed key or its hash. For a node or a bucket, the address as a word.
    pub key: u64,
}

impl LockName {
    /// The name of a record.
    #[inline]
    pub fn row(table: u16, key: u64) -> LockName {
        LockName { table, kind: NameKind::Row, key }
    }

    /// The name of a node of an ordered index.
    pub fn node(table: u16, address: Address) -> LockName {
        LockName { table, kind: NameKind::Node, key: address.to_word() }
    }

    /// The name of a bucket of a hash index.
    pub fn bucket(table: u16, address: Address) -> LockName {
        LockName { table, kind: NameKind::Bucket, key: address.to_word() }
    }

    /// The hash that decides the lock's bucket and distinguishes the lock from others. Two names with the same table
    /// and kind never share a hash, since the hash is a bijection of the key. Two names with different tables or
    /// kinds share a hash with a chance of one in 2^64.
    #[inline]
    pub fn hash(self) -> u64 {
        let kind = (self.kind as u64) << 16 | u64::from(self.table);
        mix(self.key ^ (kind + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// Shared: other readers may hold the lock at the same time.
    Read,
    /// Exclusive: no other transaction holds the lock.
    Write,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_one_part_have_other_hashes() {
        let names = [
            LockName::row(0, 7),
            LockName::row(1, 7),
            LockName::row(0, 8),
            LockName { table: 0, kind: NameKind::Node, key: 7 },
            LockName { table: 0, kind: NameKind::Bucket, key: 7 },
        ];
        let mut hashes: Vec<u64> = names.iter().map(|name| name.hash()).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), names.len());
    }

    #[test]
    fn a_kind_is_read_back_from_its_number() {
        for kind in [NameKind::Row, NameKind::Node, NameKind::Bucket] {
            assert_eq!(NameKind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(NameKind::from_number(3), None);
    }
}
