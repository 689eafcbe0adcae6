//! The RTT budget of buckets with chains, and of their splits.
//!
//! Invariant checked: each overflow block costs one round. A split costs four rounds before the next transaction.

use super::*;
use crate::common::budget::{measure, measure_call, phase, read};
use crate::common::{fill, narrow};
use tarn_engine::session::transaction::Transaction;

const RECORDS: u64 = 150;

/// Creates a cluster whose table `ADDED` has four buckets, all of them full and with chains.
fn chains(protocol: &'static str) -> Bench {
    let mut bench = Bench::new(&Scene::of(protocol, 1).with(narrow("small", 1), 0..0));
    bench.cold.context().growth.enable(false);
    fill(&mut bench.cold, ADDED, 0..RECORDS);
    let audit = bench.world.assert_clean();
    assert!(audit.overflow_blocks > 4, "{audit:?}");
    bench
}

/// A record away from its home bin costs one round for the bucket and one round for each block of the chain.
pub(super) fn records_away_from_home(budget: &mut Budget, lines: &[&str]) {
    let mut bench = chains("ford");
    let mut seen = [0; 8];
    for key in 0..RECORDS {
        let spent = measure(&mut bench.cold, false, async |tx| read(tx, ADDED, &[key]).await);
        let reads = if spent.rounds == 1 { 1 } else { 4 + (spent.rounds - 2) };
        assert_eq!(spent, cost(spent.rounds, 0, reads, 0, 0));
        seen[spent.rounds as usize] += 1;
    }
    println!("records by rounds: {seen:?}");
    // At most two slots of each of sixteen bins contain a record at home. The other records are elsewhere in the
    // buckets, and then in chains.
    assert!((1..=32).contains(&seen[1]), "{seen:?}");
    assert!(seen[2] > 0 && seen[3] > 0 && seen[4] > 0, "{seen:?}");
    budget.covers(lines);
}

/// Tests a snapshot that does not find a key in a chain. Such a snapshot reads the head of the directory record a
/// second time. A transaction without a snapshot also reads the head a second time, to validate.
pub(super) fn chains_under_a_snapshot(budget: &mut Budget, lines: &[&str]) {
    let mut bench = chains("motor");
    for key in RECORDS..2 * RECORDS {
        let absent = async |tx: &mut Transaction<'_>| {
            assert!(tx.get_row(ADDED, key).await?.is_none());
            Ok(())
        };
        let by = &mut bench.cold;
        let [checked, snapshot] = [false, true].map(|declared| {
            let validated = phase(by.context(), "validate");
            let cost = measure(by, declared, absent);
            (cost, phase(by.context(), "validate") - validated)
        });
        // The rounds read: the bin; the bucket; the blocks; the head of the directory record.
        assert!(checked.0.rounds > 3, "{checked:?}");
        assert_eq!((checked.1, snapshot), (1, (checked.0, 0)), "{key}");
    }
    budget.covers(lines);
}

/// A split of buckets without blocks costs four rounds, in addition to the three rounds of the insert before which
/// the split runs.
pub(super) fn splits(budget: &mut Budget, protocol: &'static str, lines: &[&str]) {
    let mut bench = Bench::new(&Scene::of(protocol, 1).with(narrow("small", 1), 0..0));
    let by = &mut bench.cold;
    let cx = std::rc::Rc::clone(by.context());
    let mut rounds = Vec::new();
    for key in 0..RECORDS {
        let before = cx.metrics.snapshot().splits;
        let spent = measure_call(by, |by| fill(by, ADDED, [key]));
        if cx.metrics.snapshot().splits > before {
            rounds.push(spent.rounds);
        }
    }
    assert_eq!(rounds.iter().min(), Some(&(3 + 4)), "{rounds:?}");
    bench.world.assert_clean();
    budget.covers(lines);
}
