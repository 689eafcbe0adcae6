//! Prints a run's report, and turns its checks into a verdict.
//!
//! Invariant: every command prints in the same way: its report on standard output, failed checks on standard error.

use super::{Stop, Verdict, print_object, say};
use serde::Serialize;
use std::fmt::Display;
use tarn_lab::bench::checks::{CheckKind, Checks};

/// The expected result of the checks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected<'a> {
    /// No check may fail.
    Clean,
    /// A check of one of these kinds must fail.
    Violation(&'a [CheckKind]),
}

/// Prints a report as a table, or as one JSON object.
///
/// # Errors
/// If a report is no JSON object.
pub(super) fn print(report: &(impl Display + Serialize), json: bool) -> Result<(), Stop> {
    if json {
        return print_object(report);
    }
    say(&report.to_string())
}

/// Compares the checks that failed with the expected ones, and prints the difference.
pub(super) fn judge(checks: &Checks, expected: Expected<'_>) -> Verdict {
    let failed = checks.failed();
    match expected {
        Expected::Clean if failed.is_empty() => Verdict::Good,
        Expected::Clean => {
            remark!("checks failed: {}", names(&failed));
            Verdict::Bad
        }
        Expected::Violation(kinds) if failed.iter().any(|kind| kinds.contains(kind)) => {
            remark!("checks failed, as expected: {}", names(&failed));
            Verdict::Good
        }
        Expected::Violation(kinds) => {
            let seen = if failed.is_empty() { "none".to_owned() } else { names(&failed) };
            remark!("expected one of these checks to fail: {}; failed: {seen}", names(kinds));
            Verdict::Bad
        }
    }
}

fn names(kinds: &[CheckKind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}
