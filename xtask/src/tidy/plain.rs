//! Comments name things: the words that stand for a thing without naming it stay rare.
//!
//! Invariant: counted in `//`, `///` and `//!` alone, for each crate with its tests. A crate's limit only
//! goes down: by hand, when its comments have become better, until all are at the goal.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const COUNTED: [&str; 5] = ["what", "who", "whoever", "nobody", "somebody"];
/// The largest rate in 1,000 words, for every crate that the table does not name.
const GOAL: f64 = 3.0;
/// With fewer words a crate's rate says little, and lowers no limit.
const WORDS_MIN: usize = 1000;
/// The crates above the goal, as they were when they were last looked at, rounded up.
const LIMITS: [(&str, f64); 2] = [("crates/engine", 27.0), ("crates/lab", 30.0)];

/// How many words a crate's comments have.
#[derive(Debug, Default, Clone)]
struct Count {
    words: usize,
    counted: usize,
    /// The file with the most counted words, and their number.
    worst: (usize, String),
}

impl Count {
    fn rate(&self) -> f64 {
        self.counted as f64 * 1000.0 / self.words as f64
    }
}

/// One failure per crate above its limit, one warning per limit that can go down.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    judge(tree, &LIMITS)
}

fn judge(tree: &Tree, limits: &[(&str, f64)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, count) in counts(tree) {
        let known = limits.iter().find(|(other, _)| *other == name);
        let limit = known.map_or(GOAL, |(_, limit)| *limit);
        let Count { words, counted, worst: (most, file) } = &count;
        let rate = count.rate();
        if rate > limit {
            let text = format!(
                "{counted} of {words} words in comments are one of {}: {rate:.1} in 1,000, more \
                 than {limit}; most of them ({most}) in {file}. Name the thing instead",
                COUNTED.join(", ")
            );
            findings.push(Finding::failure(&name, 0, text));
        } else if known.is_some() && *words >= WORDS_MIN && rate.ceil().max(GOAL) < limit {
            let text = format!(
                "the limit {limit} in tidy/plain.rs can go down to {}",
                rate.ceil().max(GOAL)
            );
            findings.push(Finding::warning(&name, 0, text));
        }
    }
    findings
}

fn counts(tree: &Tree) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for source in &tree.sources {
        let mut words = 0;
        let mut counted = 0;
        for comment in comments(&source.text) {
            for word in comment.split(|letter: char| !letter.is_alphabetic()) {
                words += usize::from(!word.is_empty());
                counted += usize::from(COUNTED.iter().any(|it| word.eq_ignore_ascii_case(it)));
            }
        }
        let count = counts.entry(crate_of(&source.path)).or_default();
        count.words += words;
        count.counted += counted;
        if counted > count.worst.0 {
            count.worst = (counted, source.path.clone());
        }
    }
    counts.retain(|_, count| count.words > 0);
    counts
}

/// Returns `crates/NAME`, or the first folder.
fn crate_of(path: &str) -> String {
    let folders = if path.starts_with("crates/") { 2 } else { 1 };
    path.split('/').take(folders).collect::<Vec<_>>().join("/")
}

/// Returns the texts of all line comments, without their slashes.
fn comments(text: &str) -> Vec<&str> {
    let mut comments = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            let line = rest.lines().next().unwrap_or_default();
            comments.push(line.trim_start_matches(['/', '!']));
            line.len()
        } else {
            literal(rest).unwrap_or(letter.len_utf8())
        };
        // A name ends before a literal begins: the r of `for"x"` opens nothing.
        let name = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
        rest = &rest[if length == letter.len_utf8() { length.max(name) } else { length }..];
    }
    comments
}

/// Returns the length of the literal that a text begins with, if it does: texts and letters may
/// hold slashes.
fn literal(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|it| text.starts_with(it))?;
    let bare = &text[prefix.len()..];
    let hashes = bare.len() - bare.trim_start_matches('#').len();
    if prefix.ends_with('r') && bare[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let from = prefix.len() + hashes + 1;
        return Some(text[from..].find(&end).map_or(text.len(), |at| from + at + end.len()));
    }
    if let Some(inner) = bare.strip_prefix('"') {
        let mut escaped = false;
        let end = inner.find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        return Some(end.map_or(text.len(), |at| prefix.len() + at + 2));
    }
    // The text is a letter, not a lifetime.
    let inner = bare.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    let length = first.len_utf8() + if first == '\\' { inner[1..].find('\'')?.max(1) } else { 0 };
    inner[length..].starts_with('\'').then_some(prefix.len() + length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Severity;
    use crate::tidy::planted::Fixture;

    #[test]
    fn only_comments_are_read() {
        let text = "//! One.\nfn f() { g(\"// a\\\"// b\", '\"', r#\"// c\"# ); } // Two, \"three\n\
                    /// Four.\nfn g<'a>(it: &'a str) -> char { '\\'' } // five\n\
                    const URL: &str = \"http://x\"; //six\nlet br = '/'; // seven\n";
        let expected = [" One.", " Two, \"three", " Four.", " five", "six", " seven"];
        assert_eq!(comments(text), expected);
    }

    fn found(path: &str, text: &str) -> Vec<(Severity, String)> {
        let fixture = Fixture::new(&[(path, text)]);
        let findings = judge(&fixture.tree(), &[("crates/old", 200.0)]);
        findings.into_iter().map(|finding| (finding.severity, finding.text)).collect()
    }

    #[test]
    fn a_crate_stays_below_its_limit() {
        let two_of_ten = "//! What it is, for whoever asks. Whatever. It has ten words.\n";
        let three_of_ten = "//! What it is, for whoever asks. Nobody. It has ten words.\n";
        assert_eq!(found("crates/old/src/lib.rs", two_of_ten), []);
        let worse = found("crates/old/tests/all/main.rs", three_of_ten);
        assert_eq!(worse.len(), 1);
        assert_eq!(worse[0].0, Severity::Failure);
        assert!(worse[0].1.starts_with("3 of 11 words in comments"), "{worse:?}");
        let other = found("crates/new/src/lib.rs", two_of_ten);
        assert_eq!(other.len(), 1, "a crate without a limit is held to the goal");
    }

    #[test]
    fn a_limit_that_can_go_down_is_named() {
        let text = "//! A crate which names a thing, but who reads?\n".repeat(WORDS_MIN / 9 + 1);
        let better = found("crates/old/src/lib.rs", &text);
        assert_eq!(better.len(), 1);
        assert_eq!(better[0].0, Severity::Warning);
        assert!(better[0].1.ends_with("can go down to 112"), "{better:?}");
    }
}
