//! Tests that the program keeps a user's files and understands values. The program never overwrites an input. If the
//! program refuses a value, the error contains the name of the value and the correct range.
//!
//! If a signal ends the program, no part of a file remains.
//!
//! Invariant: for bad input the program prints one line on standard error and ends with exit code 2. Every file stays
//! unchanged.

use crate::common::{assert_refused, root, tarn_line};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Asserts that the program refuses the line. The input file must be unchanged, and its folder must contain no other
/// file.
fn assert_kept(input: &Path, line: &str, start: &str, than: &str) {
    let before = fs::read(input).expect("there");
    let path = input.to_str().expect("a name");
    assert_refused("", &[(&line.replace("FILE", path), start, than)]);
    assert_eq!(fs::read(input).expect("there"), before, "{line}");
    let folder = input.parent().expect("a folder");
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), 2, "{line}");
}

#[test]
fn no_command_writes_over_its_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, link) = (folder.path().join("input.toml"), folder.path().join("link"));
    std::os::unix::fs::symlink(&input, &link).expect("a link");
    let link = link.to_str().expect("a name");
    // Commands that read a profile get a copy of a profile, so that the line contains no other error.
    fs::copy(root().join("profiles/cx5-100g.toml"), &input).expect("a profile");
    for (line, start, than) in [
        ("sim smallbank --profile FILE --history FILE", "error: --history = ", "--profile"),
        (
            "sim smallbank --profile FILE --sweep seed=1,2 --html FILE",
            "error: --html = ",
            "--profile",
        ),
        ("sim smallbank --sweep profile=FILE,cx3-56g --html FILE", "error: --html = ", "--sweep"),
        ("trace smallbank --profile FILE --output FILE", "error: --output = ", "--profile"),
        ("sim outage --profile FILE --svg FILE", "error: --svg = ", "--profile"),
        ("check FILE --elle FILE", "error: --elle = ", "HISTORY"),
    ] {
        let than = format!("another file than {than}");
        // At first both names in the line are equal. Then a link to the file replaces each of the two names.
        let (first, last) = line.rsplit_once("FILE").expect("two names");
        let through = [format!("{first}{link}{last}"), line.replacen("FILE", link, 1)];
        for line in through.iter().map(String::as_str).chain([line]) {
            assert_kept(&input, line, start, &than);
        }
    }
    fs::write(&input, "workload = \"smallbank\"\nrecords = 100\n").expect("written");
    let than = "another file than --scenario";
    assert_kept(&input, "bench --scenario FILE --history FILE", "error: --history = ", than);
    let line = format!("bench --scenario {link} --history FILE");
    assert_kept(&input, &line, "error: --history = ", than);
    let line = "explore FILE --replay 0 --svg FILE";
    assert_kept(&input, line, "error: --svg = ", "another file than LITMUS");
}

#[test]
fn another_file_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = folder.path().join("bank.jsonl");
    let history = history.to_str().expect("a name");
    let run = "sim smallbank --records 200 --virtual-ms 0.5";
    let ended = tarn_line(&format!("{run} --history {history}"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let ended = tarn_line(&format!("check {history} --elle {history}.edn"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(Path::new(&format!("{history}.edn")).exists());
}

#[test]
fn more_addresses_than_memory_allows_are_refused_with_a_true_range() {
    // The address caches of 64 threads with 4 Gi addresses each would need 8 TiB.
    for run in
        ["bench smallbank --records 100 --threads 64", "sim smallbank --records 100 --threads 63"]
    {
        let ended = tarn_line(&format!("{run} --address-cache 4294967296"));
        assert_eq!(ended.code, Some(2), "{run}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{run}: {}", ended.err);
        let start = "error: --address-cache = 4294967296; allowed: 0 to ";
        assert!(ended.err.starts_with(start), "{run}: {}", ended.err);
    }
}

#[test]
fn a_history_is_of_one_seed() {
    let start = "error: --history = none.jsonl; allowed: ";
    let lines = ["--schedules 3", "--schedules 1", "--seconds 1", "--first-seed 7", ""];
    let lines = lines.map(|flags| format!("--history none.jsonl {flags}"));
    let lines: Vec<_> = lines.iter().map(|line| (line.as_str(), start, "with --seed")).collect();
    assert_refused("sim random", &lines);
    assert!(!root().join("none.jsonl").exists());
}

#[test]
fn every_listed_switch_is_accepted_as_listed() {
    let ended = tarn_line("rules --json");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    let switches = report["rules"].as_array().expect("a list");
    let named = tarn_line("bench kvs --variant none").err;
    assert!(switches.len() > 10);
    for switch in switches {
        let (name, off) = (switch["switch"].as_str(), switch["off"].as_str().expect("a form"));
        assert!(named.contains(name.expect("a name")), "{named}");
        // The error is about the number of replicas, and must not name the variant.
        let line = format!("sim kvs --variant corrected,{off} --replicas 9 --memory-nodes 1");
        let ended = tarn_line(&line);
        assert!(ended.err.starts_with("error: --replicas = 9; "), "{line}: {}", ended.err);
    }
    assert!(tarn_line("rules").out.contains("unsafe-no-lock-cas"));
}

#[test]
fn a_refusal_names_the_flag_that_was_given() {
    assert_refused(
        "",
        &[
            (
                "sim outage --crash-at-ms 0",
                "error: --crash-at-ms = 0; allowed: 5 (",
                "to 59 (one --interval-ms before",
            ),
            (
                "sim outage --crash-at-ms -3",
                "error: --crash-at-ms = -3; allowed: 5 (",
                "to 59 (one --interval-ms before",
            ),
            (
                "sim outage --virtual-ms 0",
                "error: --virtual-ms = 0; allowed: 21 to 10000",
                "--crash-at-ms 20",
            ),
            ("sim outage --virtual-ms nan", "error: --virtual-ms = NaN; allowed: 21 ", "10000"),
            (
                "sim outage --interval-ms 5",
                "error: --interval-ms = 5; allowed: 0.01 to 4",
                "a fifth",
            ),
            (
                "sim outage --virtual-ms 10",
                "error: --crash-at-ms = 20; allowed: 5",
                "to 9 (one --interval-ms before",
            ),
            ("sim kvs --html x.html", "error: --html = x.html; allowed: ", "together with --sweep"),
            ("sim --jobs 2", "error: --jobs = 2; allowed: ", "together with --sweep"),
            ("check x --elle-model rw-register", "error: --elle-model = rw-register; ", "--elle"),
            ("explore write-skew --svg x.svg", "error: --svg = x.svg; ", "together with --replay"),
            ("explore write-skew --replay=", "error: --replay = nothing; allowed: ", "a schedule"),
            (
                "bench smallbank --replicas 0",
                "error: --replicas = 0; ",
                "1 to 4096 (the number of memory nodes)",
            ),
            (
                "bench kvs --replicas 300",
                "error: --replicas = 300, ",
                "GiB, which this machine has available",
            ),
            (
                "sim smallbank --slots-per-100-records 99999999",
                "error: --slots-per-100-records = 99999999; allowed: at most ",
                "for the 1000000 records of table savings",
            ),
            ("bench kvs --no-pin=yes", "error: --no-pin = yes; allowed: ", "no value"),
            (
                "bench kvs --variant corrected,-validate-reads,+validate-reads",
                "error: --variant = +validate-reads; allowed: ",
                "each switch of a variant once",
            ),
            ("bench \u{1b}[31mx", "error: WORKLOAD = \\u{1b}[31mx; ", "kvs"),
            ("bench kvs --seed -1", "error: --seed = -1; allowed: ", "without a sign"),
        ],
    );
}

#[test]
fn an_outage_has_only_deaths_that_its_protocol_survives() {
    assert_refused(
        "sim outage --records 1000 --compute-nodes 3 --threads 2 --coroutines 4 --virtual-ms 30 --crash-at-ms 8",
        &[
            (
                "--protocol dslr --crash-compute 0 --crash-memory 1",
                "error: --crash-memory = 1; allowed: 0 with dslr",
                "deaths of memory nodes",
            ),
            (
                "--protocol dslr --crash-compute 1",
                "error: --crash-compute = 1; allowed: 0 with dslr",
                "deaths of compute nodes",
            ),
            (
                "--protocol drtm --crash-compute 1 --crash-memory 1",
                "error: --crash-memory = 1; allowed: 0 with drtm",
                "deaths of memory nodes",
            ),
        ],
    );
}

#[test]
fn a_command_of_several_lists_its_own_commands() {
    assert_refused(
        "",
        &[
            (
                "lock",
                "error: COMMAND = nothing; allowed: decider, agent, run, ",
                "tarn lock --help",
            ),
            (
                "lock nosuch",
                "error: COMMAND = nosuch; allowed: decider, agent, ",
                "tarn lock --help",
            ),
            (
                "lock trace",
                "error: COMMAND = nothing; allowed: write, replay (",
                "(see tarn lock trace --help)",
            ),
            (
                "lock trace draw",
                "error: COMMAND = draw; allowed: write, replay (",
                "lock trace --help",
            ),
            (
                "lock trace replay a --nosuch 1",
                "error: argument = --nosuch; ",
                "tarn lock trace replay --help",
            ),
        ],
    );
}

#[test]
fn values_of_the_lock_service_are_refused_with_their_range() {
    let decider = "lock decider --config c --state s";
    assert_refused(
        "",
        &[
            ("lock check --threads 0", "error: --threads = 0; allowed: ", "1 to 256"),
            ("lock check --minutes -1", "error: --minutes = -1; allowed: ", "1 to "),
            ("lock budget --window 0", "error: --window = 0; allowed: ", "1 to 4294967295"),
            (
                "lock bench --millis 999999999999",
                "error: --millis = 999999999999; ",
                "1 to 86400000",
            ),
            (&format!("{decider} --address foo"), "error: --address = foo; allowed: ", "IP:PORT"),
        ],
    );
}

/// Starts a command that writes a file and lasts for hours, and ends it by a signal after it has begun the file.
#[test]
fn a_signal_leaves_no_part_of_a_file() {
    for signal in ["INT", "TERM"] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("q.svg");
        let mut trace = Command::new(env!("CARGO_BIN_EXE_tarn"));
        trace.args(["trace", "smallbank", "--records", "100", "--virtual-ms", "60000", "--output"]);
        let mut trace = trace.arg(&file).stderr(Stdio::null()).spawn().expect("it starts");
        let partial = folder.path().join("q.svg.partial");
        let wait = "until test -e \"$0\"; do sleep 0.01; done";
        let begins = Command::new("timeout").args(["60", "sh", "-c", wait]).arg(&partial).status();
        assert!(begins.is_ok_and(|status| status.success()), "no file was begun");
        let id = trace.id().to_string();
        let kill = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(kill.is_ok_and(|status| status.success()));
        let status = trace.wait().expect("it ends");
        // A shell sees that a signal has ended the command.
        assert!(status.signal().is_some(), "{status}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "{signal}");
    }
}

#[test]
fn a_signal_ends_random_schedules_with_their_summary() {
    let program = env!("CARGO_BIN_EXE_tarn");
    let arguments = ["--preserve-status", "-s", "INT", "-k", "60", "2", program];
    let mut random = Command::new("timeout");
    random.args(arguments).args(["sim", "random", "--seconds", "100000", "--json"]);
    let ended = random.stdin(Stdio::null()).output().expect("timeout starts");
    let err = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(130), "{err}");
    let sum: Value = serde_json::from_slice(&ended.stdout).expect("one object");
    assert!(sum["seeds_run"].as_u64() > Some(0), "{sum}");
    assert!(err.contains(&format!("interrupted after {} seeds", sum["seeds_run"])), "{err}");
}
