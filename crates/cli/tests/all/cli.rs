//! Tests of the command line: the program's output, its refusals, and its exit codes.
//!
//! Invariant: for bad input the program prints exactly one line on standard error, ends with exit code 2, and leaves
//! no file.

use crate::common::{Ended, tarn, tarn_line};
use serde_json::Value;
use std::fs;

/// The flags of a run that takes a fraction of a second.
const SMALL: &str = "--records 200 --seconds 0.1 --verify-seconds 0.1 --coroutines 4";

fn refused(line: &str) -> String {
    let ended = tarn_line(line);
    assert_refused(line, &ended)
}

fn assert_refused(line: &str, ended: &Ended) -> String {
    assert_eq!(ended.code, Some(2), "{line}: {}", ended.err);
    assert_eq!(ended.out, "", "{line}");
    let lines: Vec<&str> = ended.err.lines().filter(|line| !line.starts_with("notice: ")).collect();
    assert_eq!(lines.len(), 1, "{line}: {}", ended.err);
    lines[0].to_owned()
}

#[test]
fn bad_flags_end_in_one_line_with_the_allowed_values() {
    for (line, start, allowed) in [
        ("bench none", "error: WORKLOAD = none; allowed: ", "smallbank"),
        ("bench", "error: WORKLOAD = nothing; allowed: ", "tatp"),
        ("bench kvs --protocol none", "error: --protocol = none; allowed: ", "ford"),
        ("bench kvs --variant none", "error: --variant = none; allowed: ", "corrected"),
        ("bench kvs --variant corrected,-none", "error: --variant = -none; ", "validate-reads"),
        ("bench kvs --threads 0", "error: --threads = 0; allowed: ", "1 to "),
        ("bench kvs --threads -1", "error: --threads = -1; allowed: ", "a whole number"),
        ("bench kvs --threads two", "error: --threads = two; allowed: ", "a whole number"),
        ("bench kvs --coroutines 0", "error: --coroutines = 0; allowed: ", "1 to "),
        ("bench kvs --coroutines some", "error: --coroutines = some; allowed: ", "auto"),
        ("bench kvs --threads-per-node 2", "error: --threads-per-node = 2; allowed: ", "1 to 1"),
        ("bench kvs --routing by-shard", "error: --routing = by-shard; allowed: ", "none, "),
        (
            "bench kvs --lock-transport messages",
            "error: --lock-transport = messages, with the protocol ford; allowed: ",
            "only with a protocol whose locks are in compute nodes",
        ),
        (
            "bench kvs --lock-transport shouts",
            "error: --lock-transport = shouts; ",
            "calls, messages",
        ),
        (
            "bench kvs --protocol lotus --threads 3 --threads-per-node 2",
            "error: --threads = 3; allowed: ",
            "a multiple of --threads-per-node 2",
        ),
        ("bench kvs --threads-per-node 0", "error: --threads-per-node = 0; allowed: ", "1 to 1"),
        ("bench kvs --seconds 0", "error: --seconds = 0; allowed: ", "more than 0"),
        ("bench kvs --seconds nan", "error: --seconds = NaN; allowed: ", "more than 0"),
        ("bench kvs --verify-seconds 1e9", "error: --verify-seconds = ", "up to 60"),
        ("bench kvs --memory-nodes 0", "error: --memory-nodes = 0; allowed: ", "1 to "),
        ("bench kvs --replicas 2 --memory-nodes 1", "error: --replicas = 2; allowed: ", "1 to 1"),
        ("bench kvs --replicas 0 --memory-nodes 3", "error: --replicas = 0; ", "1 to 3"),
        ("bench kvs --placement here", "error: --placement = here; allowed: ", "hash, table"),
        ("bench kvs --memory none", "error: --memory = none; allowed: ", "auto, shared, private"),
        ("bench kvs --mix-profile none", "error: --mix-profile = none; allowed: ", "mixed"),
        ("bench kvs --records 0", "error: --records = 0; allowed: ", "1 to "),
        ("bench kvs --records 60000000000", "error: --records = ", "allowed: "),
        ("bench kvs --records 1000000000000", "error: --records = 1000000000000; ", "1 to "),
        ("bench kvs --zipf -0.5", "error: --zipf = -0.5; allowed: ", "0 (uniform)"),
        ("bench kvs --zipf inf", "error: --zipf = inf; allowed: ", "0 (uniform)"),
        ("bench kvs --seed", "error: --seed = nothing; allowed: ", "a value"),
        ("bench kvs --sed 1", "error: argument = --sed; allowed: ", "--seed"),
        ("bench kvs --no-verify --verify-seconds 1", "error: --no-verify = ", "--verify-seconds"),
        ("bench kvs --no-verify --history x.jsonl", "error: --history = ", "verification phase"),
        ("bench kvs --history no/such/folder/x", "error: --history = ", "written"),
        ("bench kvs --history crates", "error: --history = crates; ", "not a folder"),
        ("bench --scenario no/such/file", "error: --scenario = no/such/file; ", "can be read"),
        (
            "none",
            "error: COMMAND = none; allowed: ",
            "bench, sim, swarm, trace, explore, reproduce, profiles, rules, check, lock",
        ),
        ("check", "error: HISTORY = nothing; allowed: ", "a value"),
        ("check no/such/file", "error: HISTORY = no/such/file; allowed: ", "cannot open"),
        ("check x --isolation none", "error: --isolation = none; allowed: ", "serializable"),
        ("lock run --config c --lock x -- true", "error: --lock = x; ", "a whole number"),
        ("lock run --config c --lock -1 -- true", "error: --lock = -1; ", "a whole number"),
        ("lock run --config c --lock 9999999999 -- true", "error: --lock = 99", "up to 4294967295"),
        (
            "lock run --config c --lock 99999999999999999999 -- true",
            "error: --lock = 99999999999999999999; allowed: ",
            "up to 4294967295",
        ),
        (
            "lock run --config c --lock 1 --timeout z -- true",
            "error: --timeout = z; allowed: ",
            "a whole number",
        ),
        ("lock agent --config c --machine 70000", "error: --machine = 70000; ", "up to 65535"),
        ("lock bench --millis -5", "error: --millis = -5; allowed: ", "a whole number"),
    ] {
        let said = refused(line);
        assert!(said.starts_with(start), "{line}: {said}");
        assert!(said.contains(allowed), "{line}: {said}");
    }
}

#[test]
fn bad_scenarios_name_the_file_the_line_and_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.toml");
    for (text, expected) in [
        ("workload = \"kvs\"\nrecords = ", "line 2"),
        ("workload = \"kvs\"\nspeed = 3\n", "line 2: unknown field `speed`"),
        ("workload = \"kvs\"\n\nrecords = -3\n", "line 3, records: "),
        ("records = \"x\"\n", "line 1, records: invalid type: string \"x\", expected u64"),
        ("workload = \"kvs\"\ncoroutines = \"many\"\n", "many"),
        ("workload = \"kvs\"\nthreads = 0\n", "--threads = 0; allowed: 1 to"),
        ("workload = \"none\"\n", "WORKLOAD = none; allowed: "),
        ("threads = 1\n", "WORKLOAD = nothing; allowed: "),
        (
            "workload = \"kvs\"\nexpect-kind = [\"none\"]\n",
            "error: expect-kind = none; allowed: history",
        ),
    ] {
        fs::write(&path, text).expect("written");
        let arguments = ["bench", "--scenario", path.to_str().expect("a name")];
        let said = assert_refused(text, &tarn(&arguments));
        assert!(said.starts_with("error: ") && said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn json_is_one_object_with_figures_and_verdicts() {
    let ended = tarn_line(&format!("bench smallbank --threads 2 --json {SMALL}"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    for key in [
        "workload",
        "protocol",
        "variant",
        "fabric",
        "seed",
        "config",
        "mix_run",
        "committed",
        "seconds",
        "throughput_per_s",
        "latency_us",
        "aborts",
        "per_txn",
        "memory_bytes",
        "invariants",
        "history",
        "conflict_rate",
        "phases",
        "machine",
        "pages",
        "line_round_trip_ns",
        "baseline_loops",
        "audit",
    ] {
        assert!(report.get(key).is_some(), "{key}");
    }
    assert_eq!(report["fabric"], "local");
    assert_eq!(report["history"]["verdict"], "accepted");
    assert_eq!(report["history"]["recorded_in"], "verification phase");
    assert_eq!(report["invariants"]["ok"], true);
    assert_eq!(report["audit"]["ok"], true);
    assert_eq!(report["config"]["compute_nodes"], 2);
    assert!(report["committed"].as_u64().is_some_and(|count| count > 0));
    assert!(report["per_txn"]["rounds"].as_f64().is_some_and(|rounds| rounds > 1.0));
    assert_eq!(report["baseline_loops"].as_array().map(Vec::len), Some(3));
}

#[test]
fn nodes_of_one_process_call_each_other_for_locks_unless_they_are_to_send_messages() {
    for how in ["calls", "messages"] {
        let line = "bench smallbank --protocol lotus --threads 2 --routing none --json";
        let flag = if how == "calls" { "" } else { "--lock-transport messages" };
        let ended = tarn_line(&format!("{line} {flag} {SMALL}"));
        assert_eq!(ended.code, Some(0), "{how}: {}", ended.err);
        let report: Value = serde_json::from_str(&ended.out).expect("one object");
        assert_eq!(report["config"]["lock_transport"], how);
        let messages = report["per_txn"]["messages"].as_f64().expect("a figure");
        assert_eq!(messages > 0.1, how == "messages", "{how}: {messages} a transaction");
        assert_eq!(report["history"]["verdict"], "accepted");
    }
}

#[test]
fn every_workload_runs_and_reports_its_findings() {
    for (workload, more) in [
        ("kvs", "--mix-profile mixed --memory-nodes 3 --replicas 3"),
        ("smallbank", "--address-cache 1000 --threads 2 --threads-per-node 2"),
        ("tatp", "--placement table --memory-nodes 2"),
        ("tpcc", "--mix-profile tiny --replicas 2"),
        ("ycsb", "--memory private --mix-profile f"),
    ] {
        // A single warehouse contains many records.
        let small = match workload {
            "tpcc" => SMALL.replace("--records 200", "--records 2"),
            _ => SMALL.to_owned(),
        };
        let ended = tarn_line(&format!("bench {workload} {small} {more}"));
        assert_eq!(ended.code, Some(0), "{workload}: {}{}", ended.out, ended.err);
        for part in ["throughput", "no history recorded", "accepted", "audit", "dependent"] {
            assert!(ended.out.contains(part), "{workload}: {part}: {}", ended.out);
        }
    }
}

#[test]
fn a_flag_wins_over_the_scenario() {
    let line = "bench --scenario scenarios/smallbank-zipf.toml --records 500 --replicas 1 \
                --seconds 0.1 --no-verify --json";
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    assert_eq!(report["config"]["workload"]["accounts"], "500");
    assert_eq!(report["config"]["replicas"], 1);
    assert_eq!(report["config"]["memory_nodes"], 3);
    assert_eq!(report["history"]["verdict"], "not recorded");
}

#[test]
fn a_history_is_written_checked_exported_and_refused_when_cut_short() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = |file: &str| folder.path().join(file).to_str().expect("a name").to_owned();
    let (history, edn) = (name("h.jsonl"), name("h.edn"));
    let ended = tarn_line(&format!("bench smallbank {SMALL} --history {history}"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let ended = tarn_line(&format!("check {history} --elle {edn} --elle-model rw-register"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.starts_with("strict serializable: accepted"), "{}", ended.out);
    assert!(fs::read_to_string(&edn).expect("an export").starts_with("{:index 0, :type :invoke"));
    let ended = tarn_line(&format!("check {history} --json --isolation serializable"));
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    assert_eq!(report["verdict"], "accepted");

    let whole = fs::read_to_string(&history).expect("a history");
    fs::write(&history, &whole[..whole.len() / 2]).expect("written");
    let said = refused(&format!("check {history} --elle {edn}.again"));
    assert!(said.contains("cut short"), "{said}");
    let mut files: Vec<_> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    files.sort();
    assert_eq!(files, ["h.edn", "h.jsonl"]);
}

#[test]
fn a_violation_is_shown_and_ends_in_exit_code_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lost.jsonl");
    // Two transactions read version 1, and both overwrite it.
    let lines = [
        r#"{"tarn_history":1,"meta":{},"tables":["savings"]}"#,
        r#"{"id":1,"coordinator":0,"invoked_ns":0,"completed_ns":9,"outcome":"committed","reads":[[0,7,1,true,0]],"writes":[[0,7,2,"update",0]]}"#,
        r#"{"id":2,"coordinator":1,"invoked_ns":0,"completed_ns":9,"outcome":"committed","reads":[[0,7,1,true,0]],"writes":[[0,7,3,"update",0]]}"#,
        r#"{"end":true,"transactions":2}"#,
    ];
    fs::write(&path, lines.join("\n") + "\n").expect("written");
    let ended = tarn_line(&format!("check {}", path.display()));
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.out.contains("VIOLATED") && ended.out.contains("lost update"), "{}", ended.out);
}

#[test]
fn help_has_examples() {
    for line in ["--help", "bench --help", "check --help", "lock --help"] {
        let ended = tarn_line(line);
        assert_eq!(ended.code, Some(0));
        assert!(ended.out.contains("Examples:"), "{line}");
    }
    assert!(tarn_line("--version").out.starts_with("tarn "));
}

/// Opens a device that is always full. Only Linux has such a device.
#[cfg(target_os = "linux")]
fn full() -> std::process::Stdio {
    fs::OpenOptions::new().write(true).open("/dev/full").expect("a device").into()
}

#[test]
#[cfg(target_os = "linux")]
fn a_result_that_cannot_be_written_names_the_file_and_is_no_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = folder.path().join("kvs.jsonl");
    let recorded = tarn_line(&format!("bench kvs {SMALL} --history {}", history.display()));
    assert_eq!(recorded.code, Some(0), "{}", recorded.err);
    let check = format!("check {}", history.display());
    for line in [
        "profiles --json",
        "rules",
        "reproduce --list",
        "--help",
        "--version",
        "bench --help",
        &check,
    ] {
        let program = std::process::Command::new(env!("CARGO_BIN_EXE_tarn"))
            .args(line.split(' '))
            .stdout(full())
            .output();
        let ended = program.expect("the program starts");
        assert_eq!(ended.status.code(), Some(1), "{line}");
        let error = String::from_utf8(ended.stderr).expect("text");
        assert!(
            error.starts_with("error: standard output: cannot be written: "),
            "{line}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "{line}: {error}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_standard_error_changes_no_exit_code() {
    for (line, code) in [("bench none", 2), ("rules", 0), ("check no/such/file", 2)] {
        let program = std::process::Command::new(env!("CARGO_BIN_EXE_tarn"))
            .args(line.split(' '))
            .stdout(std::process::Stdio::null())
            .stderr(full())
            .status();
        assert_eq!(program.expect("the program starts").code(), Some(code), "{line}");
    }
}

#[test]
fn a_misspelt_name_gets_a_guess_wherever_a_name_is_given() {
    for (line, meant) in [
        ("bnech", "bench"),
        ("help bnech", "bench"),
        ("bench smalbank", "smallbank"),
        ("sim rendom", "random"),
        ("trace smalbank", "smallbank"),
        ("explore write-skw", "write-skew"),
        ("reproduce lotus-fig2", "lotus-fig-2"),
        ("repro lotus --only fig2", "fig-2"),
        ("repro lotus --what-if tpcc=cres", "crest"),
        ("profiles cx3-56", "cx3-56g"),
        ("rules --protocol moter", "motor"),
        ("bench kvs --protocol frod", "ford"),
        ("bench kvs --variant corected", "corrected"),
        ("bench kvs --variant corrected,-validate-read", "validate-reads"),
        ("bench kvs --mix-profile mixd", "mixed"),
        ("bench kvs --routing by-shrad", "by-shard"),
        ("bench kvs --thread 2", "--threads"),
        ("sim kvs --set nic.read_mop=3", "nic.read_mops"),
        ("sim kvs --sweep coordinatrs=1,2", "coordinators"),
        ("sim random --workload smalbank", "smallbank"),
        ("trace smallbank --procedure send_paymen", "send_payment"),
        ("swarm --protocol lotos --seeds 1", "lotus"),
        ("explore write-skew --fault memry", "memory"),
    ] {
        let said = refused(line);
        assert!(said.ends_with(&format!("; did you mean {meant}?")), "{line}: {said}");
    }
    // If no name is similar, the program makes no guess.
    for line in ["bench mongodb", "bench kvs --seed whole", "check no/such/bench"] {
        let said = refused(line);
        assert!(!said.contains("did you mean"), "{line}: {said}");
    }
}

#[test]
fn callers_aborts_are_counted_apart_from_conflicts() {
    let ended = tarn_line(&format!("bench smallbank {SMALL}"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let line = |name: &str| {
        let found = ended.out.lines().find(|line| line.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("{name}: {}", ended.out)).to_owned()
    };
    assert!(!line("aborted tries").contains("user"), "{}", ended.out);
    let own = line("own aborts");
    assert!(own.contains("insufficient funds") && own.ends_with("no failures"), "{own}");
    let kvs = tarn_line(&format!("bench kvs {SMALL}"));
    assert!(!kvs.out.contains("own aborts"), "{}", kvs.out);
}

/// Tests that an error does not write a field as a flag if the command line cannot set the field.
#[test]
fn errors_name_existing_flags_only() {
    let said = refused("bench kvs --protocol motor --threads 1024 --coroutines 1024");
    assert!(said.starts_with("error: coordinators = "), "{said}");
    assert!(said.contains("in one replica group; allowed: at most "), "{said}");
}
