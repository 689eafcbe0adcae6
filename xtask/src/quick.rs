//! `cargo xtask quick`: the checks that are most useful while a developer makes a change.
//!
//! Invariant: the command lints only crates in which git reports a changed file, and runs only the
//! unit tests of these crates. The command runs the tests of round-trip budgets and the random
//! scenarios if a changed crate is linked into them. Every command uses the same features and flags
//! as the commands of `cargo xtask ci`. So neither `quick` nor `ci` causes the other command to
//! compile again.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;

use crate::cargo;
use crate::error::Error;
use crate::features;
use crate::format;
use crate::metadata::{Metadata, Package};
use crate::schedules;
use crate::steps::{self, Step};

const SEEDS: &str = "500";
/// The package whose tests contain the budgets of round trips, and the prefix of these tests' names.
const BUDGETS: (&str, &str) = ("tarn-engine", "rtt_budget");
const PROTOCOLS: &str = "crates/engine/src/protocol/";

/// The command line of `quick`. Its arguments select the files that count as changed.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The commit with which the files are compared [default: HEAD, or the commit before it if
    /// nothing differs]
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
}

/// Runs the checks of `quick`.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), Error> {
    let metadata = Metadata::read(root)?;
    let files = match &arguments.since {
        Some(commit) => changed(root, commit)?,
        None => match changed(root, "HEAD")? {
            files if files.is_empty() => changed(root, "HEAD~1")?,
            files => files,
        },
    };
    let crates = owners(root, &metadata, &files);
    let names: Vec<&str> = crates.iter().map(|package| package.name.as_str()).collect();
    println!(
        "{} files changed, of {}",
        files.len(),
        if names.is_empty() { "no crate".into() } else { names.join(", ") }
    );
    let protocol = only_protocol(&files).map(|folder| name_of(root, folder)).transpose()?;
    steps::run(root, "quick", &chosen(&metadata, &crates, protocol))
}

/// Returns the paths that differ from a commit, relative to the root. Files that git does not track yet
/// are included.
fn changed(root: &Path, commit: &str) -> Result<BTreeSet<String>, Error> {
    let differ = ["diff", "--name-only", "-z", "--no-renames", commit, "--"];
    let new = ["ls-files", "-z", "--others", "--exclude-standard"];
    let mut files = BTreeSet::new();
    for arguments in [&differ[..], &new] {
        let text = cargo::output_of(cargo::git(root, arguments))?;
        files.extend(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned));
    }
    Ok(files)
}

/// Returns the crates to which the files belong.
fn owners<'a>(root: &Path, metadata: &'a Metadata, files: &BTreeSet<String>) -> Vec<&'a Package> {
    let owns = |package: &&Package| {
        let folder = package.manifest_path.parent().and_then(|it| it.strip_prefix(root).ok());
        folder.is_some_and(|folder| files.iter().any(|file| Path::new(file).starts_with(folder)))
    };
    metadata.members().into_iter().filter(owns).collect()
}

/// If all changed code belongs to one protocol, returns the folder of this protocol.
fn only_protocol(files: &BTreeSet<String>) -> Option<&str> {
    let mut code = files.iter().filter(|file| file.ends_with(".rs") || file.ends_with(".toml"));
    let folder = |file: &'_ String| -> Option<usize> {
        file.strip_prefix(PROTOCOLS)?.find('/').map(|at| PROTOCOLS.len() + at)
    };
    let first = code.next()?;
    let own = &first[..folder(first)?];
    let same = |file: &String| folder(file).is_some_and(|end| file[..end] == *own);
    code.all(same).then(|| &own[PROTOCOLS.len()..])
}

/// Returns the name that the `tarn` program uses for the protocol in a folder.
fn name_of(root: &Path, folder: &str) -> Result<String, Error> {
    let path = format!("{PROTOCOLS}{folder}/mod.rs");
    let text = std::fs::read_to_string(root.join(&path))
        .map_err(|error| Error::failed(format!("cannot read {path}: {error}")))?;
    let info = text.split("= ProtocolInfo {").nth(1);
    info.and_then(|info| info.split("name: \"").nth(1)?.split('"').next())
        .map(str::to_owned)
        .ok_or_else(|| Error::failed(format!("{path} has no `ProtocolInfo` with a name")))
}

/// Returns the steps that check these crates.
fn chosen(metadata: &Metadata, crates: &[&Package], protocol: Option<String>) -> Vec<Step> {
    let mut steps = vec![Step::check("format", format::run)];
    if crates.is_empty() {
        return steps;
    }
    let packages = features::packages(crates.iter().map(|package| package.name.as_str()));
    let command = |first: &[&str], packages: &[String], last: &[&str]| -> Vec<String> {
        let words = first.iter().chain(last).map(|word| (*word).to_owned());
        let mut words: Vec<String> = words.collect();
        words.splice(first.len()..first.len(), packages.iter().cloned());
        words
    };
    let clippy = ["--lib", "--bins", "--", "-D", "warnings"];
    steps.push(Step::cargo("clippy", command(&["clippy", "--locked"], &packages, &clippy)));
    let has_library = |package: &&Package| package.targets_of("lib").next().is_some();
    let kinds: &[&str] = match crates.iter().all(has_library) {
        true => &["--lib"],
        false => &["--lib", "--bins"],
    };
    let kinds = if crates.iter().any(has_library) { kinds } else { &["--bins"] };
    steps.push(Step::cargo("unit tests", command(&["test", "--locked"], &packages, kinds)));
    let uses_changed = |name: &str| {
        let below = below(metadata, name);
        crates.iter().any(|package| below.contains(package.name.as_str()))
    };
    if uses_changed(BUDGETS.0) {
        let packages = features::packages([BUDGETS.0]);
        let tests = ["--test", "all", BUDGETS.1];
        steps.push(Step::cargo("budgets", command(&["test", "--locked"], &packages, &tests)));
    }
    let program = metadata
        .members()
        .into_iter()
        .find(|package| package.targets_of("bin").any(|target| target.name == "tarn"));
    if program.is_some_and(|package| uses_changed(&package.name)) {
        let protocol = protocol.clone();
        let run = move |root: &Path| schedules::seeds(root, SEEDS, protocol.as_deref());
        steps.push(Step::check("seeds", run));
    }
    steps
}

/// Returns the names of a package and of all workspace packages on which it depends.
fn below<'a>(metadata: &'a Metadata, name: &str) -> BTreeSet<&'a str> {
    let members = metadata.members();
    let mut found = BTreeSet::new();
    let mut ahead = vec![name.to_owned()];
    while let Some(name) = ahead.pop() {
        let Some(package) = members.iter().find(|package| package.name == name) else { continue };
        if found.insert(package.name.as_str()) {
            let normal = package.dependencies.iter().filter(|dependency| dependency.kind.is_none());
            ahead.extend(normal.map(|dependency| dependency.name.clone()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::metadata::Target;
    use crate::metadata::fixture::{package, workspace};

    fn set(files: &[&str]) -> BTreeSet<String> {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    fn members() -> Metadata {
        let target = |kind: &str, name: &str| Target {
            name: name.to_owned(),
            kind: vec![kind.to_owned()],
            required_features: Vec::new(),
        };
        let mut packages = vec![
            package("tarn-fabric", &[], &[]),
            package("tarn-engine", &["tarn-fabric"], &["tarn-check"]),
            package("tarn-check", &[], &[]),
            package("tarn-cli", &["tarn-engine"], &[]),
            package("xtask", &[], &[]),
        ];
        for package in &mut packages[..3] {
            package.targets.push(target("lib", "it"));
        }
        packages[3].targets.push(target("bin", "tarn"));
        packages[4].targets.push(target("bin", "xtask"));
        packages[4].manifest_path = PathBuf::from("xtask/Cargo.toml");
        workspace(packages)
    }

    fn steps_for(files: &[&str]) -> Vec<String> {
        let metadata = members();
        let crates = owners(Path::new(""), &metadata, &set(files));
        chosen(&metadata, &crates, None).iter().map(|step| step.shown(Path::new("."))).collect()
    }

    #[test]
    fn a_changed_crate_runs_the_checks_of_crates_that_link_it() {
        let engine = steps_for(&["crates/tarn-engine/src/lib.rs", "README.md"]);
        let expected = [
            "format",
            "clippy: cargo clippy --locked -p tarn-engine -p xtask --lib --bins -- -D warnings",
            "unit tests: cargo test --locked -p tarn-engine -p xtask --lib",
            "budgets: cargo test --locked -p tarn-engine -p xtask --test all rtt_budget",
            "seeds",
        ];
        assert_eq!(engine, expected);
        assert_eq!(steps_for(&["crates/tarn-fabric/src/a/b.rs"]).len(), 5);
        let program = steps_for(&["crates/tarn-cli/src/main.rs"]);
        assert_eq!(
            program[2..],
            ["unit tests: cargo test --locked -p tarn-cli -p xtask --bins", "seeds"]
        );
        let check = steps_for(&["crates/tarn-check/src/lib.rs"]);
        assert_eq!(check.len(), 3, "the program of the fixture is not built from it");
        assert_eq!(steps_for(&["docs/design/README.md"]), ["format"]);
    }

    #[test]
    fn seeds_run_under_the_only_changed_protocol() {
        let ford = "crates/engine/src/protocol/ford/commit.rs";
        let of = |files: &[&str]| only_protocol(&set(files)).map(str::to_owned);
        assert_eq!(of(&[ford, "docs/design/README.md"]).as_deref(), Some("ford"));
        assert_eq!(of(&[ford, "crates/engine/src/protocol/ford/mod.rs"]).as_deref(), Some("ford"));
        assert_eq!(of(&[ford, "crates/engine/src/protocol/occ/mod.rs"]), None);
        assert_eq!(of(&[ford, "crates/engine/src/protocol/mod.rs"]), None);
        assert_eq!(of(&[ford, "crates/fabric/src/lib.rs"]), None);
        assert_eq!(of(&["docs/design/README.md"]), None);
    }

    #[test]
    fn a_protocol_is_called_by_its_own_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(PROTOCOLS).join("two_phase");
        std::fs::create_dir_all(&path).expect("folders can be made");
        let text = "const A: Switch = Switch { name: \"a\" };\nconst INFO: ProtocolInfo = ProtocolInfo {\n name: \"2pl\",\n};\n";
        std::fs::write(path.join("mod.rs"), text).expect("files can be written");
        assert_eq!(name_of(folder.path(), "two_phase").expect("it has one"), "2pl");
        assert!(name_of(folder.path(), "other").is_err());
    }
}
