//! Tests of verdicts on histories.
//!
//! Invariant checked: the checker requires of a history exactly the isolation level that the protocol's variant
//! guarantees.

use super::*;
use tarn_check::WriteKind::Update;
use tarn_check::{RecordId, Transaction};
use tarn_engine::protocol::{self, AnyProtocol};

/// Returns a history of two transactions, in which each transaction reads the record that the other one overwrites.
/// The history is written by hand, because no protocol offers snapshot isolation yet.
fn write_skew() -> History {
    let (x, y) = (RecordId::new(0, 1), RecordId::new(0, 2));
    let transactions = vec![
        Transaction::committed(1, 0, 0, 100).read(y, 1).write(x, 2, Update),
        Transaction::committed(2, 1, 0, 100).read(x, 1).write(y, 2, Update),
    ];
    History { tables: vec!["t".into()], transactions, ..History::default() }
}

#[test]
fn write_skew_passes_where_snapshots_were_asked_for_and_nowhere_else() {
    let judged = |isolation| HistoryReport::judge((&write_skew(), isolation), 1.0, None);
    let report = judged(Isolation::SnapshotIsolation);
    assert_eq!((report.verdict, report.isolation), ("accepted", "snapshot isolation"));
    assert!(report.anomalies.is_empty() && report.counterexample.is_none());
    let report = judged(Isolation::StrictSerializable);
    assert_eq!((report.verdict, report.isolation), ("violated", "strict serializable"));
    assert!(report.counterexample.is_some_and(|text| text.contains("cycle G2")));
}

#[test]
fn what_a_protocol_does_not_offer_is_not_judged_for() {
    for info in protocol::ALL {
        let strict = AnyProtocol::by_name(info.name, "corrected").expect("a variant");
        assert_eq!(guaranteed(&strict), Isolation::StrictSerializable);
        let si = AnyProtocol::by_name(info.name, "corrected,si");
        assert_eq!(si.is_ok(), info.caps.snapshot_isolation, "{}", info.name);
        if let Ok(si) = si {
            assert_eq!(guaranteed(&si), Isolation::SnapshotIsolation);
        }
    }
}
