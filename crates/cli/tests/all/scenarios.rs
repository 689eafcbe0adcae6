//! Tests of the scenario files: the program detects their planted bugs, and the same runs pass without the bugs.
//!
//! Invariant: a test fails if the program does not detect the bug of a file in `scenarios/negative`. A test also
//! fails if the anomaly still shows without the bug.

use crate::common::{root, tarn};
use std::path::PathBuf;

/// The number of runs in which a planted bug may stay hidden. The effect of a planted bug depends on how the
/// operating system interleaves the threads.
const TRIES: u64 = 4;

fn scenarios(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder of scenarios");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn planted_bugs_are_noticed_and_the_corrected_engine_passes() {
    for file in scenarios("scenarios/negative") {
        let name = file.to_str().expect("a name");
        let mut said = String::new();
        let noticed = (1..=TRIES).any(|seed| {
            let ended = tarn(&["bench", "--scenario", name, "--seed", &seed.to_string()]);
            assert!(matches!(ended.code, Some(0 | 1)), "{name}: {}", ended.err);
            said = format!("{}{}", ended.out, ended.err);
            ended.code == Some(0)
        });
        assert!(noticed, "{name}: the planted bug went unnoticed: {said}");
        let clean = tarn(&[
            "bench",
            "--scenario",
            name,
            "--variant",
            "corrected",
            "--line-atomicity",
            "striped",
            "--expect",
            "clean",
        ]);
        assert_eq!(clean.code, Some(0), "{name}: {}{}", clean.out, clean.err);
    }
}

#[test]
fn the_other_scenarios_pass() {
    for file in scenarios("scenarios") {
        let name = file.to_str().expect("a name");
        let ended = tarn(&["bench", "--scenario", name, "--seconds", "0.3"]);
        assert_eq!(ended.code, Some(0), "{name}: {}{}", ended.out, ended.err);
    }
}
