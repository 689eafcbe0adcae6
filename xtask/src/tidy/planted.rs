//! Fixtures for the checks, and the test that every check notices a violation.
//!
//! Invariant: each entry of `CHECKS` has one planted violation, which only the check of this entry
//! notices. The test fails if a check is switched off or broken.

use tempfile::TempDir;

use super::tree::{Tree, walk};
use super::{CHECKS, Finding};
use crate::metadata::Package;
use crate::metadata::fixture::package;

/// A tree of files in a temporary folder.
pub(super) struct Fixture {
    folder: TempDir,
}

impl Fixture {
    /// Writes the files to a temporary folder.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            let parent = path.parent().expect("a file is in a folder");
            std::fs::create_dir_all(parent).expect("folders can be made");
            std::fs::write(&path, text).expect("files can be written");
        }
        Self { folder }
    }

    /// Returns the tree of these files, without packages and without a `tarn` program.
    pub(super) fn tree(&self) -> Tree {
        let files = walk(self.folder.path()).expect("the folder can be listed");
        Tree::load(self.folder.path(), files, Vec::new(), None).expect("the files are sound")
    }
}

/// Returns a tree of packages without files.
pub(super) fn tree_of_packages(packages: Vec<Package>) -> Tree {
    let folder = std::path::Path::new(".");
    Tree::load(folder, Default::default(), packages, None).expect("nothing to read")
}

/// Returns the line numbers of the findings.
pub(super) fn lines_of(findings: &[Finding]) -> Vec<usize> {
    findings.iter().map(|finding| finding.line).collect()
}

/// A small workspace without violations.
const SOUND: [(&str, &str); 7] = [
    ("crates/engine/src/lib.rs", "//! Engine.\nmod protocol;\n"),
    ("crates/engine/src/protocol/ford/mod.rs", "//! Ford.\nuse crate::lock::Lock;\n"),
    ("crates/engine/src/protocol/lotus/mod.rs", "//! Lotus.\nuse crate::lock::Lock;\n"),
    ("crates/workloads/src/lib.rs", "//! Workloads.\npub fn load() {}\n"),
    ("crates/workloads/src/kvs/mod.rs", "//! Kvs.\npub struct Kvs;\n"),
    ("crates/fabric/src/local/mod.rs", "//! Local.\nunsafe fn map() {}\n"),
    ("README.md", "See `crates/engine/src/lib.rs`, run `cargo xtask ci`.\n"),
];

/// Returns the names of the checks that find a violation.
fn noticed_by(tree: &Tree) -> Vec<&'static str> {
    CHECKS.iter().filter(|check| !(check.run)(tree).is_empty()).map(|check| check.name).collect()
}

/// Runs the checks on the sound workspace with one file added or replaced. Returns the names of the
/// checks that find a violation.
fn with(path: &str, text: &str) -> Vec<&'static str> {
    let mut files: Vec<(&str, &str)> =
        SOUND.iter().copied().filter(|(other, _)| *other != path).collect();
    files.push((path, text));
    noticed_by(&Fixture::new(&files).tree())
}

#[test]
fn a_sound_tree_is_silent() {
    assert_eq!(noticed_by(&Fixture::new(&SOUND).tree()), Vec::<&str>::new());
}

#[test]
fn every_check_notices_its_planted_violation() {
    let left_behind = format!("//! X.\nfn f() {{ {}) }}\n", concat!("to", "do!("));
    let long_file = format!("//! X.\n{}", "\n".repeat(900));
    let long_function = format!("//! X.\nfn f() {{{}}}\n", "\n".repeat(90));
    let planted: [(&str, &str, &str); 12] = [
        ("headers", "xtask/src/main.rs", "fn main() {}\n"),
        ("storeys", "crates/workloads/src/field.rs", "//! X.\nuse crate::kvs::Kvs;\n"),
        (
            "protocol isolation",
            "crates/engine/src/protocol/ford/mod.rs",
            "//! Ford.\nuse super::lotus::execute;\n",
        ),
        ("protocol names", "crates/workloads/src/lib.rs", "//! X.\npub struct FordBank;\n"),
        ("clocks", "crates/engine/src/lib.rs", "//! X.\nuse std::time::Instant;\n"),
        ("unsafe", "crates/check/src/lib.rs", "//! X.\nunsafe fn f() {}\n"),
        ("words", "crates/check/src/lib.rs", &left_behind),
        ("plain words", "crates/new/src/lib.rs", "//! What nobody named.\n"),
        ("file sizes", "crates/check/src/lib.rs", &long_file),
        ("function sizes", "crates/check/src/lib.rs", &long_function),
        ("doc paths", "README.md", "See `crates/engine/src/gone.rs`.\n"),
        ("doc commands", "README.md", "Run `cargo xtask polish`.\n"),
    ];
    let mut proven: Vec<&str> = vec!["edges"];
    let wrong =
        vec![package("tarn-fabric", &["tarn-engine"], &[]), package("tarn-engine", &[], &[])];
    assert_eq!(noticed_by(&tree_of_packages(wrong)), ["edges"]);
    let step: String = (0..13).map(|at| format!("    self.step(cx, {at}).run(txn)?;\n")).collect();
    let step = format!("//! X.\nfn f() {{\n{step}}}\n");
    let alike = [
        ("crates/engine/src/protocol/ford/mod.rs", &*step),
        ("crates/engine/src/protocol/lotus/mod.rs", &*step),
    ];
    let sound = SOUND.iter().copied().filter(|(path, _)| alike.iter().all(|(it, _)| it != path));
    let tree = Fixture::new(&sound.chain(alike).collect::<Vec<_>>()).tree();
    assert_eq!(noticed_by(&tree), ["protocols alike"]);
    proven.push("protocols alike");
    for (name, path, text) in planted {
        assert_eq!(with(path, text), [name], "planted in {path}");
        proven.push(name);
    }
    let mut all: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    proven.sort_unstable();
    all.sort_unstable();
    assert_eq!(proven, all, "every check has a planted violation");
}
