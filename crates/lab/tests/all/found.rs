//! Seeds of random schedules that once failed, with what they found.
//!
//! Invariant checked: nothing is wrong with any of them any more. A change to the simulator or to the
//! engine gives a seed another schedule; those that find nothing new stay, they cost little.

use tarn_engine::protocol::ALL;
use tarn_lab::schedules::Subject;
use tarn_lab::schedules::run::run_seed;

/// What was wrong, and which seed showed it.
const FOUND: &[(&str, u64)] = &[
    // Six coordinators that had lost their patience tried again without pauses, and kept one another
    // from four records for 600 ms.
    ("transactions had not ended 100 ms after the last commit", 603),
    // A transaction that was undone before it had written anything (the judge's mistake).
    ("narrow[0] holds version 4, the last write was of version 6", 256),
    // Asked about a transaction that had been acknowledged, when lines of the next one's log had landed
    // on its log: nobody may ask then (the judge's mistake; docs/design/0004 names the limit).
    ("txn 3.1/0/3 was told Committed, resolved Aborted", 1_017_327),
    // Two coroutines of one thread recovered one life at once (the first of sixteen).
    ("versions written once more, lines that differ, a transaction decided twice", 1_004_419),
    // A split moved records past the copier, whose bodies stayed behind and were never copied.
    ("15 to 60 lines differ between replicas", 1_008_943),
    // A lock on a bucket was taken to protect what had been read of its chain before.
    ("a record was found absent, inserted by another, and the first committed after that", 1_075),
];

/// As [`FOUND`], of one protocol and variant.
const FOUND_IN: &[(&str, &str, &str, u64)] = &[
    // A change of the configuration was dropped beside a transaction: the same map got a new number, and the number
    // stands above the pool's count. The transaction committed below versions of others that were there before.
    ("absent read of a present record", "lotus", "corrected,-version-cache", 7_001_635),
    // An undone change whose mark had reached no leaf: its leaf's version did not count on (the judge's mistake).
    ("lost update of a leaf", "lotus", "corrected,-version-cache", 9_101_033),
    // It had inserted into a bucket with a chain, and looked for another key of the bucket by its snapshot.
    ("it met its own lock on the bucket for ever", "motor", "corrected,si", 7_000_033),
    // Both had scanned a leaf, and wanted to change it.
    (
        "two readers of one leaf refused each other's change for ever",
        "lotus",
        "corrected",
        7_000_706,
    ),
    (
        "two readers of one leaf refused each other's change for ever",
        "lotus",
        "corrected",
        7_001_179,
    ),
];

#[test]
fn what_was_found_once_in_a_variant_is_not_found_again() {
    for &(what, protocol, variant, seed) in FOUND_IN {
        let ran = run_seed(&Subject::of(protocol, variant), seed).expect("a subject");
        assert_eq!(
            ran.finding, None,
            "{protocol} {variant}: seed {seed}, which once found: {what}"
        );
    }
}

#[test]
fn what_was_found_once_is_not_found_again() {
    for info in ALL {
        for &(what, seed) in FOUND {
            let ran = run_seed(&Subject::of(info.name, "corrected"), seed).expect("a subject");
            assert_eq!(ran.finding, None, "{}: seed {seed}, which once found: {what}", info.name);
        }
    }
}
