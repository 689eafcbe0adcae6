//! Microbenchmarks of simulated hardware, as curves: rates and latencies of verbs at one memory node, and
//! of calls at one service node.
//!
//! Invariant: every figure comes out of a run of the simulator; a published one is looked up only to
//! stand beside it, in [`published`].

mod calls;
mod curves;
pub mod published;
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

/// Queues are full before anything is counted: no point keeps more in flight than fits.
const WARM_UP: Nanos = Nanos(400_000);
const COUNTED: Nanos = Nanos(600_000);
/// A longer latency is shown as this one.
const LONGEST_NS: u64 = 1_000_000_000;
const GROUP_BYTES: u64 = 16 << 20;

/// How a thread posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loop {
    /// One doorbell a batch; so many batches in flight.
    Batches(u16),
    /// One doorbell a verb; waits for all before it posts again.
    RingEach,
    /// The same, and every thread has a doorbell register of its own.
    RingEachAlone,
}

/// The threads that post verbs, and the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verbs {
    /// The verb.
    #[serde(serialize_with = "verb_name", deserialize_with = "curves::verb_named")]
    pub verb: VerbKind,
    /// Client machines.
    pub clients: u16,
    /// Threads of each.
    pub threads: u16,
    /// Verbs that a thread posts together.
    pub depth: u16,
    /// Payload of each; 8 for atomics.
    pub payload_bytes: u16,
    /// How it posts them.
    pub posting: Loop,
}

/// The callers and the node that answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// Client machines.
    pub clients: u16,
    /// Threads of each.
    pub threads: u16,
    /// Calls that a thread has in flight, to as many cores: the layer packs those to one core.
    pub depth: u16,
    /// Cores of the node that answers.
    pub cores: u16,
    /// Datagrams that a core takes before it replies with one doorbell.
    pub datagrams_a_poll: u16,
    /// Payload of a request.
    pub request_bytes: u16,
    /// Payload of a reply.
    pub reply_bytes: u16,
    /// Work of the handler.
    pub handler_ns: u32,
    /// Counted for each call: the questions that were packed into it.
    pub together: u16,
    /// Whether it asks the timestamp service, for as many as are counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamps: bool,
}

/// A point of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// Verbs.
    Verbs(Verbs),
    /// Calls.
    Calls(Calls),
}

/// From asking to having the answer, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
}

/// For which share of the time the busiest part of a kind was busy.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Share {
    /// The kind of the part.
    pub part: &'static str,
    /// Share of the time.
    pub share: f64,
}

/// A figure of the model, and the published ones if there are any.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measurement {
    /// The curve's name.
    pub curve: &'static str,
    /// The measured point.
    pub point: Point,
    /// Verbs or calls, in millions a second.
    pub rate_mops: f64,
    /// Latency of a batch, of a turn's verbs, or of a call.
    pub latency_us: Latency,
    /// All parts that were used, the busiest of each kind, the busiest first.
    pub busy: Vec<Share>,
    /// The published figures.
    pub beside: Vec<Beside>,
}

/// The verb's name in print.
pub fn name_of(verb: VerbKind) -> &'static str {
    tarn_fabric::counters::VERB_NAMES[verb as usize]
}

fn verb_name<S: serde::Serializer>(verb: &VerbKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name_of(*verb))
}

impl Verbs {
    /// One thread of so many machines, four batches of eight READs in flight each.
    pub const fn clients(clients: u16) -> Verbs {
        let (verb, posting) = (VerbKind::Read, Loop::Batches(4));
        Verbs { verb, clients, threads: 1, depth: 8, payload_bytes: 8, posting }
    }
}

impl Curve {
    /// Measures all of it on this hardware.
    ///
    /// # Errors
    /// A shape that cannot be.
    pub fn measure(&'static self, profile: &Profile) -> Result<Vec<Measurement>, ConfigError> {
        self.points.iter().map(|&(_, point)| measure(profile, &self.name, point)).collect()
    }
}

/// Measures one point on this hardware.
///
/// # Errors
/// A shape that cannot be.
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

/// The results of a run.
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

/// Times of operations that begin and end while it is watched.
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

    /// Something of so many parts has ended.
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

/// Warms up and counts; returns the usage meanwhile.
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

/// Below this a part explains nothing.
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
