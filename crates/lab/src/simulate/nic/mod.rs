//! Runs microbenchmarks of simulated hardware and shows the results as curves. The microbenchmarks measure rates and
//! latencies of verbs at one memory node, and of calls at one service node.
//!
//! Invariant: every figure of the model results from a run of the simulator. The model does not use the published
//! figures from [`published`]: the report only shows them beside the model's figures.

mod calls;
mod curves;
pub mod published;
pub mod requester;
mod verbs;

pub use curves::{CURVES, Curve};

use hdrhistogram::Histogram;
use published::{Beside, beside};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::round::VerbKind;
use tarn_sim::config::{ConfigError, Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::usage::{Part, Usage};

/// The warm-up before counting: it is long enough to fill all queues of the simulated hardware.
const WARM_UP: Nanos = Nanos(400_000);
const COUNTED: Nanos = Nanos(600_000);
/// The longest latency that the histogram records: a longer latency is recorded as this value.
const LONGEST_NS: u64 = 1_000_000_000;
const GROUP_BYTES: u64 = 16 << 20;

/// The way in which a thread posts its verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loop {
    /// The thread rings the NIC's doorbell once per batch, and keeps this number of batches in flight.
    Batches(u16),
    /// The thread rings the NIC's doorbell once per verb, and waits for all of its verbs before it posts again.
    RingEach,
    /// The thread posts as with `RingEach`, and has a doorbell register of its own.
    RingEachAlone,
}

/// A microbenchmark of verbs: the threads that post verbs, and the kind and number of these verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verbs {
    /// The kind of the verbs.
    #[serde(serialize_with = "verb_name", deserialize_with = "curves::verb_named")]
    pub verb: VerbKind,
    /// The number of client machines.
    pub clients: u16,
    /// The number of threads of each client machine.
    pub threads: u16,
    /// The number of verbs that a thread posts together.
    pub depth: u16,
    /// The number of payload bytes of each verb; 8 for atomics.
    pub payload_bytes: u16,
    /// The way in which a thread posts its verbs.
    pub posting: Loop,
}

/// A microbenchmark of calls: the threads that make calls, and the node that answers these calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// The number of client machines.
    pub clients: u16,
    /// The number of threads of each client machine.
    pub threads: u16,
    /// The number of calls that a thread has in flight. Each call in flight goes to a different
    /// core, because the layer packs calls to the same core into one datagram.
    pub depth: u16,
    /// The number of cores of the node that answers.
    pub cores: u16,
    /// The number of datagrams that a core receives before it sends its replies with one doorbell.
    pub datagrams_a_poll: u16,
    /// The number of payload bytes of a request.
    pub request_bytes: u16,
    /// The number of payload bytes of a reply.
    pub reply_bytes: u16,
    /// The time that the handler works on a request, in nanoseconds.
    pub handler_ns: u32,
    /// The number of requests that are packed into one call; each call counts as this number.
    pub together: u16,
    /// Whether a call requests timestamps from the timestamp service, `together` timestamps per
    /// call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamps: bool,
}

/// A point of a curve: the verbs or calls that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// A point that measures verbs.
    Verbs(Verbs),
    /// A point that measures calls.
    Calls(Calls),
}

/// The time from a request to its answer, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// The mean latency.
    pub mean: f64,
    /// The median latency.
    pub p50: f64,
    /// The 99th percentile: 99 of 100 latencies were not longer.
    pub p99: f64,
}

/// The busiest hardware part of one kind, and the share of the time for which this part was busy.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Share {
    /// The kind of the hardware part.
    pub part: &'static str,
    /// The share of the time for which this part was busy.
    pub share: f64,
}

/// A figure of the model, and the published figures for the same point of the curve, if any exist.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measurement {
    /// The curve's name.
    pub curve: &'static str,
    /// The measured point.
    pub point: Point,
    /// The rate of verbs or calls, in millions per second.
    pub rate_mops: f64,
    /// The latency of a batch, of all verbs that a thread posts together, or of a call.
    pub latency_us: Latency,
    /// The busiest hardware part of each kind, in descending order of the shares of time for which they were busy.
    pub busy: Vec<Share>,
    /// The published figures for this point.
    pub beside: Vec<Beside>,
}

/// Returns the verb's name for reports.
pub fn name_of(verb: VerbKind) -> &'static str {
    tarn_fabric::counters::VERB_NAMES[verb as usize]
}

fn verb_name<S: serde::Serializer>(verb: &VerbKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name_of(*verb))
}

impl Verbs {
    /// One thread on each of `clients` machines; each thread has four batches of eight READs in
    /// flight.
    pub const fn clients(clients: u16) -> Verbs {
        let (verb, posting) = (VerbKind::Read, Loop::Batches(4));
        Verbs { verb, clients, threads: 1, depth: 8, payload_bytes: 8, posting }
    }
}

impl Curve {
    /// Measures all points of the curve on this hardware.
    ///
    /// # Errors
    /// Fails if this configuration of the hardware is not possible.
    pub fn measure(&'static self, profile: &Profile) -> Result<Vec<Measurement>, ConfigError> {
        self.points.iter().map(|&(_, point)| measure(profile, &self.name, point)).collect()
    }
}

/// Measures one point on this hardware.
///
/// # Errors
/// Fails if this configuration of the hardware is not possible.
pub fn measure(
    profile: &Profile,
    curve: &'static str,
    point: Point,
) -> Result<Measurement, ConfigError> {
    let found = run(profile, point)?;
    let others = |other| run(profile, other).map(|found| found.rate_mops);
    let beside = beside(profile, point, &found, others)?;
    let Found { rate_mops, latency_us, used } = found;
    Ok(Measurement { curve, point, rate_mops, latency_us, busy: shares(&used), beside })
}

/// The results of the run of one point of a curve.
struct Found {
    rate_mops: f64,
    latency_us: Latency,
    used: Usage,
}

fn run(profile: &Profile, point: Point) -> Result<Found, ConfigError> {
    match point {
        Point::Verbs(verbs) => verbs::run(profile, verbs),
        Point::Calls(calls) => calls::run(profile, calls),
    }
}

/// A recorder of the durations of operations. The recorder counts an operation only if the operation ends while the
/// recorder is on.
struct Watch {
    is_on: Cell<bool>,
    took_ns: RefCell<Histogram<u64>>,
    counted: Cell<u64>,
}

impl Watch {
    fn new() -> Watch {
        let took_ns = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds that can be");
        Watch { is_on: Cell::new(false), took_ns: RefCell::new(took_ns), counted: Cell::new(0) }
    }

    /// Notes the end of an operation that took `took` and counts as `parts` verbs or calls.
    fn note(&self, took: Nanos, parts: u64) {
        if self.is_on.get() {
            self.took_ns.borrow_mut().saturating_record(took.0);
            self.counted.set(self.counted.get() + parts);
        }
    }

    fn latency_us(&self) -> Latency {
        let took = self.took_ns.borrow();
        let at = |quantile| took.value_at_quantile(quantile) as f64 / 1e3;
        Latency { mean: took.mean() / 1e3, p50: at(0.5), p99: at(0.99) }
    }
}

/// Runs the warm-up, and then counts operations. Returns the rates and the use of the hardware during the counted
/// time.
fn count(fabric: &SimFabric, scheduler: &mut Scheduler<'_>, watch: &Watch) -> Found {
    scheduler.run_until(WARM_UP);
    let start = fabric.usage();
    watch.is_on.set(true);
    scheduler.run_until(WARM_UP + COUNTED);
    let used = fabric.usage().since(&start);
    let rate_mops = watch.counted.get() as f64 / used.at.0 as f64 * 1e3;
    Found { rate_mops, latency_us: watch.latency_us(), used }
}

fn fabric(profile: &Profile, compute_nodes: u16) -> Result<SimFabric, ConfigError> {
    SimFabric::new(&SimConfig {
        memory_nodes: 1,
        replicas: 1,
        compute_nodes: compute_nodes.into(),
        group_bytes: GROUP_BYTES,
        profile: profile.clone(),
        mode: Mode::Timed,
        seed: 1,
    })
}

fn port(fabric: &SimFabric, slot: u16, thread: u16) -> Port {
    fabric.port(NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }, thread, 1)
}

/// A hardware part is not reported if its share of busy time is below this limit, because such a part explains no
/// result.
const USED: f64 = 0.01;

fn shares(used: &Usage) -> Vec<Share> {
    let share = |part: Part| {
        let (share, _) = used.busiest(part)?;
        (share >= USED).then_some(Share { part: part.name(), share })
    };
    let mut shares: Vec<Share> = Part::ALL.into_iter().filter_map(share).collect();
    shares.sort_by(|one, other| other.share.total_cmp(&one.share));
    shares
}

#[cfg(test)]
mod tests;
