//! Large histories: the checker takes near-linear time. The checker finds a single fault in a large
//! run and shows it by a short cycle.
//!
//! Run these tests with `--release -- --nocapture` to check a million transactions and to see the
//! times.

use crate::common::{self, Random};
use std::time::Instant;

use tarn_check::WriteKind::{Delete, Insert, Update};
use tarn_check::elle::{ElleModel, export};
use tarn_check::{
    Anomaly, CyclePhenomenon, History, Isolation, Outcome, RecordId, Transaction, Version, check,
};

const TRANSACTIONS: u64 = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };

/// Generates a serial run of transactions over `records` records, with four operations per
/// transaction. The time of each transaction overlaps the times of some fifty others. One transaction
/// in a hundred is aborted, and one in a thousand is unknown.
fn run(transactions: u64, records: u64) -> History {
    let mut random = Random(11);
    // For each record its version, and whether the record is present. Records with odd keys are
    // absent at first.
    let mut states: Vec<(u64, bool)> = (0..records).map(|key| (key % 2, key % 2 == 0)).collect();
    let mut history = common::history(Vec::new());
    for turn in 1..=transactions {
        let now = 100 * turn + 10_000;
        let (invoked, completed) = (now - random.below(5_000), now + random.below(5_000));
        let mut txn = Transaction::committed(turn, random.below(64) as u32, invoked, completed);
        txn.outcome = match random.below(1_000) {
            0..10 => Outcome::Aborted,
            10 => Outcome::Unknown,
            _ => Outcome::Committed,
        };
        let takes_effect =
            txn.outcome != Outcome::Aborted && turn % 3 != 0 || txn.outcome == Outcome::Committed;
        let first = random.below(records);
        for step in 0..3 {
            let key = (first + step * 7_919) % records;
            let record = RecordId::new((key % 2) as u16, key);
            let (version, present) = states[key as usize];
            txn =
                if present { txn.read(record, version) } else { txn.read_absent(record, version) };
            txn.reads.last_mut().expect("a read").fingerprint =
                if present { version + 1 } else { 0 };
            if step == 0 && random.below(4) > 0 {
                let kind = match (present, random.below(10)) {
                    (false, _) => Insert,
                    (true, 0) => Delete,
                    (true, _) => Update,
                };
                txn = txn.write(record, version + 1, kind);
                txn.writes[0].fingerprint = version + 2;
                if takes_effect {
                    states[key as usize] = (version + 1, kind != Delete);
                }
            }
        }
        history.transactions.push(txn);
    }
    history
}

#[allow(clippy::disallowed_methods, reason = "a test may time itself")]
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what}: {:.2} s", start.elapsed().as_secs_f64());
    result
}

#[test]
fn a_large_correct_run_from_file_to_verdict() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.jsonl");
    let history = timed("generate", || run(TRANSACTIONS, TRANSACTIONS / 10));
    timed("write", || history.write_to(&path)).expect("written");
    let bytes = std::fs::metadata(&path).expect("there").len();
    println!("{TRANSACTIONS} transactions, {} MB", bytes >> 20);
    let read = timed("parse", || History::read_from(&path)).expect("read");
    let report = timed("check", || check(&read, Isolation::StrictSerializable));
    assert!(report.is_accepted(), "{report}");
    print!("{report}");
    let snapshots = timed("check, snapshots", || check(&read, Isolation::SnapshotIsolation));
    assert!(snapshots.is_accepted(), "{snapshots}");
    assert!(report.counts.unknown_observed > 0);
    let mut edn = Vec::new();
    timed("export for Elle", || export(&read, ElleModel::ListAppend, &mut edn)).expect("memory");
    println!("{} MB of EDN", edn.len() >> 20);
}

#[test]
fn a_large_run_on_few_records() {
    let history = run(TRANSACTIONS, 50);
    let report = timed("check, 50 records", || check(&history, Isolation::StrictSerializable));
    assert!(report.is_accepted(), "{report}");
}

/// Like [`run`], but under snapshot isolation. Snapshots are up to fifty commits old. A transaction
/// writes a record only if the record was not written since the transaction's snapshot.
fn run_on_snapshots(transactions: u64, records: u64) -> History {
    let mut random = Random(13);
    // For each record: the times and versions of the record's writes, in ascending order.
    let mut written: Vec<Vec<(u64, u64)>> = vec![vec![(0, 1)]; records as usize];
    let mut history = common::history(Vec::new());
    for turn in 1..=transactions {
        let snapshot = turn.saturating_sub(1 + random.below(50));
        let (invoked, completed) = (100 * snapshot, 100 * turn + 90);
        let mut txn = Transaction::committed(turn, random.below(64) as u32, invoked, completed);
        let first = random.below(records);
        for step in 0..3 {
            let key = (first + step * 7_919) % records;
            let record = RecordId::new((key % 2) as u16, key);
            let versions = &mut written[key as usize];
            let seen = versions.iter().rposition(|&(at, _)| at <= snapshot).expect("the first");
            txn = txn.read(record, versions[seen].1);
            if step == 0 && seen + 1 == versions.len() {
                let next = versions[seen].1 + 1;
                versions.push((turn, next));
                txn = txn.write(record, next, Update);
            }
        }
        history.transactions.push(txn);
    }
    history
}

#[test]
fn a_large_run_on_snapshots() {
    // The run has few records, so that snapshots are old enough for write skew.
    let mut history = timed("generate", || run_on_snapshots(TRANSACTIONS, TRANSACTIONS / 200));
    let isolation = Isolation::SnapshotIsolation;
    let report = timed("check, snapshots", || check(&history, isolation));
    assert!(report.is_accepted(), "{report}");
    let report = timed("check, strictly", || check(&history, Isolation::StrictSerializable));
    let class = report.anomalies.iter().find_map(Anomaly::cycle_class).expect("write skew");
    assert_eq!((class.phenomenon, class.real_time), (CyclePhenomenon::G2, false), "{report}");
    // Changes one transaction so that it reads one record from an older snapshot than its other
    // records.
    let torn = history
        .transactions
        .iter()
        .rposition(|txn| txn.writes.is_empty() && txn.reads[1].version > Version(3));
    history.transactions[torn.expect("a reader")].reads[1].version.0 -= 2;
    let report = timed("check, one old read", || check(&history, isolation));
    let class = report.anomalies.iter().find_map(Anomaly::cycle_class).expect("a cycle");
    assert!(class.phenomenon < CyclePhenomenon::G2, "{report}");
    let steps = report.anomalies.iter().find_map(|anomaly| match anomaly {
        Anomaly::Cycle { steps, .. } => Some(steps.len()),
        _ => None,
    });
    assert!(steps.is_some_and(|steps| steps <= 12), "{report}");
}

#[test]
fn one_stale_read_in_a_large_run() {
    let mut history = run(TRANSACTIONS, TRANSACTIONS / 10);
    let committed = |txn: &Transaction| txn.outcome == Outcome::Committed && txn.writes.is_empty();
    let stale = history.transactions.iter().rposition(|txn| {
        committed(txn) && txn.reads[0].present && txn.reads[0].version > Version(3)
    });
    let read = &mut history.transactions[stale.expect("a late reader")].reads[0];
    // The read gets an earlier version. The test accepts any kind of cycle that results.
    read.version = Version(read.version.0 - 2);
    read.fingerprint = 0;
    let report = timed("check, stale read", || check(&history, Isolation::StrictSerializable));
    println!("{report}");
    let steps = report.anomalies.iter().find_map(|anomaly| match anomaly {
        Anomaly::Cycle { steps, .. } => Some(steps.len()),
        _ => None,
    });
    // The writer of the next version completed long before this read, so a cycle of two steps exists.
    assert_eq!(steps, Some(2), "{report}");
}

#[test]
fn a_large_run_with_clocks_gone_wild() {
    let mut history = run(TRANSACTIONS, TRANSACTIONS / 10);
    let mut random = Random(5);
    for txn in &mut history.transactions {
        txn.invoked_ns = random.below(1 << 40);
        txn.completed_ns = txn.invoked_ns + random.below(1_000);
    }
    let report = timed("check, wild clocks", || check(&history, Isolation::StrictSerializable));
    assert!(!report.is_accepted());
    let class = report.anomalies.iter().find_map(Anomaly::cycle_class).expect("a cycle");
    assert!(class.real_time && class.phenomenon < CyclePhenomenon::G2, "{report}");
    assert!(check(&history, Isolation::Serializable).is_accepted());
}
