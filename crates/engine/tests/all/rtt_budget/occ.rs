//! Tests the RTT budget of OCC: the number of round trips of its transactions.
//!
//! Invariant checked: the costs in the table in `protocol/occ/mod.rs`, for each number of copies.

use super::*;
use By::{Cold, Warm};
use Step::*;

const ONE: &str = "read-only, one record";
const SEVERAL: &str = "read-only, several records";
const KNOWN: &str = "write, address known, nothing else read";
const OTHERS: &str = "write, address known, others read";
const UNKNOWN: &str = "write, address unknown";
const AWAY: &str = "record away from its home, or absent";
const ABORT: &str = "abort";
const OWN_ABORT: &str = "own abort";

/// The cost of updating `records` records of one line. The transaction writes log and data to every copy. The
/// transaction does not await its unlocks by CAS.
fn writing(copies: usize, rounds: u64, reads: u64, records: u64) -> Cost {
    cost(rounds, 1, reads, (1 + records) * copies as u64, 2 * records)
}

fn rows(copies: usize) -> Vec<Row<'static>> {
    let mut rows = vec![
        unmeasured(Warm, [Read(NARROW, &[1, 2, 3])]),
        row([ONE], Cold, [Read(NARROW, &[1])], cost(1, 0, 1, 0, 0)),
        row([SEVERAL], Cold, [Read(NARROW, &[1, 2, 3])], cost(2, 0, 6, 0, 0)),
        row([ONE, AWAY], Cold, [Absent(&[777])], cost(2, 0, 4, 0, 0)),
    ];
    for keys in [&[1][..], &[1, 2]] {
        let (add, count) = ([Add(NARROW, keys)], keys.len() as u64);
        rows.push(row([KNOWN], Warm, add, writing(copies, 3, count, count)));
        rows.push(row([KNOWN, UNKNOWN], Cold, add, writing(copies, 4, 2 * count, count)));
    }
    let (refused, changed) = (AbortReason::LockRefused, AbortReason::VersionChanged);
    rows.extend([
        row([OTHERS], Warm, [Ask(&[3]), Add(NARROW, &[1])], writing(copies, 4, 3, 1)),
        row([ABORT], Warm, [Add(NARROW, &[1, 2])], cost(1, 1, 2, 0, 3)).holding(2).aborts(refused),
        row(
            [ABORT],
            Warm,
            [Ask(&[2]), Add(NARROW, &[1]), OtherAdds(NARROW, &[2])],
            cost(2, 1, 3, 0, 2),
        )
        .aborts(changed),
        row([ONE, OWN_ABORT], Cold, [Read(NARROW, &[1]), Abort], cost(1, 0, 1, 0, 0))
            .aborts(AbortReason::User),
        row([SEVERAL, OWN_ABORT], Cold, [Read(NARROW, &[1, 2]), Abort], cost(2, 0, 4, 0, 0))
            .aborts(AbortReason::User),
        row([OWN_ABORT], Cold, [Add(NARROW, &[1, 2]), Abort], cost(2, 1, 4, 0, 4))
            .aborts(AbortReason::User),
    ]);
    rows
}

#[test]
fn the_table_of_occ() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/occ/mod.rs"));
    for copies in COPIES {
        budget.run(&Scene::of("occ", copies), rows(copies));
    }
    budget.end();
}
