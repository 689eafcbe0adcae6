//! Stores benchmark results over time: one JSON line for each commit and machine.
//!
//! Invariant: the file grows only by whole lines. A line names the commit and the kind of machine to
//! which its numbers belong. The suffix `-dirty` marks a commit that had uncommitted changes.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cargo;
use crate::error::Error;

/// The history file, relative to the root. The first line that is stored creates the file.
pub(crate) const HISTORY: &str = "docs/bench-history.jsonl";

/// The command line of `bench-history`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files that `tarn bench --json` wrote, one JSON object each
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The time of the measurements, as 2026-01-31 or a full ISO 8601 time [default: the commit's
    /// date]
    #[arg(long)]
    date: Option<String>,
    /// The machine on which the numbers were measured [default: processor, count of processors,
    /// system]
    #[arg(long)]
    machine: Option<String>,
}

/// Reads the results and appends one line to the history file.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), Error> {
    let date = match &arguments.date {
        Some(date) if is_date(date) => date.clone(),
        Some(date) => {
            return Err(Error::usage(format!("--date `{date}` does not begin like 2026-01-31")));
        }
        None => said(root, &["log", "-1", "--format=%cI"])?,
    };
    let commit = commit(root)?;
    let machine = arguments.machine.clone().unwrap_or_else(this_machine);
    let results = read_results(&arguments.results)?;
    append(root, &line(&commit, &date, &machine, results))?;
    println!("appended the results of {commit} to {HISTORY}");
    Ok(())
}

/// Runs git and returns its output.
fn said(root: &Path, git_arguments: &[&str]) -> Result<String, Error> {
    Ok(cargo::output_of(cargo::git(root, git_arguments))?.trim().to_owned())
}

/// Returns the name of the present commit. The name gets the suffix `-dirty` if files other than the
/// history file have changed.
fn commit(root: &Path) -> Result<String, Error> {
    let mut commit = said(root, &["rev-parse", "HEAD"])?;
    let but_history = format!(":!{HISTORY}");
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ".", &but_history];
    if !said(root, &status)?.is_empty() {
        commit.push_str("-dirty");
    }
    Ok(commit)
}

fn is_date(text: &str) -> bool {
    let day = text.split('T').next().unwrap_or_default();
    let parts: Vec<&str> = day.split('-').collect();
    let digits =
        |part: &str, count| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
    parts.len() == 3 && digits(parts[0], 4) && digits(parts[1], 2) && digits(parts[2], 2)
}

fn read_results(files: &[PathBuf]) -> Result<Vec<Value>, Error> {
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).map_err(|error| {
                Error::usage(format!("cannot read {}: {error}", file.display()))
            })?;
            let value: Value = serde_json::from_str(&text)
                .map_err(|error| Error::failed(format!("{}: {error}", file.display())))?;
            if value.is_object() {
                return Ok(value);
            }
            Err(Error::failed(format!("{} does not hold one JSON object", file.display())))
        })
        .collect()
}

fn line(commit: &str, date: &str, machine: &str, results: Vec<Value>) -> String {
    json!({ "commit": commit, "date": date, "machine": machine, "results": results }).to_string()
}

fn append(root: &Path, line: &str) -> Result<(), Error> {
    let failed = |error| Error::failed(format!("cannot append to {HISTORY}: {error}"));
    let mut file =
        OpenOptions::new().create(true).append(true).open(root.join(HISTORY)).map_err(failed)?;
    file.write_all(format!("{line}\n").as_bytes()).map_err(failed)
}

/// Returns a description of the kind of this machine, without the machine's name.
fn this_machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    format!("{model}, {processors} processors, {}", std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_whole() {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join("docs")).expect("docs");
        let result = root.path().join("smallbank.json");
        std::fs::write(&result, r#"{"workload": "smallbank", "committed": 7}"#).expect("written");
        for commit in ["a1", "b2"] {
            let results = read_results(std::slice::from_ref(&result)).expect("one object");
            append(root.path(), &line(commit, "2026-01-31", "test", results)).expect("appended");
        }
        let text = std::fs::read_to_string(root.path().join(HISTORY)).expect("the history");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["commit"], "b2");
        assert_eq!(lines[1]["results"][0]["committed"], 7);
    }

    #[test]
    fn a_file_without_results_is_refused() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let file = root.path().join("list.json");
        std::fs::write(&file, "[1]").expect("written");
        let error = read_results(&[file]).expect_err("a list is no result");
        assert!(error.to_string().contains("list.json does not hold one JSON object"), "{error}");
        let missing = read_results(&[root.path().join("none.json")]).expect_err("no such file");
        assert!(matches!(missing, Error::Usage(_)));
    }

    #[test]
    fn only_changes_to_other_files_make_a_commit_dirty() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        std::fs::create_dir(root.join("docs")).expect("docs");
        std::fs::write(root.join("code"), "1").expect("written");
        append(root, "{}").expect("appended");
        let author = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        said(root, &["init", "--quiet"]).expect("git init");
        said(root, &["add", "--all"]).expect("git add");
        said(root, &[&author[..], &["commit", "--quiet", "-m", "x"]].concat()).expect("committed");
        append(root, "{}").expect("appended");
        assert!(!commit(root).expect("a commit").ends_with("-dirty"));
        std::fs::write(root.join("code"), "2").expect("written");
        assert!(commit(root).expect("a commit").ends_with("-dirty"));
    }

    #[test]
    fn dates() {
        assert!(is_date("2026-01-31") && is_date("2026-01-31T12:00:00Z"));
        assert!(!is_date("yesterday") && !is_date("2026-1-31") && !is_date("31.01.2026"));
    }
}
