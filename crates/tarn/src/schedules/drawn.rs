//! What a seed means: the cluster, the workload, the trouble and the fault that it draws.
//!
//! Invariant: a function of the seed. Clusters are small and records few, so that transactions meet;
//! each source of variety is drawn by itself, so that runs differ in all of them (swarm testing: Groce
//! et al., "Swarm Testing", ISSTA 2012).

use super::mixture::{self, Layout, Mix};
use rand::RngExt as _;
use serde::Serialize;
use std::fmt;
use tarn_engine::catalog::Placement;
use tarn_fabric::rng::{Rng, seeded};
use tarn_sim::config::Chaos;

/// The stream of a run's shape.
const DRAW_STREAM: u64 = 0x6472_6177;
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

/// What dies, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing.
    None,
    /// A memory node, for good: rounds to it end in an error.
    MemoryNode {
        /// Which.
        slot: u16,
        /// In virtual nanoseconds.
        at_ns: u64,
    },
    /// A compute node loses its access, with whatever of its verbs had landed; its coordinators are
    /// dead from then on. Another one settles their last transactions.
    ComputeNode {
        /// Which.
        slot: u16,
        /// In virtual nanoseconds.
        at_ns: u64,
    },
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
    /// What the mixture is made of.
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
    /// What goes wrong all the time.
    pub chaos: Chaos,
    /// What goes wrong once.
    pub fault: Fault,
}

impl Drawn {
    /// What `seed` means; `workload` is the only one, if given.
    pub fn of(seed: u64, workload: Option<&str>) -> Drawn {
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
            false => pick(&mut rng, &[2, 4, 8, 20, 60]),
        };
        let chaos = Chaos::of(seed);
        let fault =
            if is_mixture { fault(&mut rng, memory_nodes, compute_nodes) } else { Fault::None };
        Drawn {
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
            // An undone split is in nobody's history (docs/design/0003): not beside a fault.
            growth: fault == Fault::None && rng.random_range(0..4) > 0,
            chaos,
            fault,
        }
    }

    /// Coordinators of all threads, without the one that settles what the dead left.
    pub fn coordinators(&self) -> usize {
        self.compute_nodes * self.threads * self.coroutines
    }
}

/// Profiles that are drawn from, of a workload that the user asked for.
fn profiles_of(workload: &str) -> &'static [&'static str] {
    WORKLOADS.iter().find(|(name, _)| *name == workload).map_or(&[], |(_, profiles)| profiles)
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

fn fault(rng: &mut Rng, memory_nodes: usize, compute_nodes: usize) -> Fault {
    let within_ns = pick(rng, &[20_000, 80_000, 300_000]);
    let at_ns = rng.random_range(1_000..within_ns);
    match rng.random_range(0..6) {
        0 => Fault::MemoryNode { slot: rng.random_range(0..memory_nodes as u16), at_ns },
        1..=3 if compute_nodes > 1 => {
            Fault::ComputeNode { slot: rng.random_range(0..compute_nodes as u16), at_ns }
        }
        _ => Fault::None,
    }
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
        let placement = match self.placement {
            Placement::Hash => "hash",
            Placement::Table => "table",
        };
        write!(
            f,
            "; {memory_nodes} memory nodes, {replicas} replicas by {placement}; {compute_nodes} compute \
             nodes × {} threads × {} coordinators × {} transactions; {} addresses remembered; growth {}; \
             ",
            self.threads,
            self.coroutines,
            self.transactions,
            self.address_cache,
            if self.growth { "on" } else { "off" },
        )?;
        let us = |ns: u64| ns as f64 / 1e3;
        match self.fault {
            Fault::None => write!(f, "no fault"),
            Fault::MemoryNode { slot, at_ns } => {
                write!(f, "memory node {slot} dies at {} µs", us(at_ns))
            }
            Fault::ComputeNode { slot, at_ns } => {
                write!(f, "compute node {slot} is fenced at {} µs", us(at_ns))
            }
        }
    }
}

/// Layouts that a mixture may have, all of them in some seeds.
pub(super) fn layouts(rng: &mut Rng) -> Vec<Layout> {
    let wanted = rng.random_range(1..16u32);
    let all = Layout::ALL.into_iter().enumerate();
    all.filter(|(bit, _)| wanted & (1 << bit) != 0).map(|(_, layout)| layout).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_means_the_same_and_every_kind_is_drawn() {
        let all: Vec<String> = (0..400).map(|seed| Drawn::of(seed, None).to_string()).collect();
        assert_eq!(all[7], Drawn::of(7, None).to_string());
        let words = ["mixture", "smallbank", "ycsb", "tatp", "kvs", "growth on", "growth off"];
        let more = ["half", "apart", "1 replicas", "3 replicas", "no fault", "dies", "fenced"];
        for word in words.into_iter().chain(more) {
            assert!(all.iter().any(|text| text.contains(word)), "{word} is never drawn");
        }
        assert_eq!(Drawn::of(7, Some("tatp")).workload, "tatp");
        assert!((0..400).all(|seed| Drawn::of(seed, None).coordinators() >= 3));
    }
}
