//! The cost of locks on loopback, beside a bare round trip of datagrams of the same size, measured in one run.
//!
//! Invariant: decider, echo and clients are threads of one process, unless the caller names a decider that runs; the report says which. Round trips and acquires are measured
//! in turns, so that both see the same machine.

mod cluster;
mod measure;

use crate::config::Config;
use crate::program::ProgramError;
pub use cluster::Cluster;
use measure::{Pairs, Quantiles};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use tarn_locks::wire::{HEADER_BYTES, PACKET_BYTES};

/// Tasks of the loaded run.
const DEPTH: usize = 32;
/// Turns of round trips and acquires. Source: a machine that others use is quiet in some of ten turns.
const TURNS: u64 = 10;

/// The longest measurement: a day.
const MILLIS_MAX: u64 = 86_400_000;

/// How threads wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Waits {
    /// They look for packets all the time.
    Spinning,
    /// They sleep until the system wakes them.
    Sleeping,
}

/// Round trips beside acquires.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// How all threads wait.
    pub waits: Waits,
    /// A datagram of the size of one lock packet, and its echo.
    pub round_trip: Quantiles,
    /// An acquire of a free lock.
    pub acquire: Quantiles,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The place of the decider.
    pub decider: String,
    /// The processor.
    pub processor: String,
    /// Processors of the machine.
    pub processors: usize,
    /// Milliseconds of each measurement.
    pub millis: u64,
    /// Latency, spinning and sleeping.
    pub latency: Vec<Latency>,
    /// Locks that one thread takes and releases, one after the other.
    pub depth_1: Pairs,
    /// Locks that one thread takes and releases, 32 at a time.
    pub depth_32: Pairs,
    /// Shared locks that one thread takes and releases while another request of its machine holds them.
    pub local_pairs_per_s: f64,
    /// Nanoseconds of a seal over one lock packet.
    pub seal_one_ns: f64,
    /// Nanoseconds of a seal over 32 lock packets.
    pub seal_32_ns: f64,
}

/// Measures. `config`: of a decider that runs; `None`: one is started.
///
/// # Errors
/// A bad choice, the network of this machine, or the folder for temporary files.
pub fn run(millis: u64, config: Option<&Path>) -> Result<Report, ProgramError> {
    if !(1..=MILLIS_MAX).contains(&millis) {
        let text = format!("--millis = {millis}; allowed: 1 to {MILLIS_MAX}");
        return Err(ProgramError::Usage(text));
    }
    let failed = |error: &dyn fmt::Display| ProgramError::Failed(error.to_string());
    let mut latency = Vec::new();
    let cluster = match config {
        Some(file) => Cluster::running(Config::read(file)?)?,
        None => Cluster::start(Waits::Spinning)?,
    };
    let client = cluster.client()?;
    let waits = cluster.waits();
    latency.push(measure::latency(&client, waits, millis).map_err(|it| failed(&it))?);
    let depth_1 = measure::one_by_one(&client, millis).map_err(|it| failed(&it))?;
    let depth_32 = measure::many(&client, DEPTH, millis).map_err(|it| failed(&it))?;
    let local_pairs_per_s = measure::local(&client, millis).map_err(|it| failed(&it))?;
    drop(client);
    drop(cluster);
    let decider = match config {
        Some(file) => format!("a process that runs, of {}", file.display()),
        None => {
            let cluster = Cluster::start(Waits::Sleeping)?;
            let client = cluster.client()?;
            let waits = cluster.waits();
            latency.push(measure::latency(&client, waits, millis).map_err(|it| failed(&it))?);
            "a thread beside echo and client".to_owned()
        }
    };
    Ok(Report {
        decider,
        processor: processor(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        millis,
        latency,
        depth_1,
        depth_32,
        local_pairs_per_s,
        seal_one_ns: measure::seal_ns(HEADER_BYTES + PACKET_BYTES),
        seal_32_ns: measure::seal_ns(HEADER_BYTES + DEPTH * PACKET_BYTES),
    })
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split(": ").nth(1));
    name.unwrap_or("a processor without a name").to_owned()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { decider, processor, processors, millis, .. } = self;
        writeln!(f, "decider: {decider}")?;
        writeln!(f, "{processors} processors ({processor}); {millis} ms a measurement")?;
        for Latency { waits, round_trip, acquire } in &self.latency {
            let name = match waits {
                Waits::Spinning => "spinning",
                Waits::Sleeping => "sleeping",
            };
            let ratio = acquire.p50_ns as f64 / round_trip.p50_ns as f64;
            writeln!(f, "{name}, in {TURNS} turns each:")?;
            writeln!(f, "  bare round trip   {round_trip}")?;
            writeln!(f, "  acquire, unloaded {acquire}: {ratio:.2} round trips at p50")?;
        }
        writeln!(f, "lock and unlock, 1 at a time:  {}", self.depth_1)?;
        writeln!(f, "lock and unlock, {DEPTH} at a time: {}", self.depth_32)?;
        writeln!(
            f,
            "local lock and unlock: {:.2} M pairs/s in one thread",
            self.local_pairs_per_s / 1e6
        )?;
        let (one, many) = (self.seal_one_ns, self.seal_32_ns);
        writeln!(f, "seal of a datagram: {one:.0} ns with 1 lock packet, {many:.0} ns with {DEPTH}")
    }
}
