//! States that were visited, and what slept there.
//!
//! Invariant: looked up by digest, never walked through: no order of a hash table is seen.

use super::hash::Digest;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A digest is a hash already.
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

/// See the module's text. What slept is in order, without room to spare.
#[derive(Default)]
pub(crate) struct Table {
    states: HashMap<Digest, Option<Box<[u64]>>, Build>,
}

impl Table {
    pub(crate) fn len(&self) -> u64 {
        self.states.len() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.states.clear();
    }

    /// Comes to a state with what sleeps now. What slept the last time, if it was visited; from now on
    /// what slept both times is kept.
    pub(crate) fn visit(
        &mut self,
        digest: Digest,
        sleep: impl Iterator<Item = u64>,
    ) -> Option<Box<[u64]>> {
        let mut sleep: Vec<u64> = sleep.collect();
        match self.states.entry(digest) {
            Entry::Vacant(entry) => {
                entry.insert((!sleep.is_empty()).then(|| sleep.into_boxed_slice()));
                None
            }
            Entry::Occupied(mut entry) => {
                let Some(slept) = entry.get_mut().take() else { return Some(Box::default()) };
                sleep.retain(|key| slept.contains(key));
                *entry.get_mut() = (!sleep.is_empty()).then(|| sleep.into_boxed_slice());
                Some(slept)
            }
        }
    }
}

/// A set of digests.
#[derive(Default)]
pub(crate) struct Digests(HashSet<Digest, Build>);

impl Digests {
    /// Whether it is new.
    pub(crate) fn insert(&mut self, digest: Digest) -> bool {
        self.0.insert(digest)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}
