//! Tests of published figures: the output and the refusals of `tarn reproduce`.
//!
//! Invariant checked: for bad input the program prints one line and ends with exit code 2. The output names an unsafe
//! variant wherever such a variant may run.

use crate::common::tarn_line;
use serde_json::Value;

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
        ("reproduce --seed 3", "error: FIGURE = nothing; allowed: ", "lotus-fig-2"),
        ("reproduce --list --seed 3", "error: --list = given together with --seed", "one of them"),
        ("reproduce fig-none", "error: FIGURE = fig-none; allowed: ", "lotus-fig-2"),
        ("reproduce lotus-fig-2 --seed x", "error: --seed = x; allowed: ", "a whole number"),
        ("reproduce lotus-fig-2 --list", "error: ", "--list"),
        ("reproduce lotus-fig-2 --html no/such/x", "error: --html = no/such/x; ", "written"),
        ("reproduce lotus-fig-2 --slow", "error: argument = --slow; ", "--help"),
        ("reproduce lotus-fig-2 --only fig-2", "error: --only = fig-2; allowed: ", "lotus"),
        ("repro lotus --only fig-1", "error: --only = fig-1; allowed: nic, fig-2, ", "fig-23"),
        ("repro oocc --only fig-9", "error: --only = fig-9; allowed: table-1, fig-10, ", "fig-14"),
        ("repro oocc --what-if lease=x", "error: --what-if = lease=x; allowed: ", "to 1000, in µs"),
        (
            "repro fisslock --only fig-1",
            "error: --only = fig-1; allowed: memory, shares, ",
            "recovery",
        ),
        ("repro lotus --table", "error: --table = lotus; allowed: ", "fisslock"),
        ("repro fisslock --set link.mtu_bytes=64", "error: bytes of the largest ", "84 or more"),
        ("repro fisslock --what-if x=1", "error: --what-if = x=1; allowed: ", "lotus"),
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
    assert!(refused.err.contains("in simulations only"), "{}", refused.err);
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
