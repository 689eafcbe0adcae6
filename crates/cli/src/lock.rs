//! `tarn lock`: the processes of the lock service.
//!
//! Invariant: this file has only the command line. `tarn-net` has the work.

use super::scenario::whole;
use super::{Stop, Verdict, interrupt, print_object, say};
use super::{lock_budget, lock_check, lock_trace};
use clap::{Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use tarn_locks::service::Patience;
use tarn_locks::value::{LockId, Mode};
use tarn_net::bench;
use tarn_net::program::{self, Held, OnLoss, ProgramError};

/// Runs and uses a lock service: a decider, agents, and commands that run while a lock is held.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  tarn lock decider --config locks.toml --state state --new
  tarn lock decider --config locks.toml --state state --xdp eth0
  tarn lock run --config locks.toml --lock 7 -- make deploy
  tarn lock status --config locks.toml
  tarn lock bench
  tarn lock trace write --load tatp --output tatp.trace
  tarn lock trace replay tatp.trace --service fisslock --service parlock
  tarn lock budget

A configuration:
  decider = \"127.0.0.1:7400\"
  locks = 1000000
  secret = \"secret.key\"
  [clients]
  first = 1
  last = 99

The secret has 32 hexadecimal digits in a file of mode 0600.

Exit code 0: all is well; of run, the command's. 1: no lock, a lock that was lost, or a service that does not
answer. 2: bad input.";

#[derive(Subcommand)]
enum Command {
    /// Decide: one process of a cluster
    Decider(DeciderArguments),
    /// Run a machine of the configuration: its agents serve the locks that its clients hold
    Agent(AgentArguments),
    /// Run a command while a lock is held; it finds the fencing token in TARN_LOCK_TOKEN, as view.order
    Run(RunArguments),
    /// Print the state of the decider
    Status(StatusArguments),
    /// Begin a new view
    Recover(RecoverArguments),
    /// Search every order of events of a small cluster for violations
    Check(lock_check::Arguments),
    /// Measure grants on loopback, beside a bare round trip of datagrams
    Bench(BenchArguments),
    /// Write a trace of lock requests, or replay one on simulated lock services
    Trace(lock_trace::Arguments),
    /// Print the locks that fit a switch, beside the arrays of its lanes
    Budget(lock_budget::Arguments),
}

#[derive(clap::Args)]
struct DeciderArguments {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The folder that says which view is in force
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Make the folder: a cluster that has never run
    #[arg(long)]
    new: bool,
    /// One of the configured addresses [default: the first]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    address: Option<SocketAddr>,
    /// Decide in the driver of this interface, as an XDP program; the configuration has xdp = true
    #[arg(long, value_name = "INTERFACE")]
    xdp: Option<String>,
}

#[derive(clap::Args)]
struct AgentArguments {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The machine's id in the configuration
    #[arg(long, value_name = "ID", value_parser = narrow::<u16>, allow_negative_numbers = true)]
    machine: u16,
}

/// Parses the address of a socket.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "IP:PORT, for example 127.0.0.1:7400".to_owned())
}

/// Parses a whole number that fits a narrower type.
fn narrow<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let greatest = u64::MAX >> (u64::BITS as usize - 8 * size_of::<T>());
    let has_digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
    match whole(text) {
        Err(allowed) if !has_digits_only => Err(allowed),
        number => number
            .ok()
            .and_then(|number| number.try_into().ok())
            .ok_or_else(|| format!("a whole number up to {greatest}")),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Loss {
    /// SIGTERM, and SIGKILL a second later
    Kill,
    /// One line on standard error
    Warn,
}

#[derive(clap::Args)]
struct RunArguments {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The lock
    #[arg(long, value_name = "ID", value_parser = narrow::<u32>, allow_negative_numbers = true)]
    lock: u32,
    /// Hold the lock beside other shared holders
    #[arg(long)]
    shared: bool,
    /// Give up after this time, whether a decider or the lock is waited for; 0 waits for no lock, and for a decider
    /// only while it may answer [default: 10 s for a decider, without end for the lock]
    #[arg(long, value_name = "MS", value_parser = whole, allow_negative_numbers = true)]
    timeout: Option<u64>,
    /// The end of a command whose lock is lost
    #[arg(long, value_name = "ACT", default_value = "kill")]
    on_loss: Loss,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct StatusArguments {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// One JSON object on standard output instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct RecoverArguments {
    /// The configuration of a decider that answers
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of a decider that does not answer; a new one may be started afterwards
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    state: Option<PathBuf>,
}

#[derive(clap::Args)]
struct BenchArguments {
    /// The configuration of a decider that runs [default: a decider in a thread]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Milliseconds of each measurement
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1_000,
        value_parser = whole,
        allow_negative_numbers = true
    )]
    millis: u64,
    /// One JSON object on standard output instead of text
    #[arg(long)]
    json: bool,
}

impl From<ProgramError> for Stop {
    fn from(error: ProgramError) -> Stop {
        match error {
            ProgramError::Usage(text) => Stop::Input(text),
            ProgramError::Failed(text) => Stop::Failed(text),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let tell = |line: String| remark!("{line}");
    match &arguments.command {
        Command::Decider(it) => {
            let stop = interrupt::flag()?;
            let place = (it.address, it.xdp.as_deref());
            program::decider(&it.config, (&it.state, it.new), place, &stop, tell)?;
        }
        Command::Agent(it) => {
            let stop = interrupt::flag()?;
            program::agent(&it.config, it.machine, &stop, tell)?;
        }
        Command::Run(it) => return run_command(it),
        Command::Status(it) => {
            let status = program::status(&it.config)?;
            match it.json {
                true => print_object(&status)?,
                false => say(&program::status_text(&status))?,
            }
        }
        Command::Recover(it) => {
            say(&program::recover(it.config.as_deref(), it.state.as_deref())?)?;
        }
        Command::Check(it) => return lock_check::run(it),
        Command::Trace(it) => return lock_trace::run(it),
        Command::Budget(it) => return lock_budget::run(it),
        Command::Bench(it) => {
            let report = bench::run(it.millis, it.config.as_deref())?;
            match it.json {
                true => print_object(&report)?,
                false => say(&report.to_string())?,
            }
        }
    }
    Ok(Verdict::Good)
}

fn run_command(it: &RunArguments) -> Result<Verdict, Stop> {
    const MS_NS: u64 = 1_000_000;
    let stop = interrupt::flag()?;
    let patience = match it.timeout {
        None => Patience::Forever,
        Some(0) => Patience::Try,
        Some(ms) => Patience::Nanos(ms.saturating_mul(MS_NS)),
    };
    let mode = if it.shared { Mode::Shared } else { Mode::Exclusive };
    let on_loss = match it.on_loss {
        Loss::Kill => OnLoss::Kill,
        Loss::Warn => OnLoss::Warn,
    };
    let (lock, command) = (LockId(it.lock), it.command.clone());
    let held = Held { lock, mode, patience, on_loss, command };
    let code = program::run(&it.config, &held, &stop, |line| remark!("{line}"))?;
    Ok(if code == 0 { Verdict::Good } else { Verdict::Code(code) })
}
