//! Reads the output of `cargo metadata` about the workspace: packages, dependencies and targets.
//!
//! Invariant: the metadata are read offline and with the unchanged lock file, so the answer depends on
//! nothing but the checked-out files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cargo;
use crate::error::Error;

/// The part of cargo's output that the checks read.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: BTreeSet<String>,
    pub(crate) target_directory: PathBuf,
}

/// One package: a package of this workspace, or a dependency.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    pub(crate) manifest_path: PathBuf,
}

/// One dependency in a package's manifest.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) req: String,
    /// The kind of the dependency: `None` for a normal dependency, and `dev` or `build` for the other
    /// kinds.
    pub(crate) kind: Option<String>,
    /// The source of the dependency. `None` means that the dependency is a path inside this
    /// workspace.
    pub(crate) source: Option<String>,
}

/// A library, program, example, test or benchmark of a package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    #[serde(rename = "required-features", default)]
    pub(crate) required_features: Vec<String>,
}

impl Metadata {
    /// Runs cargo to read the metadata, without the network.
    ///
    /// The metadata are only for the platform of this machine. Cargo may never have fetched packages
    /// that only another platform needs.
    pub(crate) fn read(root: &Path) -> Result<Self, Error> {
        let platform = host_platform(root)?;
        let command = cargo::cargo(
            root,
            &[
                "metadata",
                "--offline",
                "--locked",
                "--format-version",
                "1",
                "--filter-platform",
                &platform,
            ],
        );
        let text = cargo::output_of(command).map_err(|error| {
            let hint = "where packages are missing, `cargo fetch --locked` gets them once";
            Error::failed(format!("{error}\n({hint})"))
        })?;
        serde_json::from_str(&text)
            .map_err(|error| Error::failed(format!("cannot read cargo's metadata: {error}")))
    }

    /// Returns the packages of this workspace, sorted by name.
    pub(crate) fn members(&self) -> Vec<&Package> {
        let mut members: Vec<&Package> = self
            .packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
            .collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }
}

impl Package {
    /// Returns the targets of this package that are of one kind.
    pub(crate) fn targets_of(&self, kind: &str) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(move |target| target.kind.iter().any(|each| each == kind))
    }
}

fn host_platform(root: &Path) -> Result<String, Error> {
    let mut command = std::process::Command::new("rustc");
    command.arg("-vV").current_dir(root);
    let text = cargo::output_of(command)?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| Error::failed("`rustc -vV` names no host platform"))
}

#[cfg(test)]
pub(crate) mod fixture {
    //! Functions that create packages for tests.

    use super::*;

    /// Creates a package with the given normal and dev dependencies. All these dependencies are
    /// packages of this workspace.
    pub(crate) fn package(name: &str, normal: &[&str], dev: &[&str]) -> Package {
        let edge = |name: &&str, kind: Option<&str>| Dependency {
            name: (*name).to_owned(),
            req: "*".to_owned(),
            kind: kind.map(str::to_owned),
            source: None,
        };
        let mut dependencies: Vec<Dependency> =
            normal.iter().map(|name| edge(name, None)).collect();
        dependencies.extend(dev.iter().map(|name| edge(name, Some("dev"))));
        Package {
            name: name.to_owned(),
            id: name.to_owned(),
            version: "0.1.0".to_owned(),
            license: Some("Apache-2.0".to_owned()),
            dependencies,
            targets: Vec::new(),
            manifest_path: PathBuf::from(format!("crates/{name}/Cargo.toml")),
        }
    }

    /// Creates a workspace whose packages are all members.
    pub(crate) fn workspace(packages: Vec<Package>) -> Metadata {
        let workspace_members = packages.iter().map(|package| package.id.clone()).collect();
        Metadata { packages, workspace_members, target_directory: PathBuf::from("target") }
    }
}
