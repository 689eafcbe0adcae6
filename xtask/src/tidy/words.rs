//! Checks that the tree contains no forbidden text: marks of unfinished code, and paths of one
//! machine.
//!
//! Invariant: this file builds the forbidden words from two halves each, so that the file passes its
//! own check.

use super::Finding;
use super::tree::Tree;

const UNFINISHED: [&str; 3] =
    [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("d", "bg!(")];

/// The beginnings of absolute paths that exist only on one person's machine.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/ro", "ot"), concat!("/wo", "rk"), concat!("/tmp/", "bash")];

/// Returns one failure for each forbidden word in any text file of the tree.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in &tree.files {
        let Some(text) = tree.text(path) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| contains_macro(line, word)) {
                findings.push(Finding::failure(
                    path,
                    index + 1,
                    format!("`{word}` is left behind"),
                ));
            }
            for word in MACHINE_PATHS.iter().filter(|word| contains_path(line, word)) {
                let text = format!("an absolute path of one machine, beginning with `{word}`");
                findings.push(Finding::failure(path, index + 1, text));
            }
        }
    }
    findings
}

fn contains_macro(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_word))
}

/// Returns whether a line contains an absolute path that begins with the word. The word must not lie
/// inside a longer path, and the last folder in the word must be a whole name.
fn contains_path(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let begins = !before.is_some_and(|letter| is_word(letter) || ".-/*}>)]~".contains(letter));
        let ends =
            word.contains("tmp") || !after.is_some_and(|letter| is_word(letter) || letter == '-');
        begins && ends
    })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::{Fixture, lines_of};

    #[test]
    fn every_word_is_found() {
        for word in UNFINISHED {
            assert!(contains_macro(&format!("    {word}\"later\")"), word));
            assert!(!contains_macro(&format!("my_{word}x)"), word));
        }
        for word in MACHINE_PATHS {
            assert!(contains_path(&format!("let p = \"{word}/main\";"), word), "{word}");
            assert!(contains_path(&format!("{word}\n"), word), "{word}");
        }
    }

    #[test]
    fn longer_words_and_inner_folders_are_fine() {
        let work = MACHINE_PATHS[1];
        for line in ["crates{}loads/src", "https://example.org{}", "{}loads", "$HOME/net{}/x"] {
            assert!(!contains_path(&line.replace("{}", work), work), "{line}");
        }
    }

    #[test]
    fn any_text_file_is_read() {
        let config = format!("a = 1\nfolder = '{}/x'\n", MACHINE_PATHS[0]);
        let fixture = Fixture::new(&[("scenarios/a.toml", &config)]);
        assert_eq!(lines_of(&check(&fixture.tree())), [2]);
    }
}
