//! Runs the `tarn` program as a user does.
//!
//! Invariant: each test writes only into a temporary folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The output and the exit code of a run that has ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Returns the folder of the whole repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs `tarn` with these arguments.
pub fn tarn<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_tarn"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Runs `tarn` with a line of arguments, which are separated by spaces.
pub fn tarn_line(line: &str) -> Ended {
    tarn(&line.split_whitespace().collect::<Vec<_>>())
}

/// Asserts that the program refuses each command line. The program's error must be one line with this start and these
/// allowed values. `command` is put before each command line.
pub fn assert_refused(command: &str, lines: &[(&str, &str, &str)]) {
    for (line, start, allowed) in lines {
        let ended = tarn_line(&format!("{command} {line}"));
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.err);
        assert_eq!(ended.out, "", "{line}");
        let said: Vec<&str> =
            ended.err.lines().filter(|line| !line.starts_with("notice: ")).collect();
        assert_eq!(said.len(), 1, "{line}: {}", ended.err);
        assert!(said[0].starts_with(start), "{line}: {}", ended.err);
        assert!(said[0].contains(allowed), "{line}: {}", ended.err);
    }
}
