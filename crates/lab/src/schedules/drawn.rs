//! The meaning of a seed: the cluster, the workload, the disturbances during the whole run, and the faults at single
//! moments.
//!
//! Invariant: the seed determines everything that is drawn. Clusters are small and records are few, so that
//! transactions conflict. Each property of a run is drawn separately, so that runs differ in all properties (swarm
//! testing: Groce et al., "Swarm Testing", ISSTA 2012).

use super::mixture::{self, Mix};
use super::read_leases::ReadLeases;
use crate::harness::lines::{placement_name, put_part};
use rand::RngExt as _;
use serde::Serialize;
use std::fmt;
use tarn_engine::cluster::membership::LeaseTerms;
use tarn_fabric::rng::{Rng, seeded};
use tarn_sim::config::Chaos;
use tarn_store::layout::BucketShape;
use tarn_store::placement::catalog::Placement;

/// Out of this number of mixtures, one has ordered indexes.
const INDEXED_IN: u32 = 3;
/// The number of additional transactions of each coordinator in a run with several leaves. Leaves split
/// only after some transactions.
const MORE_TRANSACTIONS: u64 = 8;
/// The stream of random numbers that determines the shape of a run's cluster and its faults.
const DRAW_STREAM: u64 = 0x6472_6177;
/// The stream of random numbers for the draws that only protocols with shards use.
const SHARDS_STREAM: u64 = 0x7368_6172_6473;
/// The stream of random numbers for the draws that only protocols with a lock service use.
const LOCK_SERVICE_STREAM: u64 = 0x6c6f_636b;
/// The workloads. Every second seed runs the mixture, which reaches every feature.
const WORKLOADS: [(&str, &[&str]); 8] = [
    (mixture::NAME, &[]),
    (mixture::NAME, &[]),
    (mixture::NAME, &[]),
    (mixture::NAME, &[]),
    ("smallbank", &["spec", "crest-code", "withdraw"]),
    ("ycsb", &["a", "f", "a4"]),
    ("tatp", &["spec", "lotus", "oocc"]),
    ("kvs", &["mixed", "wo"]),
];

/// Workloads that run only if a caller asks for them, with their profiles and their numbers of records. One load of
/// TPC-C or TAOBench takes as long as some hundred schedules of the other workloads. The number of records means the
/// number of warehouses for TPC-C, and the number of edges for TAOBench. TPC-C and TAOBench draw their keys by their
/// own rules.
const ASKED_FOR: [(&str, &[&str], &[u64]); 2] =
    [("tpcc", &["tiny"], &[1, 2]), ("taobench", &["a", "oocc"], &[2, 8, 60])];

/// Returns whether a workload runs only if a caller asks for it.
pub(super) fn is_asked_for(workload: &str) -> bool {
    ASKED_FOR.iter().any(|(name, ..)| *name == workload)
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A memory node dies: rounds to the node end in an error, and its contents are lost.
    MemoryNode {
        /// The slot of the memory node.
        slot: u16,
    },
    /// The threads of a compute node stop. At the stop, some verbs of the node have landed, and other verbs still
    /// land later. After a while the node is declared dead.
    Crash {
        /// The slot of the compute node.
        slot: u16,
        /// The virtual time from the stop to the declaration, in nanoseconds.
        noticed_after_ns: u64,
    },
    /// A compute node that runs is declared dead. Until the node's access to memory is revoked, the node continues to
    /// post rounds.
    Zombie {
        /// The slot of the compute node.
        slot: u16,
    },
}

/// A fault that happens once in a run, with the time at which it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// The time of the fault, in virtual nanoseconds.
    pub at_ns: u64,
    /// The kind of the fault.
    pub what: What,
}

/// The rule by which shards move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Moving {
    /// The average virtual time between two moves of each node, in nanoseconds.
    pub every_ns: u64,
    /// How long a move waits for the holders of locks, in nanoseconds.
    pub patience_ns: u64,
}

/// The meaning of one seed: everything that the seed determines.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The name of the workload.
    pub workload: String,
    /// The profile of the workload. The mixture has no profile.
    pub mix_profile: Option<&'static str>,
    /// The number of records, or the number of keys of each table of the mixture.
    pub records: u64,
    /// The Zipf exponent of the distribution of keys.
    pub zipf: f64,
    /// The distribution from which the mixture draws its transactions.
    pub mix: Mix,
    /// The number of memory nodes.
    pub memory_nodes: usize,
    /// The number of copies of each record.
    pub replicas: usize,
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The number of threads of each compute node.
    pub threads: usize,
    /// The number of coordinators of each thread.
    pub coroutines: usize,
    /// The number of transactions of each coordinator.
    pub transactions: u64,
    /// The rule by which records are placed.
    pub placement: Placement,
    /// The number of addresses that each thread remembers.
    pub address_cache: usize,
    /// Whether indexes grow. If indexes do not grow, the chains of their buckets grow.
    pub growth: bool,
    /// The faults of the network and of clocks that may happen at any time.
    pub chaos: Chaos,
    /// The faults that happen at single moments of the run.
    pub faults: Vec<Fault>,
    /// The number of empty memory nodes, on which lost copies are made again.
    pub spares: usize,
    /// Whether the slots of dead nodes get a new incarnation after the recovery of the dead node.
    pub restarts: bool,
    /// Whether a coordinator of another node takes the number of a dead coordinator before the dead
    /// incarnation is recovered.
    pub succession: bool,
    /// Whether the shards of a dead node wait for the next incarnation of its slot, under a protocol
    /// that has shards.
    pub next_life: bool,
    /// Whether coordinators go on until the cluster is repaired, under a protocol that has a lock service. So they write
    /// while copies are made, and little is written over afterwards.
    pub until_mended: bool,
    /// The rule by which shards move, under a protocol that has shards.
    pub moving: Option<Moving>,
    /// The readers' leases, under a protocol that has such leases.
    pub read_leases: Option<ReadLeases>,
    /// The terms of membership leases, if members have leases in this run. Clocks may drift by more than the terms
    /// allow.
    pub lease: Option<LeaseTerms>,
    /// Out of this number of transactions, the caller drops one before the transaction ends. If the number is 0, no
    /// transaction is dropped.
    pub drop_one_in: u32,
    /// The shape of an index bucket.
    pub bucket: BucketShape,
    /// The number of slots that are laid out for each 100 records.
    pub slots_per_100_records: u32,
}

impl Drawn {
    /// Returns the meaning of `seed`. If `workload` is given, every seed runs this workload.
    pub fn of(seed: u64, workload: Option<&str>) -> Drawn {
        Drawn::within(seed, workload, true)
    }

    /// Like [`Drawn::of`], but with ordered indexes only if `ranges` is true. All other parts of the
    /// seed's meaning are the same.
    pub fn within(seed: u64, workload: Option<&str>, ranges: bool) -> Drawn {
        let mut rng = seeded(seed, DRAW_STREAM);
        let (drawn, profiles) = WORKLOADS[rng.random_range(0..WORKLOADS.len())];
        let (workload, profiles) = match workload {
            None => (drawn, profiles),
            Some(asked) => (asked, profiles_of(asked)),
        };
        let is_mixture = workload == mixture::NAME;
        let mix = Mix::draw(&mut rng);
        let replicas = pick(&mut rng, &[1, 1, 2, 3]);
        let memory_nodes = (replicas + pick(&mut rng, &[0, 0, 1, 2])).min(4);
        let (compute_nodes, threads, coroutines) = crew(&mut rng);
        let mix_profile =
            (!profiles.is_empty()).then(|| profiles[rng.random_range(0..profiles.len())]);
        let records = match is_mixture {
            true => mix.keys,
            false => pick(&mut rng, records_of(workload)),
        };
        let mut chaos = Chaos::of(seed);
        let faults = match is_mixture || is_asked_for(workload) {
            true => faults(&mut rng, (memory_nodes, replicas), compute_nodes),
            false => Vec::new(),
        };
        let has_faults = !faults.is_empty();
        let lease =
            (has_faults && rng.random_range(0..4) == 0).then(|| lease(&mut rng, &mut chaos));
        let usual = BucketShape::default();
        let slots = usual.slots + pick(&mut rng, &[0, 0, 0, 1, 4]);
        let read_whole = rng.random_range(0..4) == 0;
        let bucket = BucketShape { slots, read_whole, ..usual };
        let mut drawn = Drawn {
            workload: workload.to_owned(),
            mix_profile,
            records,
            zipf: pick(&mut rng, &[0.0, 0.0, 0.5, 0.99, 1.3]),
            mix,
            memory_nodes,
            replicas,
            compute_nodes,
            threads,
            coroutines,
            transactions: rng.random_range(4..=16),
            placement: pick(&mut rng, &[Placement::Hash, Placement::Hash, Placement::Table]),
            address_cache: pick(&mut rng, &[0, 16]),
            growth: rng.random_range(0..4) > 0,
            chaos,
            spares: if has_faults { pick(&mut rng, &[0, 1, 2]) } else { 0 },
            restarts: has_faults && rng.random_range(0..2) == 0,
            lease,
            drop_one_in: if is_mixture { pick(&mut rng, &[0, 0, 0, 6]) } else { 0 },
            bucket,
            slots_per_100_records: pick(&mut rng, &[50, 200, 200]),
            // The value of `succession` is drawn last. So the other values that a seed draws are the same as before
            // this value was added.
            succession: has_faults && rng.random_range(0..2) == 0,
            next_life: false,
            until_mended: false,
            moving: None,
            read_leases: None,
            faults,
        };
        if ranges && is_mixture && rng.random_range(0..INDEXED_IN) == 0 {
            drawn.mix = drawn.mix.with_indexes(&mut rng);
            drawn.records = drawn.mix.keys;
            let has_leaves = drawn.mix.name == mixture::RANGES;
            drawn.transactions += if has_leaves { MORE_TRANSACTIONS } else { 0 };
        }
        drawn
    }

    /// Returns the same meaning, and also the values for a protocol whose locks are in compute nodes. The draws for
    /// shards have their own stream of random numbers, so all other draws stay the same.
    #[must_use]
    pub fn with_shards(self, seed: u64) -> Drawn {
        let mut rng = seeded(seed, SHARDS_STREAM);
        let next_life = self.restarts && rng.random_range(0..2) == 0;
        let every_ns = pick(&mut rng, &[0, 0, 0, 5_000, 20_000, 60_000]);
        let patience_ns = pick(&mut rng, &[5_000, 50_000, 500_000]);
        let moving = (every_ns > 0).then_some(Moving { every_ns, patience_ns });
        Drawn { next_life, moving, ..self }
    }

    /// Returns the same meaning, and also the values for a protocol with a lock service. The draws for lock services have
    /// their own stream of random numbers, so all other draws stay the same.
    #[must_use]
    pub fn with_lock_service(self, seed: u64) -> Drawn {
        let mut rng = seeded(seed, LOCK_SERVICE_STREAM);
        let until_mended = self.memory_deaths() > 0 && rng.random_range(0..4) > 0;
        Drawn { until_mended, ..self }
    }

    /// Returns the same meaning, and also the values for a protocol whose readers have leases. The draws for leases
    /// have their own stream of random numbers, so all other draws stay the same.
    #[must_use]
    pub fn with_read_leases(self, seed: u64) -> Drawn {
        Drawn { read_leases: Some(ReadLeases::of(seed)), ..self }
    }

    /// Returns the same meaning of the seed, but no memory node dies.
    #[must_use]
    pub fn without_memory_deaths(self) -> Drawn {
        let of_compute = |fault: &Fault| !matches!(fault.what, What::MemoryNode { .. });
        let faults: Vec<Fault> = self.faults.into_iter().filter(of_compute).collect();
        Drawn { faults, spares: 0, ..self }
    }

    /// Returns the same meaning of the seed, but no compute node stops or is expelled.
    #[must_use]
    pub fn without_compute_deaths(self) -> Drawn {
        let of_memory = |fault: &Fault| matches!(fault.what, What::MemoryNode { .. });
        let faults: Vec<Fault> = self.faults.into_iter().filter(of_memory).collect();
        // A lease that lapses would expel its holder, so the run has no leases.
        Drawn { faults, lease: None, restarts: false, succession: false, next_life: false, ..self }
    }

    /// Returns the same meaning of the seed, but no caller drops a transaction.
    #[must_use]
    pub fn without_drops(self) -> Drawn {
        Drawn { drop_one_in: 0, ..self }
    }

    /// Returns the number of memory nodes that die.
    pub fn memory_deaths(&self) -> usize {
        let dies = |fault: &&Fault| matches!(fault.what, What::MemoryNode { .. });
        self.faults.iter().filter(dies).count()
    }

    /// Returns whether this memory node dies.
    pub fn memory_node_dies(&self, node: usize) -> bool {
        let is_it = |what| matches!(what, What::MemoryNode { slot } if usize::from(slot) == node);
        self.faults.iter().any(|fault| is_it(fault.what))
    }

    /// Returns whether the run needs keepers, which recover dead nodes.
    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty() || self.lease.is_some()
    }

    /// Returns the number of coordinators of all threads.
    pub fn coordinators(&self) -> usize {
        self.compute_nodes * self.threads * self.coroutines
    }
}

/// Returns the names of the workloads that seeds may draw, each once.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let is_first = |at: &usize| *at == 0 || WORKLOADS[at - 1].0 != WORKLOADS[*at].0;
    (0..WORKLOADS.len()).filter(is_first).map(|at| WORKLOADS[at].0)
}

/// Returns the profiles from which the profile of a workload is drawn, if the user asked for the
/// workload.
fn profiles_of(workload: &str) -> &'static [&'static str] {
    let asked_for = ASKED_FOR.iter().map(|&(name, profiles, _)| (name, profiles));
    let mut known = WORKLOADS.iter().copied().chain(asked_for);
    known.find(|(name, _)| *name == workload).map_or(&[], |(_, profiles)| profiles)
}

/// Returns the numbers from which the number of records is drawn.
fn records_of(workload: &str) -> &'static [u64] {
    let asked_for = ASKED_FOR.iter().find(|(name, ..)| *name == workload);
    asked_for.map_or(&[2, 4, 8, 20, 60], |(_, _, records)| records)
}

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

/// Draws the number of compute nodes, of threads of each node, and of coordinators of each thread. A
/// run has at least three coordinators.
fn crew(rng: &mut Rng) -> (usize, usize, usize) {
    loop {
        let crew = (rng.random_range(1..=4), rng.random_range(1..=2), rng.random_range(1..=3));
        if (3..=12).contains(&(crew.0 * crew.1 * crew.2)) {
            return crew;
        }
    }
}

/// Draws up to three faults. In some runs the faults are close together in time, because a node should also die
/// during the recovery of another node.
fn faults(rng: &mut Rng, (nodes, replicas): (usize, usize), compute_nodes: usize) -> Vec<Fault> {
    if rng.random_range(0..3) == 0 {
        return Vec::new();
    }
    let count = pick(rng, &[1, 1, 2, 3]);
    let within_ns = pick(rng, &[20_000, 80_000, 300_000]);
    let first_ns = rng.random_range(1_000..within_ns);
    let spread_ns = pick(rng, &[2_000, 20_000, 150_000]);
    let (mut faults, mut memory, mut compute): (Vec<Fault>, Vec<u16>, Vec<u16>) =
        Default::default();
    for _ in 0..count {
        let at_ns = first_ns + if faults.is_empty() { 0 } else { rng.random_range(0..spread_ns) };
        let what = match rng.random_range(0..5) {
            0 | 1 => {
                let slot = rng.random_range(0..nodes as u16);
                // The engine promises to survive fewer deaths of memory nodes than there are copies of
                // a record.
                if memory.len() + 1 >= replicas || memory.contains(&slot) {
                    continue;
                }
                memory.push(slot);
                What::MemoryNode { slot }
            }
            kind => {
                let slot = rng.random_range(0..compute_nodes as u16);
                if compute.contains(&slot) {
                    continue;
                }
                compute.push(slot);
                let soon_ns = pick(rng, &[1_000, 10_000, 60_000]);
                let noticed_after_ns = rng.random_range(0..soon_ns);
                if kind == 4 {
                    What::Zombie { slot }
                } else {
                    What::Crash { slot, noticed_after_ns }
                }
            }
        };
        faults.push(Fault { at_ns, what });
    }
    faults
}

/// Draws the terms of membership leases. Some clocks may drift by more than these terms allow.
fn lease(rng: &mut Rng, chaos: &mut Chaos) -> LeaseTerms {
    chaos.clock_drift_max_ppm = pick(rng, &[chaos.clock_drift_max_ppm, 200_000]);
    let lease_ns = pick(rng, &[30_000, 100_000, 400_000]);
    let drift_ppm = pick(rng, &[0, 1_000, 200_000]);
    LeaseTerms { lease_ns, renew_every_ns: lease_ns / 4, drift_ppm }
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Drawn { workload, records, zipf, memory_nodes, replicas, compute_nodes, .. } = self;
        let profile = self.mix_profile.map_or(String::new(), |name| format!(" ({name})"));
        let layouts: Vec<&str> = self.mix.layouts.iter().map(|layout| layout.name()).collect();
        write!(f, "{workload}{profile}, {records} records, zipf {zipf}")?;
        if workload == mixture::NAME {
            write!(f, ", {} of {}", self.mix.name, layouts.join(", "))?;
        }
        if let Some(ordered) = &self.mix.ordered {
            write!(f, ", {}", ordered.name())?;
        }
        let placement = placement_name(self.placement);
        put_part!(f =>
            "; {memory_nodes} memory nodes, {replicas} replicas by {placement}; {compute_nodes} \
             compute nodes × {} threads × {} coordinators × {} transactions; {} addresses \
             remembered; growth {}; ",
            self.threads, self.coroutines, self.transactions, self.address_cache,
            if self.growth { "on" } else { "off" })?;
        put_part!(f =>
            "buckets of {} slots{}, {} for 100 records; ",
            self.bucket.slots, if self.bucket.read_whole { " read whole" } else { "" },
            self.slots_per_100_records)?;
        if self.drop_one_in > 0 {
            write!(f, "one transaction in {} dropped; ", self.drop_one_in)?;
        }
        self.misfortunes(f)
    }
}

impl Drawn {
    fn misfortunes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        if let Some(LeaseTerms { lease_ns, drift_ppm, .. }) = self.lease {
            write!(f, "leases of {} µs for clocks within {drift_ppm} ppm; ", us(lease_ns))?;
        }
        if let Some(Moving { every_ns, patience_ns }) = self.moving {
            let (every_us, patience_us) = (us(every_ns), us(patience_ns));
            write!(f, "shards move every {every_us} µs, after {patience_us} µs at the most; ")?;
        }
        if self.faults.is_empty() {
            return write!(f, "no fault");
        }
        for Fault { at_ns, what } in &self.faults {
            let at_us = us(*at_ns);
            match what {
                What::MemoryNode { slot } => write!(f, "memory node {slot} dies at {at_us} µs; ")?,
                What::Zombie { slot } => write!(f, "compute node {slot} expelled at {at_us} µs; ")?,
                What::Crash { slot, noticed_after_ns } => put_part!(f =>
                    "compute node {slot} crashes at {at_us} µs, noticed {} µs later; ",
                    us(*noticed_after_ns))?,
            }
        }
        let restarts = if self.restarts { "the dead come back" } else { "the dead stay away" };
        write!(f, "{} spares; {restarts}", self.spares)?;
        if self.until_mended {
            write!(f, "; the living work until all is repaired")?;
        }
        if self.next_life {
            write!(f, " to their shards")?;
        }
        if self.succession { write!(f, "; their numbers are taken over") } else { Ok(()) }
    }
}

#[cfg(test)]
#[path = "drawn_tests.rs"]
mod tests;
