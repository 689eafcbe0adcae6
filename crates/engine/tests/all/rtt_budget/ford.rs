//! Tests the RTT budget of FORD: the number of round trips of its transactions.
//!
//! Invariant checked: the costs in the table in `protocol/ford/mod.rs`, for each number of copies.

use super::*;
use crate::common::{apart, narrow};
use By::{Cold, Other, Warm};
use Step::*;
use tarn_store::schema::ColumnId;

const ONE: &str = "read-only, one record";
const SEVERAL: &str = "read-only, several records";
const KNOWN: &str = "write, address known, nothing else read";
const OTHERS: &str = "write, address known, others read";
const UNKNOWN: &str = "write, address unknown";
const AWAY: &str = "record away from its home, or absent";
const PAYLOAD: &str = "payload of its own (rows beyond 104 B)";
const ONE_NODE: &str = "write, all of it on one node, which has the only copy";
const ABORT: &str = "abort";
const OWN_ABORT: &str = "own abort";
const SPLIT: &str = "split of a bucket, before the next transaction";

/// The cost of a transaction that writes log and data at every copy. The transaction posts `writes` WRITEs to each
/// copy, and releases `locks` locks. With one copy the release is a WRITE in the data's batch. With several copies
/// the release is a round that no transaction awaits.
fn writing(copies: usize, rounds: u64, reads: u64, writes: u64, locks: u64) -> Cost {
    match copies {
        1 => cost(rounds, 0, reads, writes + locks, locks),
        _ => cost(rounds, 1, reads, writes * copies as u64, 2 * locks),
    }
}

/// Returns the number of bytes that the atomics of a transaction that writes return.
fn lock_bytes(copies: usize, locks: u64) -> u64 {
    if copies == 1 { 8 * locks } else { 16 * locks }
}

/// Rows in which no read costs an atomic. If the address is cached, the transaction reads only the slot.
fn reads() -> Vec<Row<'static>> {
    let double = cost(1, 0, ANY, 0, 0);
    vec![
        row([ONE], Cold, [Read(NARROW, &[1])], cost(1, 0, 1, 0, 0)).bytes(128),
        row([ONE], Cold, [Read(DOUBLE, &[1])], double),
        unmeasured(Warm, [Read(NARROW, &[1])]),
        row([ONE], Warm, [Read(NARROW, &[1])], cost(1, 0, 1, 0, 0)).bytes(64),
        unmeasured(Warm, [Read(DOUBLE, &[1])]),
        row([ONE], Warm, [Read(DOUBLE, &[1])], double),
        row([SEVERAL], Cold, [Read(NARROW, &[1, 2])], cost(2, 0, 4, 0, 0)).bytes(2 * (128 + 16)),
        row([SEVERAL], Cold, [Read(NARROW, &[1, 2, 3, 4, 5])], cost(2, 0, 10, 0, 0))
            .bytes(5 * (128 + 16)),
        row([ONE, AWAY], Cold, [Absent(&[777])], cost(2, 0, 4, 0, 0)).bytes(128 + (64 + 512 + 16)),
        // The transaction reads the records one after another in three rounds. After that, the transaction validates
        // both reads.
        row(
            [SEVERAL, AWAY],
            Cold,
            [Read(NARROW, &[1]), Absent(&[777])],
            cost(4, 0, 1 + 4 + 2, 0, 0),
        ),
    ]
}

/// Rows in which a transaction that aborts itself is validated as a commit is. Locked records need no validation.
fn own_aborts() -> Vec<Row<'static>> {
    let mut rows = Vec::new();
    for (line, keys, rounds, reads) in
        [(ONE, &[1][..], 1, 1), (SEVERAL, &[1, 2], 2, 4), (SEVERAL, &[1, 2, 3], 2, 6)]
    {
        let cost = cost(rounds, 0, reads, 0, 0);
        rows.push(row([line], Cold, [Read(NARROW, keys)], cost));
        let gives_up = row([line, OWN_ABORT], Cold, [Read(NARROW, keys), Abort], cost);
        rows.push(gives_up.aborts(AbortReason::User));
    }
    let locked =
        row([OWN_ABORT], Cold, [AddPart(NARROW, &[1, 2]), Abort], cost(2, 1, ANY, ANY, ANY));
    // A validation in an earlier fetch costs the same as a validation in a commit, and the commit validates again.
    let twice = row(VARIANT, Cold, [Ask(&[1, 2]), FetchValidated], cost(3, 0, 6, 0, 0));
    rows.extend([locked.aborts(AbortReason::User), twice]);
    rows
}

fn writes(copies: usize) -> Vec<Row<'static>> {
    let unknown = |step, cost| row([KNOWN, UNKNOWN], Cold, [step], cost).if_alone(copies, ONE_NODE);
    let known = [AddPart(NARROW, &[1])];
    vec![
        unknown(AddPart(NARROW, &[1]), writing(copies, 3, 2, 2, 1))
            .bytes(128 + 64 + lock_bytes(copies, 1)),
        unknown(AddPart(DOUBLE, &[1]), writing(copies, 3, ANY, 2, 1)),
        // In this row, several records need the same number of rounds as one record, and one log.
        unknown(AddPart(NARROW, &[1, 2, 3]), writing(copies, 3, 6, 4, 3)),
        // In this row, the transaction requests a record for update and does not change it, so there is nothing to
        // write.
        row(VARIANT, Cold, [Lock(&[1])], cost(2, 1, 2, 0, 2)),
        unmeasured(Warm, known),
        row([KNOWN], Warm, known, writing(copies, 2, 1, 2, 1))
            .if_alone(copies, ONE_NODE)
            .bytes(64 + lock_bytes(copies, 1)),
        row([OTHERS], Warm, [Ask(&[2]), AddPart(NARROW, &[1])], writing(copies, 3, 3, 2, 1))
            .if_alone(copies, ONE_NODE),
    ]
}

/// Rows of the variant `literal`. The log has a separate round, and the unlock is sent with the data. The rounds are:
/// lock; log; data and unlock; the backups' data.
fn literal(budget: &mut Budget, copies: usize) {
    let known = [AddPart(NARROW, &[1])];
    let rows = |cost| vec![unmeasured(Warm, known), row(VARIANT, Warm, known, cost)];
    let scene = Scene::of("ford", copies);
    budget.run(&scene.clone().variant("corrected,-fuse-log"), rows(writing(copies, 3, 1, 2, 1)));
    let rounds = if copies > 1 { 3 } else { 2 };
    let spent = cost(rounds, 1, 1, 2 * copies as u64, 2);
    budget.run(&scene.variant("literal"), rows(spent));
}

/// Rows in which inserts and deletes also lock the directory record. The rounds are: the bucket; directory and slot
/// locked and read; log, slot and directory.
fn inserts(copies: usize) -> Vec<Row<'static>> {
    let change = |step| {
        row([KNOWN, UNKNOWN], Cold, [step], writing(copies, 3, 3 + 2, 3, 2))
            .if_alone(copies, ONE_NODE)
    };
    vec![
        change(Insert(NARROW, 500, true)),
        change(Delete(NARROW, 500, true)),
        // A delete of an absent record costs the same as a read of an absent record that does not read the bin.
        row([ONE], Cold, [Delete(NARROW, 500, false)], cost(1, 0, 3, 0, 0)),
        // An insert of an existing record costs the same as a read.
        row([ONE], Cold, [Insert(NARROW, 1, false)], cost(1, 0, 3, 0, 0)),
    ]
}

/// Rows in which an insert reads one line of a bucket that has fingerprints. The rounds are: the directory record;
/// directory record and slot locked and read; log, slot and directory.
fn fingerprints(copies: usize) -> Vec<Row<'static>> {
    let change = |step, reads| {
        row([KNOWN, UNKNOWN], Cold, [step], writing(copies, 3, reads, 3, 2))
            .if_alone(copies, ONE_NODE)
    };
    let insert = |key| change(Insert(ADDED, key, true), 1 + 2);
    let bytes = 3 * 64 + lock_bytes(copies, 2);
    vec![
        insert(500).bytes(bytes),
        insert(501).bytes(bytes),
        insert(502).bytes(bytes),
        // For a key that may exist, the transaction reads the bucket.
        row([ONE, AWAY], Cold, [Insert(ADDED, 501, false)], cost(2, 0, 1 + 3, 0, 0)),
        // A delete frees the slot and its fingerprint.
        change(Delete(ADDED, 501, true), 3 + 2),
        insert(501),
    ]
}

/// Rows with payloads that are stored apart from their slots. The transaction reads such a payload line by line. For
/// coordinator `Cold` the rounds are: the bin; then the requested lines, and the head again. Coordinator `Warm` reads
/// slot, lines and head in one round.
fn payloads(copies: usize) -> Vec<Row<'static>> {
    let (a, c) = (Cells::one(ColumnId(0)), Cells::one(ColumnId(2)));
    let cold = |cells, reads, bytes| {
        row([ONE, PAYLOAD], Cold, [Part(ADDED, cells)], cost(2, 0, reads, 0, 0)).bytes(bytes)
    };
    let warm = |cells, bytes| {
        row([ONE, PAYLOAD], Warm, [Part(ADDED, cells)], cost(1, 0, 3, 0, 0)).bytes(bytes)
    };
    let update = [AddPart(ADDED, &[1])];
    vec![
        cold(Cells::ALL, 3, 64 + 320 + 16),
        cold(a, 3, 64 + 64 + 16),
        cold(a.union(c), 4, 64 + 128 + 16),
        row([ONE], Cold, [Part(ADDED, Cells::NONE)], cost(1, 0, 1, 0, 0)).bytes(64),
        unmeasured(Warm, [Part(ADDED, Cells::ALL)]),
        warm(Cells::ALL, 32 + 320 + 16),
        warm(c, 32 + 64 + 16),
        // An update of one column writes the log, VERSION and the column, and reads the column's line.
        row([KNOWN], Warm, update, writing(copies, 2, 2, 3, 1))
            .if_alone(copies, ONE_NODE)
            .bytes(32 + 64 + lock_bytes(copies, 1)),
        row([KNOWN, UNKNOWN], Cold, update, writing(copies, 3, 1 + 2, 3, 1))
            .if_alone(copies, ONE_NODE),
        // The insert writes log, body, header and directory (this table's key is in the header).
        row([KNOWN, UNKNOWN], Cold, [Insert(ADDED, 500, true)], writing(copies, 3, ANY, 4, 2))
            .if_alone(copies, ONE_NODE),
    ]
}

fn aborts() -> Vec<Row<'static>> {
    let at_lock = |step, cost| row([ABORT], Warm, [step], cost).holding(2);
    let changed = |steps: &[Step<'static>], cost| {
        row([ABORT], Warm, steps, cost).aborts(AbortReason::VersionChanged)
    };
    let (lock, add) = (AbortReason::LockRefused, OtherAdds(NARROW, &[2]));
    vec![
        unmeasured(Warm, [AddPart(NARROW, &[1, 2, 3])]),
        // The lock of record 1 is granted and the lock of record 2 is refused, so only the granted lock is released.
        at_lock(AddPart(NARROW, &[1, 2]), cost(1, 1, 2, 0, 3)).aborts(lock),
        // No lock is granted, so no lock is released.
        at_lock(AddPart(NARROW, &[2]), cost(1, 0, 1, 0, 1)).aborts(lock),
        at_lock(Read(NARROW, &[2]), cost(1, 0, 1, 0, 0)).aborts(AbortReason::ReadLocked),
        changed(&[Ask(&[2]), AddPart(NARROW, &[1]), add], cost(2, 1, 2 + 1, 0, 2)),
        changed(&[Ask(&[2, 3]), Fetch, add], cost(2, 0, 2 + 2, 0, 0)),
    ]
}

/// Rows in which an ordered index costs one round for leaves, and one round for each inner node that is not cached.
fn ordered() -> Vec<Row<'static>> {
    let scan = |from, to, rounds| row(VARIANT, Other, [Scan(from, to)], cost(rounds, 0, ANY, 0, 0));
    let insert = |table, key, rounds| {
        let cost = cost(rounds, ANY, ANY, ANY, 3);
        row(VARIANT, Other, [Insert(table, key, true)], cost)
    };
    vec![
        // The first scan reads the root and the leaf. The second scan reads only the leaf. The third scan validates
        // two leaves.
        scan(0, 20, 2),
        scan(0, 20, 1),
        scan(40, 200, 2),
        // This insert costs the same as an insert without an index, plus a round that reads the leaf under its lock.
        insert(NARROW, 33, 4),
        // A root that is a leaf is never cached. So the transaction reads this root, and then locks it.
        insert(DOUBLE, 1, 5),
    ]
}

#[test]
fn the_table_of_ford() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/ford/mod.rs"));
    for copies in COPIES {
        let scene = Scene::of("ford", copies);
        budget.run(&scene, reads());
        budget.run(&scene, own_aborts());
        budget.run(&scene, writes(copies));
        literal(&mut budget, copies);
        budget.run(&scene, inserts(copies));
        budget.run(
            &scene.clone().with(narrow("printed", 4000).fingerprinted(), 1..1),
            fingerprints(copies),
        );
        budget.run(&scene.with(apart("apart", 4000), 1..10), payloads(copies));
    }
    budget.run(&Scene::of("ford", 1), aborts());
    budget.run(&Scene::ordered("ford", 1, 200), ordered());
    growth::records_away_from_home(&mut budget, &[ONE, AWAY]);
    growth::splits(&mut budget, "ford", &[KNOWN, UNKNOWN, SPLIT]);
    budget.end();
}
