//! Checks that paths that documents name exist.
//!
//! Invariant: the check compares a path with the files that git tracks, never with other files on
//! this machine. The form `a/{b,c}` means both `a/b` and `a/c`. The check reads a path only up to a
//! component with `*` or `<name>`.

use std::collections::BTreeSet;

use super::Finding;
use super::markdown::{Document, Named};
use super::tree::Tree;
use crate::bench_history::HISTORY;

/// The prefixes that make a word a path of this repository.
const ROOTS: [&str; 9] = [
    "compare/",
    "crates/",
    "docs/",
    "scenarios/",
    "xtask/",
    "examples/",
    "profiles/",
    ".ci/",
    "p4/",
];

/// Files that commands of this repository create. A fresh checkout may not contain these files.
const GENERATED: [&str; 1] = [HISTORY];

/// Returns one failure for each path that does not exist.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in tree.documents() {
        let Some(text) = tree.text(path) else {
            continue;
        };
        let document = Document::parse(&text);
        let mut missing: BTreeSet<(usize, String)> = BTreeSet::new();
        for named in document.inline.iter().chain(&document.shell) {
            missing.extend(missing_words(tree, named));
        }
        for link in &document.links {
            let target = link_target(path, &link.text);
            if let Some(target) = target.filter(|target| !exists(tree, target)) {
                missing.insert((link.line, target));
            }
        }
        for (line, target) in missing {
            let text = format!("names `{target}`, which does not exist");
            findings.push(Finding::failure(path, line, text));
        }
    }
    findings
}

/// Returns the words of a piece of code that look like paths of this repository and do not exist.
fn missing_words(tree: &Tree, named: &Named) -> Vec<(usize, String)> {
    let words: Vec<&str> = named.text.split_whitespace().collect();
    let mut missing = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 && names_output(words[index - 1]) {
            continue;
        }
        let word = word.trim_start_matches("./").trim_matches(['"', '\'', '(', ')', ';', ',']);
        if !ROOTS.iter().any(|root| word.starts_with(root)) {
            continue;
        }
        for path in alternatives(word) {
            let path = checkable(&path);
            if !exists(tree, &path) {
                missing.push((named.line, path));
            }
        }
    }
    missing
}

/// Returns whether `word` is a flag or redirection that is followed by the name of a file that the
/// command writes.
fn names_output(word: &str) -> bool {
    [">", ">>", "-o"].contains(&word) || word.starts_with("--out")
}

fn exists(tree: &Tree, path: &str) -> bool {
    path.is_empty() || tree.exists(path) || GENERATED.contains(&path)
}

/// Returns the paths that a word with braces means: `a/{b,c}/d` means `a/b/d` and `a/c/d`.
fn alternatives(word: &str) -> Vec<String> {
    let parts = word.split_once('{').and_then(|(before, rest)| {
        let (inside, after) = rest.split_once('}')?;
        Some((before, inside, after))
    });
    let Some((before, inside, after)) = parts else {
        return vec![word.to_owned()];
    };
    inside
        .split(',')
        .flat_map(|each| alternatives(&format!("{before}{}{after}", each.trim())))
        .collect()
}

/// Returns the path without the text that follows it in prose (`:12`, `::Item`, `#part`, a full
/// stop), and without components that are only placeholders for a name (`<name>`, `*`, `…`).
fn checkable(word: &str) -> String {
    let end = word.find([':', '#', '?']).unwrap_or(word.len());
    let fixed = word[..end].split('/').take_while(|part| !part.contains(['*', '<', '$', '…']));
    let path = fixed.collect::<Vec<_>>().join("/");
    path.trim_end_matches(['.', '/']).to_owned()
}

/// Returns the path within the repository to which a link of this document leads.
fn link_target(document: &str, link: &str) -> Option<String> {
    if link.contains(':') || link.starts_with(['#', '/', '<']) {
        return None;
    }
    let link = link.split(['#', '?']).next().unwrap_or_default();
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::Fixture;

    fn missing(document: &str) -> Vec<String> {
        let fixture = Fixture::new(&[
            ("crates/engine/src/index/hash.rs", "//! X.\n"),
            ("crates/engine/src/index/btree.rs", "//! X.\n"),
            ("docs/design/a.md", document),
            ("docs/fault-model.md", "Text."),
            ("README.md", "Text."),
        ]);
        check(&fixture.tree()).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn existing_names_are_silent() {
        for text in [
            "`crates/engine/src/index/hash.rs`, `crates/engine/src/index/`, `crates/engine`",
            "`crates/engine/src/index/hash.rs:12` `crates/engine/src/index/hash.rs::Node`",
            "`crates/engine/src/index/{hash,btree}.rs` and `crates/engine/<name>/mod.rs`",
            "`docs/design/NNNN-*.md` [up](../fault-model.md#time) [root](../../README.md)",
            "[web](https://example.org/docs/none.md) [here](#part) and crates/none in prose",
            "```sh\ntarn explore > docs/new.html\ntarn x --output docs/new.html\n```\n",
            "`docs/bench-history.jsonl` comes into being later",
            "```rust\nlet path = \"crates/none\";\n```\n",
        ] {
            assert_eq!(missing(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn missing_names_are_found() {
        for (text, path) in [
            ("`crates/none/src/lib.rs`", "crates/none/src/lib.rs"),
            ("`crates/engine/src/index/{hash,trie}.rs`", "crates/engine/src/index/trie.rs"),
            ("[gone](../gone.md)", "docs/gone.md"),
            ("[beside](gone.md#x)", "docs/design/gone.md"),
            ("`scenarios/<name>.toml`", "scenarios"),
            ("```sh\ntarn run ./scenarios/none.toml\n```\n", "scenarios/none.toml"),
            ("see `.ci/none`.", ".ci/none"),
        ] {
            let expected = format!("names `{path}`, which does not exist");
            assert_eq!(missing(text), [expected], "{text}");
        }
    }
}
