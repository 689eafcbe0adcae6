//! Compiles the program for the kernel with clang, if the feature `xdp` asks for it.
//!
//! Invariant: without the feature nothing is run and nothing is needed. With it, a build without a usable
//! clang fails with one sentence that says how to get one.

use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 2] = ["bpf/decider.bpf.c", "bpf/kernel.h"];

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed={source}"));
    if std::env::var_os("CARGO_FEATURE_XDP").is_none() {
        return;
    }
    let folder = std::env::var_os("OUT_DIR").expect("cargo names the folder");
    let object = PathBuf::from(folder).join("decider.bpf.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // Version 3 of the instructions has compare-and-swap. `-g` describes the types of maps, which the spin
    // lock needs.
    let flags = "-O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -c";
    let mut command = Command::new(&clang);
    command.args(flags.split(' ')).arg(SOURCES[0]).arg("-o").arg(&object);
    let source = SOURCES[0];
    let error = match command.status() {
        Ok(status) if status.success() => return,
        Ok(status) => {
            format!("`{clang}` could not compile {source} ({status}): clang 14 or later is needed")
        }
        Err(error) => format!(
            "the feature `xdp` needs clang 14 or later to compile {source}, and `{clang}` does not run ({error}): \
             install the package `clang`, or name a compiler in the variable CLANG"
        ),
    };
    println!("cargo::error={error}");
    std::process::exit(1);
}
