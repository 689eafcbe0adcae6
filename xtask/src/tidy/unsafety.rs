//! Checks that `unsafe` code is used only where memory is shared or foreign.
//!
//! Invariant: outside of the folders in `ALLOWED`, the keyword `unsafe` does not occur, not even in
//! tests.

use super::Finding;
use super::source::Kind;
use super::tree::Tree;

/// The folders in which `unsafe` is allowed. The loom models are among these folders, because they run
/// the local backend's own code. The comparison opens LMDB's mapped file, which its crate declares
/// unsafe.
const ALLOWED: [&str; 6] = [
    "crates/fabric/src/local/",
    "crates/fabric/tests/loom.rs",
    "crates/sim/",
    "crates/net/",
    "crates/table/",
    "compare/src/stores/lmdb.rs",
];

/// Returns one failure for each `unsafe` outside of the allowed folders.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let elsewhere = tree
        .sources
        .iter()
        .filter(|source| !ALLOWED.iter().any(|folder| source.path.starts_with(folder)));
    let mut findings = Vec::new();
    for source in elsewhere {
        for token in &source.tokens {
            if token.kind == Kind::Identifier && token.text == "unsafe" {
                let text = "`unsafe` outside of the local backend, the simulator, the transports, \
                            the hash table and the comparison's LMDB";
                findings.push(Finding::failure(&source.path, token.line, text));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::{Fixture, lines_of};

    #[test]
    fn the_keyword_is_found_and_nothing_else() {
        let code = "//! No unsafe code.\n#![forbid(unsafe_code)]\n// unsafe\n\
                    const S: &str = \"unsafe\";\nfn f() { unsafe { g() } }\n";
        let fixture = Fixture::new(&[
            ("crates/engine/src/lib.rs", code),
            ("crates/fabric/src/local/map.rs", "//! X.\nunsafe fn f() {}\n"),
            ("crates/fabric/src/round.rs", "//! X.\nunsafe fn f() {}\n"),
        ]);
        assert_eq!(lines_of(&check(&fixture.tree())), [5, 2]);
    }
}
