//! Tests of `tarn sim --sweep`: its output, its page, and its refusals.
//!
//! Invariant: for bad input the program prints exactly one line on standard error, ends with exit code 2, and leaves
//! no file.

use crate::common::{root, tarn, tarn_line};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

const SMALL: &str = "sim kvs --records 500 --virtual-ms 0.2";

fn object(line: &str) -> Value {
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(0), "{line}: {}", ended.err);
    serde_json::from_str(&ended.out).expect("one object")
}

/// Tests that the program prints a notice if it compares one replica on one memory node with three replicas on three
/// nodes. All points of the README's sweep have the same number of memory nodes.
#[test]
fn a_sweep_over_replicas_says_if_memory_nodes_vary_as_well() {
    let notice = "notice: points with 1, 3 replicas have as many memory nodes; ";
    let said = |flags: &str| {
        let ended = tarn_line(&format!("{SMALL} --sweep replicas=1,3 {flags}"));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        ended.err.contains(notice)
    };
    assert!(said(""));
    assert!(!said("--memory-nodes 3"));
    assert!(!said("--sweep memory-nodes=3,4"));
    let readme = fs::read_to_string(root().join("README.md")).expect("a page");
    let sweeps = readme.lines().filter(|line| line.contains("--sweep replicas"));
    assert!(
        sweeps.clone().count() > 0 && sweeps.clone().all(|line| line.contains("--memory-nodes"))
    );
}

#[test]
fn bad_sweeps_end_in_one_line_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    let page = page.to_str().expect("a name");
    let many: Vec<String> = (0..1001).map(|seed| seed.to_string()).collect();
    let many = many.join(",");
    for (flags, start, allowed) in [
        ("--sweep none=1", "error: --sweep = none; allowed: ", "coordinators"),
        ("--sweep history=a", "error: --sweep = history; allowed: ", "coordinators"),
        ("--sweep seed", "error: --sweep = seed; allowed: ", "PARAMETER="),
        ("--sweep seed=", "error: --sweep = seed=; allowed: ", "at least one value"),
        ("--sweep seed=1,1", "error: --sweep = seed=1,1; allowed: ", "every value once"),
        ("--sweep seed=1 --sweep seed=2", "error: --sweep = seed twice; allowed: ", "once"),
        ("--sweep seed=1,x", "error: --seed = x; allowed: ", "without a sign (in point seed=x)"),
        ("--sweep seed=1,2 --seed 1", "error: --seed = given together", "once"),
        ("--sweep seed=1 --jobs 0", "error: --jobs = 0; allowed: ", "1 to 256"),
        ("--sweep seed=1 --jobs 257", "error: --jobs = 257; allowed: ", "1 to 256"),
        ("--sweep seed=1 --jobs two", "error: --jobs = two; allowed: ", "whole number"),
        ("--jobs 2", "error: --jobs = 2; allowed: ", "only together with --sweep"),
        ("", "error: --html = ", "only together with --sweep"),
        ("--sweep seed=1 --history h", "error: --history = h; allowed: ", "without --sweep"),
        ("--sweep zipf=0.5,-1", "error: --zipf = -1; allowed: ", "(in point zipf=-1)"),
        (
            "--sweep replicas=1,3 --sweep memory-nodes=2,3",
            "error: --replicas = 3; allowed: 1 to 2",
            "(in point replicas=3 memory-nodes=2)",
        ),
        (&format!("--sweep seed={many}"), "error: --sweep = 1001 points; allowed: ", "1000"),
    ] {
        let ended = tarn_line(&format!("{SMALL} {flags} --html {page}"));
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{flags}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{flags}: {}", ended.err);
        assert!(ended.err.starts_with(start), "{flags}: {}", ended.err);
        assert!(ended.err.contains(allowed), "{flags}: {}", ended.err);
    }
    for (path, allowed) in [("no/such/folder/page", "can be written"), ("crates", "not a folder")] {
        let ended = tarn_line(&format!("{SMALL} --sweep seed=1 --html {path}"));
        assert_eq!(ended.code, Some(2), "{path}");
        assert!(ended.err.starts_with(&format!("error: --html = {path}; allowed: ")));
        assert!(ended.err.contains(allowed), "{}", ended.err);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn a_sweep_is_one_object_whose_points_say_how_to_run_them_alone() {
    let line = format!("{SMALL} --sweep coordinators=8,16 --sweep replicas=1,3 --jobs 2 --json");
    let report = object(&line);
    assert_eq!(report["axes"][0]["name"], "coordinators");
    assert_eq!(report["axes"][1]["values"][1], "3");
    let points = report["points"].as_array().expect("points");
    assert_eq!(points.len(), 4);
    for (point, (coordinators, replicas)) in points.iter().zip([(8, 1), (8, 3), (16, 1), (16, 3)]) {
        assert_eq!(point["report"]["config"]["coordinators"], coordinators);
        assert_eq!(point["report"]["config"]["replicas"], replicas);
        assert_eq!(point["labels"][0][1], coordinators.to_string());
        assert_eq!(point["passed"], true);
    }
    let arguments = points[3]["arguments"].as_array().expect("arguments");
    let arguments: Vec<&str> =
        arguments.iter().filter_map(Value::as_str).chain(["--json"]).collect();
    let alone: Value = serde_json::from_str(&tarn(&arguments).out).expect("one object");
    assert_eq!(alone["digest"], points[3]["report"]["digest"]);
    assert_eq!(alone["latency_us"], points[3]["report"]["latency_us"]);
}

#[test]
fn the_table_has_a_row_a_point_and_progress_goes_to_standard_error() {
    let ended = tarn_line(&format!("{SMALL} --sweep variant=corrected;literal,-fuse-log"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let rows: Vec<&str> = ended.out.lines().collect();
    assert_eq!(rows.len(), 4, "{}", ended.out);
    assert!(rows[1].contains("throughput") && rows[1].contains("busiest part"));
    assert!(rows[3].trim_start().starts_with("literal,-fuse-log") && rows[3].ends_with("ok"));
    assert_eq!(ended.err.lines().count(), 2, "{}", ended.err);
    assert!(ended.err.contains("2/2 variant="), "{}", ended.err);
}

#[test]
fn the_page_stands_alone_and_one_seed_gives_one_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = |name: &str, jobs: usize| {
        let path = folder.path().join(name);
        let line = format!(
            "{SMALL} --sweep coordinators=8,16,32 --sweep placement=hash,table --jobs {jobs} --html {}",
            path.display()
        );
        let ended = tarn_line(&line);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        fs::read_to_string(path).expect("a page")
    };
    let html = page("one.html", 1);
    assert_eq!(html, page("two.html", 3));
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 2, "something is left");
    // The page must load nothing from the network and run no script.
    for word in ["http:", "https:", "<script", "<link", "@import", "url(", "src="] {
        assert!(!html.contains(word), "{word}");
    }
    for word in [
        "Simulated",
        "seed 1",
        "cx5-100g",
        "prefers-color-scheme:dark",
        "throughput, k transactions/s",
        "latency, µs",
        "aborted tries, %",
        "busy, % of the time",
        "placement table",
        "coordinators = 32",
        "tarn sim kvs --records 500 --virtual-ms 0.2 --coordinators=8 --placement=hash",
    ] {
        assert!(html.contains(word), "{word}");
    }
    // Three figures have two lines each (the first has four), and two figures of utilisation have four lines each.
    // Each line has three marks.
    let titles = html.matches("<title>").count() - 1;
    assert_eq!(titles, 3 * (4 + 2 + 2 + 4 + 4));
    let opened = html.matches("<svg").count();
    assert_eq!(opened, html.matches("</svg>").count());
    assert!(!html.contains("NaN") && !html.contains("inf\""));
}

#[test]
fn a_point_whose_checks_fail_is_named_and_the_sweep_ends_in_exit_code_1() {
    let line = "sim smallbank --records 20 --compute-nodes 3 --replicas 3 --coordinators 48 \
                --virtual-ms 2 --verify-ms 2 \
                --sweep variant=corrected;corrected,-write-after-validation --json";
    let ended = tarn_line(line);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let said = "checks failed in 1 of 2 points: variant=corrected,-write-after-validation";
    assert!(ended.err.contains(said), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object all the same");
    assert_eq!(report["points"][0]["passed"], true);
    assert_eq!(report["points"][1]["report"]["history"]["verdict"], "violated");
}

#[test]
fn a_signal_ends_the_points_names_them_and_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    let mut sweep = Command::new(env!("CARGO_BIN_EXE_tarn"));
    let line = "sim kvs --records 500 --virtual-ms 60000 --sweep seed=1,2,3 --jobs 2 --html";
    sweep.args(line.split_whitespace()).arg(&path);
    let mut child = sweep
        .current_dir(root())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The program opens the page's file just before the points begin.
    let partial = folder.path().join("page.html.partial");
    while !partial.exists() {
        assert!(child.try_wait().expect("a state").is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    let id = child.id().to_string();
    let kill = Command::new("sh").args(["-c", "sleep 0.5; kill -INT $0", &id]).status();
    assert!(kill.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("output");
    let err = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted after 0 of 3 points; not finished: seed=1; seed=2"), "{err}");
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0, "a file is left");
}
