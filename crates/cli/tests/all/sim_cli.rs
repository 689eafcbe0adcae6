//! Tests of `tarn sim` and `tarn profiles`: their output, their refusals, and that the seed determines everything
//! except the wall clock.
//!
//! Invariant: for bad input the program prints exactly one line on standard error, ends with exit code 2, and leaves
//! no file.

use crate::common::{root, tarn, tarn_line};
use serde_json::Value;
use std::fs;

/// The flags of a run that takes a fraction of a second.
const SMALL: &str = "--records 2000 --virtual-ms 1 --compute-nodes 2 --replicas 3";

fn refused(line: &str) -> String {
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(2), "{line}: {}", ended.err);
    assert_eq!(ended.out, "", "{line}");
    assert_eq!(ended.err.lines().count(), 1, "{line}: {}", ended.err);
    ended.err
}

fn object(line: &str) -> Value {
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(0), "{line}: {}", ended.err);
    serde_json::from_str(&ended.out).expect("one object")
}

#[test]
fn bad_flags_end_in_one_line_with_the_allowed_values() {
    for (line, start, allowed) in [
        ("sim", "error: WORKLOAD = nothing; allowed: ", "smallbank"),
        ("sim none", "error: WORKLOAD = none; allowed: ", "tatp"),
        ("sim kvs --profile none", "error: --profile = none; allowed: ", "cx5-100g"),
        ("sim kvs --profile no/such.toml", "error: --profile = no/such.toml; ", "can be read"),
        ("sim kvs --virtual-ms 0", "error: --virtual-ms = 0; allowed: ", "0.001 to "),
        ("sim kvs --virtual-ms -1", "error: --virtual-ms = -1; allowed: ", "0.001 to "),
        ("sim kvs --virtual-ms nan", "error: --virtual-ms = NaN; allowed: ", "0.001 to "),
        ("sim kvs --verify-ms 0", "error: --verify-ms = 0; allowed: ", "0.001 to "),
        ("sim kvs --compute-nodes 0", "error: --compute-nodes = 0; allowed: ", "1 to 1024"),
        ("sim kvs --compute-nodes 1025", "error: --compute-nodes = 1025; ", "1 to 1024"),
        ("sim kvs --memory-nodes 0", "error: --memory-nodes = 0; allowed: ", "1 to "),
        ("sim kvs --memory-nodes two", "error: --memory-nodes = two; ", "a whole number"),
        ("sim kvs --replicas 3 --memory-nodes 2", "error: --replicas = 3; allowed: ", "1 to 2"),
        ("sim kvs --replicas 0 --memory-nodes 2", "error: --replicas = 0; allowed: ", "1 to 2"),
        ("sim kvs --threads 0", "error: --threads = 0; allowed: ", "1 to 128"),
        ("sim kvs --threads 129", "error: --threads = 129; allowed: ", "1 to 128"),
        ("sim kvs --coordinators 0", "error: --coordinators = 0; allowed: ", "1 to 65536"),
        ("sim kvs --coordinators 65537", "error: --coordinators = 65537; ", "1 to 65536"),
        (
            "sim kvs --compute-nodes 3 --threads 2 --coordinators 5",
            "error: --coordinators = 5; allowed: ",
            "6 to 6144 (3 compute nodes of 2 threads",
        ),
        ("sim kvs --records 0", "error: --records = 0; allowed: ", "1 to "),
        ("sim kvs --records 60000000000", "error: --records = ", "allowed: "),
        ("sim kvs --zipf -1", "error: --zipf = -1; allowed: ", "0 (uniform)"),
        ("sim kvs --mix-profile none", "error: --mix-profile = none; allowed: ", "mixed"),
        ("sim kvs --protocol none", "error: --protocol = none; allowed: ", "ford"),
        (
            "sim kvs --read-lease-adjust-ns 9",
            "error: --read-lease-adjust-ns = 9, with the protocol ford; ",
            "have leases",
        ),
        (
            "sim kvs --protocol oocc --read-lease-adjust-ns 0",
            "error: --read-lease-adjust-ns = 0; ",
            "1 or more",
        ),
        (
            "sim kvs --protocol oocc --read-lease-least-ns 7",
            "error: --read-lease-least-ns = 7; ",
            "with --read-lease-adjust-ns",
        ),
        (
            "bench kvs --protocol oocc --read-lease-adjust-ns 9 --read-lease-least-ns 7 --read-lease-most-ns 6",
            "error: --read-lease-least-ns = 7; ",
            "1 to 6",
        ),
        (
            "bench kvs --protocol oocc --read-lease-adjust-ns 9 --read-lease-most-ns 16777216",
            "error: --read-lease-most-ns = 16777216; ",
            "1 to 16777215",
        ),
        ("sim kvs --variant none", "error: --variant = none; allowed: ", "corrected"),
        (
            "sim kvs --routing by-shard",
            "error: --routing = by-shard; allowed: ",
            "none, because the locks of ford",
        ),
        ("sim kvs --routing here", "error: --routing = here; allowed: ", "by-shard, none"),
        ("sim hotspot --protocol ford", "error: --protocol = ford; allowed: ", "lotus"),
        ("sim hotspot --compute-nodes 1", "error: --compute-nodes = 1; allowed: ", "2 to 384"),
        ("sim hotspot --hot-share 0", "error: --hot-share = 0; allowed: ", "1 to 100"),
        ("sim hotspot --hot-shards 700", "error: --hot-shards = 700; allowed: ", "1 to 682"),
        ("sim hotspot --overload 100", "error: --overload = 100; allowed: ", "101 to "),
        ("sim hotspot --hot-ms 50", "error: --hot-ms = 50; allowed: ", "100 or more"),
        ("sim kvs --placement here", "error: --placement = here; allowed: ", "hash, table"),
        ("sim kvs --no-verify --history x.jsonl", "error: --history = ", "verification phase"),
        ("sim kvs --history no/such/folder/x", "error: --history = ", "written"),
        ("sim kvs --virtual 3", "error: argument = --virtual; allowed: ", "--virtual-ms"),
        ("sim kvs nic", "error: COMMAND = given together with ", "WORKLOAD"),
        ("profiles none", "error: PROFILE = none; allowed: ", "cx3-56g"),
    ] {
        let said = refused(line);
        assert!(said.starts_with(start), "{line}: {said}");
        assert!(said.contains(allowed), "{line}: {said}");
    }
}

#[test]
fn leases_are_adjusted_and_the_time_to_adjust_is_printed() {
    // The manager samples one writer in 64. The run is long enough for about twenty of these samples.
    let line = "sim ycsb --protocol oocc --mix-profile oocc-ri --compute-nodes 2 --records 2000 --virtual-ms 8 \
                --coordinators 16 --read-lease-ns 100 --read-lease-adjust-ns 100000";
    let report = object(&format!("{line} --json"));
    let manager = &report["read_leases"]["manager"];
    assert!(
        manager["changes"].as_u64() > Some(0) && manager["looks"].as_u64() > Some(1),
        "{report}"
    );
    assert!(manager["time_to_adjust_us"].as_f64() > Some(0.0), "{report}");
    assert_eq!(manager["first"][0]["from_ns"], 100, "{report}");
    assert!(report["read_leases"]["last_ns"].as_u64() > Some(100), "{report}");
    assert!(report["read_leases"]["sampled"].as_u64() > Some(10), "{report}");
    assert!(report["read_leases"]["stages_us"]["execute"].as_f64() > Some(0.0), "{report}");
    let text = tarn_line(line).out;
    assert!(text.contains("time to adjust ") && text.contains("lease manager"), "{text}");
    let silent = object("sim ycsb --protocol oocc --records 2000 --virtual-ms 1 --json");
    assert_eq!(silent["read_leases"], Value::Null, "nobody asked for leases");
}

#[test]
fn a_bad_profile_names_the_file_the_constant_and_the_allowed_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.toml");
    let whole = fs::read_to_string(root().join("profiles/cx3-56g.toml")).expect("a profile");
    for (from, to, expected) in [
        ("transmit_read_mops", "transmit_read_mop", "unknown field `transmit_read_mop`"),
        (
            "switch_ns = { value = 20,",
            "switch_ns = { value = -20,",
            "cpu.switch_ns = -20; allowed: 0 to",
        ),
        ("[clock]", "[clocks]", "clocks"),
    ] {
        fs::write(&path, whole.replacen(from, to, 1)).expect("written");
        let name = path.to_str().expect("a name");
        for line in [format!("sim kvs --profile {name}"), format!("profiles {name}")] {
            let said = refused(&line);
            assert!(said.contains(name) && said.contains(expected), "{line}: {said}");
        }
    }
}

#[test]
fn one_seed_gives_one_report_apart_from_the_wall_clock() {
    let report = |seed: u64| {
        let mut report = object(&format!("sim smallbank --json --seed {seed} {SMALL}"));
        let wall = report.as_object_mut().expect("an object").remove("wall").expect("wall");
        assert!(wall["events_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
        serde_json::to_string(&report).expect("text")
    };
    assert_eq!(report(7), report(7));
    assert_ne!(report(7), report(8));
}

#[test]
fn json_has_the_fields_of_bench_and_those_of_the_simulator() {
    let report = object(&format!("sim smallbank --json --coordinators 40 {SMALL}"));
    for key in [
        "workload",
        "protocol",
        "variant",
        "mix_run",
        "committed",
        "seconds",
        "aborts",
        "conflict_rate",
        "phases",
        "per_txn",
        "memory_bytes",
        "outcomes",
        "failures",
        "busiest",
    ] {
        assert!(report.get(key).is_some(), "{key}");
    }
    assert_eq!(report["fabric"], "sim");
    assert_eq!(report["profile"], "cx5-100g");
    assert_eq!(report["virtual_ms"], 1.0);
    assert_eq!(report["seconds"], 0.001);
    assert_eq!(report["config"]["coordinators"], 40);
    assert_eq!(report["config"]["threads"], 5);
    assert_eq!(report["config"]["memory_nodes"], 3);
    assert_eq!(report["history"]["verdict"], "accepted");
    assert_eq!(report["history"]["recorded_in"], "verification phase");
    assert_eq!(report["invariants"]["ok"], true);
    assert_eq!(report["audit"]["ok"], true);
    assert_eq!(report["digest"].as_str().map(str::len), Some(16));
    let number = |value: &Value| value.as_f64().expect("a number");
    let per_second = number(&report["committed"]) * 1e3;
    assert!((number(&report["throughput_per_s"]) - per_second).abs() < 1.0);
    assert!(number(&report["latency_us"]["p50"]) > 5.0, "a transaction takes several round trips");
    assert!(number(&report["events"]) > number(&report["committed"]));
    for part in ["nic", "cpu", "atomics", "bandwidth"] {
        assert!(number(&report["utilisation"][part]) > 0.0, "{part}");
    }
    assert!((0.0..=1.0).contains(&number(&report["bottleneck"]["share"])));
}

#[test]
fn slower_hardware_gives_fewer_transactions() {
    let rate = |profile: &str| {
        let report =
            object(&format!("sim smallbank --json --no-verify --profile {profile} {SMALL}"));
        assert_eq!(report["history"]["verdict"], "not recorded");
        report["throughput_per_s"].as_f64().expect("a number")
    };
    assert!(rate("cx3-56g") < rate("cx5-100g"));
}

#[test]
fn every_workload_runs_and_names_its_limit() {
    for workload in ["kvs", "smallbank", "taobench", "tatp", "tpcc --mix-profile tiny", "ycsb"] {
        // A single warehouse contains many records.
        let small = match workload.starts_with("tpcc") {
            true => SMALL.replace("--records 2000", "--records 2"),
            false => SMALL.to_owned(),
        };
        let ended = tarn_line(&format!("sim {workload} {small}"));
        assert_eq!(ended.code, Some(0), "{workload}: {}{}", ended.out, ended.err);
        for part in ["throughput", "utilisation", "busiest", "accepted", "audit", "digest"] {
            assert!(ended.out.contains(part), "{workload}: {part}: {}", ended.out);
        }
        // A NIC executes atomics in parallel. So the report shows the number of concurrent atomics, which is no
        // share.
        let shares = ended.out.lines().find(|line| line.contains("utilisation")).expect("a line");
        assert!(shares.contains("; atomics ") && shares.ends_with(" at a time"), "{shares}");
    }
}

#[test]
fn a_planted_bug_ends_in_exit_code_1() {
    let line = "sim smallbank --records 20 --compute-nodes 3 --replicas 3 --coordinators 48 \
                --virtual-ms 2 --verify-ms 2 --variant corrected,-write-after-validation";
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("VIOLATED"), "{}", ended.out);
    assert!(ended.err.contains("checks failed: "), "{}", ended.err);
}

#[test]
fn a_history_can_be_judged_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("h.jsonl");
    let path = path.to_str().expect("a name");
    object(&format!("sim smallbank --json --history {path} {SMALL}"));
    let ended = tarn(&["check", path]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.starts_with("strict serializable: accepted"), "{}", ended.out);
}

#[test]
fn profiles_are_listed_with_source_and_standing() {
    let list = object("profiles --json");
    let names: Vec<_> = list.as_array().expect("a list").iter().map(|each| &each["name"]).collect();
    assert_eq!(names, ["cx3-56g", "cx5-100g", "cx6-200g"]);
    let profile = object("profiles cx3-56g --json");
    let constants = profile["constants"].as_array().expect("a list");
    assert!(constants.len() > 30);
    for constant in constants {
        assert!(constant["source"].as_str().is_some_and(|source| !source.is_empty()));
        let standing = constant["standing"].as_str().expect("a word");
        assert!(["measured", "derived", "assumed"].contains(&standing));
    }
    let text = tarn_line("profiles cx3-56g").out;
    let line = text.lines().find(|line| line.contains("nic.read_mops")).expect("a line");
    assert!(line.contains("26.5") && line.contains("measured") && line.contains("rdma_bench"));
    assert!(tarn_line("profiles").out.contains("cx6-200g"));
}

#[test]
fn help_has_examples() {
    for line in ["sim --help", "sim nic --help", "profiles --help"] {
        let ended = tarn_line(line);
        assert_eq!(ended.code, Some(0));
        assert!(ended.out.contains("Examples:"), "{line}");
    }
}

#[test]
fn a_nic_is_measured_beside_published_figures() {
    let report = object("sim nic --profile cx3-56g --json");
    assert_eq!(report["profile"], "cx3-56g");
    let number = |value: &Value| value.as_f64().expect("a number");
    let all = report["measurements"].as_array().expect("a list");
    let lists = all.iter().map(|each| each["beside"].as_array().expect("a list"));
    let published: Vec<_> = lists.flatten().collect();
    assert!(all.len() > 80 && published.len() >= 11, "{} {}", all.len(), published.len());
    for each in all {
        assert!(number(&each["rate_mops"]) > 0.0, "{each}");
        let latency = &each["latency_us"];
        assert!(number(&latency["p50"]) > 0.5, "{each}");
        assert!(number(&latency["p50"]) <= number(&latency["p99"]), "{each}");
        let busy = each["busy"].as_array().expect("a list");
        let shares = busy.iter().filter(|part| part["part"] != "nic atomics");
        assert!(shares.clone().all(|part| number(&part["share"]) <= 1.0), "{each}");
        assert!(shares.count() > 0);
    }
    for each in published {
        let ratio = number(&each["model"]) / number(&each["published"]);
        assert!((ratio - number(&each["ratio"])).abs() < 1e-9);
        assert!(each["source"].as_str().is_some_and(|source| !source.is_empty()));
        let told = each["standing"] != "predicted";
        assert_eq!(told, each["rests_on"].is_string());
        // If the model was given a published value, it reproduces the value or states why it does not.
        assert!(!told || (0.9..1.1).contains(&ratio) || each["miss"].is_string(), "{each}");
    }
    let table = tarn_line("sim nic --profile cx6-200g --curve doorbell").out;
    assert!(table.contains("96 threads") && table.contains("SMART"), "{table}");
    assert!(!table.contains("latency:"), "{table}");
    assert!(refused("sim nic --profile none").starts_with("error: --profile = none; allowed: "));
}

#[test]
fn constants_are_set_for_one_run_and_the_report_says_so() {
    let line = format!("sim smallbank --json --no-verify {SMALL}");
    let plain = object(&line);
    assert_eq!(
        (&plain["profile_modified"], &plain["overrides"]),
        (&false.into(), &Value::Array(vec![]))
    );
    let slow = object(&format!("{line} --set nic.read_mops=0.5 --set form.atomic_unit=serial"));
    assert_eq!(slow["profile_modified"], true);
    assert_eq!(slow["overrides"][0]["key"], "nic.read_mops");
    assert_eq!(slow["overrides"][0]["value"], "0.5");
    assert_eq!(slow["overrides"][0]["was"], "75");
    assert_eq!(slow["overrides"][1]["was"], "per-address");
    let rate = |report: &Value| report["throughput_per_s"].as_f64().expect("a number");
    assert!(rate(&slow) < 0.7 * rate(&plain), "{} {}", rate(&slow), rate(&plain));
    let text = tarn_line(&format!("sim kvs --no-verify --set cpu.switch_ns=40 {SMALL}")).out;
    assert!(text.contains("cpu.switch_ns = 40 instead of 20"), "{text}");
    let nic = tarn_line("sim nic --curve latency --set link.switch_ns=1000").out;
    assert!(nic.contains("modified: link.switch_ns = 1000 instead of 250"), "{nic}");
    let nic = object("sim nic --curve latency --set link.switch_ns=1000 --json");
    assert_eq!(
        (&nic["profile_modified"], &nic["overrides"][0]["value"]),
        (&true.into(), &"1000".into())
    );
    for (set, allowed) in [
        (
            "nic.raed_mops=1",
            "keys: form.atomic_unit, form.doorbells, form.framing, cpu.switch_ns, ",
        ),
        ("nic.read_mops", "KEY=VALUE"),
        ("nic.read_mops=", "a number"),
        ("nic.read_mops=-1", "0.001 to 10000"),
        ("nic.read_mops=inf", "0.001 to 10000"),
        ("form.framing=ipx", "`infiniband` or `roce-v2`"),
        ("nic.read_mops=9 --set nic.read_mops=8", "each key once"),
    ] {
        for line in [format!("sim kvs --set {set}"), format!("sim nic --set {set}")] {
            let said = refused(&line);
            let last = set.rsplit(' ').next().expect("a setting");
            assert!(said.starts_with(&format!("error: --set = {last}; allowed: ")), "{said}");
            assert!(said.contains(allowed), "{said}");
        }
    }
    let said = refused("sim nic --curve doorbells");
    assert!(said.starts_with("error: --curve = doorbells; allowed: latency, "), "{said}");
    let names = tarn_lab::simulate::nic::CURVES.iter().map(|curve| curve.name.as_str());
    // The requester is no curve, but a table of published rows.
    let listed = format!("Only these curves: {}, requester;", names.collect::<Vec<_>>().join(", "));
    let help = tarn_line("sim nic --help").out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&listed), "{listed}: {help}");
}

/// Tests one thread with many coordinators, where the processor is the bottleneck.
#[test]
fn a_transaction_is_charged_to_its_coordinator() {
    let rate = |more: &str| {
        let line = "sim smallbank --json --no-verify --records 20000 --virtual-ms 2 --threads 1 \
                    --coordinators 48 --replicas 1";
        let report = object(&format!("{line} {more}"));
        let number = |value: &Value| value.as_f64().expect("a number");
        (number(&report["throughput_per_s"]), number(&report["utilisation"]["cpu"]))
    };
    let none = "--set cpu.transaction_ns=0 --set cpu.record_ns=0 --set cpu.written_record_ns=0";
    let ((free, _), (charged, cpu)) = (rate(none), rate(""));
    assert!((0.95..=1.0).contains(&cpu), "{cpu}");
    assert!(charged < 0.95 * free, "{charged} {free}");
    assert!(rate("--set cpu.transaction_ns=5000").0 < 0.5 * charged);
}

/// Tests reads of known keys, which have no working set and are charged to their coordinator in another way.
#[test]
fn a_call_is_charged_to_its_coordinator() {
    let rate = |protocol: &str, more: &str| {
        let line = "sim ycsb --mix-profile oocc-ro --zipf 0 --json --no-verify --records 20000 --virtual-ms 2 \
                    --threads 1 --coordinators 48 --replicas 1 --protocol";
        let report = object(&format!("{line} {protocol} {more}"));
        report["throughput_per_s"].as_f64().expect("a number")
    };
    for protocol in ["ford", "occ", "oocc"] {
        let charged = rate(protocol, "");
        assert!(
            charged
                < 0.98 * rate(protocol, "--set cpu.together_ns=0 --set cpu.together_record_ns=0")
        );
        assert!(rate(protocol, "--set cpu.together_ns=5000") < 0.5 * charged, "{protocol}");
        assert!(rate(protocol, "--set cpu.together_record_ns=1000") < 0.5 * charged, "{protocol}");
    }
    let (charged, dear) = (rate("drtm", ""), rate("drtm", "--set cpu.together_ns=5000"));
    assert_eq!(charged, dear, "it reads as a transaction");
}

/// Tests a machine that runs again before the other nodes have noticed its crash. The machine must wait, because the
/// logs of its coordinators are still needed.
#[test]
fn an_outage_is_sound_and_the_same_twice() {
    let line = "sim outage --records 400 --compute-nodes 3 --crash-compute 1 --threads 1 --coroutines 2 --interval-ms 0.2 \
                --virtual-ms 6 --crash-at-ms 2 --restart-ms 1 --lease-ms 3 --json";
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ended.out, tarn_line(line).out);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    let events = report["events"].as_array().expect("a list");
    let at = |what: &str| {
        let says = |event: &&Value| event["what"].as_str().is_some_and(|it| it.contains(what));
        events.iter().find(says).and_then(|event| event["at_ms"].as_f64())
    };
    let (recovered, joined) = (at("recovered").expect("a recovery"), at("has joined"));
    assert!(joined.expect("it is back") >= recovered, "{events:?}");
    assert!(report["before_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
}

/// Tests that the program audits indexes, and checks all rules of TPC-C against the acknowledged transactions.
#[test]
fn an_outage_of_tpcc_is_judged_by_its_conditions() {
    let line = "sim outage tpcc --mix-profile tiny --records 2 --compute-nodes 3 --crash-compute 1 --threads 1 \
                --coroutines 2 --interval-ms 0.2 --virtual-ms 4 --crash-at-ms 2 --restart-ms 1 --json";
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    let rules = report["checks"]["rules"]["each"].as_array().expect("a list");
    let names: Vec<&str> = rules.iter().filter_map(|rule| rule["name"].as_str()).collect();
    // The rules include C11 and the number of rows, because the counts of dead coordinators are not lost.
    assert_eq!(rules.len(), 16, "{names:?}");
    assert!(rules.iter().all(|rule| rule["ok"] == true), "{rules:?}");
    let audit = &report["checks"]["audit"];
    assert_eq!((&audit["ok"], &audit["entries_differ"]), (&true.into(), &0.into()), "{audit}");
}

#[test]
fn deaths_at_the_end_are_recovered_before_the_memory_is_judged() {
    let small = "--records 400 --compute-nodes 3 --crash-compute 1 --threads 1 --coroutines 2 --interval-ms 0.2";
    for fate in ["--lease-ms 3 --virtual-ms 2.4", "--crash-memory 1 --virtual-ms 2.2"] {
        let ended = tarn_line(&format!("sim outage {small} --crash-at-ms 2 {fate}"));
        assert_eq!(ended.code, Some(0), "{fate}: {}", ended.err);
    }
}

/// Tests that the hot shards move to other nodes until each node has its share. No acknowledged transaction is lost.
#[test]
fn a_hotspot_is_dealt_out_and_throughput_comes_back() {
    let line = "sim hotspot --records 40000 --interval-ms 1 --hot-ms 20 --virtual-ms 40 --json";
    let report = object(line);
    let cases = report["cases"].as_array().expect("three cases");
    let last = |case: usize| cases[case]["at_last_per_s"][1].as_f64().expect("a figure");
    let [balanced, not_moved, moved] = [0, 1, 2].map(last);
    assert!(not_moved < 0.7 * balanced, "{not_moved} of {balanced}: the hotspot is one");
    assert!(moved > 0.9 * balanced, "{moved} of {balanced}");
    let moves = cases[2]["moved"].as_array().expect("moves");
    assert!((2..=16).contains(&moves.len()), "{moves:?}");
    for each in moves {
        let [handover, interruption] =
            ["handover_us", "interruption_us"].map(|it| each[it].as_f64().expect("a hot shard"));
        assert!(0.0 < handover && handover <= interruption && interruption < 10_000.0, "{each}");
    }
    assert_eq!(report["history"]["verdict"], "accepted");
    assert_eq!(report["audit"]["ok"], true);
    assert_eq!(report["invariants"]["ok"], true);
}

#[test]
fn routed_transactions_ask_other_nodes_for_less() {
    let messages = |how: &str| {
        let line = format!("sim smallbank {SMALL} --protocol lotus --routing {how} --json");
        let report = object(&line);
        assert_eq!(report["config"]["routing"], how);
        report["per_txn"]["messages"].as_f64().expect("a figure")
    };
    let (routed, drawn) = (messages("by-shard"), messages("none"));
    assert!(routed < 0.8 * drawn, "{routed} of {drawn}");
}
