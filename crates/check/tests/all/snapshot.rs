//! Tests of snapshot isolation, with histories written by hand. The tests have one history for each
//! anomaly that snapshot isolation allows and serializability refuses. The tests have one more
//! history for each anomaly that both levels refuse.
//!
//! Source of the examples: Fekete et al., *Making Snapshot Isolation Serializable*, TODS 2005; Fekete,
//! O'Neil and O'Neil, *A Read-Only Transaction Anomaly Under Snapshot Isolation*, SIGMOD Record 2004;
//! Cerone, Bernardi and Gotsman, *A Framework for Transactional Consistency Models with Atomic
//! Visibility*, CONCUR 2015 (long fork).

use crate::common::{X, Y, Z, at, classes, history, strict, txn};
use tarn_check::WriteKind::{Delete, Insert, Update};
use tarn_check::{Isolation, Outcome, Report, Transaction, check};

fn snapshots(transactions: Vec<Transaction>) -> Report {
    check(&history(transactions), Isolation::SnapshotIsolation)
}

/// Asserts that snapshot isolation accepts the history, and that serializability refuses it with
/// these anomalies.
#[track_caller]
fn only_skewed(transactions: Vec<Transaction>, expected: &[&str]) {
    let report = snapshots(transactions.clone());
    assert!(report.is_accepted(), "{report}");
    let report = strict(transactions);
    assert_eq!(classes(&report), expected, "{report}");
}

/// Asserts that snapshot isolation refuses the history with these anomalies, and that serializability
/// refuses it too.
#[track_caller]
fn refused(transactions: Vec<Transaction>, expected: &[&str]) -> Report {
    assert!(!strict(transactions.clone()).is_accepted());
    let report = snapshots(transactions);
    assert_eq!(classes(&report), expected, "{report}");
    report
}

#[track_caller]
fn serial(transactions: Vec<Transaction>) {
    let report = strict(transactions.clone());
    assert!(report.is_accepted(), "{report}");
    let report = snapshots(transactions);
    assert!(report.is_accepted(), "{report}");
    assert!(report.to_string().starts_with("snapshot isolation: accepted"));
}

#[test]
fn a_serializable_history_is_snapshot_isolated() {
    serial(vec![]);
    serial(vec![
        at(1, 0, 10).read(X, 1).write(X, 2, Update),
        at(2, 20, 30).read(X, 2).write(X, 5, Update),
        at(3, 40, 50).read(X, 5).write(X, 6, Delete),
        at(4, 60, 70).read_absent(X, 6),
    ]);
    // T1 and T2 write one record at the same time without reading it, and T3 reads the record from an
    // old snapshot.
    serial(vec![txn(1).write(X, 2, Update), txn(2).write(X, 3, Update), txn(3).read(X, 1)]);
}

#[test]
fn write_skew() {
    only_skewed(
        vec![
            txn(1).read(X, 1).read(Y, 1).write(X, 2, Update),
            txn(2).read(X, 1).read(Y, 1).write(Y, 2, Update),
        ],
        &["G2"],
    );
}

#[test]
fn write_skew_of_three() {
    only_skewed(
        vec![
            txn(1).read(X, 1).write(Y, 2, Update),
            txn(2).read(Y, 1).write(Z, 2, Update),
            txn(3).read(Z, 1).write(X, 2, Update),
        ],
        &["G2"],
    );
}

#[test]
fn write_skew_of_inserts() {
    only_skewed(
        vec![
            txn(1).read_absent(X, 0).write(Y, 1, Insert),
            txn(2).read_absent(Y, 0).write(X, 1, Insert),
        ],
        &["G2"],
    );
}

#[test]
fn read_only_anomaly() {
    let withdrawal = at(2, 0, 100).read(X, 1).read(Y, 1).write(X, 2, Update);
    let deposit = at(1, 10, 20).read(Y, 1).write(Y, 2, Update);
    let balance = at(3, 30, 40).read(X, 1).read(Y, 2);
    only_skewed(vec![withdrawal.clone(), deposit.clone(), balance], &["G2"]);
    serial(vec![withdrawal, deposit]);
}

#[test]
fn write_skew_around_real_time() {
    // T3 began after T2 had completed and before T1 committed. The snapshot of T1 is older than T2
    // and T3.
    only_skewed(
        vec![
            at(1, 0, 100).read(X, 1).write(Y, 2, Update),
            at(2, 10, 20).write(X, 2, Update),
            at(3, 30, 40).read(Y, 1),
        ],
        &["G2-realtime"],
    );
}

#[test]
fn write_skew_one_after_the_other() {
    refused(
        vec![
            at(1, 0, 10).read(X, 1).read(Y, 1).write(X, 2, Update),
            at(2, 20, 30).read(X, 1).read(Y, 1).write(Y, 2, Update),
        ],
        &["G-single-realtime"],
    );
}

#[test]
fn lost_update() {
    let expected = &["lost update", "G-single"];
    refused(
        vec![txn(1).read(X, 1).write(X, 2, Update), txn(2).read(X, 1).write(X, 3, Update)],
        expected,
    );
    // T1, whose write T2 missed, had not read the record.
    refused(vec![txn(1).write(X, 2, Update), txn(2).read(X, 1).write(X, 3, Update)], expected);
}

#[test]
fn lost_update_of_a_record_that_was_absent() {
    refused(
        vec![txn(1).write(X, 2, Insert), txn(2).read_absent(X, 1).write(X, 3, Update)],
        &["lost update", "G-single"],
    );
}

#[test]
fn two_that_write_one_record_are_not_side_by_side() {
    // T2 overwrites T1's version of X. But T2 saw the old Y, so T2's snapshot is before T1's commit.
    refused(
        vec![txn(1).write(X, 2, Update).write(Y, 2, Update), txn(2).read(Y, 1).write(X, 3, Update)],
        &["G-single"],
    );
}

#[test]
fn fractured_read() {
    refused(
        vec![txn(1).write(X, 2, Update).write(Y, 2, Update), txn(2).read(X, 2).read(Y, 1)],
        &["G-single"],
    );
}

#[test]
fn long_fork() {
    let report = refused(
        vec![
            txn(1).write(X, 2, Update),
            txn(2).write(Y, 2, Update),
            txn(3).read(X, 2).read(Y, 1),
            txn(4).read(X, 1).read(Y, 2),
        ],
        &["G-nonadjacent"],
    );
    let text = report.to_string();
    assert!(text.contains("cycle G-nonadjacent of 4 transactions:"), "{text}");
    assert_eq!(text.matches("-rw->").count(), 2, "{text}");
    assert_eq!(text.matches("-wr->").count(), 2, "{text}");
}

#[test]
fn long_fork_by_the_clock() {
    // T4 completed before T1 was invoked, so T1's snapshot contains the write of T4. T1's snapshot
    // does not contain the write of T2. T3's snapshot contains the write of T2 and not the write of
    // T4.
    refused(
        vec![
            at(1, 20, 30).read(X, 1),
            at(2, 0, 100).write(X, 2, Update),
            at(3, 0, 100).read(X, 2).read(Y, 1),
            at(4, 0, 10).write(Y, 2, Update),
        ],
        &["G-nonadjacent-realtime"],
    );
}

#[test]
fn snapshots_are_of_real_time() {
    let stale = &["G-single-realtime"];
    // The write was acknowledged before the reader began, but the reader did not see it.
    refused(vec![at(1, 0, 10).write(X, 2, Update), at(2, 20, 30).read(X, 1)], stale);
    // The write is not acknowledged yet. But a transaction that completed before the next reader
    // began has read it.
    refused(
        vec![at(1, 0, 100).write(X, 2, Update), at(2, 0, 10).read(X, 2), at(3, 20, 30).read(X, 1)],
        stale,
    );
    // One transaction ends at the same time at which the other begins. Two transactions that meet at
    // one time count as overlapping.
    serial(vec![at(1, 0, 10).write(X, 2, Update), at(2, 10, 30).read(X, 1)]);
    // A transaction reads a version that was written only after the transaction had completed.
    refused(vec![at(1, 0, 10).read(X, 2), at(2, 20, 30).write(X, 2, Update)], &["G1c-realtime"]);
}

#[test]
fn dirty_writes_and_information_in_a_circle() {
    let x_then_y = txn(1).write(X, 2, Update).write(Y, 3, Update);
    refused(vec![x_then_y, txn(2).write(X, 3, Update).write(Y, 2, Update)], &["G0"]);
    refused(
        vec![txn(1).write(X, 2, Update).read(Y, 2), txn(2).write(Y, 2, Update).read(X, 2)],
        &["G1c"],
    );
}

#[test]
fn dirty_reads() {
    refused(
        vec![txn(1).write(X, 2, Update).with_outcome(Outcome::Aborted), txn(2).read(X, 2)],
        &["aborted read (G1a)"],
    );
    refused(
        vec![txn(1).write(X, 2, Update).write(X, 3, Update), txn(2).read(X, 2)],
        &["intermediate read (G1b)", "G-single"],
    );
}

#[test]
fn an_unknown_writer_takes_part_if_it_was_observed() {
    let unknown = |id: u64| at(id, 0, 10).with_outcome(Outcome::Unknown);
    // The unknown transaction may have committed at any time, so its snapshot need not be older than
    // the snapshots of the other transactions.
    only_skewed(
        vec![
            unknown(1).read(X, 1).write(Y, 2, Update),
            at(2, 20, 30).read(Y, 1).write(X, 2, Update),
            at(3, 40, 50).read(Y, 2),
        ],
        &["G2"],
    );
    refused(
        vec![
            unknown(1).write(X, 2, Update).write(Y, 2, Update),
            at(2, 20, 30).read(X, 2).read(Y, 1),
        ],
        &["G-single"],
    );
}

#[test]
fn skew_beside_a_worse_knot_is_not_reported() {
    let report = snapshots(vec![
        txn(1).read(X, 1).write(Y, 2, Update),
        txn(2).read(Y, 1).write(X, 2, Update),
        txn(3).read(Z, 1).write(Z, 2, Update),
        txn(4).read(Z, 1).write(Z, 3, Update),
    ]);
    assert_eq!(classes(&report), ["lost update", "G-single"], "{report}");
    assert!(!report.to_string().contains("T1"), "{report}");
}
