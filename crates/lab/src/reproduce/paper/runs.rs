//! Runs the cases of a page and loads each database once. Each thread that runs cases keeps one database in this
//! machine's memory. Only a quick test run uses several such threads.
//!
//! Invariant: if the protocol, variant or layout of a case is not available, the report lists the case as missing.
//! The report also shows the message of the registry of protocols. No database is loaded for such a case. Systems
//! that must be correct run first, and their memory is checked before the other systems run.

use super::adjusting::{Adjusted, Adjusting};
use super::case::{Bench, Case, Kind, Missing};
use super::occasion::{Crash, Crashed, Heated, Heating};
use crate::bench::run::RunError;
use crate::harness::watch::{Silent, Watch};
use crate::reproduce::Scale;
use crate::reproduce::charge::of_clocks;
use crate::reproduce::curve::Series;
use crate::reproduce::stage::{Judged, Stage, System, Testbed};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tarn_engine::protocol::AnyProtocol;
use tarn_store::ids::UsageError;
use tarn_store::layout::LayoutKind;
use tarn_store::placement::catalog::{Catalog, Options};
use tarn_store::schema::TableSchema;
use tarn_workloads::Workload;
use tarn_workloads::kvs::Kvs;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::taobench::TaoBench;
use tarn_workloads::tatp::Tatp;
use tarn_workloads::tpcc::Tpcc;
use tarn_workloads::ycsb::Ycsb;

/// The settings that all runs of an evaluation share.
pub struct Ground<'a> {
    /// The machines of the testbed.
    pub testbed: &'a Testbed,
    /// The lengths of points, for each benchmark.
    pub scales: &'a [(Kind, Scale)],
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The supposition of this run: a function that changes each case.
    pub what_if: &'a (dyn Fn(&mut Case) + Sync),
    /// Tells whether an incorrect history or memory of a system is a failure.
    pub must_be_sound: &'a (dyn Fn(&System) -> bool + Sync),
    /// The number of threads of this machine that run cases; each thread has a database of its own
    /// in memory.
    pub threads: usize,
    /// The watch that receives the progress.
    pub watch: &'a dyn Watch,
}

/// Calls `work` for every item, on several threads, and returns the results in the items' order. The calling thread
/// is one of the working threads, and only the calling thread reports the progress.
pub fn each<T: Sync, R: Send>(
    all: &[T],
    ground: &Ground<'_>,
    work: impl Fn(&T, &Ground<'_>) -> R + Sync,
) -> Vec<R> {
    let &Ground { testbed, scales, seed, what_if, must_be_sound, threads, watch } = ground;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = |watch: &dyn Watch| {
        let ground = Ground { testbed, scales, seed, what_if, must_be_sound, threads, watch };
        while let Some((at, item)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            all.get(at).map(|item| (at, item))
        } {
            let came = work(item, &ground);
            done.lock().expect("no panic under this lock").push((at, came));
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| {
            scope.spawn(|| run(&Silent));
        });
        run(watch);
    });
    let mut done = done.into_inner().expect("no panic under this lock");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, came)| came).collect()
}

impl Ground<'_> {
    /// Returns the case, with the changes by the run's suppositions.
    pub(super) fn supposed(&self, case: &Case) -> Case {
        let mut case = case.clone();
        (self.what_if)(&mut case);
        case
    }
}

/// A case that was run, with its results.
#[derive(Clone, Debug, Serialize)]
pub struct Ran {
    /// The benchmark.
    pub bench: Bench,
    /// The system's protocol.
    #[serde(skip)]
    pub protocol: &'static str,
    /// The layout's name.
    pub layout: &'static str,
    /// The measured points of the case.
    pub series: Series,
    /// Whether an incorrect history or memory counts as a failure.
    pub must_be_sound: bool,
}

/// The results of all runs of an evaluation.
#[derive(Default)]
pub struct Runs {
    cases: Vec<(Case, Result<Ran, Missing>)>,
    /// The crashes that were run.
    pub crashes: Vec<(Crash, Result<Crashed, Missing>)>,
    /// The hotspots that were run.
    pub hotspots: Vec<(Heating, Result<Heated, Missing>)>,
    /// The runs with leases that were adjusted.
    pub adjustments: Vec<(Adjusting, Result<Adjusted, Missing>)>,
    /// The verdicts on the memory after the runs.
    pub judged: Vec<Judged>,
    /// The runs that failed although they should have been possible.
    pub failures: Vec<String>,
}

impl Runs {
    /// Returns the curve of a case; this curve may have more points than the case requests.
    ///
    /// # Errors
    /// The error states the reason for which the case has no curve.
    pub fn series(&self, case: &Case) -> Result<&Series, Missing> {
        let found = self.cases.iter().find(|(it, _)| it.is_like(case));
        match found {
            Some((_, Ok(ran))) => Ok(&ran.series),
            Some((_, Err(missing))) => Err(missing.clone()),
            None => Err(Missing(format!("{} was not asked for", case.system.name))),
        }
    }

    /// Returns all cases that ran.
    pub fn ran(&self) -> impl Iterator<Item = &Ran> {
        self.cases.iter().filter_map(|(_, ran)| ran.as_ref().ok())
    }

    /// Runs cases; equal cases run only once.
    pub fn run(&mut self, wanted: Vec<Case>, ground: &Ground<'_>) {
        let mut rest: Vec<(Case, LayoutKind)> = Vec::new();
        for case in merged(wanted) {
            match catalog_of(&ground.supposed(&case), ground.testbed.memory_nodes) {
                Ok(catalog) => rest.push((case, catalog.options().layout)),
                Err(missing) => self.cases.push((case, Err(missing))),
            }
        }
        let mut groups = Vec::new();
        while !rest.is_empty() {
            let (first, kind) = (rest[0].0.clone(), rest[0].1);
            let on_one = |(case, other): &mut (Case, LayoutKind)| {
                *other == kind
                    && case.layout == first.layout
                    && case.system.protocol == first.system.protocol
                    && case.system.read_lease_ns == first.system.read_lease_ns
                    && of_clocks(case.system.charges) == of_clocks(first.system.charges)
                    && case.bench.loads_as() == first.bench.loads_as()
            };
            groups.push(rest.extract_if(.., on_one).map(|(case, _)| case).collect::<Vec<Case>>());
        }
        for mut ran in each(&groups, ground, |group, ground| {
            let mut runs = Runs::default();
            runs.run_group(group.clone(), ground);
            runs
        }) {
            self.cases.append(&mut ran.cases);
            self.judged.append(&mut ran.judged);
            self.failures.append(&mut ran.failures);
        }
    }

    fn run_group(&mut self, mut group: Vec<Case>, ground: &Ground<'_>) {
        group.sort_by_key(|case| (is_unsafe(&case.system), !(ground.must_be_sound)(&case.system)));
        let ended = match group[0].bench.kind {
            Kind::Kvs => self.on_one_load::<Kvs>(&group, &Bench::make_kvs, ground),
            Kind::Tatp => self.on_one_load::<Tatp>(&group, &Bench::make, ground),
            Kind::Tpcc => self.on_one_load::<Tpcc>(&group, &Bench::make_tpcc, ground),
            Kind::SmallBank => self.on_one_load::<SmallBank>(&group, &Bench::make, ground),
            Kind::Ycsb => self.on_one_load::<Ycsb>(&group, &Bench::make_ycsb, ground),
            Kind::TaoBench => self.on_one_load::<TaoBench>(&group, &Bench::make, ground),
        };
        let Err(error) = ended else { return };
        if let RunError::Failed(text) = &error {
            let Case { bench, system, .. } = &group[0];
            self.failures.push(format!("{} on {}: {text}", bench.kind.name(), system.name));
        }
        let missing = Missing::from(error);
        for case in group {
            if !self.cases.iter().any(|(it, _)| it.is_like(&case)) {
                self.cases.push((case, Err(missing.clone())));
            }
        }
    }

    /// Runs the cases of one database.
    fn on_one_load<W: Workload>(
        &mut self,
        group: &[Case],
        make: &dyn Fn(&Bench) -> Result<W, UsageError>,
        ground: &Ground<'_>,
    ) -> Result<(), RunError> {
        let &Ground { testbed, scales, seed, watch, must_be_sound, .. } = ground;
        let mut first = ground.supposed(&group[0]);
        // Systems whose transactions are routed need more coordinators. So the database gets space for all
        // coordinators, even if another system runs first.
        first.system.is_routed = group.iter().any(|case| ground.supposed(case).system.is_routed);
        let first = &first;
        let mut all: Vec<usize> = group.iter().flat_map(|it| it.coordinators.clone()).collect();
        all.sort_unstable();
        let scale = scales.iter().find(|(kind, _)| *kind == first.bench.kind);
        let (_, scale) = scale.expect("every benchmark has one").clone();
        let sized = Scale { sizes: vec![first.bench.records], coordinators: all, ..scale };
        let loaded = (&first.layout, &first.system);
        let mut stage = Stage::load(make(&first.bench)?, testbed, loaded, (&sized, seed), watch)?;
        let is_held = |case: &Case| must_be_sound(&case.system) && !is_unsafe(&case.system);
        let held = group.iter().take_while(|case| is_held(case)).count();
        let mut made = first.bench;
        for (at, case) in group.iter().enumerate() {
            let supposed = ground.supposed(case);
            // The workload is replaced only if the benchmark changes. Otherwise the workload must keep its counters,
            // because each key that it generates can be inserted only once.
            if supposed.bench != made {
                stage.set_workload(make(&supposed.bench)?);
                made = supposed.bench;
            }
            let points = Scale { coordinators: case.coordinators.clone(), ..sized.clone() };
            let series = stage.series(&supposed.system, &points, watch)?;
            let (bench, layout) = (case.bench, case.layout.name);
            let protocol = supposed.system.protocol;
            let ran = Ran { bench, protocol, layout, series, must_be_sound: at < held };
            self.cases.push((case.clone(), Ok(ran)));
            if at + 1 == held {
                let mut judged = stage.judge(watch)?;
                let Case { bench, system, .. } = first;
                judged.layout = format!("{} on {}, {layout}", bench.kind.name(), system.protocol);
                self.judged.push(judged);
            }
        }
        Ok(())
    }
}

/// Returns whether the system isolates no transactions.
fn is_unsafe(system: &System) -> bool {
    let protocol = AnyProtocol::by_name(system.protocol, system.variant);
    protocol.is_ok_and(|protocol| protocol.unsafe_without().is_some())
}

/// Merges cases that differ only in their points into one case that has the points of all these cases.
fn merged(wanted: Vec<Case>) -> Vec<Case> {
    let mut merged: Vec<Case> = Vec::new();
    for case in wanted {
        match merged.iter_mut().find(|it| it.is_like(&case)) {
            Some(known) => known.coordinators.extend(&case.coordinators),
            None => merged.push(case),
        }
    }
    for case in &mut merged {
        case.coordinators.sort_unstable();
        case.coordinators.dedup();
    }
    merged
}

/// Returns the catalog, which is the layout of a case's database.
///
/// # Errors
/// Fails if the protocol, variant, benchmark or layout is not available.
pub fn catalog_of(case: &Case, memory_nodes: usize) -> Result<Catalog, Missing> {
    let Case { bench, system, layout, coordinators } = case;
    let protocol = there(system)?;
    let (schemas, sized) = match bench.kind {
        Kind::Kvs => tables(&bench.make_kvs()?),
        Kind::Tatp => tables(&bench.make::<Tatp>()?),
        Kind::Tpcc => tables(&bench.make_tpcc()?),
        Kind::SmallBank => tables(&bench.make::<SmallBank>()?),
        Kind::Ycsb => tables(&bench.make_ycsb()?),
        Kind::TaoBench => tables(&bench.make::<TaoBench>()?),
    };
    let ordered = schemas.iter().find(|schema| !schema.indexes.is_empty());
    if let (Some(schema), false) = (ordered, protocol.info().caps.ranges) {
        let (name, table) = (protocol.info().name, &schema.name);
        return Err(Missing(format!("{name} has no ordered indexes yet, which {table} has")));
    }
    let options = Options {
        placement: layout.placement,
        bucket: layout.bucket,
        slots_per_100_records: layout.slots_per_100_records,
        coordinators_max: coordinators.iter().copied().max().unwrap_or(1) as u32,
        layout: layout.asked(),
        ..sized
    };
    Ok(protocol.catalog(&schemas, &options, memory_nodes)?)
}

/// Returns the protocol that a system uses.
///
/// # Errors
/// Fails if the protocol is not available yet, or has no such variant.
pub fn there(system: &System) -> Result<AnyProtocol, Missing> {
    AnyProtocol::by_name(system.protocol, system.variant).map_err(|error| {
        match error.field.as_ref() {
            "protocol" => Missing(format!("{} is not there yet ({error})", system.protocol)),
            _ => error.into(),
        }
    })
}

fn tables<W: Workload>(workload: &W) -> (Vec<TableSchema>, Options) {
    (workload.schemas(), workload.sized(&Options::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::paper::data::by_name;

    #[test]
    fn equal_cases_become_one_with_all_points() {
        let paper = by_name("lotus").expect("a paper");
        let of = |updates: u32, coordinators: &[usize]| {
            let text = format!("FORD KVS zipf=0 updates={updates} @best_form");
            let case = paper.case(&paper.extent.quick, &text).expect("a case");
            Case { coordinators: coordinators.into(), ..case }
        };
        let merged = merged(vec![of(0, &[18, 9]), of(50, &[9]), of(0, &[9, 27])]);
        assert_eq!(merged.len(), 2);
        assert_eq!(merged[0].coordinators, [9, 18, 27]);
        assert_eq!(merged[0].bench.loads_as(), merged[1].bench.loads_as());
    }
}
