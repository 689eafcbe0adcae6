//! Our programs and examples, built as the tests build them.
//!
//! Invariant: one command builds them, for all steps. It names an example and so has the features that
//! tests ask for; `cargo run` would not, and the whole workspace would be compiled a second time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo;
use crate::error::Error;
use crate::metadata::Metadata;

const BUILD: [&str; 6] = ["build", "--locked", "--quiet", "--workspace", "--bins", "--examples"];

/// Builds them, with assertions and overflow checks, and returns the folder of the programs; that of the
/// examples is `examples` in it.
pub(crate) fn build(root: &Path, metadata: &Metadata) -> Result<PathBuf, Error> {
    cargo::run_visibly(cargo::cargo(root, &BUILD))?;
    Ok(metadata.target_directory.join("debug"))
}

/// A command that runs `tarn` in the workspace's root; it is built first.
pub(crate) fn tarn(root: &Path) -> Result<Command, Error> {
    let mut command = Command::new(build(root, &Metadata::read(root)?)?.join("tarn"));
    command.current_dir(root).stdin(Stdio::null());
    Ok(command)
}
