//! The time that each step took. At the end of a run the tool prints a table of times. For each step
//! the tool adds one line of JSON to a file.
//!
//! Invariant: the tool writes a step's line as soon as the step ends, whether the step passed or
//! failed. So the file also has the steps of runs that a later step or a signal ended. The tool only
//! appends to the file. The script `.ci/run` prints the lines that its own run has written.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::error::Error;

/// The file that gets the lines, relative to the root.
const KEPT: &str = "target/ci-times.jsonl";

/// One step that ended.
#[derive(Debug, Serialize)]
pub(crate) struct Taken {
    /// The time at which the step began, in seconds since 1970.
    began_s: u64,
    command: &'static str,
    step: &'static str,
    result: &'static str,
    seconds: f64,
}

impl Taken {
    /// Runs the work of a step and measures its time.
    #[expect(clippy::disallowed_methods, reason = "measures what a step really takes")]
    pub(crate) fn by(
        command: &'static str,
        step: &'static str,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> (Result<(), Error>, Self) {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = Instant::now();
        let outcome = work();
        let result = if outcome.is_ok() { "ok" } else { "FAILED" };
        let seconds = round(start.elapsed());
        (outcome, Self { began_s: began.as_secs(), command, step, result, seconds })
    }

    /// Returns one line that says how the step ended.
    pub(crate) fn shown(&self) -> String {
        format!("{}: {} in {:.1} s", self.step, self.result, self.seconds)
    }

    /// Appends the step's line to the file.
    pub(crate) fn keep(&self, root: &Path) -> Result<(), Error> {
        let path = root.join(KEPT);
        let failed = |error| Error::failed(format!("cannot write {KEPT}: {error}"));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut line = serde_json::to_string(self)
            .map_err(|error| Error::failed(format!("the time of a step: {error}")))?;
        line.push('\n');
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(failed)
    }
}

/// Rounds a time to tenths of a second, which is exact enough for these times.
fn round(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

/// Returns a table of all steps of a run, with the sum of their times.
pub(crate) fn table(taken: &[Taken]) -> String {
    let mut text = format!("{:<12} {:>7} {:>9}\n", "step", "result", "seconds");
    for Taken { step, result, seconds, .. } in taken {
        text.push_str(&format!("{step:<12} {result:>7} {seconds:>9.1}\n"));
    }
    let total: f64 = taken.iter().map(|each| each.seconds).sum();
    text.push_str(&format!("{:<12} {:>7} {total:>9.1}\n", "total", ""));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(step: &'static str, result: &'static str, seconds: f64) -> Taken {
        Taken { began_s: 7, command: "ci", step, result, seconds }
    }

    #[test]
    fn the_table_adds_up() {
        let text = table(&[taken("one", "ok", 1.5), taken("two", "FAILED", 2.5)]);
        assert!(text.contains(&format!("{:<12} {:>7} {:>9}\n", "one", "ok", "1.5")), "{text}");
        assert!(text.contains(&format!("{:<12} {:>7} {:>9}\n", "total", "", "4.0")), "{text}");
    }

    #[test]
    fn a_step_that_fails_is_kept_like_any_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (outcome, first) = Taken::by("test", "tests", || Err(Error::failed("planted")));
        assert!(outcome.is_err());
        first.keep(folder.path()).expect("the file is made");
        taken("docs", "ok", 0.25).keep(folder.path()).expect("the file grows");
        let text = std::fs::read_to_string(folder.path().join(KEPT)).expect("it is there");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].contains(r#""command":"test","step":"tests","result":"FAILED""#),
            "{text}"
        );
        assert!(lines[1].ends_with(r#""step":"docs","result":"ok","seconds":0.25}"#), "{text}");
    }
}
