//! Runs the `tarn` program as a user does.
//!
//! Invariant: what a test writes lies in a temporary folder of its own.

#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a run ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The folder of the whole repository.
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

/// Runs `tarn` with a line of arguments.
pub fn tarn_line(line: &str) -> Ended {
    tarn(&line.split_whitespace().collect::<Vec<_>>())
}
