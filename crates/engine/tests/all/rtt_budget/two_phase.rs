//! Tests the RTT budget of two-phase locking: the number of round trips of its transactions.
//!
//! Invariant checked: the costs in the table in `protocol/two_phase/mod.rs`, for each number of copies. Every record
//! costs a lock, whether the transaction reads or writes the record. Rounds that no transaction awaits release the
//! locks.

use super::*;
use By::{Cold, Other, Warm};
use Step::*;

const READ: &str = "read, address known";
const WRITE: &str = "write, address known";
const UNKNOWN: &str = "address unknown";
const AWAY: &str = "record away from its home, or absent";
const RANGE: &str = "a range, its way remembered";
const FOUND: &str = "absence found beside other reads, or several leaves read";
const ABORT: &str = "abort";

/// The cost of updating `records` records of one line. The transaction writes log and data to every copy. The
/// transaction does not await its unlocks by CAS.
fn writing(copies: usize, rounds: u64, reads: u64, records: u64) -> Cost {
    cost(rounds, 1, reads, (1 + records) * copies as u64, 2 * records)
}

fn rows(copies: usize) -> Vec<Row<'static>> {
    let mut rows = vec![unmeasured(Warm, [Read(NARROW, &[1, 2, 3])])];
    for keys in [&[1][..], &[1, 2, 3]] {
        let (read, add, count) = ([Read(NARROW, keys)], [Add(NARROW, keys)], keys.len() as u64);
        rows.extend([
            row([READ], Warm, read, cost(1, 1, count, 0, 2 * count)),
            row([READ, UNKNOWN], Cold, read, cost(2, 1, 2 * count, 0, 2 * count)),
            row([WRITE], Warm, add, writing(copies, 3, count, count)),
            row([WRITE, UNKNOWN], Cold, add, writing(copies, 4, 2 * count, count)),
        ]);
    }
    let (refused, own) = (AbortReason::LockRefused, AbortReason::User);
    rows.extend([
        // The transaction also locks the other record, which it only reads.
        row([WRITE], Warm, [Ask(&[3]), Add(NARROW, &[1])], cost(3, 1, 2, 2 * copies as u64, 4)),
        row([AWAY], Cold, [Absent(&[777])], cost(2, 0, 4, 0, 0)),
        row([AWAY, FOUND], Cold, [Absent(&[777, 778])], cost(3, 0, 10, 0, 0)),
        // The lock of record 1 is granted and the lock of record 2 is refused, so only the granted lock is released.
        row([ABORT], Warm, [Add(NARROW, &[1, 2])], cost(1, 1, 2, 0, 3)).holding(2).aborts(refused),
        row([ABORT], Warm, [Read(NARROW, &[2])], cost(1, 0, 1, 0, 1))
            .holding(2)
            .aborts(AbortReason::ReadLocked),
        row([ABORT], Warm, [Add(NARROW, &[1]), Abort], cost(1, 1, 1, 0, 2)).aborts(own),
        row([ABORT], Cold, [Read(NARROW, &[1, 2]), Abort], cost(2, 1, 4, 0, 4)).aborts(own),
        // The transaction has already locked the record that it read, and reads it a second time.
        row(VARIANT, Warm, [Read(NARROW, &[1]), Add(NARROW, &[1])], writing(copies, 4, 2, 1)),
        row([READ, AWAY, FOUND], Warm, [Read(NARROW, &[1]), Absent(&[777])], cost(4, 1, 6, 0, 2)),
        row(VARIANT, Cold, [Insert(NARROW, 500, true)], cost(4, 1, 5, 3 * copies as u64, 4)),
        row(VARIANT, Cold, [Delete(NARROW, 500, true)], cost(4, 1, 5, 3 * copies as u64, 4)),
    ]);
    rows
}

/// Rows in which a scan takes no lock. A scan reads leaves in one round, with three READs for each leaf. If there are
/// several leaves, it validates them.
fn ordered() -> Vec<Row<'static>> {
    vec![
        // The first scan reads the root and the leaf. The second scan reads only the leaf.
        row(VARIANT, Other, [Scan(0, 20)], cost(2, 0, 6, 0, 0)),
        row([RANGE], Other, [Scan(0, 20)], cost(1, 0, 3, 0, 0)),
        row([RANGE, FOUND], Other, [Scan(0, 160)], cost(2, 0, 3 * 3 + 3, 0, 0)),
    ]
}

#[test]
fn the_table_of_two_phase_locking() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/two_phase/mod.rs"));
    for copies in COPIES {
        budget.run(&Scene::of("2pl", copies), rows(copies));
    }
    budget.run(&Scene::ordered("2pl", 1, 200), ordered());
    budget.end();
}
