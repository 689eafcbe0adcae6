//! Tests of `tarn swarm`: its output, its coverage, and that its replay commands run the same scenarios.
//!
//! Invariant checked: the command that the swarm prints for a failure finds the failure again, with the same digest.
//! The matrix contains every cell that was reached. If a required cell is empty, the program ends with exit code 1.

use crate::common::{assert_refused, tarn_line};
use serde_json::Value;
use std::process::{Command, Stdio};

fn report(line: &str, code: i32) -> Value {
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(code), "{line}: {}", ended.err);
    serde_json::from_str(&ended.out).expect("one object")
}

#[test]
fn the_object_has_all_fields_of_results() {
    let report = report("swarm --seeds 150 --first-seed 1000000 --json", 0);
    assert_eq!((&report["seeds"], &report["seeds_passed"]), (&150.into(), &150.into()));
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    let coverage = &report["coverage"];
    for death in ["crash", "zombie", "memory node"] {
        let row = coverage["phase_by_death"][death].as_object().expect("a row");
        assert!(row.contains_key("write") && row.contains_key("between"), "{row:?}");
        assert!(row.values().any(|count| count.as_u64() > Some(0)), "{death}: nobody died");
    }
    for (map, cell) in
        [("aborts", "lock_refused"), ("recovery", "recovered"), ("events", "dropped")]
    {
        assert!(coverage[map][cell].as_u64() > Some(0), "{map}/{cell}: {coverage}");
    }
}

#[test]
fn a_failure_is_replayed_by_its_command_to_the_same_trace() {
    let found = report("swarm --seeds 60 --variant corrected,-validate-reads --json", 1);
    let failed = &found["failures"].as_array().expect("a list")[0];
    let replay = failed["replay"].as_str().expect("a command").strip_prefix("tarn ");
    let again = report(&format!("{} --json", replay.expect("of this program")), 1);
    for key in ["digest", "counterexample", "kind"] {
        assert_eq!(again["failed"][key], failed[key], "{key}");
    }
}

#[test]
fn an_empty_cell_that_is_required_is_named() {
    let ended = tarn_line("swarm --seeds 1 --require-coverage");
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("empty cells: "), "{}", ended.err);
    assert!(ended.err.contains("recovery/took_over"), "{}", ended.err);
}

#[test]
fn bad_flags_end_in_one_line_with_the_allowed_values() {
    let refused = [
        ("--seeds 0", "error: --seeds = 0; allowed: ", "1 to "),
        ("--minutes 0", "error: --minutes = 0; allowed: ", "0.001 to "),
        ("--jobs 2000", "error: --jobs = 2000; allowed: ", "1 to 1024"),
        ("--variant none --seeds 1", "error: --variant = none; allowed: ", "corrected"),
        ("--protocol none --seeds 1", "error: --protocol = none; allowed: ", "ford"),
        (
            "--seeds 99999999999999999999",
            "error: --seeds = 99999999999999999999; ",
            "number up to ",
        ),
        (
            "--seeds 10 --first-seed 18446744073709551610",
            "error: --seeds = 10; allowed: 1 to 6 from --first-seed ",
            "18446744073709551615",
        ),
    ];
    assert_refused("swarm", &refused);
}

#[test]
fn a_signal_ends_a_swarm_that_never_ends_with_its_report() {
    for (variant, code) in [("corrected", 130), ("corrected,-keep-version", 1)] {
        let program = env!("CARGO_BIN_EXE_tarn");
        // The signal comes after two seconds, when some seeds have certainly run. If the program ignored the signal,
        // `timeout` would kill it.
        let arguments = ["-s", "INT", "-k", "60", "2", program, "swarm", "--json", "--variant"];
        let mut swarm = Command::new("timeout");
        swarm.arg("--preserve-status").args(arguments).arg(variant).stdin(Stdio::null());
        let ended = swarm.output().expect("timeout starts");
        let err = String::from_utf8(ended.stderr).expect("text");
        assert_eq!(ended.status.code(), Some(code), "{err}");
        let report: Value = serde_json::from_slice(&ended.stdout).expect("one object");
        let seeds = report["seeds"].as_u64().expect("a count");
        assert!(seeds > 0, "{err}");
        assert_eq!(report["failures"].as_array().expect("a list").is_empty(), code == 130, "{err}");
        if code == 130 {
            assert!(err.contains(&format!("interrupted after {seeds} seeds")), "{err}");
            assert!(!err.contains("18446744073709551"), "{err}");
        }
    }
}
