//! Tests the checker on small histories written by hand: one history for every anomaly, and similar
//! correct histories.
//!
//! Source of the examples: Berenson et al., *A Critique of ANSI SQL Isolation Levels*, SIGMOD 1995;
//! Fekete, O'Neil and O'Neil, *A Read-Only Transaction Anomaly Under Snapshot Isolation*, SIGMOD
//! Record 2004; Adya, Liskov and O'Neil, ICDE 2000.

use crate::common::{X, Y, Z, accepted, at, classes, history, refused, strict, total, txn};
use tarn_check::WriteKind::{Delete, Insert, Update};
use tarn_check::{AnomalyKind, Isolation, LISTED_PER_KIND, Outcome, RecordId, Transaction, check};

fn marked_read(mut txn: Transaction, fingerprint: u64) -> Transaction {
    txn.reads.last_mut().expect("a read").fingerprint = fingerprint;
    txn
}

fn marked_write(mut txn: Transaction, fingerprint: u64) -> Transaction {
    txn.writes.last_mut().expect("a write").fingerprint = fingerprint;
    txn
}

#[test]
fn nothing_is_accepted() {
    accepted(vec![]);
    accepted(vec![txn(1)]);
}

#[test]
fn serial_updates_are_accepted() {
    let report = accepted(vec![
        at(1, 0, 10).read(X, 1).write(X, 2, Update),
        at(2, 20, 30).read(X, 2).write(X, 5, Update),
        at(3, 40, 50).read(X, 5),
    ]);
    let edges = report.counts.edges;
    assert_eq!((edges.write_write, edges.write_read, edges.read_write), (1, 2, 0));
    assert_eq!(edges.real_time, 2);
}

#[test]
fn write_skew() {
    refused(
        vec![
            txn(1).read(X, 1).read(Y, 1).write(X, 2, Update),
            txn(2).read(X, 1).read(Y, 1).write(Y, 2, Update),
        ],
        &["G2"],
    );
}

#[test]
fn lost_update() {
    let report = refused(
        vec![txn(1).read(X, 1).write(X, 2, Update), txn(2).read(X, 1).write(X, 3, Update)],
        &["lost update", "G-single"],
    );
    assert_eq!(
        report.anomalies[0].to_string(),
        "lost update: savings[1] T2 read version 1 and wrote version 3, but T1 wrote version 2 in between"
    );
}

#[test]
fn lost_update_under_one_version_number() {
    let updates =
        vec![txn(1).read(X, 1).write(X, 2, Update), txn(2).read(X, 1).write(X, 2, Update)];
    let report = strict(updates);
    assert_eq!(total(&report, AnomalyKind::DuplicateVersion), 1, "{report}");
}

#[test]
fn dirty_write() {
    refused(
        vec![
            txn(1).write(X, 2, Update).write(Y, 3, Update),
            txn(2).write(X, 3, Update).write(Y, 2, Update),
        ],
        &["G0"],
    );
}

#[test]
fn aborted_read() {
    let report = refused(
        vec![txn(1).write(X, 2, Update).with_outcome(Outcome::Aborted), txn(2).read(X, 2)],
        &["aborted read (G1a)"],
    );
    assert!(
        report
            .to_string()
            .contains("savings[1] T2 read version 2; only T1 did that (version 2), and it aborted")
    );
}

#[test]
fn reads_of_an_aborted_transaction_do_not_count() {
    accepted(vec![
        txn(1).write(X, 2, Update).with_outcome(Outcome::Aborted),
        txn(2).read(X, 2).read(Y, 9).with_outcome(Outcome::Aborted),
        txn(3).read(X, 1),
    ]);
}

#[test]
fn absence_that_only_an_aborted_delete_explains() {
    refused(
        vec![
            txn(1).write(X, 2, Insert),
            txn(2).write(X, 3, Delete).with_outcome(Outcome::Aborted),
            txn(3).read_absent(X, 3),
        ],
        &["aborted read (G1a)"],
    );
}

#[test]
fn intermediate_read() {
    refused(
        vec![txn(1).write(X, 2, Update).write(X, 3, Update), txn(2).read(X, 2)],
        &["intermediate read (G1b)", "G-single"],
    );
}

#[test]
fn version_that_no_transaction_wrote() {
    refused(vec![txn(1).write(X, 2, Update), txn(2).read(X, 4)], &["unwritten version"]);
    let report = refused(vec![txn(1).read(X, 1), txn(2).read(X, 2)], &["unwritten version"]);
    assert!(
        report
            .to_string()
            .contains("T2 read version 2 and T1 read version 1; no transaction wrote")
    );
}

#[test]
fn circular_information_flow() {
    refused(
        vec![txn(1).write(X, 2, Update).read(Y, 2), txn(2).write(Y, 2, Update).read(X, 2)],
        &["G1c"],
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
fn unrepeatable_read() {
    refused(vec![txn(1).write(X, 2, Update), txn(2).read(X, 1).read(X, 2)], &["G-single"]);
}

#[test]
fn read_only_anomaly() {
    // Withdrawal T1 and deposit T2 are write skew only together with T3, which reads both records.
    let withdrawal = txn(1).read(X, 1).read(Y, 1).write(X, 2, Update);
    let deposit = txn(2).read(Y, 1).write(Y, 2, Update);
    accepted(vec![withdrawal.clone(), deposit.clone()]);
    let both = txn(3).read(X, 1).read(Y, 2);
    refused(vec![withdrawal, deposit, both], &["G2"]);
}

#[test]
fn stale_read_is_serializable_but_not_strictly() {
    let transactions =
        || vec![at(1, 0, 1_400_000).write(X, 2, Update), at(2, 1_500_001, 1_600_000).read(X, 1)];
    let report = refused(transactions(), &["G-single-realtime"]);
    assert_eq!(
        report.anomalies[0].to_string(),
        "cycle G-single-realtime of 2 transactions:\n    \
         T1 (coordinator 1, 0.000–1.400 ms) -rt-> T2: \
         T1 completed at 1.400 ms before T2 was invoked at 1.500001 ms\n    \
         T2 (coordinator 2, 1.500001–1.600 ms) -rw-> T1: \
         savings[1] T2 read version 1, T1 wrote version 2"
    );
    assert!(check(&history(transactions()), Isolation::Serializable).is_accepted());
}

#[test]
fn a_completion_at_the_instant_of_an_invocation_orders_nothing() {
    accepted(vec![at(1, 0, 10).write(X, 2, Update), at(2, 10, 20).read(X, 1)]);
}

#[test]
fn other_cycles_through_real_time() {
    refused(
        vec![at(1, 0, 10).write(X, 3, Update), at(2, 20, 30).write(X, 2, Update)],
        &["G0-realtime"],
    );
    refused(vec![at(1, 0, 10).read(X, 2), at(2, 20, 30).write(X, 2, Update)], &["G1c-realtime"]);
    refused(
        vec![
            at(1, 0, 50).read(X, 1).write(Z, 2, Update),
            at(2, 0, 10).write(X, 2, Update),
            at(3, 20, 50).read(Y, 1).read(Z, 1),
        ],
        &["G2-realtime"],
    );
}

#[test]
fn a_cycle_without_real_time_is_preferred() {
    // T1 and T2 are in a cycle without real time, and also in a cycle with a real-time edge.
    refused(
        vec![
            at(1, 0, 10).read(X, 1).write(Y, 2, Update),
            at(2, 0, 30).read(Y, 1).write(X, 2, Update),
            at(3, 20, 30).read(Y, 1),
        ],
        &["G2"],
    );
}

#[test]
fn the_shortest_cycle_is_shown_also_if_real_time_closes_it() {
    // Each transaction reads the version that the next transaction overwrites. The last transaction
    // completed long before the first one was invoked.
    let record = |key: u64| RecordId::new(0, key);
    let ring = |id: u64| {
        let read = record(id % 21);
        let wrote = record((id + 20) % 21);
        let (begin, end) = if id == 20 { (0, 10) } else { (20, 1_000) };
        at(id + 1, begin, end).read(read, 1).write(wrote, 2, Update)
    };
    let transactions: Vec<Transaction> = (0..21).map(ring).collect();
    let report = refused(transactions.clone(), &["G-single-realtime"]);
    let title = "cycle G-single-realtime of 2 transactions (G2 of 21 without real time):";
    assert!(report.to_string().contains(title), "{report}");
    let weaker = check(&history(transactions), Isolation::Serializable);
    assert_eq!(classes(&weaker), ["G2"]);
    assert!(weaker.to_string().contains("cycle G2 of 21 transactions:"), "{weaker}");
}

#[test]
fn a_read_of_an_own_write_is_no_anomaly() {
    let own = "read of its own write";
    let update = || txn(1).read(X, 1).write(X, 2, Update);
    accepted(vec![update()]);
    // T1 reads its own write: first with another value than it wrote, then with the same value, and
    // then without a value.
    let wrote = || marked_write(update(), 0xa);
    let report = refused(vec![marked_read(wrote().read(X, 2), 0xb)], &[own]);
    assert!(
        report.to_string().contains(
            "savings[1] T1 read version 2 and itself wrote version 2; a read shows the record \
             as it was before its transaction wrote"
        ),
        "{report}"
    );
    refused(vec![marked_read(wrote().read(X, 2), 0xa)], &[own]);
    refused(vec![update().read(X, 2)], &[own]);
    // The transaction found its own insert before it made the insert.
    refused(vec![txn(1).read(X, 3).write(X, 3, Insert)], &[own]);
    // The transaction found its own delete before it made the delete: at the version of the delete,
    // and after this version.
    for floor in [2, 3] {
        refused(vec![txn(1).read(X, 1).write(X, 2, Delete).read_absent(X, floor)], &[own]);
        refused(vec![txn(1).read_absent(X, floor).write(X, 2, Delete), txn(2).read(X, 1)], &[own]);
    }
    refused(vec![txn(1).read(X, 2).write(X, 2, Delete)], &[own]);
    // The reads of an aborted transaction do not count. The reads of an unknown transaction count if
    // another transaction saw its writes.
    accepted(vec![update().read(X, 2).with_outcome(Outcome::Aborted)]);
    accepted(vec![unknown(update().read(X, 2))]);
    refused(vec![unknown(update().read(X, 2)), txn(2).read(X, 2)], &[own]);
}

#[test]
fn phantom_on_an_absent_key() {
    // Each transaction checks that the key of the other transaction is absent, and then inserts its
    // own key.
    refused(
        vec![
            txn(1).read_absent(X, 0).write(Y, 1, Insert),
            txn(2).read_absent(Y, 0).write(X, 1, Insert),
        ],
        &["G2"],
    );
}

#[test]
fn both_insert() {
    refused(
        vec![
            txn(1).read_absent(X, 0).write(X, 1, Insert),
            txn(2).read_absent(X, 0).write(X, 2, Insert),
        ],
        &["lost update", "G-single"],
    );
}

#[test]
fn delete_and_reinsert() {
    let insert = |id| txn(id).read_absent(X, 0).write(X, 1, Insert);
    let delete = |id| txn(id).read(X, 1).write(X, 4, Delete);
    let reinsert = |id| txn(id).read_absent(X, 4).write(X, 7, Insert);
    accepted(vec![reinsert(3), insert(1), delete(2), txn(4).read(X, 7), txn(5).read_absent(X, 6)]);
    refused(
        vec![insert(1), delete(2), reinsert(3), txn(4).read_absent(X, 3)],
        &["absent read of a present record"],
    );
    refused(
        vec![insert(1), delete(2), reinsert(3), txn(4).read(X, 4)],
        &["present read of a delete"],
    );
}

#[test]
fn absence_of_a_record_that_always_existed() {
    refused(
        vec![txn(1).read(X, 5), txn(2).read_absent(X, 0)],
        &["absent read of a present record"],
    );
}

#[test]
fn absence_seen_after_the_insert_was_over() {
    refused(
        vec![at(1, 0, 10).write(X, 3, Insert), at(2, 20, 30).read_absent(X, 2)],
        &["G-single-realtime"],
    );
}

#[test]
fn torn_value() {
    let write = marked_write(txn(1).write(X, 2, Update), 0xa);
    let right = marked_read(txn(2).read(X, 2), 0xa);
    let torn = marked_read(txn(3).read(X, 2), 0xb);
    accepted(vec![write.clone(), right.clone(), txn(4).read(X, 2)]);
    let report = refused(vec![write, right, torn], &["value mismatch"]);
    assert!(report.to_string().contains(
        "savings[1] version 2: T1 wrote a value with fingerprint 0xa, T3 read one with 0xb"
    ));
    // Two reads of the initial version, whose write is not recorded, may also disagree on the value.
    let [one, other] = [(1, 7), (2, 8)].map(|(id, value)| marked_read(txn(id).read(X, 1), value));
    refused(vec![one, other], &["value mismatch"]);
}

fn unknown(txn: Transaction) -> Transaction {
    txn.with_outcome(Outcome::Unknown)
}

#[test]
fn an_unknown_transaction_is_accepted_either_way() {
    let update = || unknown(at(1, 0, 10).read(X, 1).write(X, 2, Update));
    let report = accepted(vec![update(), at(2, 20, 30).read(X, 2)]);
    assert_eq!((report.counts.unknown_observed, report.counts.unknown_dropped), (1, 0));
    let report = accepted(vec![update(), at(2, 20, 30).read(X, 1)]);
    assert_eq!((report.counts.unknown_observed, report.counts.unknown_dropped), (0, 1));
    // An unknown transaction may take effect long after its client stopped waiting, but only once.
    accepted(vec![update(), at(2, 20, 30).read(X, 1), at(3, 40, 50).read(X, 2)]);
    refused(
        vec![update(), at(2, 20, 30).read(X, 2), at(3, 40, 50).read(X, 1)],
        &["G-single-realtime"],
    );
}

#[test]
fn an_unknown_transaction_takes_effect_as_a_whole() {
    let both = unknown(txn(1).write(X, 2, Update).write(Y, 2, Update));
    refused(vec![both, txn(2).read(X, 2).read(Y, 1)], &["G-single"]);
}

#[test]
fn unknown_transactions_are_observed_through_one_another() {
    // T3 observes T2, T2 observes T1, and the commit of T1 makes the reads of T4 impossible.
    let chain = |observer: Transaction| {
        vec![
            unknown(txn(1).write(X, 2, Update).write(Z, 2, Update)),
            unknown(txn(2).read(X, 2).write(Y, 2, Update)),
            observer,
            txn(4).read(X, 2).read(Z, 1),
        ]
    };
    refused(chain(txn(3).read(Y, 2)), &["G-single"]);
    let only_dropped = vec![
        unknown(txn(1).write(X, 2, Update)),
        unknown(txn(2).read(X, 2).read(Y, 3).write(Y, 2, Update)),
        txn(3).read(X, 1).with_outcome(Outcome::Aborted),
    ];
    assert_eq!(accepted(only_dropped).counts.unknown_dropped, 2);
}

#[test]
fn a_gap_in_the_version_numbers_does_not_show_an_unknown_write() {
    let skipped = unknown(txn(1).read(X, 1).write(X, 2, Update));
    accepted(vec![skipped, txn(2).read(X, 1).write(X, 3, Update)]);
}

#[test]
fn an_absence_shows_an_unknown_delete() {
    let delete = || unknown(txn(1).write(X, 2, Delete).write(Y, 2, Update));
    let initial = || txn(2).read(X, 1);
    let report = accepted(vec![delete(), initial(), txn(3).read_absent(X, 2)]);
    assert_eq!(report.counts.unknown_observed, 1);
    refused(vec![delete(), initial(), txn(3).read_absent(X, 2).read(Y, 1)], &["G-single"]);
}

#[test]
fn it_may_stay_open_which_unknown_delete_was_seen() {
    // If T3 and T4 observed T1's delete, the history would have a cycle. If they observed T2's
    // delete, it has none.
    let report = accepted(vec![
        unknown(txn(1).write(X, 2, Delete).read(Y, 2)),
        unknown(txn(2).write(X, 3, Delete)),
        txn(3).read(X, 1),
        txn(4).read_absent(X, 3).write(Y, 2, Update),
    ]);
    assert_eq!(report.settlements_tried, 2);
    // Two unknown transactions wrote the same version. If the value read shows its writer, the
    // checker includes this writer, and otherwise it tries both.
    let writers = |reader: Transaction| {
        vec![
            unknown(marked_write(txn(1).read(Y, 1).write(X, 2, Update), 0xa)),
            unknown(marked_write(txn(2).write(X, 2, Update), 0xb)),
            txn(3).write(Y, 2, Update),
            marked_read(reader.read(Y, 2).read(X, 2), 0xb),
        ]
    };
    assert_eq!(accepted(writers(txn(4))).settlements_tried, 1);
}

#[test]
fn real_time_binds_the_beginning_of_an_unknown_transaction() {
    refused(
        vec![at(1, 0, 10).read(X, 2), unknown(at(2, 20, 30).write(X, 2, Update))],
        &["G1c-realtime"],
    );
}

#[test]
fn the_list_is_capped_and_the_rest_counted() {
    let transactions = (1..=30).map(|id| txn(id).read(X, 100 + id)).collect();
    let report = strict(transactions);
    assert_eq!(report.anomalies.len(), LISTED_PER_KIND);
    assert_eq!(total(&report, AnomalyKind::UnwrittenVersion), 29);
    assert!(report.to_string().ends_with("and 19 more\n"), "{report}");
}

#[test]
fn a_report_is_also_json() {
    let report = strict(vec![txn(1).write(X, 2, Update), txn(2).read(X, 1).read(X, 2)]);
    let json = serde_json::to_value(&report).expect("a report is JSON");
    assert_eq!(json["verdict"], "violated");
    assert_eq!(json["totals"]["cycle"], 1);
    assert_eq!(json["anomalies"][0]["anomaly"], "cycle");
    assert_eq!(json["anomalies"][0]["class"]["phenomenon"], "G-single");
    assert_eq!(json["anomalies"][0]["steps"][0]["dependency"], "write_read");
    assert_eq!(classes(&report), ["G-single"]);
}
