//! Checks that the engine uses no wall clock and creates no thread. The fabric gives the engine its
//! time and its threads. The engine uses the observer's time only to stamp histories.
//!
//! Invariant: the rule about clocks and threads holds for all code of the engine outside of its
//! tests. So the simulator can run the code that users run, and can give every node its own clock.

use super::Finding;
use super::source::NamePath;
use super::tree::Tree;

const ENGINE: &str = "crates/engine/src/";
/// The files that stamp histories with the observer's time.
const STAMPS: [&str; 2] =
    ["crates/engine/src/session/coordinator.rs", "crates/engine/src/steps/recorder.rs"];

/// Returns one failure for each use of real time or of threads.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with(ENGINE)) {
        for path in source.paths().iter().filter(|path| !path.in_test) {
            if let Some(name) = forbidden(path) {
                let text = format!("the engine names `{name}`; take time and tasks from the port");
                findings.push(Finding::failure(&source.path, path.line, text));
            }
            if path.segments.iter().any(|it| it == "observed")
                && !STAMPS.contains(&source.path.as_str())
            {
                let text = format!(
                    "only {} may ask for an observer's time: `observed`",
                    STAMPS.join(" and ")
                );
                findings.push(Finding::failure(&source.path, path.line, text));
            }
        }
    }
    findings
}

fn forbidden(path: &NamePath) -> Option<String> {
    let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["std" | "core", module @ ("time" | "thread"), ..] => Some(format!("std::{module}")),
        _ => segments
            .iter()
            .find(|segment| ["Instant", "SystemTime"].contains(segment))
            .map(|segment| (*segment).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::{Fixture, lines_of};

    fn lines(code: &str) -> Vec<usize> {
        let fixture = Fixture::new(&[("crates/engine/src/session/coordinator.rs", code)]);
        lines_of(&check(&fixture.tree()))
    }

    #[test]
    fn clocks_and_threads_are_found() {
        assert_eq!(lines("//! X.\nuse std::time::Duration;"), [2]);
        assert_eq!(lines("//! X.\nuse std::{fmt, thread};"), [2]);
        assert_eq!(lines("//! X.\n\nfn f() { std::thread::yield_now() }"), [3]);
        assert_eq!(lines("//! X.\nfn f(at: Instant) {}\nstruct S(SystemTime);"), [2, 3]);
    }

    #[test]
    fn only_histories_are_stamped_with_an_observers_time() {
        let code = "//! X.\nfn f(port: &Port) -> Nanos {\n    port.observed()\n}";
        assert!(lines(code).is_empty());
        let fixture = Fixture::new(&[("crates/engine/src/protocol/ford/commit.rs", code)]);
        assert_eq!(lines_of(&check(&fixture.tree())), [3]);
    }

    #[test]
    fn tests_prose_and_other_crates_are_free() {
        let test_module = "//! No std::time here.\n#[cfg(test)]\nmod tests { use std::time; }";
        assert!(lines(test_module).is_empty());
        let fixture = Fixture::new(&[(
            "crates/fabric/src/local/clock.rs",
            "//! X.\nuse std::time::Instant;",
        )]);
        assert_eq!(check(&fixture.tree()), []);
        let test = Fixture::new(&[(
            "crates/engine/src/services/lock/tests.rs",
            "//! X.\nuse std::thread;",
        )]);
        assert_eq!(check(&test.tree()), []);
    }
}
