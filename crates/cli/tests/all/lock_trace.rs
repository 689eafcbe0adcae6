//! Tests of traces of lock requests in files, and of the budget of a switch.
//!
//! Invariant checked: a trace that was written is replayed under the same digest, twice with the same run. Bad input
//! ends in one line with exit code 2.

use crate::common::{assert_refused, tarn, tarn_line};
use serde_json::Value;
use std::fs;

/// Writes a trace, and returns what the program prints about it.
fn write(path: &str, load: &str) -> Value {
    let ended = tarn(&[
        "lock",
        "trace",
        "write",
        "--load",
        load,
        "--transactions",
        "20000",
        "--output",
        path,
        "--json",
    ]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).expect("one object")
}

#[test]
fn a_trace_in_a_file_is_replayed_by_each_service_with_the_same_run_each_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("zipf.trace").display().to_string();
    let written = write(&path, "zipf uh locks=1000");
    assert_eq!((&written["locks"], &written["requests"]), (&1_000.into(), &20_000.into()));
    let line = format!(
        "lock trace replay {path} --service fisslock --service netlock --virtual-ms 1 --json"
    );
    let [one, again] = [(); 2].map(|()| tarn_line(&line));
    assert_eq!((one.code, &one.out), (Some(0), &again.out), "{}", one.err);
    let replayed: Value = serde_json::from_str(&one.out).expect("one object");
    assert_eq!(replayed["trace"], written["trace"]);
    for (at, name) in ["fisslock", "netlock"].iter().enumerate() {
        let run = &replayed["runs"][at];
        assert_eq!((&run["case"], &run["trace"]), (&(*name).into(), &written["trace"]));
        assert!(run["acquires_millions"].as_f64() > Some(0.5), "{run}");
    }
    let text = tarn_line(&line.replace(" --json", ""));
    assert!(
        ["messages an acquire", "simulated", "copies wait for agents", "locks of this very trace"]
            .iter()
            .all(|part| text.out.contains(part)),
        "{}",
        text.out
    );
}

#[test]
fn the_help_lists_all_loads_and_services() {
    let help = tarn_line("lock trace --help").out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let loads = format!("Loads: {}.", tarn_lab::reproduce::locks::case::Load::names().join(", "));
    let services = tarn_lab::locks::system::System::ALL.map(|system| system.name()).join(", ");
    for part in [loads, format!("Services: {services}.")] {
        assert!(help.contains(&part), "{part}: {help}");
    }
}

#[test]
fn tpcc_keeps_the_locks_of_a_warehouse_on_its_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tpcc.trace").display().to_string();
    write(&path, "tpcc");
    let line = format!("lock trace replay {path} --virtual-ms 1 --json --service fisslock-local");
    let ended = tarn_line(&format!("{line} --warehouses 1200"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let refused = tarn_line(&format!("{line} --warehouses 12"));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.starts_with("error: --warehouses = 12; allowed: "), "{}", refused.err);
    let refused = tarn_line(&line);
    assert!(
        refused.err.contains("--service = fisslock-local; allowed: a trace of TPC-C"),
        "{}",
        refused.err
    );
}

#[test]
fn bad_input_ends_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let [bad, out] = ["bad.trace", "out.trace"].map(|name| folder.path().join(name));
    fs::write(&bad, [0u8; 32]).expect("written");
    let (bad, out) = (bad.display(), out.display());
    let all = [
        (
            format!("write --load none --output {out}"),
            "error: --load = none; allowed: ",
            "granules",
        ),
        (
            format!("write --load hotspot --transactions 1 --output {out}"),
            "error: --transactions = 1; ",
            "8 to",
        ),
        (
            format!("write --load uniform --transactions 4294967296 --output {out}"),
            "error: --transactions = 4294967296; ",
            "8 to 67108864",
        ),
        (
            "write --load tatp --output no/such/x".into(),
            "error: --output = no/such/x; allowed: ",
            "written",
        ),
        (format!("replay {bad}"), "error: FILE = ", "magic = 0; allowed: \"TLTR\""),
        ("replay no/such/x".into(), "error: FILE = no/such/x; allowed: ", "a trace"),
        (format!("replay {bad} --hot-from x"), "error: FILE = ", "magic = 0"),
        (format!("replay {bad} --virtual-ms -1"), "error: --virtual-ms = -1; ", "1 to 1000"),
        (
            format!("write --load tatp --transactions x --output {out}"),
            "error: --transactions = x; ",
            "whole number",
        ),
        (format!("replay {bad} --clients 0"), "error: --clients = 0; allowed: ", "1000"),
        (format!("replay {bad} --virtual-ms 0"), "error: --virtual-ms = 0; allowed: ", "1000"),
        (format!("replay {bad} --work-ns x"), "error: --work-ns = x; allowed: ", "0 to 1000000"),
    ];
    let lines: Vec<(&str, &str, &str)> =
        all.iter().map(|(line, start, allowed)| (line.as_str(), *start, *allowed)).collect();
    assert_refused("lock trace", &lines);
    for (load, line) in [
        ("zipf theta=-1", "theta of the load = -1; allowed: 0 to 4, in hundredths"),
        ("zipf theta=nan", "theta of the load = nan; allowed: 0 to 4, in hundredths"),
        (
            "uniform locks=1.9",
            "locks of the load = 1.9; allowed: whole numbers from 1 to 2147483648",
        ),
        ("tatp uh", "setting of tatp = uh; allowed: no setting in a trace"),
        // The help names the settings of a trace, and these are settings of a run.
        (
            "zipf by-id",
            "setting of zipf = by-id; allowed: uh, rm, ro, theta=NUMBER, locks=NUMBER\n",
        ),
        ("hotspot on-switch=7", "setting of hotspot = on-switch=7; allowed: locks=NUMBER\n"),
        ("zipf uh ro", "setting of zipf = ro; allowed: uh, rm or ro once in zipf uh ro"),
    ] {
        let ended = tarn(&["lock", "trace", "write", "--load", load, "--output", &out.to_string()]);
        assert_eq!((ended.code, ended.err.lines().count()), (Some(2), 1), "{load}: {}", ended.err);
        assert!(ended.err.starts_with(&format!("error: {line}")), "{load}: {}", ended.err);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one.trace").display().to_string();
    write(&path, "uniform ro locks=10");
    let narrow = format!("lock trace replay {path} --set link.mtu_bytes=64");
    assert_refused("", &[(narrow.as_str(), "error: bytes of the largest datagram", "84 or more")]);
    let path_of_one = folder.path().join("writers.trace").display().to_string();
    write(&path_of_one, "uniform uh locks=1");
    let many = format!("lock trace replay {path_of_one} --clients 40");
    let start = "error: requests that wait for one lock, fisslock = ";
    assert_refused("", &[(many.as_str(), start, "allowed: 0 to 335")]);
    assert_refused(
        &format!("lock trace replay {path} --service netlock"),
        &[
            (
                &format!("--hot-from {path_of_one}"),
                "error: locks of --hot-from = 1; allowed: 10",
                "10",
            ),
            ("--hot-from no/such/x", "error: --hot-from = no/such/x; allowed: ", "a trace"),
            ("--warehouses 0", "error: --warehouses = 0; allowed: ", "the 10 locks"),
        ],
    );
    let none = tarn_line(&format!("lock trace replay {path} --service none"));
    assert!(none.err.starts_with("error: --service = none; allowed: fisslock, "), "{}", none.err);
}

#[test]
fn the_budget_of_a_switch_is_printed_and_too_many_machines_are_refused() {
    let table = tarn_line("lock budget");
    assert_eq!(table.code, Some(0), "{}", table.err);
    assert!(table.out.contains("| published, 18 bits | 2,240,000 / 1,680,000 |"), "{}", table.out);
    let own = tarn_line("lock budget --machines 8 --threads 6 --window 64 --control 2 --json");
    let rows: Value = serde_json::from_str(&own.out).expect("rows");
    assert_eq!((&rows[0]["locks"], &rows[1]["locks"]), (&1_680_000.into(), &1_400_000.into()));
    let many = tarn_line("lock budget --machines 64 --json");
    let rows: Value = serde_json::from_str(&many.out).expect("rows");
    assert_eq!(rows[0]["registers"], "count 16, cell 16");
    assert_refused(
        "lock budget",
        &[
            ("--machines 20000", "error: --machines = 20000; allowed: 1 to ", "16383"),
            (
                "--machines 1000 --threads 1000",
                "error: --machines, --threads, --window = 1000, 1000, 64; allowed: lanes ",
                "a unit of 12",
            ),
            (
                "--machines 16383 --threads 65535 --window 4294967295",
                "error: --machines, --threads, --window = ",
                "a unit of 12",
            ),
            ("--threads 0", "error: --threads = 0; allowed: ", "65535"),
            ("--control 12", "error: --control = 12; allowed: ", "1 to 11"),
        ],
    );
}
