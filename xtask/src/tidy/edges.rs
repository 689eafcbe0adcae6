//! Checks which crates of the workspace may depend on which other crates.
//!
//! Invariant: the table in this file defines the allowed dependencies between crates. The check fails
//! if a dependency or a crate is not in the table.

use super::Finding;
use super::tree::Tree;
use crate::metadata::Package;

/// A crate and the crates that it may use.
struct Allowed {
    name: &'static str,
    normal: &'static [&'static str],
    /// The crates that only the tests of this crate may use, in addition to the crates in `normal`.
    dev: &'static [&'static str],
}

const TABLE: [Allowed; 17] = [
    Allowed {
        name: "tarn-cli",
        normal: &[
            "tarn-lab",
            "tarn",
            "tarn-workloads",
            "tarn-check",
            "tarn-sim",
            "tarn-peers",
            "tarn-net",
            "tarn-locks",
            "tarn-engine",
            "tarn-store",
            "tarn-fabric",
        ],
        dev: &[],
    },
    Allowed {
        name: "tarn-lab",
        normal: &[
            "tarn",
            "tarn-workloads",
            "tarn-check",
            "tarn-sim",
            "tarn-net",
            "tarn-locks",
            "tarn-engine",
            "tarn-store",
            "tarn-fabric",
        ],
        dev: &[],
    },
    Allowed {
        name: "tarn",
        normal: &[
            "tarn-derive",
            "tarn-engine",
            "tarn-net",
            "tarn-locks",
            "tarn-store",
            "tarn-fabric",
        ],
        dev: &[],
    },
    Allowed {
        name: "tarn-workloads",
        normal: &["tarn-engine", "tarn-store", "tarn-fabric", "tarn-zipf"],
        dev: &["tarn-check"],
    },
    Allowed {
        name: "tarn-engine",
        normal: &["tarn-store", "tarn-locks", "tarn-fabric"],
        dev: &["tarn-check"],
    },
    Allowed { name: "tarn-store", normal: &["tarn-fabric"], dev: &[] },
    Allowed { name: "tarn-sim", normal: &["tarn-fabric"], dev: &[] },
    Allowed { name: "tarn-net", normal: &["tarn-xdp", "tarn-locks", "tarn-fabric"], dev: &[] },
    Allowed { name: "tarn-xdp", normal: &["tarn-locks"], dev: &[] },
    Allowed { name: "tarn-peers", normal: &["tarn-net", "tarn-locks"], dev: &[] },
    Allowed { name: "tarn-locks", normal: &["tarn-zipf"], dev: &[] },
    Allowed { name: "tarn-zipf", normal: &[], dev: &[] },
    Allowed { name: "tarn-derive", normal: &[], dev: &[] },
    Allowed { name: "tarn-table", normal: &[], dev: &[] },
    Allowed { name: "tarn-check", normal: &[], dev: &[] },
    Allowed { name: "tarn-fabric", normal: &[], dev: &[] },
    // The dependency of `xtask` on `tarn-fabric` exists only for its features (xtask/src/features.rs).
    Allowed { name: "xtask", normal: &[], dev: &["tarn-fabric"] },
];

/// Returns one failure for each dependency that the table does not allow.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.packages.iter().flat_map(|package| edges_of(tree, package)).collect()
}

fn edges_of(tree: &Tree, package: &Package) -> Vec<Finding> {
    let manifest = manifest_of(tree, package);
    let Some(allowed) = TABLE.iter().find(|allowed| allowed.name == package.name) else {
        let text = format!("`{}` is not in the table of crates (tidy/edges.rs)", package.name);
        return vec![Finding::failure(&manifest, 0, text)];
    };
    let ours = |name: &str| tree.packages.iter().any(|package| package.name == name);
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.source.is_none() && ours(&dependency.name))
        .filter_map(|dependency| {
            let name = dependency.name.as_str();
            let in_tests = dependency.kind.as_deref() == Some("dev");
            if allowed.normal.contains(&name) || (in_tests && allowed.dev.contains(&name)) {
                return None;
            }
            let how = if in_tests { "use, even in tests," } else { "depend on" };
            let text = format!("`{}` must not {how} `{name}`", package.name);
            Some(Finding::failure(&manifest, 0, text))
        })
        .collect()
}

fn manifest_of(tree: &Tree, package: &Package) -> String {
    let path = package.manifest_path.strip_prefix(&tree.root).unwrap_or(&package.manifest_path);
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::fixture::package;
    use crate::tidy::planted::tree_of_packages;

    fn texts(packages: Vec<Package>) -> Vec<String> {
        check(&tree_of_packages(packages)).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn the_architecture_is_allowed() {
        let packages = vec![
            package("tarn-cli", &["tarn-lab", "tarn-workloads"], &[]),
            package("tarn-lab", &["tarn", "tarn-workloads", "tarn-check", "tarn-engine"], &[]),
            package("tarn", &["tarn-engine", "tarn-fabric"], &[]),
            package("tarn-workloads", &["tarn-engine", "tarn-fabric"], &["tarn-check"]),
            package("tarn-engine", &["tarn-fabric"], &["tarn-check"]),
            package("tarn-check", &[], &[]),
            package("tarn-fabric", &[], &[]),
        ];
        assert_eq!(texts(packages), Vec::<String>::new());
    }

    #[test]
    fn edges_that_point_the_wrong_way_are_found() {
        let packages = vec![
            package("tarn-engine", &["tarn-check"], &["tarn-sim"]),
            package("tarn-fabric", &[], &["tarn-engine"]),
            package("tarn-check", &[], &[]),
            package("tarn-sim", &["tarn-engine"], &[]),
            package("tarn", &["tarn-sim"], &["tarn-lab"]),
            package("tarn-lab", &[], &[]),
        ];
        let expected = [
            "`tarn-engine` must not depend on `tarn-check`",
            "`tarn-engine` must not use, even in tests, `tarn-sim`",
            "`tarn-fabric` must not use, even in tests, `tarn-engine`",
            "`tarn-sim` must not depend on `tarn-engine`",
            "`tarn` must not depend on `tarn-sim`",
            "`tarn` must not use, even in tests, `tarn-lab`",
        ];
        assert_eq!(texts(packages), expected);
    }

    #[test]
    fn an_unknown_crate_is_found() {
        let found = texts(vec![package("tarn-extra", &[], &[])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`tarn-extra` is not in the table"), "{found:?}");
    }

    #[test]
    fn foreign_crates_are_ignored() {
        assert_eq!(texts(vec![package("tarn-fabric", &["libc"], &[])]), Vec::<String>::new());
    }
}
