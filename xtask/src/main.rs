//! `cargo xtask`: one command that runs all checks.
//!
//! Invariant: no code of this tool is linked into the database. Every check reads the tree of files
//! from outside, so the tool works even while the code does not compile. Exit codes: 0 means that all
//! checks passed, 1 that a check failed, and 2 that the command line was wrong.

mod bench_history;
mod cargo;
mod dependencies;
mod error;
mod examples;
mod features;
mod format;
mod licences;
mod litmus;
mod metadata;
mod programs;
mod quick;
mod schedules;
mod steps;
mod tidy;
mod times;
mod xdp;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Error;

/// The command line of `cargo xtask`.
#[derive(Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    about = "Checks of the Tarn workspace",
    disable_version_flag = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all checks in order: format, tidy, licences, clippy, tests, models, random schedules, docs
    Ci {
        /// Skip the steps that `cargo xtask test` runs
        #[arg(long)]
        skip_tests: bool,
    },
    /// Run the most useful checks after a small change: format, lints and unit tests of the changed
    /// crates, budgets, 500 random scenarios
    Quick(quick::Arguments),
    /// Run all tests of libraries and programs, all doc tests, and every example once
    Test,
    /// Check the rules of the source tree that no compiler checks: headers, layers, docs that name
    /// real things
    Tidy,
    /// Find code that several protocols share line by line and that should exist only once, below the
    /// protocols
    Alike,
    /// Check the licences of all dependencies, and the table that gives the reason for each
    /// dependency
    Licences,
    /// Check the synchronisation of the local backend and of the lock table under every interleaving
    /// (loom)
    Loom,
    /// Append one line of benchmark results to docs/bench-history.jsonl
    BenchHistory(bench_history::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command, &workspace_root()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code()
        }
    }
}

fn run(command: &Command, root: &Path) -> Result<(), Error> {
    match command {
        Command::Ci { skip_tests } => steps::run(root, "ci", &steps::ci(*skip_tests)),
        Command::Quick(arguments) => quick::run(root, arguments),
        Command::Test => steps::run(root, "test", &steps::tests()),
        Command::Tidy => tidy::run(root),
        Command::Alike => tidy::alike::run(root),
        Command::Licences => licences::run(root),
        Command::Loom => steps::run(root, "loom", &steps::loom()),
        Command::BenchHistory(arguments) => bench_history::run(root, arguments),
    }
}

/// Returns the folder above this package's folder, which is the workspace's root. So the tool works
/// from any current folder.
fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}
