//! The meaning of a seed: the cluster, the workload, the trouble and the fault that it draws.
//!
//! Invariant: a function of the seed. Clusters are small and records few, so that transactions meet; each source of variety
//! is drawn by itself, so that runs differ in all of them (swarm testing: Groce et al., "Swarm Testing", ISSTA 2012).

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

/// One mixture in so many has ordered indexes.
const INDEXED_IN: u32 = 3;
/// Transactions more of each coordinator where there are several leaves: they need some to split.
const MORE_TRANSACTIONS: u64 = 8;
/// The stream of a run's shape.
const DRAW_STREAM: u64 = 0x6472_6177;
/// The stream of draws that only protocols with shards use.
const SHARDS_STREAM: u64 = 0x7368_6172_6473;
/// Every second seed runs the mixture, which reaches everything.
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

/// Run if a caller asks for them, with so many records: a load takes as long as some hundred schedules of the others. TPC-C's
/// records are warehouses, TAOBench's are edges; their keys are their own.
const ASKED_FOR: [(&str, &[&str], &[u64]); 2] =
    [("tpcc", &["tiny"], &[1, 2]), ("taobench", &["a", "oocc"], &[2, 8, 60])];

/// Whether it is run only if a caller asks for it.
pub(super) fn is_asked_for(workload: &str) -> bool {
    ASKED_FOR.iter().any(|(name, ..)| *name == workload)
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A memory node dies: rounds to it end in an error, and its contents are gone.
    MemoryNode {
        /// Which.
        slot: u16,
    },
    /// The threads of a compute node stop, with whatever of its verbs had landed or still lands; after
    /// a while it is declared dead.
    Crash {
        /// Which.
        slot: u16,
        /// So much later, in virtual nanoseconds.
        noticed_after_ns: u64,
    },
    /// A compute node is declared dead that runs, and goes on posting until its access is gone.
    Zombie {
        /// Which.
        slot: u16,
    },
}

/// Something that goes wrong once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// In virtual nanoseconds.
    pub at_ns: u64,
    /// The fault.
    pub what: What,
}

/// How shards move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Moving {
    /// Each node gives one away so often, in virtual nanoseconds on average.
    pub every_ns: u64,
    /// For so long a move waits for the holders of locks.
    pub patience_ns: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The workload.
    pub workload: String,
    /// Its profile; the mixture has none.
    pub mix_profile: Option<&'static str>,
    /// Records, or keys of each table of the mixture.
    pub records: u64,
    /// Zipf exponent of the keys.
    pub zipf: f64,
    /// The parts of the mixture.
    pub mix: Mix,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of each record.
    pub replicas: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Threads of each.
    pub threads: usize,
    /// Coordinators of each thread.
    pub coroutines: usize,
    /// Transactions of each coordinator.
    pub transactions: u64,
    /// Where records go.
    pub placement: Placement,
    /// Addresses that each thread remembers.
    pub address_cache: usize,
    /// Whether indexes grow; otherwise chains do.
    pub growth: bool,
    /// The faults that may happen all the time.
    pub chaos: Chaos,
    /// The faults that happen once each.
    pub faults: Vec<Fault>,
    /// Empty memory nodes, to which copies go that were lost.
    pub spares: usize,
    /// Whether the slots of the dead get a new life once they are recovered.
    pub restarts: bool,
    /// Whether the number of a dead coordinator is taken by one of another node, before its life is recovered.
    pub succession: bool,
    /// Whether the shards of the dead wait for the next life of its slot, under a protocol that has any.
    pub next_life: bool,
    /// Whether shards move, under a protocol that has any.
    pub moving: Option<Moving>,
    /// Readers' leases, under a protocol that has any.
    pub read_leases: Option<ReadLeases>,
    /// The terms of leases, if there are any. Clocks may drift by more than they allow for.
    pub lease: Option<LeaseTerms>,
    /// One transaction in so many is dropped by its caller half-way; 0: none.
    pub drop_one_in: u32,
    /// The shape of an index bucket.
    pub bucket: BucketShape,
    /// Slots laid out for 100 records.
    pub slots_per_100_records: u32,
}

impl Drawn {
    /// Returns the meaning of `seed`; `workload` is the only one, if given.
    pub fn of(seed: u64, workload: Option<&str>) -> Drawn {
        Drawn::within(seed, workload, true)
    }

    /// As [`Drawn::of`], with ordered indexes only if there may be `ranges`. All other parts of the seed's meaning stay.
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
            // Drawn last: seeds that had another meaning before keep all the rest of it.
            succession: has_faults && rng.random_range(0..2) == 0,
            next_life: false,
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

    /// The same, for a protocol whose locks are in compute nodes. Drawn from a stream of its own: all else stays.
    #[must_use]
    pub fn with_shards(self, seed: u64) -> Drawn {
        let mut rng = seeded(seed, SHARDS_STREAM);
        let next_life = self.restarts && rng.random_range(0..2) == 0;
        let every_ns = pick(&mut rng, &[0, 0, 0, 5_000, 20_000, 60_000]);
        let patience_ns = pick(&mut rng, &[5_000, 50_000, 500_000]);
        let moving = (every_ns > 0).then_some(Moving { every_ns, patience_ns });
        Drawn { next_life, moving, ..self }
    }

    /// The same, for a protocol whose readers have leases. Drawn from a stream of its own, too.
    #[must_use]
    pub fn with_read_leases(self, seed: u64) -> Drawn {
        Drawn { read_leases: Some(ReadLeases::of(seed)), ..self }
    }

    /// The same, and no memory node dies.
    #[must_use]
    pub fn without_memory_deaths(self) -> Drawn {
        let of_compute = |fault: &Fault| !matches!(fault.what, What::MemoryNode { .. });
        let faults: Vec<Fault> = self.faults.into_iter().filter(of_compute).collect();
        Drawn { faults, spares: 0, ..self }
    }

    /// The same, and no compute node stops or is expelled.
    #[must_use]
    pub fn without_compute_deaths(self) -> Drawn {
        let of_memory = |fault: &Fault| matches!(fault.what, What::MemoryNode { .. });
        let faults: Vec<Fault> = self.faults.into_iter().filter(of_memory).collect();
        // A lease that lapses expels its holder.
        Drawn { faults, lease: None, restarts: false, succession: false, next_life: false, ..self }
    }

    /// The same, and no caller drops a transaction.
    #[must_use]
    pub fn without_drops(self) -> Drawn {
        Drawn { drop_one_in: 0, ..self }
    }

    /// How many memory nodes die.
    pub fn memory_deaths(&self) -> usize {
        let dies = |fault: &&Fault| matches!(fault.what, What::MemoryNode { .. });
        self.faults.iter().filter(dies).count()
    }

    /// Whether this memory node dies.
    pub fn memory_node_dies(&self, node: usize) -> bool {
        let is_it = |what| matches!(what, What::MemoryNode { slot } if usize::from(slot) == node);
        self.faults.iter().any(|fault| is_it(fault.what))
    }

    /// Whether the run needs keepers of the dead.
    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty() || self.lease.is_some()
    }

    /// Coordinators of all threads.
    pub fn coordinators(&self) -> usize {
        self.compute_nodes * self.threads * self.coroutines
    }
}

/// The workloads that are drawn, each once.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let is_first = |at: &usize| *at == 0 || WORKLOADS[at - 1].0 != WORKLOADS[*at].0;
    (0..WORKLOADS.len()).filter(is_first).map(|at| WORKLOADS[at].0)
}

/// Profiles that are drawn from, of a workload that the user asked for.
fn profiles_of(workload: &str) -> &'static [&'static str] {
    let asked_for = ASKED_FOR.iter().map(|&(name, profiles, _)| (name, profiles));
    let mut known = WORKLOADS.iter().copied().chain(asked_for);
    known.find(|(name, _)| *name == workload).map_or(&[], |(_, profiles)| profiles)
}

/// Numbers of records that are drawn from.
fn records_of(workload: &str) -> &'static [u64] {
    let asked_for = ASKED_FOR.iter().find(|(name, ..)| *name == workload);
    asked_for.map_or(&[2, 4, 8, 20, 60], |(_, _, records)| records)
}

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

/// Compute nodes, threads of each, coordinators of each: three coordinators at the least.
fn crew(rng: &mut Rng) -> (usize, usize, usize) {
    loop {
        let crew = (rng.random_range(1..=4), rng.random_range(1..=2), rng.random_range(1..=3));
        if (3..=12).contains(&(crew.0 * crew.1 * crew.2)) {
            return crew;
        }
    }
}

/// Up to three, near each other or not: a death while others recover from another is the interesting case.
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
                // The promise: no more deaths than further copies.
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

/// Leases, and clocks that may drift by more than these allow for.
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
        if self.next_life {
            write!(f, " to their shards")?;
        }
        if self.succession { write!(f, "; their numbers are taken over") } else { Ok(()) }
    }
}

#[cfg(test)]
#[path = "drawn_tests.rs"]
mod tests;
