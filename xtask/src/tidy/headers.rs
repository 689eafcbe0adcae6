//! Checks that every Rust file begins with a sentence that describes the file.
//!
//! Invariant: the first characters of a file are `//!`. This check cannot judge the text after `//!`,
//! so a reviewer must judge it.

use super::Finding;
use super::tree::Tree;

/// Returns one failure for each file that does not begin with `//!` and a text.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources
        .iter()
        .filter(|source| !opens_with_header(&source.text))
        .map(|source| {
            let text = "does not begin with `//!` (what the file is, and its invariant)";
            Finding::failure(&source.path, 1, text)
        })
        .collect()
}

fn opens_with_header(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("//!").is_some_and(|rest| !rest.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_header_with_a_text_counts() {
        assert!(opens_with_header("//! A map.\nfn f() {}"));
        for text in ["", "\n//! Late.", "// A comment.", "//!\n", "/// An item.", "use a;"] {
            assert!(!opens_with_header(text), "{text:?}");
        }
    }
}
