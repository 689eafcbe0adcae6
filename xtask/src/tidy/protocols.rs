//! Checks that protocols are interchangeable: no protocol uses another protocol, and workloads use no
//! protocol.
//!
//! Invariant: every folder in the engine's protocol folder is a protocol. So the checks cover a new
//! protocol from its first file on.

use std::collections::BTreeSet;

use super::Finding;
use super::source::{Kind, Source};
use super::tree::Tree;

const FOLDER: &str = "crates/engine/src/protocol/";
const WORKLOADS: &str = "crates/workloads/";

/// Returns the names of the protocols.
fn protocols(tree: &Tree) -> BTreeSet<&str> {
    tree.files
        .iter()
        .filter_map(|path| path.strip_prefix(FOLDER)?.split_once('/'))
        .map(|(protocol, _)| protocol)
        .collect()
}

/// Returns one failure for each path in a protocol's folder that leads to another protocol.
pub(super) fn isolation(tree: &Tree) -> Vec<Finding> {
    let protocols = protocols(tree);
    let mut findings = Vec::new();
    for source in &tree.sources {
        let inside = source.path.strip_prefix(FOLDER).and_then(|rest| rest.split_once('/'));
        let Some((own, _)) = inside else { continue };
        for path in source.paths() {
            // A single identifier in code is a local name, and does not lead into another folder.
            if path.segments.len() < 2 && !path.imported {
                continue;
            }
            let other = path
                .segments
                .iter()
                .find(|segment| segment.as_str() != own && protocols.contains(segment.as_str()));
            if let Some(other) = other {
                let text = format!(
                    "protocol `{own}` names protocol `{other}`; shared steps live in \
                     `crates/engine/src/steps`"
                );
                findings.push(Finding::failure(&source.path, path.line, text));
            }
        }
    }
    findings
}

/// Returns one failure for each word in the code of workloads that is a protocol's name. String
/// literals may contain such names, because a profile has the name of the paper that used it.
pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    let protocols = protocols(tree);
    tree.sources
        .iter()
        .filter(|source| source.path.starts_with(WORKLOADS))
        .flat_map(|source| names_in(source, &protocols))
        .collect()
}

fn names_in(source: &Source, protocols: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for token in source.tokens.iter().filter(|token| token.kind == Kind::Identifier) {
        let words = format!("_{}_", snake_case(&token.text));
        for protocol in protocols.iter().filter(|name| words.contains(&format!("_{name}_"))) {
            let text = format!("a workload names protocol `{protocol}` in `{}`", token.text);
            findings.push(Finding::failure(&source.path, token.line, text));
        }
    }
    findings
}

/// Converts a name to snake case: `ReadSet` and `READ_SET` both become `read_set`.
fn snake_case(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        let after_lower =
            at > 0 && (letters[at - 1].is_lowercase() || letters[at - 1].is_numeric());
        let before_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let after_upper = at > 0 && letters[at - 1].is_uppercase();
        if letter.is_uppercase() && (after_lower || (after_upper && before_lower)) {
            out.push('_');
        }
        out.push(if letter.is_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::{Fixture, lines_of};

    const FORD: &str = "crates/engine/src/protocol/ford/mod.rs";
    const LOTUS: &str = "crates/engine/src/protocol/lotus/execute.rs";

    fn isolated(ford: &str) -> Vec<usize> {
        let fixture = Fixture::new(&[(FORD, ford), (LOTUS, "//! Lotus.\n")]);
        lines_of(&isolation(&fixture.tree()))
    }

    #[test]
    fn ways_into_another_protocol_are_found() {
        assert_eq!(isolated("//! Ford.\nuse crate::protocol::lotus::execute;"), [2]);
        assert_eq!(isolated("//! Ford.\nuse super::{ford, lotus};"), [2]);
        assert_eq!(isolated("//! Ford.\n\nfn f() { super::lotus::execute::g() }"), [3]);
    }

    #[test]
    fn prose_local_names_and_itself_are_fine() {
        assert!(isolated("//! Like crate::protocol::lotus.\nuse super::ford::a;").is_empty());
        assert!(isolated("//! Ford.\nfn f(lotus: u8) -> u8 { lotus }").is_empty());
    }

    #[test]
    fn workloads_that_name_a_protocol_are_found() {
        let code = "//! Ford is fine in prose.\nstruct FordBank;\nfn run_on_ford() {}\n\
                    const NAME: &str = \"FORD\";\nfn affordable() {}\n\
                    const FORD_MIX: u8 = 1;\n";
        let fixture = Fixture::new(&[
            (FORD, "//! Ford.\n"),
            ("crates/workloads/src/lib.rs", code),
            ("crates/tarn/src/lib.rs", "//! Tarn.\nuse tarn_engine::protocol::ford;\n"),
        ]);
        assert_eq!(lines_of(&names(&fixture.tree())), [2, 3, 6]);
    }

    #[test]
    fn words_of_identifiers() {
        assert_eq!(snake_case("FordRTT"), "ford_rtt");
        assert_eq!(snake_case("OOCCBank"), "oocc_bank");
        assert_eq!(snake_case("READ_SET"), "read_set");
    }
}
