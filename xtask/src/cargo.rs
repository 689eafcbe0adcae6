//! Runs other programs: cargo, git, and the `tarn` program itself.
//!
//! Invariant: a started program never reads the standard input of this tool. An error names the whole
//! command line that failed.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;

/// Creates a command that runs the same cargo that started this tool, in the workspace's root.
pub(crate) fn cargo(root: &Path, arguments: &[impl AsRef<OsStr>]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

/// Creates a git command for this workspace. The git command also works if another user owns the
/// workspace's files.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    let safe = format!("safe.directory={}", root.display());
    command.arg("-c").arg(safe).args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

/// Returns the command line as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let mut line = name.to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// Runs a command to its end. The command writes its output directly to the terminal.
pub(crate) fn run_visibly(mut command: Command) -> Result<(), Error> {
    let line = shown(&command);
    let status =
        command.status().map_err(|error| Error::failed(format!("cannot run `{line}`: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::failed(format!("`{line}` ended with {status}")))
    }
}

/// Runs a command to its end and returns its standard output. If the command fails, the returned
/// error contains the command's standard error.
pub(crate) fn output_of(mut command: Command) -> Result<String, Error> {
    let line = shown(&command);
    let output =
        command.output().map_err(|error| Error::failed(format!("cannot run `{line}`: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Error::failed(format!(
            "`{line}` ended with {}: {}",
            output.status,
            why.trim()
        )));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Error::failed(format!("`{line}` printed text that is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command() {
        let error = run_visibly(Command::new("false")).expect_err("`false` fails");
        assert!(error.to_string().contains("`false` ended with"), "{error}");
        let missing = output_of(Command::new("no-such-program-here")).expect_err("missing");
        assert!(missing.to_string().contains("cannot run `no-such-program-here`"), "{missing}");
    }

    #[test]
    fn the_shown_line_has_no_machine_path() {
        let mut command = Command::new("/some/where/cargo");
        command.args(["fmt", "--all"]);
        assert_eq!(shown(&command), "cargo fmt --all");
    }
}
