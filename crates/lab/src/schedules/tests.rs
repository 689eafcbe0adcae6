//! Tests of subjects.
//!
//! Invariant checked: a replay command names every value that differs from the default. If the protocol lacks ordered
//! indexes, a subject with a workload that needs them is refused.

use super::*;
use tarn_engine::protocol::ALL;

#[test]
fn a_replay_names_what_differs_from_the_default() {
    assert_eq!(Subject::of("ford", "corrected").replay(7), "tarn sim random --seed 7");
    let subject = Subject {
        workload: Some("tatp".into()),
        torn_lines: true,
        ..Subject::of("ford", "literal,-refuse-locked")
    };
    assert_eq!(
        subject.replay(8),
        "tarn sim random --seed 8 --variant literal,-refuse-locked --workload tatp --plant torn-lines"
    );
}

#[test]
fn a_workload_with_ordered_indexes_is_refused_where_there_are_none() {
    let caps = tarn_engine::cluster::info::ProtocolCaps { ranges: false, ..ALL[0].caps };
    let text = without_ranges("tpcc", &ProtocolInfo { name: "plain", caps, ..ALL[0] }).to_string();
    let said = "workload = tpcc; allowed: mixture, smallbank, ycsb, tatp, kvs with plain";
    assert!(text.starts_with(said), "{text}");
    for info in ALL {
        let subject =
            Subject { workload: Some("tpcc".into()), ..Subject::of(info.name, "corrected") };
        assert_eq!(subject.refuse_workload().is_ok(), info.caps.ranges, "{}", info.name);
        assert!(Subject::of(info.name, "corrected").refuse_workload().is_ok());
    }
    assert_eq!(Subject::of("ford", "corrected").isolation(), Some("strict serializable"));
    assert_eq!(Subject::of("ford", "corrected,si").isolation(), None);
}
