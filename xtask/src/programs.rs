//! Builds the workspace's programs and examples in the same way as the tests do.
//!
//! Invariant: each command names the whole workspace, and an example among its targets. So the programs
//! are compiled with the features that the tests request. `cargo run` would use other features and
//! would compile the whole workspace a second time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo;
use crate::error::Error;
use crate::metadata::Metadata;

/// The arguments of the command that builds `tarn`. The arguments do not contain `--bins`, because
/// `--bins` would link this tool once more. Linking with `--bins` would use other features than
/// `cargo xtask`.
const PROGRAM: [&str; 6] = ["build", "--locked", "--quiet", "--workspace", "--bin", "tarn"];
/// The example that takes the least time to link.
const SMALLEST: &str = "messages";

/// Builds all examples, with assertions and overflow checks, and returns their folder.
pub(crate) fn examples(root: &Path, metadata: &Metadata) -> Result<PathBuf, Error> {
    cargo::run_visibly(cargo::cargo(root, &[&PROGRAM[..], &["--examples"]].concat()))?;
    Ok(metadata.target_directory.join("debug/examples"))
}

/// Builds `tarn`, with assertions and overflow checks, and returns a command that runs `tarn` in the
/// workspace's root.
pub(crate) fn tarn(root: &Path) -> Result<Command, Error> {
    let metadata = Metadata::read(root)?;
    cargo::run_visibly(cargo::cargo(root, &[&PROGRAM[..], &["--example", SMALLEST]].concat()))?;
    let mut command = Command::new(metadata.target_directory.join("debug/tarn"));
    command.current_dir(root).stdin(Stdio::null());
    Ok(command)
}
