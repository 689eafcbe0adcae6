//! Tests of `tarn trace`: its drawings show the real run, and bad input is refused.
//!
//! Invariant: for bad input the program prints exactly one line on standard error, ends with exit code 2, and leaves
//! no file.

use crate::common::{Ended, root, tarn_line};
use serde_json::Value;
use std::fs;

fn drawn(line: &str) -> String {
    let Ended { code, out, err } = tarn_line(line);
    assert_eq!(code, Some(0), "{line}: {err}");
    out
}

fn object(line: &str) -> Value {
    serde_json::from_str(&drawn(&format!("{line} --format json"))).expect("one object")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

/// The cost of a transaction, counted in the same way as in `crates/engine/tests/all/rtt_budget.rs`.
#[derive(PartialEq, Eq, Debug)]
struct Cost {
    /// The number of rounds until the reply, and the number of detached rounds, for which no transaction waits.
    rounds: usize,
    detached: usize,
    reads: usize,
    writes: usize,
    cas: usize,
}

fn cost(txn: &Value) -> Cost {
    let tries = list(&txn["tries"]);
    assert_eq!(tries.len(), 1, "{txn}");
    let rounds = list(&tries[0]["rounds"]);
    let verbs = |kind: &str| {
        let batches = rounds.iter().flat_map(|round| list(&round["batches"]));
        let verbs = batches.flat_map(|batch| list(&batch["verbs"]));
        verbs.filter(|verb| verb["kind"] == kind).count()
    };
    let awaited = rounds.iter().filter(|round| round["awaited"] == true).count();
    Cost {
        rounds: awaited,
        detached: rounds.len() - awaited,
        reads: verbs("READ"),
        writes: verbs("WRITE"),
        cas: verbs("CAS"),
    }
}

fn phases(txn: &Value) -> Vec<String> {
    let rounds = list(&txn["tries"][0]["rounds"]);
    let name = |phases: &Value| {
        list(phases).iter().filter_map(Value::as_str).collect::<Vec<_>>().join("+")
    };
    rounds.iter().map(|round| name(&round["phases"])).collect()
}

/// Asserts the cost of the trace's transactions. If the record lies at its home bin, one round reads the record. The
/// other transactions, which must be few, cost one round more, with three READs of the record's bucket.
fn costs_at_home(trace: &Value, expected: &Cost) {
    let (mut home, mut away) = (0, 0);
    for txn in list(&trace["transactions"]) {
        let mut spent = cost(txn);
        if phases(txn).iter().filter(|phase| *phase == "locate").count() == 2 {
            (spent.rounds, spent.reads) = (spent.rounds - 1, spent.reads - 3);
            away += 1;
        } else {
            home += 1;
        }
        assert_eq!(spent, *expected, "{txn}");
    }
    assert!(home > 2 * away, "{home} at home, {away} away");
}

/// Returns the cost of a transaction that writes one record, as `write_cost` of the budget's test does. The
/// transaction posts two WRITEs to each replica (the log and the record).
fn write_cost(replicas: usize, rounds: usize, reads: usize) -> Cost {
    match replicas {
        1 => Cost { rounds, detached: 0, reads, writes: 2 + 1, cas: 1 },
        _ => Cost { rounds, detached: 1, reads, writes: 2 * replicas, cas: 2 },
    }
}

#[test]
fn an_update_has_the_rounds_and_verbs_of_the_budget() {
    for replicas in [1, 3] {
        let line = format!(
            "trace kvs --mix-profile wo --records 50 --coordinators 1 --replicas {replicas} \
             --placement table --virtual-ms 1 --transactions 20"
        );
        // The transaction does not know the record's address. The rounds are: the bin; lock and read; log and write.
        let trace = object(&line);
        costs_at_home(&trace, &write_cost(replicas, 3, 2));
        let first = phases(&trace["transactions"][0]);
        match replicas {
            1 => assert_eq!(first, ["locate", "lock", "write+unlock_with_data"]),
            _ => assert_eq!(first, ["locate", "lock", "write", "unlock"]),
        }
        // The transaction knows the record's address. The rounds are: lock and read; log and write.
        let trace = object(&format!("{line} --address-cache 1024"));
        let known =
            list(&trace["transactions"]).iter().filter(|txn| phases(txn)[0] == "lock_direct");
        let known: Vec<&Value> = known.collect();
        assert!(!known.is_empty(), "{trace}");
        for txn in known {
            assert_eq!(cost(txn), write_cost(replicas, 2, 1), "{replicas}: {txn}");
        }
    }
}

#[test]
fn a_read_is_one_round_without_atomics() {
    let trace =
        object("trace kvs --mix-profile ro --records 50 --coordinators 1 --transactions 20");
    costs_at_home(&trace, &Cost { rounds: 1, detached: 0, reads: 1, writes: 0, cas: 0 });
}

#[test]
fn times_follow_one_another_and_a_round_ends_with_its_last_answer() {
    let trace =
        object("trace smallbank --records 500 --replicas 3 --transactions 10 --virtual-ms 1");
    let number = |value: &Value| value.as_u64().expect("a time");
    for txn in list(&trace["transactions"]) {
        for round in list(&txn["tries"][0]["rounds"]) {
            let mut last = 0;
            for batch in list(&round["batches"]) {
                let names = ["posted", "sent", "arrived", "left", "taken", "seen"];
                let times = names.map(|name| number(&batch[format!("{name}_ns")]));
                assert!(times.is_sorted(), "{batch}");
                last = last.max(times[5]);
            }
            assert_eq!(number(&round["completed_ns"]), last, "{round}");
            let resumed = round["resumed_ns"].as_u64();
            assert_eq!(resumed.is_some(), round["awaited"] == true);
            assert!(resumed.is_none_or(|resumed| resumed >= last));
        }
    }
}

#[test]
fn the_traced_run_equals_the_measured_one() {
    let flags = "smallbank --records 300 --replicas 3 --coordinators 24 --virtual-ms 1 --seed 5";
    let measured = drawn(&format!("sim {flags} --no-verify --json"));
    let measured: Value = serde_json::from_str(&measured).expect("one object");
    for pick in ["first", "slowest"] {
        assert_eq!(object(&format!("trace {flags} --pick {pick}"))["digest"], measured["digest"]);
    }
    // The trace gives latencies exact to the nanosecond, and the report gives them with three digits.
    let slowest = object(&format!("trace {flags} --pick slowest"));
    let txn = &slowest["transactions"][0];
    let latency =
        txn["ended_ns"].as_u64().zip(txn["began_ns"].as_u64()).map(|(to, from)| to - from);
    let latency_us = latency.expect("times") as f64 / 1e3;
    assert!(latency_us >= measured["latency_us"]["p999"].as_f64().expect("a number") * 0.99);
}

#[test]
fn aborts_are_drawn_with_reason_holder_and_retries() {
    let flags = "trace smallbank --records 20 --replicas 3 --coordinators 24 --virtual-ms 2";
    let contended = object(&format!("{flags} --pick contended --transactions 3"));
    let tries: Vec<usize> =
        list(&contended["transactions"]).iter().map(|txn| list(&txn["tries"]).len()).collect();
    assert!(tries.len() == 3 && tries[2] > 1 && tries.is_sorted_by(|a, b| a >= b), "{tries:?}");
    for txn in list(&contended["transactions"]) {
        let (last, earlier) = list(&txn["tries"]).split_last().expect("tries");
        assert!(last["outcome"] == "committed" || last["outcome"] == "aborted: user");
        for it in earlier {
            assert!(it["outcome"].as_str().is_some_and(|it| it.starts_with("aborted: ")), "{it}");
        }
    }
    let text = drawn(&format!("{flags} --pick contended --transactions 3"));
    for words in ["try 2", "aborted: lock_refused", "release", "has it", "pause after the abort"] {
        assert!(text.contains(words), "{words}");
    }
    let svg = drawn(&format!("{flags} --pick contended --transactions 3 --format svg"));
    for words in ["try 2", "aborted: lock_refused", "refused: coordinator ", "pause of "] {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn one_seed_gives_one_picture_that_stands_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    for format in ["text", "svg", "json"] {
        let line = format!(
            "trace smallbank --records 200 --replicas 3 --virtual-ms 0.5 --transactions 4 \
             --procedure send_payment --format {format}"
        );
        let picture = drawn(&line);
        assert_eq!(picture, drawn(&line), "{format}");
        assert_ne!(picture, drawn(&format!("{line} --seed 2")), "{format}");
        let path = folder.path().join(format);
        assert_eq!(drawn(&format!("{line} --output {}", path.display())), "");
        assert_eq!(fs::read_to_string(&path).expect("the file"), picture, "{format}");
        match format {
            "text" => {
                let widest = picture.lines().map(|line| line.chars().count()).max();
                assert!(widest.is_some_and(|widest| widest <= 100), "{picture}");
                assert_eq!(picture.matches("send_payment (transaction").count(), 4);
            }
            "svg" => {
                let bare = picture.replace("http://www.w3.org/2000/svg", "");
                for word in ["http", "<script", "@import", "url(h", "href", "NaN", "inf"] {
                    assert!(!bare.contains(word), "{word}");
                }
                for tag in ["svg", "g", "text", "title", "defs", "style", "marker"] {
                    let opened = bare.matches(&format!("<{tag} ")).count()
                        + bare.matches(&format!("<{tag}>")).count();
                    assert_eq!(opened, bare.matches(&format!("</{tag}>")).count(), "{tag}");
                }
                assert!(bare.contains("prefers-color-scheme:dark"));
            }
            _ => {}
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 3, "something is left");
}

#[test]
fn bad_flags_end_in_one_line_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("picture");
    for (flags, start, allowed) in [
        ("", "error: WORKLOAD = nothing; allowed: ", "smallbank"),
        ("none", "error: WORKLOAD = none; allowed: ", "smallbank"),
        ("kvs --transactions 0", "error: --transactions = 0; allowed: ", "1 to 100"),
        ("kvs --transactions 101", "error: --transactions = 101; allowed: ", "1 to 100"),
        ("kvs --transactions x", "error: --transactions = x; allowed: ", "whole number"),
        (
            "kvs --pick last",
            "error: --pick = last; allowed: ",
            "first, slowest, aborted, contended",
        ),
        ("kvs --format png", "error: --format = png; allowed: ", "text, svg, json"),
        ("kvs --procedure pay", "error: --procedure = pay; allowed: ", "update_one"),
        ("kvs --replicas 3 --memory-nodes 2", "error: --replicas = 3; allowed: ", "1 to 2"),
        ("kvs --profile none", "error: --profile = none; allowed: ", "cx5-100g"),
    ] {
        let ended = tarn_line(&format!("trace {flags} --records 20 --output {}", path.display()));
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{flags}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{flags}: {}", ended.err);
        assert!(ended.err.starts_with(start) && ended.err.contains(allowed), "{}", ended.err);
    }
    let ended = tarn_line("trace kvs --records 20 --output no/such/folder/x");
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.err.starts_with("error: --output = no/such/folder/x; allowed: "),
        "{}",
        ended.err
    );
    // The flags are correct, but the run has no transaction to draw.
    let line = "trace kvs --records 20 --coordinators 1 --virtual-ms 0.1 --pick aborted";
    let ended = tarn_line(&format!("{line} --output {}", path.display()));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(ended.err.contains("had an aborted try"), "{}", ended.err);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    assert!(drawn("trace --help").contains("Examples:"));
}

/// Compares the diagram of a document with the newly drawn diagram. If `TARN_REDRAW` is set, the function writes the
/// new diagram into the document. If it is not set, the two diagrams must be equal.
fn compare_or_redraw(path: &str, shown: &str, drawn: &str, whole: &str) {
    if shown == drawn {
        return;
    }
    assert!(
        std::env::var_os("TARN_REDRAW").is_some(),
        "{path} shows something else than the command draws; TARN_REDRAW=1 cargo test -p tarn-cli \
         --test all trace_cli::the_diagrams draws it anew:\n{drawn}"
    );
    fs::write(root().join(path), whole.replacen(shown, drawn, 1)).expect("written");
}

#[test]
fn commands_in_documents_draw_the_diagrams_shown_there() {
    let path = "docs/life-of-a-transaction.md";
    let text = fs::read_to_string(root().join(path)).expect("a document");
    let mark = "<!-- the output of the command below; a test compares -->";
    let (_, after) = text.split_once(mark).expect("its mark");
    let mut blocks = after.split("```");
    let block = blocks.nth(1).expect("a command");
    let command = block.trim().strip_prefix("sh\ntarn ").expect("a command");
    let diagram = blocks.nth(1).and_then(|block| block.strip_prefix("text\n")).expect("a diagram");
    compare_or_redraw(path, diagram, &drawn(command), &text);

    let readme = fs::read_to_string(root().join("README.md")).expect("a document");
    let line = readme.lines().find(|line| line.contains("-- trace ")).expect("a command");
    let (command, _) = line.split_once(" --output").expect("a file");
    let (_, command) = command.split_once("-- ").expect("arguments");
    let path = "docs/pictures/payment.svg";
    let picture = fs::read_to_string(root().join(path)).expect("a picture");
    compare_or_redraw(path, &picture, &drawn(command), &picture);
}
