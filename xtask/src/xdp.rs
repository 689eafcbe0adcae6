//! Tests the decider in a network driver (XDP), where this machine can compile the program and make network namespaces.
//!
//! Invariant: if clang or `ip` is missing, one line says which, and the step ends well. The tests themselves say so if the kernel loads no
//! program for this user.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo;
use crate::error::Error;
use crate::features;

const FEATURES: [&str; 2] = ["--features", "tarn-xdp/xdp,tarn-net/xdp"];
/// The modules of the tests: those of `tarn-xdp`, and the one of `tarn-net`.
const TESTS: [&str; 4] = ["equal::", "concurrent::", "hosts::", "xdp::"];

/// Runs the tests as a step.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    for (program, argument) in [(clang.as_str(), "--version"), ("ip", "-Version")] {
        if !runs(program, argument) {
            println!("   skipped: `{program}` does not run");
            return Ok(());
        }
    }
    let packages = features::packages(["tarn-xdp", "tarn-net"]);
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let begin = ["test", "--locked"];
    let arguments = [&begin[..], &packages, &FEATURES, &["--test", "all", "--"], &TESTS].concat();
    cargo::run_visibly(cargo::cargo(root, &arguments))
}

fn runs(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_noticed() {
        assert!(runs("cargo", "--version"));
        assert!(!runs("no-such-program", "--version"));
    }
}
