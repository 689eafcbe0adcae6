//! YCSB's profiles: the benchmark's own workloads, and variants of papers.
//!
//! Invariant: the note of each profile names every deviation from the benchmark's own definition.
//! CREST and OOCC are the papers that the profiles of these names follow; CCBench is Tanabe, Hoshino,
//! Kawashima, Tatebe, "An analysis of concurrency control protocols for in-memory databases with
//! CCBench", VLDB 2020; Silo is Tu, Zheng, Kohler, Liskov, Madden, "Speedy transactions in multicore
//! in-memory databases", SOSP 2013.

use crate::workload::Profile;

#[derive(Clone)]
pub(super) struct Variant {
    pub(super) profile: Profile,
    pub(super) records: u64,
    pub(super) zipf: f64,
    pub(super) fields: u8,
    pub(super) field_bytes: u16,
    /// The number of operations of a transaction.
    pub(super) operations: usize,
    /// The number of operations whose keys are known before any record is read.
    pub(super) known_operations: usize,
    /// The percentage of transactions that may write.
    pub(super) writers_percent: u8,
    /// The percentage of writing operations in transactions that may write.
    pub(super) writes_percent: u8,
    /// Whether a read reads all fields of a record instead of one field.
    pub(super) read_whole: bool,
    /// Whether a write changes all fields of a record instead of one field.
    pub(super) write_whole: bool,
    /// Whether a write first reads all fields of the record.
    pub(super) write_reads_whole: bool,
}

const fn profile(name: &'static str, note: &'static str) -> Profile {
    Profile { name, note }
}

/// Workload C. A transaction reads one whole record of 10 × 100 B.
const SPEC: Variant = Variant {
    profile: profile(
        "c",
        "workload C: as A; reads only",
    ),
    records: 1_000_000,
    zipf: 0.99,
    fields: 10,
    field_bytes: 100,
    operations: 1,
    known_operations: 1,
    writers_percent: 100,
    writes_percent: 0,
    read_whole: true,
    write_whole: false,
    write_reads_whole: false,
};

/// The common settings of profiles with records of 8 B and several operations per transaction.
const WORDS: Variant = Variant { zipf: 0.0, fields: 1, field_bytes: 8, ..SPEC };

/// A transaction uses four records of 8 B, with Zipf .99.
const FOUR_KEYS: Variant = Variant { zipf: 0.99, operations: 4, known_operations: 4, ..WORDS };

/// Returns a profile of CREST with narrow records. `operations` is the number of operations of a
/// transaction.
const fn crest(name: &'static str, operations: usize) -> Variant {
    let note = "CREST, N operations: 1 M records of 4 × 40 B, Zipf .99; reads take all cells, \
                writes one; half of the operations write (the paper varies it)";
    Variant {
        profile: profile(name, note),
        fields: 4,
        field_bytes: 40,
        operations,
        known_operations: operations,
        writes_percent: 50,
        ..SPEC
    }
}

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        profile: profile(
            "a",
            "workload A: 1 M records of 10 × 100 B, Zipf .99; half reads (all fields), half \
         updates (one field)",
        ),
        writes_percent: 50,
        ..SPEC
    },
    Variant {
        profile: profile(
            "b",
            "workload B: as A; 95 % reads, 5 % updates",
        ),
        writes_percent: 5,
        ..SPEC
    },
    SPEC,
    Variant {
        profile: profile(
            "f",
            "workload F: as A; half reads, half read-modify-writes (all fields read, one \
         written)",
        ),
        writes_percent: 50,
        write_reads_whole: true,
        ..SPEC
    },
    Variant {
        profile: profile(
            "b16",
            "16 operations a transaction, 95 % reads, 10 M records of 8 B, uniform: as \
         CCBench drives Silo",
        ),
        records: 10_000_000,
        operations: 16,
        known_operations: 16,
        writes_percent: 5,
        ..WORDS
    },
    Variant {
        profile: profile(
            "a4",
            "4 operations a transaction, half reads, 10 M records of 8 B, uniform",
        ),
        records: 10_000_000,
        operations: 4,
        known_operations: 4,
        writes_percent: 50,
        ..WORDS
    },
    Variant {
        profile: profile(
            "fields16",
            "16 operations on one field each of 1 M records of 10 × 100 B, 95 % reads, \
         uniform",
        ),
        zipf: 0.0,
        operations: 16,
        known_operations: 16,
        writes_percent: 5,
        read_whole: false,
        ..SPEC
    },
    Variant {
        profile: profile(
            "fields16-ro",
            "as fields16, reads only",
        ),
        zipf: 0.0,
        operations: 16,
        known_operations: 16,
        read_whole: false,
        ..SPEC
    },
    Variant {
        profile: profile(
            "whole16",
            "16 operations on whole records, 1 M of 10 × 100 B, 95 % reads, uniform",
        ),
        zipf: 0.0,
        operations: 16,
        known_operations: 16,
        writes_percent: 5,
        write_whole: true,
        ..SPEC
    },
    Variant {
        profile: profile(
            "whole16-ro",
            "as whole16, reads only",
        ),
        zipf: 0.0,
        operations: 16,
        known_operations: 16,
        ..SPEC
    },
    crest("crest-n1", 1),
    crest("crest-n2", 2),
    crest("crest-n3", 3),
    crest("crest-n4", 4),
    Variant {
        profile: profile(
            "oocc-ro",
            "OOCC: tuples of 8 B, Zipf .99 (the paper varies it); transactions read 4 keys; \
         1 M records, which the paper leaves open",
        ),
        ..FOUR_KEYS
    },
    Variant {
        profile: profile(
            "oocc-ri",
            "as oocc-ro, but one transaction in ten updates all of its 4 keys",
        ),
        writers_percent: 10,
        writes_percent: 100,
        ..FOUR_KEYS
    },
    Variant {
        profile: profile(
            "oocc-unknown",
            "as oocc-ri, but 2 of the 4 keys become known by reading the other 2",
        ),
        known_operations: 2,
        writers_percent: 10,
        writes_percent: 100,
        ..FOUR_KEYS
    },
];
