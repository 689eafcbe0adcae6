//! Tests the RTT budget of OOCC: the number of round trips of its transactions.
//!
//! Invariant checked: the costs in the table in `protocol/oocc/mod.rs`, for each number of copies and for several
//! lengths of leases.

use super::*;
use crate::common::budget::reading;
use crate::common::half;
use By::{Cold, Warm};
use Step::*;

const ONE: &str = "read-only, one record";
const LEASED: &str = "read-only, several records, the lease still holds";
const SEVERAL: &str = "read-only, several records, no lease or one that has run out";
const KNOWN: &str = "write, address remembered";
const UNKNOWN: &str = "write, address unknown";
const AWAY: &str = "record away from its home, or absent";
const RAISED: &str = "absence found, or more read, beside locks that let readers pass";
const ONE_NODE: &str = "write, all of it on one node, which has the only copy";
const RANGE: &str = "a range, its way remembered";
const INDEX: &str = "a change of an index";
const ABORT: &str = "abort";
const OWN_ABORT: &str = "own abort";

/// The length of a lease that is longer than any test takes to read.
const LONG_NS: u32 = 10_000_000;
/// The length of a lease that is shorter than any read takes.
const SHORT_NS: u32 = 1;

/// The cost of updating `records` records of `lines` lines. The transaction writes the log once, and {first line,
/// other lines} of each record, to every copy. With one copy the release is in the data's batch, after a mark. With
/// several copies the release is a round of CAS that no transaction awaits.
fn writing(copies: usize, rounds: u64, reads: u64, (records, lines): (u64, u64)) -> Cost {
    let data = (1 + records * lines) * copies as u64;
    // One CAS takes each lock word, and a second CAS raises the lock.
    let cas = 2 * records;
    match copies {
        1 => cost(rounds, 0, reads, data + 1 + records, cas),
        _ => cost(rounds, 1, reads, data, cas + records),
    }
}

fn learnt() -> Vec<Row<'static>> {
    [NARROW, DOUBLE].map(|table| unmeasured(Warm, [Read(table, &[1, 2, 3])])).into()
}

/// Rows in which a reader in lease takes one round without an atomic.
fn in_lease() -> Vec<Row<'static>> {
    let mut rows = learnt();
    for (table, by) in [(NARROW, Cold), (DOUBLE, Warm)] {
        for keys in [&[1][..], &[1, 2], &[1, 2, 3]] {
            let cost = reading(1, keys.len() as u64);
            // A single READ shows one moment, and so needs no lease.
            let (line, leased) = if keys.len() == 1 { (ONE, 0) } else { (LEASED, 1) };
            rows.push(row([line], by, [Read(table, keys)], cost).phase("in_lease", leased));
        }
    }
    // Each batch of records that a reader requests later costs one more round, and no validation.
    let later = [Read(NARROW, &[1, 2]), Read(NARROW, &[3, 4])];
    rows.push(row(VARIANT, Cold, later, reading(2, 4)));
    // For an absent record the transaction reads its bin, then its bucket in three READs.
    rows.push(row([ONE, AWAY], Cold, [Absent(&[77])], reading(2, 4)));
    rows
}

/// Rows in which a reader that is too slow validates its reads. A single READ shows one moment, so it needs no
/// validation.
fn out_of_lease() -> Vec<Row<'static>> {
    let own = AbortReason::User;
    let rows = vec![
        row([ONE], Cold, [Read(DOUBLE, &[1])], reading(1, 1)),
        row([SEVERAL], Cold, [Read(NARROW, &[1, 2])], reading(2, 4)),
        row([SEVERAL], Cold, [Read(NARROW, &[1, 2, 3])], reading(2, 6)),
        row([ONE, OWN_ABORT], Cold, [Read(NARROW, &[1]), Abort], reading(1, 1)).aborts(own),
        row([SEVERAL, OWN_ABORT], Cold, [Read(NARROW, &[1, 2]), Abort], reading(2, 4)).aborts(own),
    ];
    rows.into_iter().map(|row| row.phase("in_lease", 0)).collect()
}

fn writes(copies: usize) -> Vec<Row<'static>> {
    let mut rows = learnt();
    for (table, lines) in [(NARROW, 1), (DOUBLE, 2)] {
        for keys in [&[1][..], &[1, 2]] {
            let (add, count) = ([Add(table, keys)], keys.len() as u64);
            let [known, unknown] = [(3, count), (4, 2 * count)]
                .map(|(rounds, reads)| writing(copies, rounds, reads, (count, lines)));
            rows.push(row([KNOWN], Warm, add, known).if_alone(copies, ONE_NODE));
            rows.push(row([KNOWN, UNKNOWN], Cold, add, unknown).if_alone(copies, ONE_NODE));
        }
    }
    let (add, three) = (Add(NARROW, &[1]), writing(copies, 3, 3, (1, 1)));
    rows.extend([
        // The transaction also reads another record. In this row the transaction does not raise the lock, and it
        // validates that record in the round of the log.
        row([KNOWN], Warm, [Ask(&[3]), add], Cost { cas: three.cas - 1, ..three })
            .if_alone(copies, ONE_NODE),
        // The transaction reads a record after it has taken the lock, so it raises the lock in the round of the READ.
        row([KNOWN, RAISED], Warm, [add, Read(NARROW, &[3])], Cost { rounds: 4, ..three })
            .if_alone(copies, ONE_NODE),
    ]);
    rows
}

/// Rows in which a writer waits for the end of its lease before it sends the data. The reply comes after the data are
/// written.
fn waits_its_lease(lease_ns: u32) -> Vec<Row<'static>> {
    let mut rows = learnt();
    let add = row([KNOWN, ONE_NODE], Warm, [Add(NARROW, &[1])], writing(1, 3, 1, (1, 1)));
    rows.push(add.phase("wait_out", 1).waits(Nanos(u64::from(lease_ns))));
    rows
}

/// Rows in which a transaction whose lock is refused ends immediately. If the transaction has logged a record of half
/// a line and is then refused, it first removes its log entry at every copy. With one copy recovery could not mistake
/// the entry, so the entry stays.
fn aborts(copies: usize) -> Vec<Row<'static>> {
    let mut rows = learnt();
    rows.extend([
        // The transaction's own CAS was refused, so there is no lock to release.
        row([ABORT], Warm, [Add(NARROW, &[1])], cost(1, 0, 1, 0, 1))
            .holding(1)
            .aborts(AbortReason::LockRefused),
        row([OWN_ABORT], Warm, [Add(NARROW, &[1]), Abort], cost(1, 1, 1, 0, 2))
            .aborts(AbortReason::User),
        unmeasured(Warm, [Read(ADDED, &[1, 2])]),
    ]);
    for table in [ADDED, NARROW] {
        // The rounds are: read; lock and read; validate and log; and, if needed, remove the log entry.
        let takes_back = u64::from(table == ADDED && copies > 1);
        let spent = cost(3 + takes_back, 1, 3, copies as u64 * (1 + takes_back), 2);
        let steps = [Read(ADDED, &[1]), Add(table, &[2]), OtherAdds(ADDED, &[1])];
        let refused = row([ABORT], Warm, steps, spent).aborts(AbortReason::VersionChanged);
        rows.push(refused.phase("take_back", takes_back));
    }
    rows
}

/// Rows of scans and inserts of an ordered index. A scan whose path is cached reads its leaves in one round, with
/// three READs for each leaf. A scan in lease validates no leaf. A new entry costs a round for lock and leaf, and a
/// mark for each copy of each group that the transaction writes.
fn ordered(lease_ns: u32) -> Vec<Row<'static>> {
    let range = if lease_ns == 0 { reading(2, 4 * 3) } else { reading(1, 3 * 3) };
    vec![
        unmeasured(Cold, [Scan(0, 198)]),
        row([RANGE], Cold, [Scan(0, 198)], range),
        // The rounds are: bin and bucket; lock; leaf; raise the lock, validate and log; write.
        row([KNOWN, UNKNOWN, INDEX], Cold, [Insert(NARROW, 5, true)], cost(5, ANY, ANY, ANY, ANY))
            .phase("mark", 1),
    ]
}

#[test]
fn the_table_of_oocc() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/oocc/mod.rs"));
    for copies in COPIES {
        let scene = Scene::of("oocc", copies);
        budget.run(&scene.clone().leasing_reads(LONG_NS), in_lease());
        budget.run(&scene, writes(copies));
        budget.run(&scene.with(half("half", 4000), 1..10), aborts(copies));
    }
    let scene = Scene::of("oocc", 3);
    budget.run(&scene, out_of_lease());
    budget.run(&scene.clone().leasing_reads(SHORT_NS), out_of_lease());
    budget.run(&scene.variant("corrected,-lease"), out_of_lease());
    let lease_ns = 2_000_000;
    budget.run(&Scene::of("oocc", 1).leasing_reads(lease_ns), waits_its_lease(lease_ns));
    for (copies, lease_ns) in [(1, LONG_NS), (3, LONG_NS), (3, 0)] {
        budget.run(&Scene::ordered("oocc", copies, 100).leasing_reads(lease_ns), ordered(lease_ns));
    }
    budget.end();
}
