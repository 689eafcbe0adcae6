//! The `tarn` program runs benchmarks and checks recorded histories, and gives a verdict on each.
//!
//! The program parses the command line, runs a command of the laboratory (`tarn-lab`), and turns the command's
//! outcome into an exit code.
//!
//! Invariant: results go to standard output, everything else to standard error. The exit code is 0 if the command
//! succeeds. The exit code is 1 if a check failed or the work could not be done. The exit code is 2 if the command
//! line, a scenario or a history could not be used. For bad input the program prints one line, `error: --FLAG =
//! VALUE; allowed: …`. All code that checks input prints this line: clap, a scenario, the workload, the cluster.

#![forbid(unsafe_code)]

/// Prints a line like `eprintln!`, which would end the program if standard error cannot be written.
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
mod lock;
mod lock_budget;
mod lock_check;
mod lock_trace;
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

use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};
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
    /// Run every order of a few small transactions, on request with crashes, and judge each order
    Explore(Box<explore::Arguments>),
    /// Run a published figure again on a simulated cluster, and compare with the published values
    #[command(visible_alias = "repro")]
    Reproduce(reproduce::Arguments),
    /// List hardware profiles, or the constants of one profile with their sources
    Profiles(profiles::Arguments),
    /// List the rules that a protocol's variant can switch off
    Rules(rules::Arguments),
    /// Decide whether a recorded history is strictly serializable, or satisfies a weaker level
    Check(check::Arguments),
    /// Run a lock service, hold its locks while commands run, and measure it
    Lock(lock::Arguments),
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
  tarn lock run --config locks.toml --lock 7 -- make deploy

Exit code 0: all is well. 1: a check failed; or the work could not be done, for example because a disk is
full, and a line that begins with error says so. 2: bad input.";

/// The exit code that shells report for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// The verdict of a command that has completed its work.
enum Verdict {
    Good,
    Bad,
    /// A signal ended the command early, and the command had found no error until then.
    Interrupted,
    /// A command that ran under a lock has ended with this code.
    Code(u8),
}

/// The reason why a command could not do its work.
#[derive(Debug)]
enum Stop {
    /// The input is bad. The text is printed after `error: `.
    Input(String),
    /// The work of the command failed.
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
    if let Err(stop) = interrupt::remove_partial_files() {
        return ended(Err(stop));
    }
    let parsed = parser().try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // The user requested help or the version.
            return match written(error.print()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(text) => complain(1, &text),
            };
        }
        Err(error) => return complain(2, &guess::with_guess(&complaint::of_clap(&error))),
    };
    ended(match &cli.command {
        Command::Bench(arguments) => bench::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Swarm(arguments) => swarm::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Explore(arguments) => explore::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Profiles(arguments) => profiles::run(arguments),
        Command::Rules(arguments) => rules::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Lock(arguments) => lock::run(arguments),
    })
}

/// Returns the parser of the command line. A negative number is the value of a flag that takes one, so that the error
/// names this flag; clap would take it for an unknown flag.
fn parser() -> clap::Command {
    fn with_numbers(command: clap::Command) -> clap::Command {
        let command = command.mut_args(|argument| {
            let takes_number =
                argument.get_long().is_some() && argument.get_action().takes_values();
            let is_open = argument.is_allow_hyphen_values_set();
            argument.allow_negative_numbers(takes_number && !is_open)
        });
        command.mut_subcommands(with_numbers)
    }
    with_numbers(Cli::command())
}

/// Turns the outcome of a command into an exit code.
fn ended(outcome: Result<Verdict, Stop>) -> ExitCode {
    match outcome {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Ok(Verdict::Interrupted) => ExitCode::from(INTERRUPTED),
        Ok(Verdict::Code(code)) => ExitCode::from(code),
        Err(Stop::Failed(text)) => complain(1, &text),
        Err(Stop::Input(text)) => complain(2, &guess::with_guess(&text)),
    }
}

fn complain(code: u8, text: &str) -> ExitCode {
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // The user's input may contain bytes that a terminal interprets as commands.
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

/// Prints one JSON object and the end of its line.
fn print_object(object: &impl serde::Serialize) -> Result<(), Stop> {
    print_json(serde_json::to_string(object))
}

/// Prints a JSON object that is text already, and the end of its line.
fn print_json(text: serde_json::Result<String>) -> Result<(), Stop> {
    let text = text.map_err(|error| {
        Stop::Failed(format!(
            "the report cannot be written as JSON: \
                                                          {error}"
        ))
    })?;
    say(&format!("{text}\n"))
}

/// Prints a result. If the reader has closed the pipe, the reader does not need the result, so this is no error.
fn say(text: &str) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map_err(Stop::Failed)
}

/// Returns success if standard output took a result, or if the reader has closed the pipe.
///
/// # Errors
/// The error names the file and the system's error.
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

    #[test]
    fn the_command_line_is_sound() {
        parser().debug_assert();
    }
}
