//! Names of locks, their modes, and the place of a name's lock.
//!
//! Invariant: two different things have different names, and a name says which kind of thing it names. Records of two
//! tables with the same key have two locks. (Algorithm 1 of Hu et al., "LOTUS: Optimizing Disaggregated Transactions
//! with Disaggregated Locks", hashes the key alone, so a transaction on two tables collides with itself.)

use tarn_fabric::address::Address;
use tarn_fabric::rng::mix;

/// The kind of thing that a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum NameKind {
    /// A record, whether it exists or not: by its key, or by the hash of a key that is longer than a word.
    Row = 0,
    /// A node of an ordered index: by its address.
    Node = 1,
    /// A bucket of a hash index: by its address.
    Bucket = 2,
}

impl NameKind {
    /// The kind with this number in a message.
    pub fn from_number(number: u8) -> Option<NameKind> {
        [NameKind::Row, NameKind::Node, NameKind::Bucket].get(usize::from(number)).copied()
    }
}

/// The name of a lock. Longer keys go by their hash: two of them may share a lock, which costs an abort now and then
/// and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockName {
    /// The table; for a node or a bucket, the table of its index.
    pub table: u16,
    /// The kind of thing.
    pub kind: NameKind,
    /// The packed key or its hash; an address as a word.
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

    /// The hash that decides where the lock lies and tells it apart. Names of one table and kind never share a hash,
    /// since the function is a bijection of the key. Two other names share one with a chance of one in 2^64.
    #[inline]
    pub fn hash(self) -> u64 {
        let kind = (self.kind as u64) << 16 | u64::from(self.table);
        mix(self.key ^ (kind + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// With other readers.
    Read,
    /// Alone.
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
