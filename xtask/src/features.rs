//! Creates commands for some crates. These commands compile the crates in the same way as commands
//! for all crates do.
//!
//! Invariant: cargo compiles a dependency with all features that any of the named packages requests.
//! So a command with only `-p X` may compile X and its dependencies a second time, with fewer
//! features. This tool's `[dev-dependencies]` request all features that any member requests. So a
//! command with `-p X -p xtask` shares every compiled crate with a command with `--workspace`.

/// Returns the arguments that name the packages of a command, and this tool as one more package.
pub(crate) fn packages<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let names = names.into_iter().chain(["xtask"]);
    names.flat_map(|name| ["-p".to_owned(), name.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::cargo;
    use crate::metadata::Metadata;

    /// Returns one line for every dependency of the packages, with the dependency's features.
    fn features(root: &Path, packages: &[&str]) -> BTreeSet<String> {
        let arguments = ["tree", "--offline", "--locked", "--edges", "normal,build,dev"];
        let format = ["--prefix", "none", "--format", "{p} {f}"];
        let command = cargo::cargo(root, &[&arguments[..], &format, packages].concat());
        let text = cargo::output_of(command).expect("cargo prints its tree");
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    #[test]
    fn each_crate_has_the_features_of_the_workspace() {
        let root = crate::workspace_root();
        let metadata = Metadata::read(&root).expect("cargo knows the workspace");
        let all = features(&root, &["--workspace"]);
        for member in metadata.members() {
            let named = packages([member.name.as_str()]);
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            let own = features(&root, &named);
            let others: Vec<&String> = own.difference(&all).collect();
            assert!(
                others.is_empty(),
                "`{}` is compiled twice, since it differs from the workspace in {others:?}; \
                 name the features in xtask/Cargo.toml, [dev-dependencies]",
                named.join(" ")
            );
        }
    }
}
