//! Checks that comments name the objects that they describe. Words that refer to an object without
//! naming the object must stay rare.
//!
//! Invariant: the check counts words only in comments with `//`, `///` and `//!`. The check counts
//! the words of each crate separately, including the crate's tests.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const COUNTED: [&str; 5] = ["what", "who", "whoever", "nobody", "somebody"];
/// The largest allowed number of counted words per 1,000 words of a crate's comments.
const RATE_MAX: f64 = 3.0;

/// The number of words in the comments of a crate.
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

/// Returns one failure for each crate whose comments have more counted words than allowed.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, count) in counts(tree) {
        let Count { words, counted, worst: (most, file) } = &count;
        let rate = count.rate();
        if rate > RATE_MAX {
            let text = format!(
                "{counted} of {words} words in comments are one of {}: {rate:.1} in 1,000, more \
                 than {RATE_MAX}; most of them ({most}) in {file}. Name the thing instead",
                COUNTED.join(", ")
            );
            findings.push(Finding::failure(&name, 0, text));
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

/// Returns the crate of a path: `crates/NAME`, or the first folder of the path.
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
        // A name ends before a literal begins. For example, the r of `for"x"` does not begin a raw
        // literal.
        let name = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
        rest = &rest[if length == letter.len_utf8() { length.max(name) } else { length }..];
    }
    comments
}

/// Returns the length of the literal with which a text begins, if the text begins with a literal. A
/// literal may contain slashes, which begin no comment.
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
    // The apostrophe begins a character literal and not a lifetime.
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

    #[test]
    fn a_crate_stays_below_the_largest_rate() {
        let found =
            |text: &str| check(&Fixture::new(&[("crates/old/tests/all/main.rs", text)]).tree());
        let rare = "//! A crate which names all things.\n".repeat(60);
        assert_eq!(found(&format!("{rare}//! What it does.\n")), []);
        let often = found(&format!("{rare}//! What it is, for whoever asks.\n"));
        assert_eq!(often.len(), 1);
        assert_eq!(often[0].severity, Severity::Failure);
        assert!(often[0].text.starts_with("2 of 366 words in comments"), "{often:?}");
    }
}
