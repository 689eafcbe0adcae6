//! `cargo xtask alike` finds code that two protocols share. A step that two protocols share should
//! exist once, in a module below both protocols.
//!
//! Invariant: the check compares files of different protocols by their lines of code, with all names
//! made equal. The comparison leaves out blank lines, comments, attributes, imports, signatures, lone
//! brackets and code for tests. No line counts twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Finding;
use super::source::{Kind, Source, Token};
use super::tree::Tree;
use crate::error::Error;

const PROTOCOLS: &str = "crates/engine/src/protocol/";
/// The smallest length of a run of equal lines that counts. Shorter runs are common idioms and do not
/// count.
const RUN_MIN: usize = 4;
/// The length, in lines, of the longest run of equal lines that two files may share.
const RUN_MAX: usize = 12;
/// The largest number of lines that two files may share in all their runs together.
const LINES_MAX: usize = 30;

/// Words that the comparison does not replace, because they give a line its meaning, whatever its
/// names are.
const KEPT: [&str; 26] = [
    "as", "async", "await", "break", "const", "continue", "crate", "else", "enum", "false", "for",
    "if", "impl", "in", "let", "loop", "match", "move", "mut", "ref", "return", "self", "static",
    "struct", "true", "while",
];

/// The text of a line that is compared, and the number of the line.
type Line = (String, usize);

/// A run of successive lines that two files share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The beginning of the run in each file, counted in compared lines.
    starts: (usize, usize),
    length: usize,
}

/// Prints the pairs of files that share too much code, with their common runs of lines. The function
/// also prints the number of lines that each protocol shares.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let tree = Tree::of_workspace(root)?;
    let files = files(&tree);
    let mut too_much = 0;
    let mut shared: BTreeMap<&str, BTreeSet<(&str, usize)>> = BTreeMap::new();
    for (at, first) in files.iter().enumerate() {
        for second in files[at + 1..].iter().filter(|second| second.protocol != first.protocol) {
            let runs = runs(&first.lines, &second.lines);
            for run in &runs {
                for index in 0..run.length {
                    let (one, other) = (run.starts.0 + index, run.starts.1 + index);
                    let numbers = (first.lines[one].1, second.lines[other].1);
                    shared.entry(first.protocol).or_default().insert((first.path, numbers.0));
                    shared.entry(second.protocol).or_default().insert((second.path, numbers.1));
                }
            }
            if let Some(text) = complaint(first, second, &runs) {
                too_much += 1;
                print!("{text}");
            }
        }
    }
    println!("   protocol   lines  shared with others");
    for protocol in files.iter().map(|file| file.protocol).collect::<BTreeSet<_>>() {
        let lines: usize = files
            .iter()
            .filter(|file| file.protocol == protocol)
            .map(|file| file.lines.len())
            .sum();
        println!(
            "   {protocol:<10} {lines:>5}  {:>5}",
            shared.get(protocol).map_or(0, BTreeSet::len)
        );
    }
    if too_much == 0 {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{too_much} pairs of files of different protocols are alike, listed above"
    )))
}

/// Returns one finding for each pair of files of different protocols that share too much code.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = files(tree);
    let mut findings = Vec::new();
    for (at, first) in files.iter().enumerate() {
        for second in files[at + 1..].iter().filter(|second| second.protocol != first.protocol) {
            let runs = runs(&first.lines, &second.lines);
            if complaint(first, second, &runs).is_some() {
                let text = format!(
                    "shares more than {RUN_MAX} lines in one run, or {LINES_MAX} in all, with {PROTOCOLS}{}: \
                     `cargo xtask alike` lists them",
                    second.path
                );
                findings.push(Finding::failure(&format!("{PROTOCOLS}{}", first.path), 0, text));
            }
        }
    }
    findings
}

/// A file of a protocol.
struct File<'a> {
    protocol: &'a str,
    /// The path of the file inside the folder of protocols.
    path: &'a str,
    lines: Vec<Line>,
}

fn files(tree: &Tree) -> Vec<File<'_>> {
    let of =
        |source: &'_ Source| -> Option<usize> { source.path.strip_prefix(PROTOCOLS)?.find('/') };
    let inside = tree.sources.iter().filter_map(|source| {
        let path = &source.path[PROTOCOLS.len().min(source.path.len())..];
        let protocol = &path[..of(source)?];
        Some(File { protocol, path, lines: lines(source) })
    });
    inside.collect()
}

/// Returns a complaint about two files, if the two files share too much code.
fn complaint(first: &File<'_>, second: &File<'_>, runs: &[Run]) -> Option<String> {
    let longest = runs.iter().map(|run| run.length).max()?;
    let sum: usize = runs.iter().map(|run| run.length).sum();
    if longest <= RUN_MAX && sum <= LINES_MAX {
        return None;
    }
    let mut text =
        format!("   {} and {}: {sum} lines, {longest} in one run\n", first.path, second.path);
    for run in runs {
        let span = |lines: &[Line], start: usize| {
            format!("{}-{}", lines[start].1, lines[start + run.length - 1].1)
        };
        let (one, other) = (span(&first.lines, run.starts.0), span(&second.lines, run.starts.1));
        text.push_str(&format!("      {:>3} lines: {one} = {other}\n", run.length));
    }
    Some(text)
}

/// Returns the lines of a file that are compared with other files.
fn lines(source: &Source) -> Vec<Line> {
    let tokens = &source.tokens;
    let mut by_line: BTreeMap<usize, String> = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        let end = match token.text.as_str() {
            "use" => end_of(tokens, at, &[";"]),
            "fn" => end_of(tokens, at, &["{", ";"]),
            "#" => end_of(tokens, at, &["]"]),
            _ => at,
        };
        if end > at {
            left_out.extend(token.line..=tokens[end].line);
        } else if !token.in_test {
            by_line.entry(token.line).or_default().push_str(&shown(token));
        }
        at = end + 1;
    }
    let says_something = |text: &str| text.chars().any(|letter| !"()[]{}<>;,.?".contains(letter));
    let kept =
        by_line.into_iter().filter(|(line, text)| !left_out.contains(line) && says_something(text));
    kept.map(|(line, text)| (text, line)).collect()
}

/// Returns the end of the item that begins at a token. The end is the first of the `marks` outside of
/// round brackets.
fn end_of(tokens: &[Token], from: usize, marks: &[&str]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.text.as_str() {
            text if depth == 0 && marks.contains(&text) => return at,
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
    }
    tokens.len() - 1
}

/// Returns the text of a token. All names get the same text.
fn shown(token: &Token) -> String {
    match token.kind {
        Kind::Identifier if !KEPT.contains(&token.text.as_str()) => "_".to_owned(),
        Kind::Identifier => format!(" {} ", token.text),
        _ => token.text.clone(),
    }
}

/// Returns the runs that two files share, in the order of the first file. The function chooses the
/// longest run first, and then the longest run of the remaining lines.
fn runs(first: &[Line], second: &[Line]) -> Vec<Run> {
    let mut taken = (vec![false; first.len()], vec![false; second.len()]);
    let mut runs = Vec::new();
    while let Some(run) = longest(first, second, &taken) {
        taken.0[run.starts.0..][..run.length].fill(true);
        taken.1[run.starts.1..][..run.length].fill(true);
        runs.push(run);
    }
    runs.sort_by_key(|run| run.starts);
    runs
}

/// Returns the longest common run of lines that no chosen run uses, if this run is long enough.
fn longest(first: &[Line], second: &[Line], taken: &(Vec<bool>, Vec<bool>)) -> Option<Run> {
    let mut best: Option<Run> = None;
    // For each line of the second file: the number of successive lines, ending with that line, that
    // equal the lines of the first file that end before `one`.
    let mut before = vec![0; second.len() + 1];
    for (one, line) in first.iter().enumerate() {
        let mut now = vec![0; second.len() + 1];
        for (other, same) in second.iter().enumerate() {
            if line.0 != same.0 || taken.0[one] || taken.1[other] {
                continue;
            }
            let length = before[other] + 1;
            now[other + 1] = length;
            if length >= RUN_MIN && best.is_none_or(|best| length > best.length) {
                best = Some(Run { starts: (one + 1 - length, other + 1 - length), length });
            }
        }
        before = now;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> Vec<Line> {
        lines(&Source::parse("crates/x/src/lib.rs", text.to_owned()).expect("Rust"))
    }

    #[test]
    fn only_code_is_compared_and_names_do_not_matter() {
        let one = "//! One.\nuse a::{\n    b,\n};\n\n/// Doc.\n#[inline]\npub async fn f(\n    x: u8,\n) -> u8 {\n    \
                   // Why.\n    let y = g(x).await?;\n    if y { return 7; }\n}\n#[cfg(test)]\nmod tests { fn t() { go(); } }\n";
        let other =
            "use c;\nfn other() {\n    let second = h(z).await?;\n    if z { return 7; }\n}\n";
        let texts =
            |text: &str| -> Vec<String> { lines_of(text).into_iter().map(|it| it.0).collect() };
        assert_eq!(lines_of(one).iter().map(|line| line.1).collect::<Vec<_>>(), [12, 13]);
        assert_eq!(texts(one), texts(other));
        assert_ne!(texts("fn f() { \n g(7); }"), texts("fn f() { \n g(8); }"), "numbers matter");
    }

    fn numbered(numbers: &[usize]) -> Vec<Line> {
        numbers.iter().map(|number| (number.to_string(), *number)).collect()
    }

    #[test]
    fn runs_are_as_long_as_can_be_and_no_line_counts_twice() {
        let first = numbered(&[1, 2, 3, 4, 5, 0, 6, 7, 8, 9]);
        let second = numbered(&[6, 7, 8, 9, 1, 2, 3, 4, 5, 1, 2, 3, 4]);
        let found = runs(&first, &second);
        let expected = [Run { starts: (0, 4), length: 5 }, Run { starts: (6, 0), length: 4 }];
        assert_eq!(found, expected);
        assert_eq!(runs(&numbered(&[1, 2, 3]), &second), [], "too short");
    }

    #[test]
    fn too_long_a_run_or_too_many_lines_are_complained_of() {
        let file = |protocol: &'static str, numbers: &[usize]| File {
            protocol,
            path: protocol,
            lines: numbered(numbers),
        };
        let all: Vec<usize> = (0..40).collect();
        let complaint = |first: &[usize], second: &[usize]| {
            let (first, second) = (file("a", first), file("b", second));
            complaint(&first, &second, &runs(&first.lines, &second.lines))
        };
        assert_eq!(complaint(&all[..RUN_MAX], &all), None);
        let text = complaint(&all[..=RUN_MAX], &all).expect("too long");
        assert_eq!(text, "   a and b: 13 lines, 13 in one run\n       13 lines: 0-12 = 0-12\n");
        // The second file has four runs of eight lines, in another order.
        let turned: Vec<usize> =
            [1, 0, 3, 2].iter().flat_map(|part| part * 8..part * 8 + 8).collect();
        let text = complaint(&all[..32], &turned).expect("too many");
        assert!(text.starts_with("   a and b: 32 lines, 8 in one run\n"), "{text}");
    }
}
