//! The RTT budget of LOTUS between two compute nodes, with timestamps that cost a round.
//!
//! Invariant checked: the costs in the table in `protocol/lotus/mod.rs`. A round trip is a round of verbs, or the
//! LOCK messages of one fetch and their replies. The only atomic at a memory node is the verb that takes a commit
//! timestamp from the pool. If the version table is cached, the transaction reads only records.
//!
//! (Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks", counts
//! round trips in the same way.)

use super::*;
use By::{Cold, Other};
use Step::*;

const DECLARED: &str = "read-only, declared";
const READS: &str = "not declared, writes nothing";
const WRITES: &str = "writes";
const REMEMBERED: &str = "the version tables are remembered";
const REMOTE: &str = "another node grants the locks";

/// The expected cost of a transaction. `reads` is the number of READs of version tables and records. `faa` is the
/// number of timestamps that an atomic took from the pool's word.
fn spent(rounds: u64, messages: u64, reads: u64, faa: u64) -> Cost {
    Cost { messages, faa, ..cost(rounds, ANY, reads, ANY, 0) }
}

/// Creates a row whose transaction finds this number of version tables in the cache.
fn found<'a>(
    lines: impl Into<Vec<&'static str>>,
    cached: u64,
    steps: impl Into<Vec<Step<'a>>>,
    cost: Cost,
) -> Row<'a> {
    row(lines, Cold, steps, cost).phase("cached", cached)
}

fn writes<'a>(own: &'a [u64], others: &'a [u64]) -> Vec<Row<'a>> {
    let (own, others) = ([Add(NARROW, &own[..2])], [Add(NARROW, &others[..2])]);
    // The rounds are E2, E3, C1, C2, C3. This is one round more than with a cached version table, which exists after
    // the first commit.
    let mut rows = vec![found([WRITES], 0, own, spent(5, 0, 4, 1))];
    rows.extend((0..3).map(|_| found([WRITES, REMEMBERED], 2, own, spent(4, 0, 2, 1))));
    // E1 is one exchange of messages, however many locks the transaction requests. The node does not cache version
    // tables of another node's shards.
    rows.extend((0..2).map(|_| found([WRITES, REMOTE], 0, others, spent(5, 1, 4, 1))));
    rows
}

fn reads<'a>(own: &'a [u64], others: &'a [u64]) -> Vec<Row<'a>> {
    let read = |keys| [Read(NARROW, keys)];
    let (first, second) = (read(&own[..1]), read(&own[1..2]));
    // In this row, one READ takes T_start.
    let snapshot = |lines: Vec<_>, cached, steps, (rounds, reads): (u64, u64)| {
        found(lines, cached, steps, spent(rounds, 0, 1 + reads, 0)).declared()
    };
    vec![
        snapshot(vec![DECLARED], 0, first, (3, 2)),
        snapshot(vec![DECLARED, REMEMBERED], 1, first, (2, 1)),
        snapshot(vec![DECLARED], 0, read(&others[..1]), (3, 2)),
        snapshot(vec![DECLARED], 0, read(&others[..1]), (3, 2)),
        // This transaction takes a read lock. The transaction takes no T_start.
        found([READS], 0, second, spent(2, 0, 2, 0)),
        found([READS, REMEMBERED], 1, second, spent(1, 0, 1, 0)),
    ]
}

/// A write lock that is granted to another node invalidates the cached version table. An aborted write of the node's
/// own transaction does not invalidate the cached version table. The node's own commit stores the new version table
/// in the cache.
fn remembered(keys: &[u64]) -> Vec<Row<'_>> {
    let any = spent(ANY, ANY, ANY, ANY);
    let read = |cached| found(VARIANT, cached, [Read(NARROW, keys)], any).declared();
    let add = [Add(NARROW, keys)];
    vec![
        read(0),
        read(1),
        unmeasured(Other, add),
        read(0),
        read(1),
        unmeasured(Cold, [Lock(keys), Fetch, Abort]).aborts(AbortReason::User),
        read(1),
        unmeasured(Cold, add),
        read(1),
        unmeasured(Cold, [Sees(keys[0], keys[0] + 2)]).declared(),
    ]
}

#[test]
fn the_table_of_lotus() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/lotus/mod.rs"));
    let mut run = |variant: &str, rows: for<'a> fn(&'a [u64], &'a [u64]) -> Vec<Row<'a>>| {
        let mut bench = Bench::pair(variant);
        let [own, others] = [0, 1].map(|node| bench.keys_of(node));
        budget.run_in(&mut bench, rows(&own, &others));
    };
    run("corrected", writes);
    run("corrected", reads);
    run("corrected", |own, _| remembered(&own[..1]));
    // Without the cache, transactions read every version table.
    run("corrected,-version-cache", |own, _| {
        (0..3).map(|_| found(VARIANT, 0, [Add(NARROW, &own[..2])], spent(5, 0, 4, 1))).collect()
    });
    budget.end();
}
