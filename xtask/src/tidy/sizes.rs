//! Checks that files and functions stay small enough for one reading.
//!
//! Invariant: a file or function longer than the limit of the house style gets a warning, because its
//! length may have a good reason. A file longer than the hard limit fails the check.

use super::Finding;
use super::tree::Tree;

const FILE_LINES: usize = 500;
const FILE_LINES_HARD: usize = 800;
const FUNCTION_LINES: usize = 60;

/// Returns the findings for files that are too long.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_HARD {
            let text = format!("{lines} lines, more than {FILE_LINES_HARD}: split it");
            findings.push(Finding::failure(&source.path, 0, text));
        } else if lines > FILE_LINES {
            let text = format!("{lines} lines, more than {FILE_LINES}");
            findings.push(Finding::warning(&source.path, 0, text));
        }
    }
    findings
}

/// Returns the findings for functions that are too long.
pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        for function in source.functions.iter().filter(|each| each.lines > FUNCTION_LINES) {
            let (name, lines) = (&function.name, function.lines);
            let text = format!("function `{name}` has {lines} lines, more than {FUNCTION_LINES}");
            findings.push(Finding::warning(&source.path, function.line, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Severity;
    use crate::tidy::planted::Fixture;

    fn severity_of(lines: usize) -> Option<Severity> {
        let text = format!("//! X.\n{}", "\n".repeat(lines - 1));
        let fixture = Fixture::new(&[("crates/x/src/lib.rs", &text)]);
        files(&fixture.tree()).first().map(|finding| finding.severity)
    }

    #[test]
    fn the_limits_of_a_file() {
        assert_eq!(severity_of(FILE_LINES), None);
        assert_eq!(severity_of(FILE_LINES + 1), Some(Severity::Warning));
        assert_eq!(severity_of(FILE_LINES_HARD), Some(Severity::Warning));
        assert_eq!(severity_of(FILE_LINES_HARD + 1), Some(Severity::Failure));
    }

    #[test]
    fn the_limit_of_a_function() {
        let of = |lines: usize| format!("//! X.\nfn f() {{{}}}\n", "\n".repeat(lines - 1));
        for (lines, expected) in [(FUNCTION_LINES, 0), (FUNCTION_LINES + 1, 1)] {
            let fixture = Fixture::new(&[("crates/x/src/lib.rs", &of(lines))]);
            assert_eq!(functions(&fixture.tree()).len(), expected, "{lines} lines");
        }
    }
}
