//! Checks rules of the source tree that no compiler checks.
//!
//! Invariant: a check only reads the `Tree`, so each check works on a small fixture in the same way
//! as on the workspace. For every check, the module `planted` contains a violation that the check
//! must notice.

pub(crate) mod alike;
mod clocks;
mod commands;
mod edges;
mod headers;
mod markdown;
mod paths;
mod plain;
mod protocols;
mod sizes;
mod source;
mod storeys;
mod tarn_commands;
mod tree;
mod unsafety;
mod words;

#[cfg(test)]
mod planted;

use std::fmt;
use std::path::Path;

use crate::error::Error;
use tree::Tree;

/// One rule, with the function that checks it.
struct Check {
    name: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

/// All rules, in the order in which their findings are reported.
const CHECKS: [Check; 14] = [
    Check { name: "headers", run: headers::check },
    Check { name: "edges", run: edges::check },
    Check { name: "storeys", run: storeys::check },
    Check { name: "protocol isolation", run: protocols::isolation },
    Check { name: "protocol names", run: protocols::names },
    Check { name: "protocols alike", run: alike::check },
    Check { name: "clocks", run: clocks::check },
    Check { name: "unsafe", run: unsafety::check },
    Check { name: "words", run: words::check },
    Check { name: "plain words", run: plain::check },
    Check { name: "file sizes", run: sizes::files },
    Check { name: "function sizes", run: sizes::functions },
    Check { name: "doc paths", run: paths::check },
    Check { name: "doc commands", run: commands::check },
];

/// The severity of a finding, which says whether the finding fails the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Failure,
    Warning,
}

/// A violation that a check found, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    path: String,
    /// The number of the line, counted from 1. The number 0 means the whole file.
    line: usize,
    text: String,
}

impl Finding {
    fn failure(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { severity: Severity::Failure, path: path.to_owned(), line, text: text.into() }
    }

    fn warning(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.text),
            line => write!(out, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// Runs all checks on the workspace and prints their findings.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let tree = Tree::of_workspace(root)?;
    let mut failures = 0;
    let mut warnings = 0;
    for check in &CHECKS {
        for finding in (check.run)(&tree) {
            let severity = match finding.severity {
                Severity::Failure => {
                    failures += 1;
                    "failure"
                }
                Severity::Warning => {
                    warnings += 1;
                    "warning"
                }
            };
            println!("   {severity} [{}] {finding}", check.name);
        }
    }
    println!("   {} files, {failures} failures, {warnings} warnings", tree.files.len());
    if failures == 0 {
        return Ok(());
    }
    Err(Error::failed(format!("tidy: {failures} wrong, listed above")))
}
