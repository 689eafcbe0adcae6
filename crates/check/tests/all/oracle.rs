//! Compares the checker with an oracle that uses no graphs. For small random histories, the oracle
//! tries every set of unknown transactions and every serial order. The oracle replays the operations
//! of each serial order one by one.
//!
//! Invariant: checker and oracle agree at every isolation level on every history, whether the history
//! is correct or mutated. The random histories are the same on every run.

use crate::{common, replay};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tarn_check::{
    Anomaly, FORMAT, History, Isolation, Outcome, Read, RecordId, Transaction, TxnId, Version,
    Write, WriteKind, check,
};

const RECORDS: usize = 3;

/// The operation of a transaction on one record.
#[derive(Clone, Copy, Debug)]
enum Action {
    Look,
    Change,
    Overwrite,
    Remove,
}

#[derive(Clone, Debug)]
struct Plan {
    actions: Vec<(usize, Action)>,
    /// The time from the transaction's invocation to its turn, and the time from its turn to its
    /// completion.
    spread: (u64, u64),
    /// The transaction's outcome. 0: aborted. 1: unknown, and the transaction took effect. 2:
    /// unknown, and the transaction took no effect. Other values: committed.
    fate: u8,
    gap: u64,
}

/// One change that a test makes to a recorded history.
#[derive(Clone, Debug)]
struct Mutation {
    txn: prop::sample::Index,
    operation: prop::sample::Index,
    what: u8,
    number: u64,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let action = prop_oneof![
        3 => Just(Action::Look),
        3 => Just(Action::Change),
        1 => Just(Action::Overwrite),
        2 => Just(Action::Remove),
    ];
    let actions = prop::collection::vec((0..RECORDS, action), 1..4);
    let plan = (actions, (0..35u64, 0..35u64), 0..10u8, 1..3u64)
        .prop_map(|(actions, spread, fate, gap)| Plan { actions, spread, fate, gap });
    prop::collection::vec(plan, 1..7)
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let mutation = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..11u8, 0..9u64)
        .prop_map(|(txn, operation, what, number)| Mutation { txn, operation, what, number });
    prop::collection::vec(mutation, 1..4)
}

/// The state of a record while the plans run.
#[derive(Clone, Copy)]
struct State {
    version: u64,
    present: bool,
    fingerprint: u64,
}

/// Runs the plans one after the other, and records the history.
fn run(plans: &[Plan]) -> History {
    let there = |version| State { version, present: true, fingerprint: 99 };
    let mut states = [there(1), State { version: 0, present: false, fingerprint: 0 }, there(2)];
    let mut transactions = Vec::new();
    for (plan, turn) in plans.iter().zip(1u64..) {
        let before = states;
        let (reads, writes) = execute(plan, turn, &mut states);
        let outcome = match plan.fate {
            0 => Outcome::Aborted,
            1 | 2 => Outcome::Unknown,
            _ => Outcome::Committed,
        };
        if plan.fate == 0 || plan.fate == 2 {
            states = before;
        }
        transactions.push(Transaction {
            id: TxnId(turn),
            coordinator: 0,
            invoked_ns: (100 + 10 * turn) - plan.spread.0,
            completed_ns: (100 + 10 * turn) + plan.spread.1,
            outcome,
            reads,
            writes,
        });
    }
    History { tables: vec!["t".to_owned()], transactions, ..History::default() }
}

fn execute(plan: &Plan, turn: u64, states: &mut [State]) -> (Vec<Read>, Vec<Write>) {
    let before = states.to_vec();
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for &(key, action) in &plan.actions {
        let record = RecordId::new(0, key as u64);
        let State { version, present, fingerprint } = before[key];
        if !matches!(action, Action::Overwrite) {
            reads.push(Read { record, version: Version(version), present, fingerprint });
        }
        let state = &mut states[key];
        let kind = match action {
            Action::Look => continue,
            Action::Remove if !state.present => continue,
            Action::Remove => WriteKind::Delete,
            Action::Change | Action::Overwrite if state.present => WriteKind::Update,
            Action::Change | Action::Overwrite => WriteKind::Insert,
        };
        let present = kind != WriteKind::Delete;
        let fingerprint = if present { turn } else { 0 };
        *state = State { version: state.version + plan.gap, present, fingerprint };
        writes.push(Write { record, version: Version(state.version), kind, fingerprint });
    }
    (reads, writes)
}

/// Creates a read of a transaction's own write, with the written value or with another value. The
/// read may also show a deleted record as present, or a written record as absent. The read may also
/// show a record as absent some versions later.
fn own_read(write: &Write, number: u64) -> Read {
    let is_there = write.kind != WriteKind::Delete;
    let seen = |later, present, fingerprint| Read {
        record: write.record,
        version: Version(write.version.0 + later),
        present,
        fingerprint,
    };
    match number {
        0..3 => seen(0, is_there, write.fingerprint),
        3..5 => seen(0, is_there, write.fingerprint + 1),
        5 | 6 => seen(0, !is_there, 0),
        later => seen(later - 6, false, 0),
    }
}

fn mutate(history: &mut History, mutation: &Mutation) {
    let number = mutation.number;
    let txn = mutation.txn.get(&history.transactions).id;
    let txn = &mut history.transactions[txn.0 as usize - 1];
    let read = (!txn.reads.is_empty()).then(|| mutation.operation.index(txn.reads.len()));
    let write = (!txn.writes.is_empty()).then(|| mutation.operation.index(txn.writes.len()));
    match (mutation.what, read, write) {
        (0, Some(at), _) => txn.reads[at].version = Version(number),
        (1, Some(at), _) => {
            let version = &mut txn.reads[at].version;
            *version = Version(version.0.saturating_sub(1 + number % 2));
            txn.reads[at].fingerprint = 0;
        }
        (2, Some(at), _) => txn.reads[at].present ^= true,
        (3, Some(at), _) => txn.reads[at].fingerprint = number,
        (4, _, Some(at)) => txn.writes[at].version = Version(number),
        (5, _, Some(at)) => {
            let kinds = [WriteKind::Insert, WriteKind::Update, WriteKind::Delete];
            txn.writes[at].kind = kinds[number as usize % kinds.len()];
        }
        (6, _, Some(at)) => drop(txn.writes.remove(at)),
        (9 | 10, _, Some(at)) => txn.reads.push(own_read(&txn.writes[at], number)),
        (7, ..) => {
            let outcomes = [Outcome::Committed, Outcome::Aborted, Outcome::Unknown];
            txn.outcome = outcomes[number as usize % outcomes.len()];
        }
        _ => {
            let shift = 15 * number;
            let back = 60;
            txn.invoked_ns = (txn.invoked_ns + shift).saturating_sub(back);
            txn.completed_ns = (txn.completed_ns + shift).saturating_sub(back);
        }
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x7a72_6e01),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The checker's verdicts on a history at several isolation levels.
#[derive(Clone, Copy)]
struct Verdicts {
    strict: bool,
    snapshots: bool,
}

/// Writes a history in the file format and reads it again. Asserts that the history is unchanged.
fn through_a_file(history: &History) -> History {
    let line = |txn| serde_json::to_string(txn).expect("a transaction is JSON") + "\n";
    let text: String =
        [format!("{{\"tarn_history\":{FORMAT},\"meta\":{{}},\"tables\":[\"t\"]}}\n")]
            .into_iter()
            .chain(history.transactions.iter().map(line))
            .chain([format!("{{\"end\":true,\"transactions\":{}}}\n", history.transactions.len())])
            .collect();
    let read = History::parse("memory", text.as_bytes()).expect("as it was written");
    assert_eq!(read, *history);
    read
}

fn agree(history: &History) -> Result<Verdicts, TestCaseError> {
    let file = through_a_file(history);
    let judged = |isolation| {
        let report = check(&file, isolation);
        let expected = replay::is_accepted(history, isolation);
        prop_assert_eq!(report.is_accepted(), expected, "{}\n{:#?}", report, history.transactions);
        Ok(expected)
    };
    judged(Isolation::Serializable)?;
    let strict = judged(Isolation::StrictSerializable)?;
    let snapshots = judged(Isolation::SnapshotIsolation)?;
    prop_assert!(snapshots || !strict);
    Ok(Verdicts { strict, snapshots })
}

proptest! {
    #![proptest_config(config(10_000))]

    #[test]
    fn serial_runs_are_accepted(plans in plans()) {
        let history = run(&plans);
        let report = check(&history, Isolation::StrictSerializable);
        prop_assert!(report.is_accepted(), "{}\n{:#?}", report, history.transactions);
        prop_assert!(agree(&history)?.strict);
    }
}

proptest! {
    #![proptest_config(config(10_000))]

    /// The reads before a transaction's own inserts, updates and deletes stay unchanged. The test
    /// adds one more read after one of these writes.
    #[test]
    fn a_read_of_its_own_write_is_refused(
        plans in plans(),
        txn in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        number in 0..9u64,
    ) {
        let mut history = run(&plans);
        let writers: Vec<usize> = (0..history.transactions.len())
            .filter(|&txn| !history.transactions[txn].writes.is_empty())
            .filter(|&txn| history.transactions[txn].outcome == Outcome::Committed)
            .collect();
        if writers.is_empty() {
            return Ok(());
        }
        let txn = &mut history.transactions[writers[txn.index(writers.len())]];
        let write = txn.writes[at.index(txn.writes.len())];
        txn.reads.push(own_read(&write, number));
        prop_assert!(!agree(&history)?.snapshots);
    }
}

proptest! {
    #![proptest_config(config(60_000))]

    #[test]
    fn mutated_runs_are_judged_alike(plans in plans(), mutations in mutations()) {
        let mut history = run(&plans);
        mutations.iter().for_each(|mutation| mutate(&mut history, mutation));
        agree(&history)?;
    }
}

/// Generates histories with arbitrary operations. Most of these histories are impossible, and the few
/// possible ones are the hard cases for the checker.
#[test]
fn arbitrary_histories_are_judged_alike() {
    let mut random = common::Random(7);
    let (mut accepted, mut skewed) = (0, 0);
    for _ in 0..60_000 {
        let transactions = (1..=2 + random.below(4)).map(|id| arbitrary(id, &mut random)).collect();
        let history = History { tables: vec!["t".to_owned()], transactions, ..History::default() };
        let Verdicts { strict, snapshots } =
            agree(&history).unwrap_or_else(|error| panic!("{error}"));
        accepted += u32::from(strict);
        skewed += u32::from(snapshots && !strict);
    }
    assert!((6_000..54_000).contains(&accepted), "too one-sided: {accepted} accepted");
    assert!(skewed > 30, "too few are snapshot isolated alone: {skewed}");
}

/// A transaction of a run under snapshot isolation: the number of commits by which its snapshot is
/// old, the records that it reads, and the records that it tries to write.
#[derive(Clone, Debug)]
struct Snapshot {
    lag: usize,
    reads: Vec<usize>,
    writes: Vec<usize>,
    spread: (u64, u64),
}

fn snapshots() -> impl Strategy<Value = Vec<Snapshot>> {
    let records = || prop::collection::vec(0..RECORDS, 0..3);
    let spread = (0..15u64, 0..15u64);
    let one = (0..4usize, records(), records(), spread)
        .prop_map(|(lag, reads, writes, spread)| Snapshot { lag, reads, writes, spread });
    prop::collection::vec(one, 2..7)
}

/// Runs the transactions in the order of their commits. A transaction omits a write that would
/// overwrite a version newer than its snapshot.
fn run_on_snapshots(all: &[Snapshot]) -> History {
    let mut states = vec![[1u64; RECORDS]];
    let mut transactions = Vec::new();
    for (txn, turn) in all.iter().zip(1u64..) {
        let now = *states.last().expect("the first");
        let old = states[states.len().saturating_sub(1 + txn.lag)];
        let lag = states.len().min(1 + txn.lag) as u64 - 1;
        let mut recorded = Transaction::committed(
            turn,
            0,
            (100 + 10 * (turn - lag)) - txn.spread.0,
            (100 + 10 * turn) + txn.spread.1,
        );
        for &key in &txn.reads {
            recorded = recorded.read(RecordId::new(0, key as u64), old[key]);
        }
        let mut after = now;
        for &key in &txn.writes {
            if now[key] == old[key] && after[key] == now[key] {
                after[key] += 1;
                recorded =
                    recorded.write(RecordId::new(0, key as u64), after[key], WriteKind::Update);
            }
        }
        states.push(after);
        transactions.push(recorded);
    }
    History { tables: vec!["t".to_owned()], transactions, ..History::default() }
}

proptest! {
    #![proptest_config(config(20_000))]

    #[test]
    fn runs_on_snapshots_are_accepted(all in snapshots()) {
        prop_assert!(agree(&run_on_snapshots(&all))?.snapshots);
    }

    #[test]
    fn mutated_runs_on_snapshots_are_judged_alike(all in snapshots(), mutations in mutations()) {
        let mut history = run_on_snapshots(&all);
        mutations.iter().for_each(|mutation| mutate(&mut history, mutation));
        agree(&history)?;
    }
}

/// Returns the length of a shortest cycle of the graph of committed transactions. The function stores
/// every edge of the graph, including every edge of real time.
fn shortest_cycle(history: &History) -> Option<usize> {
    let txns = &history.transactions;
    let over_before = |one: usize, other: usize| txns[one].completed_ns < txns[other].invoked_ns;
    let mut after = vec![vec![false; txns.len()]; txns.len()];
    for (from, after) in after.iter_mut().enumerate() {
        after.iter_mut().enumerate().for_each(|(to, edge)| *edge = over_before(from, to));
    }
    for key in 0..RECORDS as u64 {
        let record = RecordId::new(0, key);
        let writes = |at: usize| txns[at].writes.iter().filter(|write| write.record == record);
        let mut order: Vec<(Version, usize)> = (0..txns.len())
            .flat_map(|at| writes(at).map(move |write| (write.version, at)))
            .collect();
        order.sort_unstable();
        order.windows(2).for_each(|pair| after[pair[0].1][pair[1].1] = true);
        for (reader, txn) in txns.iter().enumerate() {
            for read in txn.reads.iter().filter(|read| read.record == record) {
                let next = order.partition_point(|(version, _)| *version <= read.version);
                if let Some(&(_, writer)) = next.checked_sub(1).map(|last| &order[last]) {
                    after[writer][reader] = true;
                }
                if let Some(&(_, writer)) = order.get(next) {
                    after[reader][writer] = true;
                }
            }
        }
    }
    // The transactions that can be reached in `length` steps. The loop ends when a transaction
    // reaches itself.
    let mut reached = after.clone();
    (0..txns.len()).for_each(|at| {
        after[at][at] = false;
        reached[at][at] = false;
    });
    for length in 2..=txns.len() {
        let step = |from: usize, to: usize| {
            (0..txns.len()).any(|middle| reached[from][middle] && after[middle][to])
        };
        reached = (0..txns.len())
            .map(|from| (0..txns.len()).map(|to| step(from, to)).collect())
            .collect();
        if (0..txns.len()).any(|at| reached[at][at]) {
            return Some(length);
        }
    }
    None
}

/// If a history has no anomalies except cycles, the report shows a shortest cycle.
#[test]
fn a_shortest_cycle_is_shown() {
    let mut random = common::Random(9);
    let mut lengths = [0u32; 9];
    while lengths.iter().sum::<u32>() < 20_000 {
        let history = tangled(&mut random);
        let report = check(&history, Isolation::StrictSerializable);
        let shown = report.anomalies.iter().map(|anomaly| match anomaly {
            Anomaly::Cycle { steps, .. } => steps.len(),
            _ => 0,
        });
        let shown = shown.min();
        if shown == Some(0) {
            continue;
        }
        assert_eq!(shown, shortest_cycle(&history), "{report}\n{:#?}", history.transactions);
        lengths[shown.unwrap_or(0)] += 1;
    }
    assert!(lengths[0] > 100 && lengths[2..6].iter().all(|count| *count > 3), "{lengths:?}");
}

/// Generates a history of transactions that each read and write a few records. No serial order
/// explains these reads and writes, and some transactions complete before others are invoked.
fn tangled(random: &mut common::Random) -> History {
    let mut versions = [1u64; RECORDS];
    let transactions = (1..=4 + random.below(5)).map(|id| {
        let invoked = random.below(60);
        let mut txn = Transaction::committed(id, 0, invoked, invoked + 20 + random.below(60));
        let record = RecordId::new(0, random.below(RECORDS as u64));
        txn = txn.read(record, 1 + random.below(versions[record.key as usize]));
        let record = RecordId::new(0, random.below(RECORDS as u64));
        if random.below(2) == 0 {
            let version = &mut versions[record.key as usize];
            *version += 1;
            txn = txn.write(record, *version, WriteKind::Update);
        }
        txn
    });
    let transactions = transactions.collect();
    History { tables: vec!["t".to_owned()], transactions, ..History::default() }
}

/// The random generator also generates histories that serializability forbids.
#[test]
fn a_run_on_snapshots_may_be_skewed() {
    let skew = |read: usize, write: usize, lag| Snapshot {
        lag,
        reads: vec![read],
        writes: vec![write],
        spread: (0, 0),
    };
    let history = run_on_snapshots(&[skew(0, 1, 0), skew(1, 0, 1)]);
    let Verdicts { strict, snapshots } = agree(&history).expect("agreement");
    assert!(snapshots && !strict);
}

fn arbitrary(id: u64, random: &mut common::Random) -> Transaction {
    let invoked = random.below(60);
    let mut txn = Transaction::committed(id, 0, invoked, invoked + random.below(40));
    txn.outcome = match random.below(8) {
        0 => Outcome::Aborted,
        1 | 2 => Outcome::Unknown,
        _ => Outcome::Committed,
    };
    for _ in 0..1 + random.below(2) {
        let record = RecordId::new(0, random.below(3));
        txn = match random.below(6) {
            0..=1 => txn.read(record, random.below(4)),
            2 => txn.read_absent(record, random.below(4)),
            3 => txn.write(record, 2 + random.below(3), WriteKind::Delete),
            _ => txn.write(record, 1 + random.below(4), WriteKind::Update),
        };
    }
    txn
}
