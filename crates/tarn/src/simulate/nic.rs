//! Microbenchmarks of a simulated NIC: rates and unloaded latencies of verbs at one memory node.
//!
//! Invariant: every figure comes out of a run of the simulator; a published one is looked up only to
//! stand beside it.

use super::published::{Beside, beside};
use serde::Serialize;
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot};
use tarn_fabric::backend::Detached;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::round::{Round, VerbKind};
use tarn_sim::config::{ConfigError, Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;

/// Queues are full before anything is counted.
const WARM_UP: Nanos = Nanos(200_000);
const COUNTED: Nanos = Nanos(400_000);
/// Different addresses that verbs go to.
const WORDS: u64 = 2048;
const GROUP_BYTES: u64 = 16 << 20;
const FIRST_BYTE: u64 = 4096;

/// How a thread posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loop {
    /// One doorbell a batch; so many batches in flight.
    Batches(u16),
    /// One doorbell a verb; waits for all before it posts again.
    RingEach,
}

/// A rate: who sends what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Rate {
    /// The verb.
    #[serde(serialize_with = "verb_name")]
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

/// An unloaded latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Latency {
    /// The verb.
    #[serde(serialize_with = "verb_name")]
    pub verb: VerbKind,
    /// Its payload; 8 for atomics.
    pub payload_bytes: u16,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// Millions of verbs a second.
    Rate(Rate),
    /// Microseconds.
    Latency(Latency),
}

/// A figure of the model, and the published one if there is any.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measurement {
    /// What was varied.
    pub series: &'static str,
    /// What was measured.
    pub point: Point,
    /// Millions a second, or microseconds.
    pub model: f64,
    /// The busiest part, and for which share of the time.
    pub busiest: Option<(&'static str, f64)>,
    /// What was published.
    pub beside: Option<Beside>,
}

impl Rate {
    /// One thread of so many machines, four batches of eight READs in flight each.
    pub const fn clients(clients: u16) -> Rate {
        let (verb, posting) = (VerbKind::Read, Loop::Batches(4));
        Rate { verb, clients, threads: 1, depth: 8, payload_bytes: 8, posting }
    }

    /// So many threads of one machine, eight READs each, a doorbell for each.
    pub const fn doorbell(threads: u16) -> Rate {
        Rate { threads, posting: Loop::RingEach, ..Rate::clients(1) }
    }
}

/// As it is printed.
pub fn name_of(verb: VerbKind) -> &'static str {
    tarn_fabric::counters::VERB_NAMES[verb as usize]
}

fn verb_name<S: serde::Serializer>(verb: &VerbKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name_of(*verb))
}

/// Everything that is measured, by what is varied.
pub fn points() -> Vec<(&'static str, Point)> {
    let verbs = [VerbKind::Read, VerbKind::Write, VerbKind::CompareAndSwap, VerbKind::FetchAndAdd];
    let mut points = Vec::new();
    for verb in verbs {
        points.push(("latency", Point::Latency(Latency { verb, payload_bytes: 8 })));
    }
    for verb in verbs {
        for clients in [1, 2, 4, 8] {
            points.push(("clients", Point::Rate(Rate { verb, ..Rate::clients(clients) })));
        }
    }
    for verb in verbs {
        for depth in [1, 2, 4, 8, 16, 32] {
            let posting = Loop::Batches(1);
            points.push(("depth", Point::Rate(Rate { verb, depth, posting, ..Rate::clients(1) })));
        }
    }
    for verb in [VerbKind::Read, VerbKind::Write] {
        for payload_bytes in [64, 188, 256, 512, 1024, 4096] {
            let rate = Rate { verb, payload_bytes, ..Rate::clients(8) };
            points.push(("payload", Point::Rate(rate)));
        }
    }
    for threads in [1, 8, 16, 24, 32, 48, 64, 96] {
        points.push(("threads", Point::Rate(Rate::doorbell(threads))));
    }
    points
}

/// Measures one point on this hardware.
///
/// # Errors
/// A shape that cannot be.
pub fn measure(
    profile: &Profile,
    series: &'static str,
    point: Point,
) -> Result<Measurement, ConfigError> {
    let (model, busiest) = match point {
        Point::Latency(latency) => (latency_us(profile, latency)?, None),
        Point::Rate(rate) => rate_mops(profile, rate)?,
    };
    Ok(Measurement { series, point, model, busiest, beside: beside(profile, point, model) })
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

/// Adds `count` verbs on different words from the `first` on.
fn add(round: &mut Round, verb: VerbKind, payload_bytes: u16, first: u64, count: u16) {
    let bytes = usize::from(payload_bytes);
    for index in first..first + u64::from(count) {
        let stride = bytes.next_multiple_of(64) as u64;
        let address = Address::new(GroupId(0), FIRST_BYTE + index % WORDS * stride);
        let target = address.at(NodeSlot(0));
        match verb {
            VerbKind::Read => drop(round.read(target, bytes)),
            VerbKind::Write => {
                let from = round.reserve(bytes);
                round.write(target, from, bytes);
            }
            VerbKind::CompareAndSwap => drop(round.cas(target, 0, 0)),
            _ => drop(round.faa(target, 1)),
        }
    }
}

const ALIVE: &str = "the memory node lives";

fn latency_us(profile: &Profile, latency: Latency) -> Result<f64, ConfigError> {
    let fabric = fabric(profile, 1)?;
    let port = port(&fabric, 0, 0);
    let asker = port.clone();
    let took = Scheduler::new(&fabric).block_on(&port, async move {
        let mut round = Round::new();
        add(&mut round, latency.verb, latency.payload_bytes, 0, 1);
        let start = asker.now();
        asker.execute(&mut round).await.expect(ALIVE);
        asker.now() - start
    });
    Ok(took.0 as f64 / 1e3)
}

async fn batches(port: Port, rate: Rate, first: u64) {
    let mut round = Round::new();
    for turn in 0.. {
        round.clear();
        let first = first + turn * u64::from(rate.depth);
        add(&mut round, rate.verb, rate.payload_bytes, first, rate.depth);
        port.execute(&mut round).await.expect(ALIVE);
    }
}

async fn ring_each(port: Port, rate: Rate, first: u64) {
    let mut round = Round::new();
    let mut posted: Vec<Detached> = Vec::new();
    for turn in 0.. {
        for index in 0..u64::from(rate.depth) {
            round.clear();
            let at = first + turn * u64::from(rate.depth) + index;
            add(&mut round, rate.verb, rate.payload_bytes, at, 1);
            posted.push(port.post_detached(&mut round).expect(ALIVE));
        }
        for detached in posted.drain(..) {
            port.settle(detached).await.expect(ALIVE);
        }
    }
}

type Found = (f64, Option<(&'static str, f64)>);

fn rate_mops(profile: &Profile, rate: Rate) -> Result<Found, ConfigError> {
    let fabric = fabric(profile, rate.clients)?;
    let mut scheduler = Scheduler::new(&fabric);
    for slot in 0..rate.clients {
        for thread in 0..rate.threads {
            let port = port(&fabric, slot, thread);
            let first = (u64::from(slot) * 131 + u64::from(thread) * 17) * 37;
            match rate.posting {
                Loop::RingEach => {
                    scheduler.spawn(&port, ring_each(port.clone(), rate, first));
                }
                Loop::Batches(count) => {
                    for batch in 0..u64::from(count) {
                        scheduler.spawn(&port, batches(port.clone(), rate, first + batch * 509));
                    }
                }
            }
        }
    }
    scheduler.run_until(WARM_UP);
    let start = fabric.usage();
    scheduler.run_until(WARM_UP + COUNTED);
    let used = fabric.usage().since(&start);
    drop(scheduler);
    let busiest = used.bottleneck().map(|(share, part)| (part.part.name(), share));
    Ok((used.verbs as f64 / used.at.0 as f64 * 1e3, busiest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doorbell_curve_rises_to_32_threads_and_falls_from_there() {
        let profile = Profile::load("cx6-200g").expect("embedded");
        let rate = |threads| {
            let point = Point::Rate(Rate::doorbell(threads));
            let found = measure(&profile, "threads", point).expect("a shape that can be");
            let beside = found.beside.expect("published");
            assert!((0.8..1.2).contains(&beside.ratio), "{threads}: {beside:?}");
            found.model
        };
        assert!(rate(8) < rate(32) && rate(32) > rate(96));
    }

    #[test]
    fn every_published_figure_is_measured() {
        let measured: Vec<Point> = points().into_iter().map(|(_, point)| point).collect();
        for figure in super::super::published::FIGURES {
            assert!(measured.contains(&figure.of), "{figure:?}");
        }
    }
}
