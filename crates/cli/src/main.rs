//! The `tarn` program: benchmarks with verdicts, and verdicts on recorded histories.
//!
//! It parses the command line, runs a command of the laboratory (`tarn-lab`), and turns its outcome
//! into an exit code.
//!
//! Invariant: results go to standard output, everything else to standard error. The exit code is 0
//! if all is well, 1 if a check failed or the work could not be done, 2 if the command line, a
//! scenario or a history could not be used. Bad input ends in one line,
//! `error: --FLAG = VALUE; allowed: …`. All parts that look at input keep to that: clap, a scenario, the workload, the
//! cluster.

#![forbid(unsafe_code)]

/// Like `eprintln!`, which would end the program where standard error cannot be written.
macro_rules! remark {
    ($($text:tt)*) => { $crate::remark(format_args!($($text)*)) };
}

mod bench;
mod check;
#[cfg(test)]
mod command_tree;
mod complaint;
mod explore;
mod guess;
mod interrupt;
mod own_input;
mod profiles;
mod progress;
mod reproduce;
mod rules;
mod scenario;
mod sim;
mod swarm;
mod trace;
mod verdict;
mod whole_file;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;
use tarn_lab::bench::run::RunError;
use tarn_store::ids::UsageError;

/// Serializable transactions on a pool of remote memory.
#[derive(Parser)]
#[command(name = "tarn", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a workload on an embedded cluster, measure it and check it
    Bench(Box<bench::Arguments>),
    /// Run a workload on a simulated cluster in virtual time, or measure a simulated NIC
    Sim(Box<sim::Arguments>),
    /// Run random scenarios with faults, for a number of seeds, for some time, or without end
    Swarm(Box<swarm::Arguments>),
    /// Draw transactions of a simulated run: rounds, verbs, phases, retries and waits
    Trace(Box<trace::Arguments>),
    /// Run every order of a few small transactions, with crashes if asked, and judge each
    Explore(Box<explore::Arguments>),
    /// Run a published figure again on a simulated cluster, beside the published values
    #[command(visible_alias = "repro")]
    Reproduce(reproduce::Arguments),
    /// List hardware profiles, or the constants of one with their sources
    Profiles(profiles::Arguments),
    /// List the rules that a protocol's variant can switch off
    Rules(rules::Arguments),
    /// Decide whether a recorded history is strictly serializable, or keeps a weaker level
    Check(check::Arguments),
}

const EXAMPLES: &str = "Examples:
  tarn bench smallbank
  tarn bench kvs --mix-profile mixed --records 1000000 --threads 2 --json
  tarn bench smallbank --records 1000 --history bank.jsonl
  tarn check bank.jsonl
  tarn sim smallbank --profile cx3-56g --compute-nodes 9 --coordinators 540 --replicas 3
  tarn sim smallbank --sweep coordinators=4,16,64 --html report.html
  tarn swarm --seeds 1000
  tarn trace smallbank --procedure send_payment --replicas 3
  tarn explore write-skew
  tarn reproduce lotus-fig-2 --quick
  tarn repro lotus --quick --html lotus.html
  tarn repro oocc --quick --html oocc.html
  tarn profiles cx3-56g
  tarn rules

Exit code 0: all is well. 1: a check failed; or the work could not be done, for example because a disk is
full, and a line that begins with error says so. 2: bad input.";

/// The exit code that shells report for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// The verdict of a command that did its work.
enum Verdict {
    Good,
    Bad,
    /// A signal ended the command early, and nothing was wrong until then.
    Interrupted,
}

/// The reason why a command could not do its work.
#[derive(Debug)]
enum Stop {
    /// Bad input; the text that stands behind `error: `.
    Input(String),
    /// The work failed.
    Failed(String),
}

impl From<UsageError> for Stop {
    fn from(error: UsageError) -> Stop {
        Stop::Input(complaint::about(&error))
    }
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Stop {
        match error {
            RunError::Usage(error) => error.into(),
            RunError::Failed(text) => Stop::Failed(text),
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // Help or the version was asked for.
            return match written(error.print()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(text) => complain(1, &text),
            };
        }
        Err(error) => return complain(2, &guess::with_guess(&complaint::of_clap(&error))),
    };
    let ended = match &cli.command {
        Command::Bench(arguments) => bench::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Swarm(arguments) => swarm::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Explore(arguments) => explore::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Profiles(arguments) => profiles::run(arguments),
        Command::Rules(arguments) => rules::run(arguments),
        Command::Check(arguments) => check::run(arguments),
    };
    match ended {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Ok(Verdict::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(Stop::Failed(text)) => complain(1, &text),
        Err(Stop::Input(text)) => complain(2, &guess::with_guess(&text)),
    }
}

fn complain(code: u8, text: &str) -> ExitCode {
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // The user's input may hold bytes that a terminal obeys.
    let shown: String = line
        .chars()
        .flat_map(|it| match it.is_control() {
            true => it.escape_default().collect::<Vec<_>>(),
            false => vec![it],
        })
        .collect();
    remark!("error: {shown}");
    ExitCode::from(code)
}

/// Prints one line on standard error. If that fails, only the exit code tells the outcome.
fn remark(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints one object and the end of its line.
fn print_object(object: &impl serde::Serialize) -> Result<(), Stop> {
    print_json(serde_json::to_string(object))
}

/// Prints an object that is text already, and the end of its line.
fn print_json(text: serde_json::Result<String>) -> Result<(), Stop> {
    let text = text.map_err(|error| {
        Stop::Failed(format!(
            "the report cannot be written as JSON: \
                                                          {error}"
        ))
    })?;
    say(&format!("{text}\n"))
}

/// Prints a result; if the reader has closed the pipe, it does not want the result.
fn say(text: &str) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map_err(Stop::Failed)
}

/// Returns whether standard output took a result, as far as a reader wants it.
///
/// # Errors
/// Names the file and the system's error.
fn written(result: std::io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: cannot be written: {error}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
