//! `tarn lock trace`: traces of lock requests in files.
//!
//! Invariant: this file has only the command line and the files. `tarn-lab` draws and replays the traces, and
//! `tarn-locks` has their format. A file appears only when it is complete.

use super::complaint::about;
use super::scenario::{whole, whole_in};
use super::sim::{load_profile, with_settings};
use super::whole_file::WholeFile;
use super::{Stop, Verdict, print_object, say};
use clap::Subcommand;
use serde::Serialize;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tarn_lab::locks::run::Pace;
use tarn_lab::reproduce::locks::recorded::{self, Replay};
use tarn_locks::trace::Trace;

/// Writes a trace of lock requests to a file, and replays it on the lock services of the simulator
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  tarn lock trace write --load \"zipf uh theta=.9\" --output zipf.trace
  tarn lock trace replay zipf.trace --service fisslock --service srvlock
  tarn lock trace write --load \"zipf uh theta=.9\" --seed 2 --output before.trace
  tarn lock trace replay zipf.trace --service netlock --hot-from before.trace
  tarn lock trace write --load tpcc --transactions 100000 --output tpcc.trace
  tarn lock trace replay tpcc.trace --service fisslock-local --warehouses 1200 --clients 30 --work-ns 10000

Loads: uniform, zipf, hotspot, tatp, tpcc, granules. Settings of uniform, zipf and granules: uh, rm or ro (half, a
tenth or none of the requests exclusive), locks=NUMBER, theta=NUMBER. Setting of hotspot: locks=NUMBER.
Services: fisslock, fisslock-local, srvlock, parlock, netlock, dslr, cas, ideal-faa.";

#[derive(Subcommand)]
enum Command {
    /// Draw a trace from a load, and write it to a file
    Write(WriteArguments),
    /// Replay a trace on a simulated cluster of 8 machines, on each of the services in turn
    Replay(ReplayArguments),
}

#[derive(clap::Args)]
struct WriteArguments {
    /// The load and its settings
    #[arg(long, value_name = "LOAD")]
    load: String,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// The number of transactions, 8 to 67108864
    #[arg(long, value_name = "COUNT", default_value_t = 400_000, value_parser = whole)]
    transactions: u64,
    /// The seed of the random generator
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole)]
    seed: u64,
    /// One JSON object on standard output instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ReplayArguments {
    /// The file with the trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// A service; repeat the flag for several services
    #[arg(long, value_name = "NAME", default_value = "fisslock")]
    service: Vec<String>,
    /// Clients of each of the 40 issuing threads
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = whole_in::<u16>(1..=1_000))]
    clients: u16,
    /// The time for which a transaction holds all its locks
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole_in::<u64>(0..=1_000_000))]
    work_ns: u64,
    /// The virtual time that is measured, after 1 ms of warm-up
    #[arg(long, value_name = "MS", default_value_t = 3, value_parser = whole_in::<u64>(1..=1_000))]
    virtual_ms: u64,
    /// Choose NetLock's hot locks from this trace, not from the replayed one
    #[arg(long, value_name = "FILE")]
    hot_from: Option<PathBuf>,
    /// The trace is one of TPC-C with this number of warehouses for each machine; machines share locks by warehouse
    #[arg(long, value_name = "COUNT", value_parser = whole_in::<u32>(0..=u32::MAX.into()))]
    warehouses: Option<u32>,
    /// The hardware profile: a name or a file
    #[arg(long, value_name = "PROFILE", default_value = "cx5-100g")]
    profile: String,
    /// Set a constant of the hardware for this run, as in tarn sim
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The seed of the simulated cluster
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole)]
    seed: u64,
    /// One JSON object on standard output instead of text
    #[arg(long)]
    json: bool,
}

const WARM_UP_NS: u64 = 1_000_000;
const MS_NS: u64 = 1_000_000;

/// A trace that was written.
#[derive(Serialize)]
struct Written {
    trace: String,
    locks: u32,
    transactions: usize,
    requests: usize,
    bytes: usize,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    match &arguments.command {
        Command::Write(it) => write(it),
        Command::Replay(it) => replay(it),
    }
}

fn write(arguments: &WriteArguments) -> Result<Verdict, Stop> {
    let file = WholeFile::create("--output", &arguments.output)?;
    let trace = recorded::draw(&arguments.load, arguments.transactions as usize, arguments.seed)?;
    let bytes = trace.to_bytes();
    file.finish_with(|file| file.write_all(&bytes))?;
    let written = Written {
        trace: format!("{:016x}", trace.digest()),
        locks: trace.locks(),
        transactions: trace.len(),
        requests: trace.requests(),
        bytes: bytes.len(),
    };
    if arguments.json {
        print_object(&written)?;
        return Ok(Verdict::Good);
    }
    let Written { trace, locks, transactions, requests, bytes } = written;
    say(&format!(
        "trace {trace}: {transactions} transactions, {requests} requests, {locks} locks, {bytes} bytes\n"
    ))?;
    Ok(Verdict::Good)
}

/// Reads a trace from the file of an argument.
fn read(argument: &str, path: &Path) -> Result<Trace, Stop> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        Stop::Input(format!("{argument} = {shown}; allowed: a trace ({error})"))
    })?;
    Trace::from_bytes(&bytes).map_err(|error| Stop::Input(format!("{argument} = {shown}: {error}")))
}

fn replay(arguments: &ReplayArguments) -> Result<Verdict, Stop> {
    let trace = read("FILE", &arguments.trace)?;
    let hot_from = arguments.hot_from.as_deref();
    let hot_from = hot_from.map(|path| read("--hot-from", path)).transpose()?;
    let profile = with_settings(load_profile("--profile", &arguments.profile)?, &arguments.set)?;
    let order = Replay {
        services: arguments.service.clone(),
        profile,
        seed: arguments.seed,
        pace: Pace {
            clients: usize::from(arguments.clients),
            work_ns: arguments.work_ns,
            ..Pace::new(WARM_UP_NS, arguments.virtual_ms * MS_NS)
        },
        hot_from,
        warehouses: arguments.warehouses,
    };
    let replays = recorded::replay(trace, &order).map_err(|error| Stop::Input(about(&error)))?;
    match arguments.json {
        true => print_object(&replays)?,
        false => say(&replays.to_string())?,
    }
    Ok(Verdict::Good)
}
