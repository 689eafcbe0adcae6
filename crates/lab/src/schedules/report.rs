//! The sum of the results of many seeds, for human readers (`Display`) and for programs (`Serialize`).
//!
//! Invariant: the list of seeds and the subject determine all parts of the sum except `wall`. All parts except `wall`
//! are the same on every machine, with any number of jobs. Every reason to abort and every phase of the protocol has
//! its count, even if the count is zero. A phase that a variant cannot reach is listed with the reason, and with a
//! seed of another variant that reaches it.

use super::Subject;
use super::coverage::{
    Coverage, Deaths, KINDS, Kind, lacks_compute_deaths, lacks_ordered_indexes, lacks_promises,
    lacks_shards,
};
use super::desk::{Calls, Incidents, LeaseChanges, Settled};
use super::judge::FindingKind;
use super::run::{Ran, run_seed};
use crate::harness::lines::row;
use crate::machine;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tarn_engine::cluster::info::{Limit, Only};
use tarn_engine::site::metrics::Tally;
use tarn_fabric::rng::mix;

/// The transactions of a seed count as conflicting if at least this share of the seed's tries is aborted.
pub const CONFLICT_RATE: f64 = 0.2;

/// The largest number of seeds that the report tries to find a seed that reaches a phase.
const SHOW_WITHIN: u64 = 20;

/// A phase or a reason to abort that this variant does not have, but that another variant has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Elsewhere {
    /// The reason why this variant does not have the phase or the reason to abort.
    pub why: &'static str,
    /// The variant that has the phase or the reason to abort.
    pub variant: &'static str,
    /// How often one seed of the other variant reached the phase or the reason to abort.
    pub count: u64,
    /// The command that runs this seed of the other variant.
    pub replay: String,
}

/// The counts of runs in which transactions conflicted.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Conflicts {
    /// The smallest share of aborted tries with which a run counts as a run with conflicts.
    pub rate: f64,
    /// The number of seeds whose transactions conflicted.
    pub seeds: u64,
    /// The share of seeds whose transactions conflicted.
    pub share: f64,
}

/// Counts of the deaths of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Faults {
    /// The number of seeds in which no node died.
    pub none: u64,
    /// The number of memory nodes that died.
    pub memory_nodes: u64,
    /// The number of compute nodes that stopped.
    pub crashes: u64,
    /// The number of compute nodes that were expelled while they ran.
    pub zombies: u64,
    /// The number of expelled nodes whose lease had lapsed.
    pub lapsed: u64,
    /// The number of slots that got a new incarnation.
    pub restarts: u64,
}

/// A seed that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failed {
    /// The number of the seed.
    pub seed: u64,
    /// The digest of the seed's trace.
    pub digest: String,
    /// The kind of the error that the seed found.
    pub kind: FindingKind,
    /// The counterexample.
    pub counterexample: String,
    /// The meaning of the seed.
    pub drawn: String,
    /// The faults that may happen in the seed at any time.
    pub chaos: String,
    /// The command that runs the seed again.
    pub replay: String,
}

/// The cost of the run on this machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Wall {
    /// The processor, the number of cores and the operating system.
    pub machine: String,
    /// The number of threads that ran seeds.
    pub jobs: usize,
    /// The real time of the whole run, in seconds.
    pub seconds: f64,
    /// The number of seeds per second.
    pub seeds_per_s: f64,
    /// The number of events per second.
    pub events_per_s: f64,
}

/// The sum of the results of many seeds.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Sum {
    /// The name of the protocol.
    pub protocol: String,
    /// The variant of the protocol.
    pub variant: String,
    /// The isolation level that histories must satisfy.
    pub isolation: Option<&'static str>,
    /// The only workload. `None` means that each seed draws a workload.
    pub workload: Option<String>,
    /// Whether torn lines are planted in the fabric.
    pub torn_lines: bool,
    /// Whether the planted bug of clocks is active: clocks drift more than the nodes assume.
    pub clocks_run_off: bool,
    /// Whether a bug of moves of shards is planted.
    pub plants_move: bool,
    /// The first seed.
    pub first_seed: u64,
    /// The number of seeds that ran, including failed seeds.
    pub seeds_run: u64,
    /// The number of seeds without an error.
    pub seeds_passed: u64,
    /// The number of transactions that committed.
    pub transactions: u64,
    /// The number of aborted tries by reason. Every reason is listed.
    pub aborts: BTreeMap<&'static str, u64>,
    /// How often each phase of the protocol was entered. Every phase is listed.
    pub phases: BTreeMap<&'static str, u64>,
    /// The phases and the reasons to abort that no seed reached, although the protocol can reach them.
    pub not_reached: Vec<&'static str>,
    /// The phases and the reasons to abort that only other variants have.
    pub elsewhere: BTreeMap<&'static str, Elsewhere>,
    /// The counts of seeds whose transactions conflicted.
    pub conflicts: Conflicts,
    /// The number of buckets that were split.
    pub splits: u64,
    /// The counts of the deaths of nodes.
    pub faults: Faults,
    /// The counts of events that are neither commits, aborts nor deaths.
    #[serde(flatten)]
    pub incidents: Incidents,
    /// The coverage: how often the runs reached each event.
    pub coverage: Coverage,
    /// The number of events that happened.
    pub events: u64,
    /// The virtual time that passed, in milliseconds.
    pub virtual_ms: f64,
    /// The digest of all traces, in the order of their seeds. For one seed this digest is the digest of
    /// this seed's trace.
    pub digest: String,
    /// The first seed that failed.
    pub failed: Option<Failed>,
    /// All seeds that failed.
    #[serde(skip)]
    pub failures: Vec<Failed>,
    /// The cost of the run on this machine.
    pub wall: Wall,
    #[serde(skip)]
    pub(super) tally: Tally,
    #[serde(skip)]
    pub(super) deaths: Deaths,
    #[serde(skip)]
    folded: u64,
}

impl Sum {
    /// Creates a sum that contains no seed yet.
    pub fn new(subject: &Subject, first_seed: u64, jobs: usize) -> Sum {
        let Subject { protocol, variant, workload, torn_lines, clocks_run_off, planted_move } =
            subject.clone();
        Sum {
            protocol,
            variant,
            isolation: subject.isolation(),
            workload,
            torn_lines,
            clocks_run_off,
            plants_move: planted_move.is_some(),
            first_seed,
            conflicts: Conflicts { rate: CONFLICT_RATE, ..Conflicts::default() },
            wall: Wall { machine: machine::describe(), jobs, ..Wall::default() },
            ..Sum::default()
        }
    }

    /// Adds the result of the next seed.
    pub fn add(&mut self, subject: &Subject, ran: &Ran) {
        self.seeds_run += 1;
        self.tally.add(&ran.tally);
        self.conflicts.seeds += u64::from(ran.conflict_rate() >= CONFLICT_RATE);
        self.deaths.add(&ran.deaths);
        self.faults.none += u64::from(!ran.drawn.has_faults());
        self.faults.memory_nodes += ran.drawn.memory_deaths() as u64;
        self.incidents.add(&ran.incidents);
        self.events += ran.events;
        self.virtual_ms += ran.passed.0 as f64 / 1e6;
        self.folded = match self.seeds_run {
            1 => ran.digest,
            _ => mix(self.folded).wrapping_add(ran.digest),
        };
        match &ran.finding {
            None => self.seeds_passed += 1,
            Some(finding) => {
                let drawn = subject.drawn(ran.seed);
                let failed = Failed {
                    seed: ran.seed,
                    digest: format!("{:016x}", ran.digest),
                    kind: finding.kind,
                    counterexample: finding.text.trim_end().to_owned(),
                    drawn: drawn.to_string(),
                    chaos: format!("{:?}", drawn.chaos),
                    replay: subject.replay(ran.seed),
                };
                self.failed.get_or_insert_with(|| failed.clone());
                self.failures.push(failed);
            }
        }
    }

    /// Computes the coverage when the results of all seeds are added.
    fn cover(&mut self, subject: &Subject) {
        let (incidents, Deaths { lapsed, restarts, .. }) = (&self.incidents, self.deaths);
        let (crashes, zombies) = (self.deaths.nodes(Kind::Crash), self.deaths.nodes(Kind::Zombie));
        self.faults = Faults { crashes, zombies, lapsed, restarts, ..self.faults };
        let info = subject.info();
        let cells = info.map_or((&[][..], &[][..]), |info| (info.phases, info.aborts));
        let limits = info.map_or(&[][..], |info| info.limits);
        let events = BTreeMap::from([
            ("committed", self.tally.committed),
            ("dropped", incidents.dropped),
            ("dropped_in_flight", incidents.dropped_in_flight),
            ("lease_lapsed", lapsed),
            ("memory_node_died", self.faults.memory_nodes),
            ("resolved_aborted", incidents.resolved.aborted),
            ("resolved_committed", incidents.resolved.committed),
            ("number_taken_over", self.deaths.successions),
            ("restarted", restarts),
            ("node_merge", self.tally.node_merges),
            ("node_split", self.tally.node_splits),
            ("split", self.tally.splits),
            ("split_refused", self.tally.splits_refused),
            ("shard_moved", incidents.moves.made),
            ("shard_move_dropped", incidents.moves.dropped),
            ("shard_move_taken_back", incidents.moves.taken_back),
        ]);
        let cannot = |cell: &str| {
            let (row, name) = cell.split_once('/').unwrap_or_default();
            let applies = |limit: &&Limit| match limit.only {
                Only::InVariant(_) | Only::WhereMemoryIsNear => true,
                Only::WithoutMemoryDeath => row == KINDS[Kind::MemoryNode as usize],
                Only::InPassing => KINDS.contains(&row),
                Only::WithOrderedIndexes => false, // the seeds have them, unless another workload was asked for
            };
            let mut limits = limits.iter().filter(|limit| limit.phase == name);
            let limit = limits.find(applies).map(|limit| limit.why);
            limit
                .or_else(|| lacks_ordered_indexes(subject, name))
                .or_else(|| lacks_compute_deaths(subject, cell))
                .or_else(|| lacks_promises(subject, cell))
                .or_else(|| lacks_shards(subject, name))
        };
        self.coverage = Coverage::of(&self.deaths, &self.tally, cells, events, &cannot);
    }

    /// Gives each count its name, when the results of all seeds are added.
    pub fn finish(&mut self, subject: &Subject) {
        self.cover(subject);
        let info = subject.info();
        let (phases, reasons) = info.map_or((&[][..], &[][..]), |info| (info.phases, info.aborts));
        let counts = reasons.iter().map(|&why| (why.name(), self.tally.aborts[why as usize]));
        self.aborts = counts.collect();
        self.phases = phases.iter().copied().zip(self.tally.phases).collect();
        (self.transactions, self.splits) = (self.tally.committed, self.tally.splits);
        self.conflicts.share = self.conflicts.seeds as f64 / self.seeds_run.max(1) as f64;
        self.digest = format!("{:016x}", self.folded);
        let seconds = self.wall.seconds.max(1e-9);
        self.wall.seeds_per_s = self.seeds_run as f64 / seconds;
        self.wall.events_per_s = self.events as f64 / seconds;
        for (&name, _) in self.aborts.iter().chain(&self.phases).filter(|(_, count)| **count == 0) {
            let mut limits = info.iter().flat_map(|info| info.limits);
            let is_near = limits.any(|it| it.phase == name && it.only == Only::WhereMemoryIsNear);
            if is_near || lacks_ordered_indexes(subject, name).is_some() {
                continue; // the coverage reports it
            }
            match elsewhere(subject, name) {
                Some(shown) => drop(self.elsewhere.insert(name, shown)),
                None => self.not_reached.push(name),
            }
        }
    }
}

/// Finds another variant that has the phase, and a seed with which this variant reaches the phase.
fn elsewhere(subject: &Subject, phase: &str) -> Option<Elsewhere> {
    let info = subject.info()?;
    let shown = info.limits.iter().filter(|limit| limit.phase == phase);
    let (variant, why) = shown.into_iter().find_map(|limit| match limit.only {
        Only::InVariant(variant) => Some((variant, limit.why)),
        Only::WithoutMemoryDeath
        | Only::WithOrderedIndexes
        | Only::WhereMemoryIsNear
        | Only::InPassing => None,
    })?;
    let index = info.phases.iter().position(|name| *name == phase)?;
    let other = Subject { variant: variant.to_owned(), ..subject.clone() };
    let ran = (0..SHOW_WITHIN).find_map(|seed| {
        let ran = run_seed(&other, seed).ok()?;
        (ran.tally.phases[index] > 0).then_some(ran)
    })?;
    let (count, replay) = (ran.tally.phases[index], other.replay(ran.seed));
    Some(Elsewhere { why, variant, count, replay })
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sum { protocol, variant, seeds_run, seeds_passed, first_seed, .. } = self;
        let planted = match (self.torn_lines, self.clocks_run_off, self.plants_move) {
            (true, ..) => ", torn lines planted",
            (_, true, _) => ", clocks that run off planted",
            (.., true) => ", a bug of moves planted",
            _ => "",
        };
        writeln!(f, "random schedules of {protocol} ({variant}){planted}")?;
        let workload = self.workload.as_deref().unwrap_or("drawn by each seed");
        row(f, "workload", workload)?;
        row!(f, "seeds" => "{seeds_passed} of {seeds_run} passed, from {first_seed} on")?;
        row(f, "held against", self.isolation.unwrap_or("nothing"))?;
        row(f, "transactions", self.transactions)?;
        counts(f, "aborted tries", &self.aborts)?;
        counts(f, "phases", &self.phases)?;
        for (phase, Elsewhere { why, variant, count, .. }) in &self.elsewhere {
            row!(f, "" => "{phase}: not here: {why}; {count} in one seed of {variant}")?;
        }
        if !self.not_reached.is_empty() {
            row(f, "NOT REACHED", self.not_reached.join(", "))?;
        }
        self.trouble(f)?;
        let Wall { machine, jobs, seconds, seeds_per_s, events_per_s } = &self.wall;
        row!(f, "events" =>
            "{} in {:.1} ms of virtual time; {:.2} M/s of real time",
            self.events, self.virtual_ms, events_per_s / 1e6)?;
        row!(f, "real time" => "{seconds:.1} s, {seeds_per_s:.0} seeds a second")?;
        row!(f, "machine" => "{machine}; {jobs} jobs")?;
        row(f, "digest", &self.digest)?;
        self.failed.as_ref().map_or(Ok(()), |failed| failed.fmt(f))
    }
}

impl Sum {
    fn read_leases(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseChanges { begun, refused, looks, adjusted, adjust_longest_ns, clocks } =
            self.incidents.lease_changes;
        if begun + refused > 0 {
            row!(f, "read leases" =>
                "changed {begun} times, {refused} times asked for beside another change")?;
        }
        if looks > 0 {
            let longest_us = adjust_longest_ns as f64 / 1e3;
            row!(f, "lease manager" =>
                "{looks} looks, {adjusted} changes, time to adjust {longest_us:.1} µs at the most; \
                 {clocks} nodes expelled for their clocks")?;
        }
        Ok(())
    }

    fn trouble(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflicts { rate, seeds, share } = self.conflicts;
        row!(f, "conflicts" =>
            "{} % of tries or more aborted in {seeds} seeds, {:.1} % of them",
            rate * 100.0, share * 100.0)?;
        self.read_leases(f)?;
        row!(f, "splits" => "{} buckets", self.splits)?;
        let Faults { none, memory_nodes, crashes, zombies, lapsed, restarts } = self.faults;
        row!(f, "faults" =>
            "none in {none} seeds; {memory_nodes} memory nodes died, {crashes} compute nodes \
             crashed, {zombies} were expelled while they ran ({lapsed} by a lapsed lease); \
             {restarts} came back")?;
        let (dropped, in_flight) = (self.incidents.dropped, self.incidents.dropped_in_flight);
        row!(f, "dropped" =>
            "{dropped} transactions half-way, {in_flight} with verbs on their way")?;
        let Settled { committed, aborted } = self.incidents.resolved;
        row!(f, "unknown outcomes" =>
            "{committed} resolved as committed, {aborted} as aborted; {} transactions given up \
             beside a fault",
            self.incidents.deadlines_missed)?;
        let Calls { replied, retransmissions, duplicates } = self.incidents.calls;
        row!(f, "calls" =>
            "{replied} replied to, each executed once; {retransmissions} requests sent again, \
             {duplicates} duplicates dropped")
    }
}

/// Prints every count, including the counts that are zero.
fn counts(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    counts: &BTreeMap<&'static str, u64>,
) -> fmt::Result {
    let all: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    for (index, line) in all.chunks(5).enumerate() {
        row(f, if index == 0 { name } else { "" }, line.join(", "))?;
    }
    Ok(())
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failed { seed, digest, counterexample, drawn, chaos, replay, kind } = self;
        writeln!(f, "seed {seed} FAILED: {}", format!("{kind:?}").to_lowercase())?;
        row(f, "drawn", drawn)?;
        row(f, "trouble", chaos)?;
        row(f, "trace digest", digest)?;
        row(f, "replay", replay)?;
        counterexample.lines().try_for_each(|line| writeln!(f, "    {line}"))
    }
}
