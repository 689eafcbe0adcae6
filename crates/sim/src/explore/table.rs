//! The set of visited states.
//!
//! Invariant: the explorer looks states up by their digests, and never iterates over the set, so the
//! order of the hash table has no effect.

use super::hash::Digest;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher that takes the digest itself as the hash.
#[derive(Default)]
pub(crate) struct Taken(u64);

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.as_chunks::<8>().0 {
            self.0 ^= u64::from_le_bytes(*chunk);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}

type Build = BuildHasherDefault<Taken>;

/// A set of digests of visited states.
#[derive(Default)]
pub(crate) struct Digests(HashSet<Digest, Build>);

impl Digests {
    /// Inserts a digest. Returns whether the digest is new.
    pub(crate) fn insert(&mut self, digest: Digest) -> bool {
        self.0.insert(digest)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
