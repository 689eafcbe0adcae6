//! Tests the RTT budget of DrTM: the number of round trips of its transactions.
//!
//! Invariant checked: the costs in the table in `protocol/drtm/mod.rs`. Leases that must be valid last longer than
//! any two transactions of a test take. If leases must have ended, the test sleeps until they have ended.

use super::*;
use By::{Cold, Warm};
use Step::*;

const HOLDS: &str = "read, address known: the record has no lease, or one that still holds";
const RUN_OUT: &str = "read, address known: a lease has run out";
const WRITE: &str = "write, address known";
const LEASED: &str = "write, a lease still holds";
const UNKNOWN: &str = "address unknown";
const AWAY: &str = "record away from its home, or absent";
const VALIDATED: &str =
    "absence found beside other reads, or a lease has run out before the commit";
const ABORT: &str = "abort";
const OWN_ABORT: &str = "own abort";

const LONG_NS: u32 = 16_000_000;
const BEYOND: Nanos = Nanos(LONG_NS as u64 + 1_000_000);
const KEYS: [Step<'static>; 1] = [Read(NARROW, &[1, 2, 3])];

fn reading(rounds: u64, reads: u64, cas: u64) -> Cost {
    cost(rounds, 0, reads, 0, cas)
}

/// Rows in which a read costs one atomic, and two atomics if the lease has ended.
fn reads() -> Vec<Row<'static>> {
    let rows = vec![
        row([HOLDS, UNKNOWN], Cold, KEYS, reading(2, 6, 3)),
        // In this row, valid leases of another transaction serve the transaction as well.
        row([HOLDS, UNKNOWN], Warm, KEYS, reading(2, 6, 3)).phase("in_lease", 1),
        row([HOLDS], Warm, KEYS, reading(1, 3, 3)).phase("in_lease", 1),
        // In this row, the leases have ended. The first atomic is refused, and the second atomic replaces the lease.
        row([RUN_OUT], Warm, KEYS, reading(2, 6, 6)).after(BEYOND).phase("in_lease", 1),
        row([AWAY], Cold, [Absent(&[777])], reading(2, 4, 0)),
    ];
    let mut rows: Vec<_> = rows.into_iter().map(|row| row.phase("validate", 0)).collect();
    rows.extend([
        row([AWAY, VALIDATED], Cold, [Absent(&[777, 778])], reading(3, 10, 0)).phase("validate", 1),
        // The transaction reads the records again, although their leases are valid.
        row([HOLDS, OWN_ABORT], Warm, [KEYS[0], Abort], reading(2, 6, 3))
            .aborts(AbortReason::User)
            .phase("validate", 1),
    ]);
    rows
}

/// Rows in which a writer logs after its lock, and waits until a lease has ended.
fn writes(copies: usize) -> Vec<Row<'static>> {
    let add = [Add(NARROW, &[1])];
    let writing = |rounds, reads, cas| cost(rounds, 1, reads, 2 * copies as u64, cas);
    vec![
        row([WRITE, UNKNOWN], Cold, add, writing(4, 2, 2)),
        unmeasured(Warm, [Read(NARROW, &[1])]),
        row([WRITE, LEASED], Warm, add, writing(4, 2, 3))
            .phase("wait_out", 1)
            .waits(Nanos(u64::from(LONG_NS) / 2)),
        row([WRITE], Warm, add, writing(3, 1, 2)).phase("wait_out", 0),
        unmeasured(Warm, [Add(NARROW, &[2])]),
        row([ABORT], Warm, [Add(NARROW, &[1, 2])], cost(1, 1, 2, 0, 3))
            .holding(2)
            .aborts(AbortReason::LockRefused),
        row([OWN_ABORT], Warm, [add[0], Abort], cost(1, 1, 1, 0, 2)).aborts(AbortReason::User),
    ]
}

/// Rows in which a transaction without leases validates its reads.
fn unleased() -> Vec<Row<'static>> {
    let changed = [Ask(&[2]), Add(NARROW, &[1]), OtherAdds(NARROW, &[2])];
    let several = [Read(NARROW, &[1, 2]), Abort];
    vec![
        row([HOLDS, VALIDATED], Cold, KEYS, reading(2, 6, 0)).phase("validate", 1),
        unmeasured(Warm, KEYS),
        row([ABORT], Warm, changed, cost(2, 1, 3, 0, 2)).aborts(AbortReason::VersionChanged),
        row([OWN_ABORT], Warm, several, reading(2, 4, 0)).aborts(AbortReason::User),
    ]
}

/// The rows of the public code, which awaits each record's lock before it requests the next one.
fn one_by_one() -> Vec<Row<'static>> {
    vec![
        // In this row, a reader reads all bins, then one record after another.
        row(VARIANT, Cold, KEYS, reading(4, 6, 3)),
        unmeasured(Warm, KEYS),
        row(VARIANT, Warm, KEYS, reading(3, 3, 3)),
        // In this row, each record has a lease that has ended. After the locks, the transaction sends log and data.
        row(VARIANT, Warm, [Add(NARROW, &[1, 2, 3])], cost(3 * 2 + 2, ANY, ANY, ANY, ANY))
            .after(BEYOND),
    ]
}

#[test]
fn the_table_of_drtm() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/drtm/mod.rs"));
    let scene = |copies| Scene::of("drtm", copies).leasing_reads(LONG_NS);
    budget.run(&scene(1), reads());
    for copies in COPIES {
        budget.run(&scene(copies), writes(copies));
    }
    budget.run(&Scene::of("drtm", 1), unleased());
    budget.run(&scene(1).variant("corrected,-lock-together"), one_by_one());
    budget.end();
}
