//! Tests the reproduction of a published figure at a very small scale.
//!
//! Invariant checked: a report has a row for every published value. The report's figures depend
//! only on scale and seed. A measured transaction sends the same verbs as the public code.

use serde_json::Value;
use tarn_lab::harness::watch::Silent;
use tarn_lab::reproduce::Scale;
use tarn_lab::reproduce::figure::Figure;
use tarn_lab::reproduce::report::Reproduction;
use tarn_lab::reproduce::row::{Row, Verdict};

/// Runs a figure at a scale that takes one or two seconds.
fn tiny(seed: u64) -> Reproduction {
    let coordinators = vec![9, 45];
    let (sizes, virtual_ms, warm_up_ms) = (vec![20_000], 1.0, 0.5);
    let scale = Scale { name: "tiny", sizes, virtual_ms, warm_up_ms, soak_ms: 0.0, coordinators };
    Figure::by_name("lotus-fig-2").expect("listed").run(&scale, seed, &Silent).expect("a report")
}

fn row<'a>(report: &'a Reproduction, metric: &str) -> &'a Row {
    let found = report.rows.iter().find(|row| row.metric == metric);
    found.unwrap_or_else(|| panic!("no row {metric}: {report}"))
}

#[test]
fn a_tiny_figure_has_every_row_and_the_verbs_of_the_public_code() {
    let report = tiny(1);
    assert_eq!(report.failed(), Vec::<String>::new(), "{report}");
    assert_eq!(report.series.len(), 7);
    for sent in &report.verbs {
        let off = sent.simulated / sent.counted;
        // The tolerance is needed because a thousand random transactions do not have exactly the shares of the mix.
        assert!((0.93..1.07).contains(&off), "{sent:?}");
    }
    let kinds: Vec<&str> = report.verbs.iter().map(|sent| sent.verb).collect();
    assert_eq!(kinds, ["cas", "read", "write", "read"]);
    for name in ["FORD, stock buckets, no CAS", "FORD, sized buckets, no CAS"] {
        let series = report.series(name).expect("a series");
        assert!(!series.is_safe);
        assert_eq!(series.history, "not checked: unsafe variant");
        // A small number of CAS verbs remains, because aborted transactions release their locks with CAS.
        assert!(series.points.iter().all(|point| point.verbs_of("cas") < 0.05), "{series}");
    }
    for system in ["FORD, stock buckets", "FORD, sized buckets"] {
        let gain = row(&report, &format!("{system}: peak without CAS over peak"));
        let simulated = gain.simulated.expect("a figure");
        assert!(simulated > 1.1 && gain.verdict == Verdict::Agrees, "{gain}");
        let peak = row(&report, &format!("{system}: peak, M transactions/s"));
        assert!(peak.why.contains("nic pipeline of memory node 1"), "{peak}");
    }
    // The charges for a system's software change only the series of this system, and make each of its transactions
    // longer.
    let of = |name| report.series(name).expect("a series");
    let (bare, charged) = (of("FORD, stock buckets"), of("FORD, stock buckets, its software"));
    assert!(bare.charges.is_empty() && charged.charges.len() == 3);
    assert!(charged.shortest_us() > bare.shortest_us() + 3.0, "{bare}{charged}");
    let after = of("FORD, sized buckets");
    assert!(after.shortest_us() < bare.shortest_us(), "{bare}{after}");
    let motor = row(&report, "Motor: without CAS, M transactions/s");
    assert_eq!((motor.verdict, motor.simulated), (Verdict::NotSimulated, None));
    // With the stock buckets (the bucket shape of FORD's public code), transactions read more data, so the throughput
    // is lower. A system whose records are spread over three nodes has a higher throughput.
    let peak =
        |name| report.series(name).and_then(|it| it.peak()).expect("points").throughput_per_s;
    assert!(peak("FORD, stock buckets") < peak("FORD, sized buckets"));
    assert!(peak("FORD, sized buckets") < peak("FORD, sized, hash placement"));
}

/// Returns the figure over warehouses, with mixes whose databases have room for a tenth of the orders or less. Audits
/// read the whole memory of each database, so the room decides how long the test takes.
fn with_small_databases() -> Figure {
    let text = include_str!("../../data/crest-fig-2.toml");
    assert!(text.contains("\"crest-code\"") && text.contains("\"crest\""));
    let text = text.replace("\"crest-code\"", "\"lotus-code\"").replace("\"crest\"", "\"tiny\"");
    toml::from_str(&text).expect("a figure")
}

/// The rows of this figure need runs on both published numbers of warehouses, and a run on 80 warehouses takes too
/// long for a test. So this test checks the points instead of the rows.
#[test]
fn a_figure_over_warehouses_has_a_point_for_each_and_gives_up_what_its_system_does() {
    let (sizes, coordinators) = (vec![1, 2], vec![16]);
    let scale =
        Scale { name: "tiny", sizes, virtual_ms: 1.0, warm_up_ms: 0.2, soak_ms: 0.0, coordinators };
    let report = with_small_databases().run(&scale, 1, &Silent).expect("a report");
    assert_eq!(report.failed(), Vec::<String>::new(), "{report}");
    assert_eq!(report.judged.len(), 8, "two layouts on two kinds of hardware, two sizes");
    let names: Vec<&str> = report.series.iter().map(|series| series.name).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    for series in &report.series {
        let sizes: Vec<u64> = series.points.iter().map(|point| point.size).collect();
        assert_eq!(sizes, [1, 2], "{series}");
        assert!(series.points.iter().all(|point| point.committed > 0), "{series}");
        let gives_up = series.points.iter().any(|point| point.given_up > 0);
        assert_eq!(gives_up, series.name.starts_with("FORD"), "{series}");
        assert!(series.saturation().is_none(), "{series}");
    }
    // The same number of coordinators conflicts less often on more warehouses, and older hardware is slower.
    let at = |name: &str, size| {
        let series = report.series(name).expect("a series");
        series.at(size).expect("a point").clone()
    };
    assert!(at("FORD", 1).conflict_rate > at("FORD", 2).conflict_rate);
    assert!(at("FORD", 2).throughput_per_s > 2.0 * at("FORD on cx3-56g", 2).throughput_per_s);
    let motor = row(&report, "Motor: drop from 80 to 20 warehouses, %");
    assert_eq!(motor.verdict, Verdict::NotSimulated);
    let page = tarn_lab::reproduce::page::page(&report);
    assert!(page.contains("Throughput over warehouses") && !page.contains("NaN"), "{page}");
}

#[test]
fn a_figure_is_a_function_of_its_seed_and_prints_the_same_as_an_object() {
    let report = tiny(2);
    let value = |report: &Reproduction| {
        let mut object = serde_json::to_value(report).expect("an object");
        object["wall"] = Value::Null;
        object
    };
    let object = value(&report);
    assert_eq!(object, value(&tiny(2)));
    assert_ne!(object["series"], value(&tiny(3))["series"]);
    assert_eq!(object["figure"], "lotus-fig-2");
    assert_eq!(object["seed"], 2);
    assert_eq!(object["profile"], "cx3-56g");
    let rows = object["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), report.rows.len());
    for row in rows {
        assert!(row["published"]["source"].as_str().is_some_and(|source| source.contains(' ')));
        assert_eq!(row["simulated"].is_null(), row["verdict"] == "not_simulated", "{row}");
        assert!(!row["why"].as_str().unwrap_or_default().is_empty(), "{row}");
    }
    let page = tarn_lab::reproduce::page::page(&report);
    assert_eq!(page.matches("<svg viewBox=\"0 0 520").count(), 2, "{page}");
    assert!(page.contains("FORD, sized buckets, no CAS (unsafe)"), "{page}");
    assert!(!page.contains("NaN") && !page.contains("http"), "{page}");
    let text = report.to_string();
    for part in ["published and simulated", "<- saturated", "UNSAFE", "SHORTENED (tiny)", "MISSES"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
}
