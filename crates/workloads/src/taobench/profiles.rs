//! TAOBench's profiles: the benchmark's public workload files, and a paper's variant of these files.
//!
//! Invariant: the weights are those of the public workload files, in the order of the files. The note
//! of each profile names every deviation.

use crate::workload::Profile;

pub(super) struct Variant {
    pub(super) profile: Profile,
    /// The number of loaded edges. The number of loaded objects is twice this number.
    pub(super) edges: u64,
    /// The weights of single reads, single writes, reading transactions and writing transactions.
    pub(super) operations: [u32; 4],
    /// The weights of single reads of objects and of edges.
    pub(super) reads: [u32; 2],
    /// The weights of reads of objects and of edges in reading transactions.
    pub(super) transaction_reads: [u32; 2],
    /// The weights of the four kinds of writes: adding an object, updating an object, adding an edge,
    /// and updating an edge.
    pub(super) writes: [u32; 4],
}

const SPEC: Variant = Variant {
    profile: Profile {
        name: "a",
        note: "workload file A (an application's): 244 parts of 171 single reads, 57 single writes, 15 reading and 1 \
               writing transactions; 1 M objects and 500 K edges instead of 165 M edges",
    },
    edges: 500_000,
    operations: [171, 57, 15, 1],
    // The public code executes reads of ranges, counts and times of edges as point reads.
    reads: [475, 68 + 376 + 39],
    transaction_reads: [1, 5],
    writes: [111, 214, 10, 380],
};

pub(super) const VARIANTS: &[Variant] = &[
    SPEC,
    Variant {
        profile: Profile {
            name: "2",
            note: "workload file 2: 97 of 100 operations are single reads, 3 reading transactions; as A otherwise",
        },
        operations: [8387, 19, 242, 1],
        reads: [479, 475],
        writes: [219, 75, 1, 321],
        ..SPEC
    },
    Variant {
        profile: Profile {
            name: "oocc",
            note: "OOCC: 95 % reading and 5 % writing transactions, 1 M objects and 500 K edges; \
                   the paper does not name the file, so sizes and operations are A's",
        },
        operations: [0, 0, 95, 5],
        ..SPEC
    },
];
