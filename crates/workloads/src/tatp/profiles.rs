//! TATP's profiles: the benchmark's own profile, and the profiles of papers.
//!
//! Invariant: the note of each profile names every deviation from the benchmark's own definition.

use crate::workload::Profile;

pub(super) struct Variant {
    pub(super) profile: Profile,
    pub(super) subscribers: u64,
    /// The length in bytes to which the rows of the four tables are padded.
    pub(super) value_bytes: usize,
    /// Whether GetSubscriberData and GetAccessData read the rows of two subscribers.
    pub(super) reads_two: bool,
}

const fn variant(
    name: &'static str,
    note: &'static str,
    subscribers: u64,
    value_bytes: usize,
    reads_two: bool,
) -> Variant {
    Variant { profile: Profile { name, note }, subscribers, value_bytes, reads_two }
}

pub(super) const VARIANTS: &[Variant] = &[
    variant("spec", "100 K subscribers, 35/10/35/2/14/2/2, non-uniform key", 100_000, 0, false),
    variant(
        "lotus",
        "LOTUS: 3 M subscribers, values of at most 48 B; narrowed to fit: ten flags in 2 B, ten \
         half-bytes in 5 B (a subscriber has 40 B)",
        3_000_000,
        0,
        false,
    ),
    variant(
        "dandelion",
        "Dandelion: values of 48 B (filled up; numbers keep 8 B), 11 M keys: 1 M subscribers",
        1_000_000,
        48,
        false,
    ),
    variant(
        "oocc",
        "OOCC: read-only transactions read two keys (subscriber data and access data of two \
         subscribers, our reading of it); 100 K subscribers, which the paper leaves open",
        100_000,
        0,
        true,
    ),
    variant("fisslock", "FissLock: 100 K subscribers; transactions as specified", 100_000, 0, false),
];
