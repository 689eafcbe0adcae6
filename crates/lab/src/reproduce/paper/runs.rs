//! Runs the cases of a page: each database loaded once, and as many at a time in this machine's memory as it has
//! threads to run them: one, but in a smoke run.
//!
//! Invariant: a case whose protocol, variant or layout is not there comes out as missing, with the
//! registry's words; nothing is loaded for it. Systems that must be sound run first and are judged before the rest.

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

/// The ground of all runs, whichever cases run.
pub struct Ground<'a> {
    /// The machines.
    pub testbed: &'a Testbed,
    /// Lengths of points by benchmark.
    pub scales: &'a [(Kind, Scale)],
    /// Of every generator.
    pub seed: u64,
    /// The supposition of this run, which changes all cases.
    pub what_if: &'a (dyn Fn(&mut Case) + Sync),
    /// Whether a history or a memory of a system that is not sound is a failure.
    pub must_be_sound: &'a (dyn Fn(&System) -> bool + Sync),
    /// Threads of this machine, each with a database of its own in memory.
    pub threads: usize,
    /// The receiver of progress.
    pub watch: &'a dyn Watch,
}

/// Does the work on every item, on the ground's threads, of which the caller's is one and tells; returns the results in order.
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
    /// A case with the run's suppositions.
    pub(super) fn supposed(&self, case: &Case) -> Case {
        let mut case = case.clone();
        (self.what_if)(&mut case);
        case
    }
}

/// A case that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Ran {
    /// The benchmark.
    pub bench: Bench,
    /// The system's protocol.
    #[serde(skip)]
    pub protocol: &'static str,
    /// The layout's name.
    pub layout: &'static str,
    /// The points.
    pub series: Series,
    /// Whether a history or a memory that is not sound is a failure.
    pub must_be_sound: bool,
}

/// See the module's text.
#[derive(Default)]
pub struct Runs {
    cases: Vec<(Case, Result<Ran, Missing>)>,
    /// Crashes that were let happen.
    pub crashes: Vec<(Crash, Result<Crashed, Missing>)>,
    /// Hotspots that were dealt out.
    pub hotspots: Vec<(Heating, Result<Heated, Missing>)>,
    /// Leases that were adjusted.
    pub adjustments: Vec<(Adjusting, Result<Adjusted, Missing>)>,
    /// Verdicts on memory.
    pub judged: Vec<Judged>,
    /// Runs that failed although they should have been possible.
    pub failures: Vec<String>,
}

impl Runs {
    /// The curve of a case; it may have more points than were asked for.
    ///
    /// # Errors
    /// Why there is none.
    pub fn series(&self, case: &Case) -> Result<&Series, Missing> {
        let found = self.cases.iter().find(|(it, _)| it.is_like(case));
        match found {
            Some((_, Ok(ran))) => Ok(&ran.series),
            Some((_, Err(missing))) => Err(missing.clone()),
            None => Err(Missing(format!("{} was not asked for", case.system.name))),
        }
    }

    /// All that ran.
    pub fn ran(&self) -> impl Iterator<Item = &Ran> {
        self.cases.iter().filter_map(|(_, ran)| ran.as_ref().ok())
    }

    /// Runs cases; equal ones once.
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

    /// Runs cases of one database.
    fn on_one_load<W: Workload>(
        &mut self,
        group: &[Case],
        make: &dyn Fn(&Bench) -> Result<W, UsageError>,
        ground: &Ground<'_>,
    ) -> Result<(), RunError> {
        let &Ground { testbed, scales, seed, watch, must_be_sound, .. } = ground;
        let mut first = ground.supposed(&group[0]);
        // Routed systems need more coordinators: the database has room for them whichever system comes first.
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
            // One that goes on counts on: the keys that it generates are in the database once.
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

/// Whether it isolates nothing.
fn is_unsafe(system: &System) -> bool {
    let protocol = AnyProtocol::by_name(system.protocol, system.variant);
    protocol.is_ok_and(|protocol| protocol.unsafe_without().is_some())
}

/// Equal cases become one, with the points of all.
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

/// The plan of a case's database, if all of it is there.
///
/// # Errors
/// A protocol, variant, benchmark or layout that is not there.
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

/// The protocol of a system.
///
/// # Errors
/// It is not there yet, or has no such variant.
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
