//! The source tree that the checks read: its files, Rust sources and packages.
//!
//! Invariant: the tool loads the tree once and never writes to it. A file that git ignores is not
//! part of the tree. So a file that exists only on this machine cannot satisfy a check.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::source::Source;
use super::tarn_commands::{KEPT, TarnCommands};
use crate::cargo;
use crate::error::Error;
use crate::metadata::{Metadata, Package};

/// The input of the checks.
pub(super) struct Tree {
    pub(super) root: PathBuf,
    /// The paths of the files, relative to the root, with `/`.
    pub(super) files: BTreeSet<String>,
    pub(super) sources: Vec<Source>,
    /// The packages of the workspace.
    pub(super) packages: Vec<Package>,
    /// The commands of the `tarn` program. `None` if the program does not exist.
    pub(super) tarn: Option<TarnCommands>,
}

impl Tree {
    /// Loads the tree of the workspace. The function builds no program.
    pub(super) fn of_workspace(root: &Path) -> Result<Self, Error> {
        let metadata = Metadata::read(root)?;
        let packages: Vec<Package> = metadata.members().into_iter().cloned().collect();
        let has_program = packages
            .iter()
            .any(|package| package.targets_of("bin").any(|target| target.name == "tarn"));
        let tarn = has_program.then(|| kept_commands(root)).transpose()?;
        Self::load(root, files_of(root)?, packages, tarn)
    }

    /// Reads the Rust sources among the files.
    pub(super) fn load(
        root: &Path,
        files: BTreeSet<String>,
        packages: Vec<Package>,
        tarn: Option<TarnCommands>,
    ) -> Result<Self, Error> {
        let root = root.to_path_buf();
        let mut tree = Self { root, files, sources: Vec::new(), packages, tarn };
        let rust: Vec<&String> = tree.files.iter().filter(|path| path.ends_with(".rs")).collect();
        let mut sources = Vec::new();
        for path in rust {
            let text = tree
                .text(path)
                .ok_or_else(|| Error::failed(format!("{path} is not UTF-8 text")))?;
            let source = Source::parse(path, text)
                .map_err(|error| Error::failed(format!("{path} is not Rust: {error}")))?;
            sources.push(source);
        }
        tree.sources = sources;
        Ok(tree)
    }

    /// Returns a file's text, if the file contains text.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// Returns whether the path names a file, or a folder that contains a file.
    pub(super) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        self.files.contains(path)
            || self
                .files
                .range(inside.clone()..)
                .next()
                .is_some_and(|file| file.starts_with(&inside))
    }

    /// Returns the paths of the Markdown files.
    pub(super) fn documents(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter(|path| path.ends_with(".md")).map(String::as_str)
    }
}

fn kept_commands(root: &Path) -> Result<TarnCommands, Error> {
    std::fs::read_to_string(root.join(KEPT))
        .map(|text| TarnCommands::parse(&text))
        .map_err(|error| Error::failed(format!("cannot read {KEPT}: {error}")))
}

/// Returns the files that git tracks or would track. Without git, returns every file outside of
/// `target`.
fn files_of(root: &Path) -> Result<BTreeSet<String>, Error> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let files = match cargo::output_of(cargo::git(root, &list)) {
        Ok(text) => text.split('\0').map(str::to_owned).collect(),
        Err(_) => walk(root)?,
    };
    let exists = |path: &String| !path.is_empty() && root.join(path).is_file();
    Ok(files.into_iter().filter(exists).collect())
}

/// Returns all files under the root except build output and hidden git data.
pub(super) fn walk(root: &Path) -> Result<BTreeSet<String>, Error> {
    let mut files = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let failed = |error| Error::failed(format!("cannot list {}: {error}", folder.display()));
        for entry in std::fs::read_dir(root.join(&folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = folder.join(entry.file_name());
            if entry.file_type().map_err(failed)?.is_dir() {
                if path != Path::new("target") && path != Path::new(".git") {
                    folders.push(path);
                }
            } else {
                files.insert(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(files)
}
