//! Tests of a sweep's table.
//!
//! Invariant checked: the table shows the figures of the reports, and a dash for each figure that
//! is missing.

use super::*;
use serde_json::json;

#[test]
fn the_table_shows_the_figures_of_the_reports_and_dashes_for_none() {
    let axes = [Axis::parse("seed=1,2").expect("an axis")];
    let points = super::super::grid(&["sim".into()], &axes).expect("a grid");
    let done = |report, passed| Done { report, passed, seconds: 1.0 };
    let whole = json!({
        "throughput_per_s": 1234567.0,
        "latency_us": { "p50": 8.25, "p99": 40.0, "p999": 99.95 },
        "conflict_rate": 0.0123,
        "bottleneck": { "part": "pipeline", "of": "memory node 1", "share": 0.5 },
    });
    let done = vec![done(whole, true), done(json!({}), false)];
    let report = SweepReport::new(&["sim".into()], &axes, &points, done);
    assert_eq!(report.failed(), ["seed=2"]);
    let rows = report.rows();
    assert_eq!(
        rows[1],
        ["1", "1235", "8.25", "40.0", "100.0", "1.23", "pipeline of memory node 1, 50.0 %", "ok"]
    );
    assert_eq!(rows[2], ["2", "–", "–", "–", "–", "–", "–", "FAILED"]);
    let text = report.to_string();
    assert_eq!(text.lines().count(), 4, "{text}");
}
