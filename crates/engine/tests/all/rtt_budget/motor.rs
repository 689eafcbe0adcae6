//! Tests the RTT budget of Motor: the number of round trips of its transactions.
//!
//! Invariant checked: the costs in the table in `protocol/motor/mod.rs`, for each number of copies.

use super::*;
use crate::common::budget::reading;
use By::{Cold, Warm};
use Step::*;

const DECLARED: &str = "declared read-only, address unknown";
const REMEMBERED: &str = "declared read-only, address remembered";
const UNKNOWN: &str = "write, address unknown, nothing else read";
const KNOWN: &str = "write, address remembered";
const OTHERS: &str = "the same, and others read";
const AWAY: &str = "record away from its home, or absent";
const CHAIN: &str = "a declared reader finds a chain without it";
const ELSEWHERE: &str = "a timestamp from elsewhere than this process";
const ONE_NODE: &str = "write, all of it on one node, which has the only copy";
const ABORT: &str = "abort";
const OWN_ABORT: &str = "own abort";
const SCAN: &str = "scan, its way remembered";
const ENTRIES: &str = "entries of ordered indexes that come or go";
const SPLIT: &str = "split of buckets, before the next transaction";
const SETS: [&[u64]; 2] = [&[1], &[1, 2, 3]];

/// The cost of updating `records` records. The transaction writes the log, and {delta, value, head} of each record,
/// to every copy. With one copy the release is a WRITE in the data's batch. With several copies the release is a
/// round of CAS that no transaction awaits.
fn writing(copies: usize, rounds: u64, reads: u64, records: u64) -> Cost {
    let data = (1 + 3 * records) * copies as u64;
    match copies {
        1 => cost(rounds, 0, reads, data + records, records),
        _ => cost(rounds, 1, reads, data, 2 * records),
    }
}

fn learnt() -> Vec<Row<'static>> {
    [NARROW, DOUBLE].map(|table| unmeasured(Warm, [Read(table, &[1, 2, 3])])).into()
}

fn reads() -> Vec<Row<'static>> {
    let mut rows = learnt();
    for keys in SETS {
        // A value of two lines needs a second READ of its head.
        for (table, count) in [(NARROW, 2 * keys.len() as u64), (DOUBLE, 3 * keys.len() as u64)] {
            rows.push(row([DECLARED], Cold, [Read(table, keys)], reading(2, count)).declared());
            rows.push(row([REMEMBERED], Warm, [Read(table, keys)], reading(1, count)).declared());
        }
    }
    let own = AbortReason::User;
    rows.extend([
        // For an absent record the transaction reads its bin, then its bucket in three READs.
        row([AWAY], Cold, [Absent(&[77])], reading(2, 4)).declared(),
        // A reader that is not declared read-only validates reads of several records.
        row(VARIANT, Cold, [Read(NARROW, &[1])], reading(2, 2)),
        row(VARIANT, Cold, [Read(NARROW, &[1, 2])], reading(3, 6)),
        row(VARIANT, Warm, [Read(NARROW, &[1, 2])], reading(2, 6)),
        row([OWN_ABORT], Cold, [Read(NARROW, &[1]), Abort], reading(2, 2)).aborts(own),
        row([OWN_ABORT], Warm, [Read(NARROW, &[1, 2]), Abort], reading(2, 6)).aborts(own),
        row([OWN_ABORT], Warm, [Read(NARROW, &[1, 2]), Abort], reading(1, 4))
            .aborts(own)
            .declared(),
    ]);
    rows
}

fn writes(copies: usize) -> Vec<Row<'static>> {
    let mut rows = learnt();
    for keys in SETS {
        let (add, count) = ([Add(NARROW, keys)], keys.len() as u64);
        let [unknown, known] = [(3, 3 * count), (2, 2 * count)]
            .map(|(rounds, reads)| writing(copies, rounds, reads, count));
        rows.push(row([UNKNOWN], Cold, add, unknown).if_alone(copies, ONE_NODE));
        rows.push(row([KNOWN], Warm, add, known).if_alone(copies, ONE_NODE));
    }
    let changed = cost(3, u64::from(copies > 1), ANY, ANY, ANY);
    rows.extend([
        row(
            [KNOWN, OTHERS],
            Warm,
            [Ask(&[2]), Add(NARROW, &[1])],
            writing(copies, 3, 2 + 2 + 1, 1),
        )
        .if_alone(copies, ONE_NODE),
        // In this row, the transaction requests a record for update and does not change it, so there is nothing to
        // write.
        row(VARIANT, Warm, [Lock(&[1])], cost(1, 1, 2, 0, 2)),
        row([OWN_ABORT], Warm, [Add(NARROW, &[1]), Abort], cost(1, 1, 2, 0, 2))
            .aborts(AbortReason::User),
        // An insert or delete of a record locks the record's bucket as well.
        row([UNKNOWN], Cold, [Insert(NARROW, 50, true)], changed).if_alone(copies, ONE_NODE),
        row([UNKNOWN], Cold, [Delete(NARROW, 50, true)], changed).if_alone(copies, ONE_NODE),
    ]);
    rows
}

fn aborts() -> Vec<Row<'static>> {
    let mut rows = learnt();
    let changed = [Ask(&[2]), Add(NARROW, &[1]), OtherAdds(NARROW, &[2])];
    rows.extend([
        // A refused lock costs the round of the request and the release of the lock that was granted.
        row([ABORT], Warm, [Add(NARROW, &[1, 2])], cost(1, 1, 4, 0, 3))
            .holding(2)
            .aborts(AbortReason::LockRefused),
        // If a snapshot finds a locked record, it reads the record three more times, and then aborts.
        row(VARIANT, Warm, [Read(NARROW, &[2])], reading(4, 8))
            .declared()
            .holding(2)
            .aborts(AbortReason::ReadLocked),
        row([ABORT], Warm, changed, cost(2, 1, 5, 0, 2)).aborts(AbortReason::VersionChanged),
    ]);
    rows
}

/// Rows of Motor's published system. The published system writes four times for each record and replica, and does not
/// await these writes.
fn published(copies: usize) -> Vec<Row<'static>> {
    let mut rows = learnt();
    for keys in SETS {
        let (add, count) = ([Add(NARROW, keys)], keys.len() as u64);
        let writes = 4 * count * copies as u64;
        rows.extend([
            row(VARIANT, Cold, add, cost(3, 1, 3 * count, writes, count)),
            row(VARIANT, Warm, add, cost(2, 1, 2 * count, writes, count)),
            row(VARIANT, Warm, [Read(DOUBLE, keys)], reading(2, 2 * count)).declared(),
        ]);
    }
    rows
}

/// Rows with whole versions. The transaction writes no delta, and a value waits for its head. If heads have a
/// separate round, `round` is 1, otherwise `round` is 0.
fn whole_versions(copies: usize, round: u64) -> Vec<Row<'static>> {
    let mut rows = learnt();
    for keys in SETS {
        let (add, count) = ([Add(NARROW, keys)], keys.len() as u64);
        let whole = |rounds, reads| {
            let cost = writing(copies, rounds + round, reads, count);
            Cost { writes: cost.writes - count * copies as u64, ..cost }
        };
        rows.extend([
            row(VARIANT, Cold, add, whole(4, 3 * count)),
            row(VARIANT, Warm, add, whole(3, 2 * count)),
            row(VARIANT, Warm, [Read(NARROW, keys)], reading(2, 2 * count)).declared(),
        ]);
    }
    rows
}

/// The rows of the published system: values, heads, unlocks. The rows also have a log, which the steps towards LOTUS
/// add.
fn whole_published(copies: usize, log: u64, round: u64) -> Vec<Row<'static>> {
    let mut rows = learnt();
    rows.extend(SETS.map(|keys| {
        let count = keys.len() as u64;
        let writes = (3 * count + log) * copies as u64;
        row(VARIANT, Warm, [Add(NARROW, keys)], cost(2 + round, 1, 2 * count, writes, count))
    }));
    rows
}

/// Rows of scans and inserts of an ordered index. A scan whose path is cached reads its leaves in one round, with
/// three READs for each leaf. A scan of a snapshot needs no more rounds. In a transaction that may write, several
/// leaves are validated. A new entry costs one round for lock and leaf.
fn ordered(copies: usize) -> Vec<Row<'static>> {
    let inserted = cost(4, u64::from(copies > 1), ANY, ANY, ANY);
    vec![
        unmeasured(Cold, [Scan(0, 10)]).declared(),
        row([SCAN], Cold, [Scan(0, 10)], reading(1, 3)).declared(),
        row([SCAN], Cold, [Scan(0, 10)], reading(1, 3)),
        unmeasured(Cold, [Scan(0, 160)]).declared(),
        row([SCAN], Cold, [Scan(0, 160)], reading(1, 3 * 3)).declared(),
        row([SCAN], Cold, [Scan(0, 160)], reading(2, 3 * 3 + 3)),
        row([UNKNOWN, ENTRIES], Cold, [Insert(NARROW, 5, true)], inserted)
            .if_alone(copies, ONE_NODE),
    ]
}

fn elsewhere(copies: usize) -> Vec<Row<'static>> {
    let mut rows = learnt();
    let known = writing(copies, 2 + 1, 2, 1);
    rows.extend([
        row([REMEMBERED, ELSEWHERE], Warm, [Read(NARROW, &[1])], reading(2, 3)).declared(),
        row([KNOWN, ELSEWHERE], Warm, [Add(NARROW, &[1])], Cost { faa: 1, ..known })
            .if_alone(copies, ONE_NODE),
    ]);
    rows
}

#[test]
fn the_table_of_motor() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/motor/mod.rs"));
    for copies in COPIES {
        let scene = Scene::of("motor", copies);
        budget.run(&scene, reads());
        budget.run(&scene, writes(copies));
        budget.run(&scene.clone().variant("literal"), published(copies));
        budget.run(&Scene::ordered("motor", copies, 400), ordered(copies));
        budget.run(&scene.clone().with_pool_timestamps(), elsewhere(copies));
        for (extra, log, round) in [("", 0, 0), (",-at-once", 1, 1)] {
            let corrected = format!("corrected,-deltas{extra}");
            budget.run(&scene.clone().variant(&corrected), whole_versions(copies, round));
            let with_log = if log > 0 { ",+undo-log" } else { "" };
            let measured = format!("measured,-deltas{extra}{with_log}");
            budget.run(&scene.clone().variant(&measured), whole_published(copies, log, round));
        }
    }
    budget.run(&Scene::of("motor", 3), aborts());
    growth::chains_under_a_snapshot(&mut budget, &[CHAIN]);
    growth::splits(&mut budget, "motor", &[UNKNOWN, SPLIT]);
    budget.end();
}
