//! Published figures: what `tarn reproduce` prints and refuses, and a figure on a tiny scale.
//!
//! Invariant checked: a report has a row for every published value, its figures are a function of scale
//! and seed, and a measured transaction sends what the public code sends.

use crate::common::tarn_line;
use serde_json::Value;
use tarn::reproduce::report::Reproduction;
use tarn::reproduce::row::{Row, Verdict};
use tarn::reproduce::{Scale, crest_fig_2, lotus_fig_2};
use tarn::simulate::driver::Now;
use tarn::simulate::run::Watch;

struct Nobody;

impl Watch for Nobody {
    fn loading(&self, _: u64, _: u64) {}
    fn loaded(&self, _: u64, _: f64) {}
    fn running(&self, _: &'static str, _: Now) {}
    fn judging(&self, _: f64) {}
}

/// A figure in a second or two.
fn tiny(seed: u64) -> Reproduction {
    let coordinators = vec![9, 45];
    let (sizes, virtual_ms, warm_up_ms) = (vec![20_000], 1.0, 0.5);
    let scale = Scale { name: "tiny", sizes, virtual_ms, warm_up_ms, soak_ms: 0.0, coordinators };
    (lotus_fig_2::FIGURE.run)(&scale, seed, &Nobody).expect("a report")
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
        // A thousand transactions do not draw the mix exactly.
        assert!((0.93..1.07).contains(&off), "{sent:?}");
    }
    let kinds: Vec<&str> = report.verbs.iter().map(|sent| sent.verb).collect();
    assert_eq!(kinds, ["cas", "read", "write", "read"]);
    for name in ["FORD, stock buckets, no CAS", "FORD, sized buckets, no CAS"] {
        let series = report.series(name).expect("a series");
        assert!(!series.is_safe);
        assert_eq!(series.history, "not checked: unsafe variant");
        // What is left are releases by CAS after aborts.
        assert!(series.points.iter().all(|point| point.verbs_of("cas") < 0.05), "{series}");
    }
    for system in ["FORD, stock buckets", "FORD, sized buckets"] {
        let gain = row(&report, &format!("{system}: peak without CAS over peak"));
        let simulated = gain.simulated.expect("a figure");
        assert!(simulated > 1.1 && gain.verdict == Verdict::Agrees, "{gain}");
        let peak = row(&report, &format!("{system}: peak, M transactions/s"));
        assert!(peak.why.contains("nic pipeline of memory node 1"), "{peak}");
    }
    // What the software spends is charged to its series alone, and makes every transaction longer.
    let of = |name| report.series(name).expect("a series");
    let (bare, charged) = (of("FORD, stock buckets"), of("FORD, stock buckets, its software"));
    assert!(bare.charges.is_empty() && charged.charges.len() == 8);
    assert!(charged.shortest_us() > bare.shortest_us() + 3.0, "{bare}{charged}");
    let after = of("FORD, sized buckets");
    assert!(after.shortest_us() < bare.shortest_us(), "{bare}{after}");
    let motor = row(&report, "Motor: without CAS, M transactions/s");
    assert_eq!((motor.verdict, motor.simulated), (Verdict::NotSimulated, None));
    // Stock buckets read more, and are slower; spread over three nodes it is faster.
    let peak =
        |name| report.series(name).and_then(|it| it.peak()).expect("points").throughput_per_s;
    assert!(peak("FORD, stock buckets") < peak("FORD, sized buckets"));
    assert!(peak("FORD, sized buckets") < peak("FORD, sized, hash placement"));
}

/// A phase over warehouses has rows only where both published sizes were run, and 80 take too long for a
/// test: so this looks at the points themselves.
#[test]
fn a_figure_over_warehouses_has_a_point_for_each_and_gives_up_what_its_system_does() {
    let (sizes, coordinators) = (vec![1, 2], vec![16]);
    let scale =
        Scale { name: "tiny", sizes, virtual_ms: 1.0, warm_up_ms: 0.2, soak_ms: 0.0, coordinators };
    let report = (crest_fig_2::FIGURE.run)(&scale, 1, &Nobody).expect("a report");
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
    // The same coordinators on more warehouses are in each other's way less; older hardware is slower.
    let at = |name: &str, size| {
        let series = report.series(name).expect("a series");
        series.at(size).expect("a point").clone()
    };
    assert!(at("FORD", 1).conflict_rate > at("FORD", 2).conflict_rate);
    assert!(at("FORD", 2).throughput_per_s > 2.0 * at("FORD on cx3-56g", 2).throughput_per_s);
    let motor = row(&report, "Motor: drop from 80 to 20 warehouses, %");
    assert_eq!(motor.verdict, Verdict::NotSimulated);
    let page = tarn::reproduce::page::page(&report);
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
    let page = tarn::reproduce::page::page(&report);
    assert_eq!(page.matches("<svg viewBox=\"0 0 520").count(), 2, "{page}");
    assert!(page.contains("FORD, sized buckets, no CAS (unsafe)"), "{page}");
    assert!(!page.contains("NaN") && !page.contains("http"), "{page}");
    let text = report.to_string();
    for part in ["published and simulated", "<- saturated", "UNSAFE", "SHORTENED (tiny)", "MISSES"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn figures_are_listed_and_bad_input_ends_in_one_line() {
    let listed = tarn_line("reproduce --list");
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    assert!(listed.out.starts_with("lotus-fig-2 "), "{}", listed.out);
    let bare = tarn_line("reproduce");
    assert_eq!((bare.code, bare.out), (Some(0), listed.out), "{}", bare.err);
    let listed = tarn_line("reproduce --list --json");
    let list: Value = serde_json::from_str(&listed.out).expect("a list");
    assert_eq!(list[0]["figure"], "lotus-fig-2");
    assert_eq!(list[1]["figure"], "crest-fig-2");
    for (line, start, allowed) in [
        ("reproduce --quick", "error: FIGURE = nothing; allowed: ", "lotus-fig-2"),
        ("reproduce fig-none", "error: FIGURE = fig-none; allowed: ", "lotus-fig-2"),
        ("reproduce lotus-fig-2 --seed x", "error: --seed = x; allowed: ", "a whole number"),
        ("reproduce lotus-fig-2 --list", "error: ", "--list"),
        ("reproduce lotus-fig-2 --html no/such/x", "error: --html = no/such/x; ", "written"),
        ("reproduce lotus-fig-2 --slow", "error: argument = --slow; ", "--help"),
        ("reproduce lotus-fig-2 --only fig-2", "error: --only = fig-2; allowed: ", "lotus"),
        ("repro lotus --only fig-1", "error: --only = fig-1; allowed: nic, fig-2, ", "fig-23"),
        ("repro oocc --only fig-9", "error: --only = fig-9; allowed: table-1, fig-10, ", "fig-14"),
        ("repro oocc --suppose lease=x", "error: --suppose = lease=x; allowed: ", "to 1000, in µs"),
        ("repro lotus --set nic.none=1", "error: --set = nic.none=1; allowed: ", "nic.read_mops"),
        ("sim outage --protocol none", "error: --protocol = none; allowed: ", "ford"),
    ] {
        let ended = tarn_line(line);
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.err);
        assert_eq!(
            (ended.out.as_str(), ended.err.lines().count()),
            ("", 1),
            "{line}: {}",
            ended.err
        );
        assert!(ended.err.starts_with(start), "{line}: {}", ended.err);
        assert!(ended.err.contains(allowed), "{line}: {}", ended.err);
    }
}

#[test]
fn an_unsafe_variant_is_refused_outside_of_the_simulator_and_named_inside() {
    let variant = "measured,unsafe-no-lock-cas";
    let refused = tarn_line(&format!("bench smallbank --records 100 --variant {variant}"));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.starts_with(&format!("error: --variant = {variant}; ")), "{}", refused.err);
    assert!(refused.err.contains("in simulations alone"), "{}", refused.err);
    let refused = tarn_line("sim smallbank --variant measured,-lock-cas");
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("unsafe-no-NAME (lock-cas)"), "{}", refused.err);

    let line = format!(
        "sim smallbank --records 20000 --virtual-ms 1 --compute-nodes 2 --replicas 3 --variant {variant}"
    );
    let ran = tarn_line(&line);
    assert!(ran.out.contains("NOT CHECKED: the variant is UNSAFE"), "{} {}", ran.out, ran.err);
    let history = tarn_line(&format!("{line} --history /tmp/none.jsonl"));
    assert_eq!(history.code, Some(2), "{}", history.err);
    assert!(history.err.contains("--history = "), "{}", history.err);
}

#[test]
fn an_index_can_have_ford_s_buckets_by_flag() {
    let line = "sim smallbank --records 2000 --virtual-ms 1 --replicas 3 --variant measured \
                --bucket-slots 22 --slot-bytes 64 --read-buckets --no-verify --json";
    let ran = tarn_line(line);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let object: Value = serde_json::from_str(&ran.out).expect("one object");
    assert_eq!(object["config"]["bucket"]["slots"], 22);
    let reads = object["per_txn"]["verbs"]["read"].as_f64().expect("a figure");
    assert!((5.2..5.6).contains(&reads), "{reads}");
    for (flags, start) in [
        ("--bucket-slots 7", "error: --bucket-slots = 7; allowed: 8 to 64"),
        ("--slot-bytes 5000", "error: --slot-bytes = 5000; allowed: at most "),
        ("--slots-per-100-records 1", "error: --slots-per-100-records = 1; allowed: "),
        ("--slot-bytes 5000000000", "error: --slot-bytes = 5000000000; allowed: at most "),
    ] {
        let ended = tarn_line(&format!("sim smallbank --records 100 {flags}"));
        assert_eq!(ended.code, Some(2), "{flags}: {}", ended.err);
        assert!(ended.err.starts_with(start), "{flags}: {}", ended.err);
    }
}

#[test]
fn a_section_of_the_whole_evaluation_prints_its_rows() {
    let ran = tarn_line("repro lotus --quick --only nic --set nic.write_mops=30 --json");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let object: Value = serde_json::from_str(&ran.out).expect("one object");
    assert_eq!((&object["name"], &object["profile"]), (&"lotus".into(), &"cx3-56g".into()));
    assert_eq!(object["overrides"][0]["key"], "nic.write_mops");
    let rows = object["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["verdict"], "agrees", "{row}");
        assert!(row["published"]["source"].as_str().is_some_and(|it| it.contains("section 2.2")));
    }
    let write = rows[0]["literal"].as_f64().expect("a figure");
    assert!((write - 30.0).abs() < 1.0, "{write}");
}
