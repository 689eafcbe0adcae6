//! Figure 14: from Motor to LOTUS in five steps, each over the one before it.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::ABLATION;
use super::{Done, Jobs, Section, over, p99, throughput};
use crate::reproduce::paper::bars::Bars;
use crate::reproduce::paper::case::{Bench, Case, Missing};
use crate::reproduce::paper::sheet::Picture;

pub(super) const SECTION: Section = Section {
    name: "fig-14",
    title: "Figure 14: from Motor to LOTUS, step by step",
    targets: ABLATION,
    jobs,
    fill,
};

const STEPS: [&str; 6] = [
    "Motor",
    "full records",
    "log and visible",
    "lock sharding",
    "two-level load balancing",
    "the version table cache",
];

/// A step's system; its switches are those of the protocols that have them.
fn step(bench: Bench, at: usize, form: Form, coordinators: &[usize]) -> Case {
    let of = |who| Case::of(bench, (who, form), coordinators);
    let is_literal = form == Form::Literal;
    match at {
        0 => of(Who::Motor),
        1 => of(Who::Motor).with(
            "Motor + full records",
            "every version whole instead of deltas",
            "measured,-deltas",
        ),
        2 => of(Who::Motor).with(
            "Motor + full records + log and visible",
            "and a log, and a round in which the new versions are made visible",
            "measured,-deltas,-at-once,+undo-log",
        ),
        3 if is_literal => of(Who::Lotus)
            .with(
                "LOTUS, literal, no routing, no cache",
                "locks in compute nodes",
                "literal,-version-cache",
            )
            .unrouted(),
        3 => of(Who::Lotus)
            .with(
                "LOTUS, no routing, no cache",
                "locks in compute nodes",
                "corrected,-version-cache",
            )
            .unrouted(),
        4 if is_literal => of(Who::Lotus).with(
            "LOTUS, literal, no cache",
            "routing; shards stay where they are",
            "literal,-version-cache",
        ),
        4 => of(Who::Lotus).with(
            "LOTUS, no cache",
            "routing; shards stay where they are",
            "corrected,-version-cache",
        ),
        _ if is_literal => of(Who::Lotus).with(
            "LOTUS, literal, with its cache",
            "and tables of versions in compute nodes",
            "literal",
        ),
        _ => of(Who::Lotus).with(
            "LOTUS, with its cache",
            "and tables of versions in compute nodes",
            "corrected",
        ),
    }
}

fn steps(bench: Bench, form: Form, coordinators: &[usize]) -> Vec<Case> {
    (0..STEPS.len()).map(|at| step(bench, at, form, coordinators)).collect()
}

fn jobs(extent: &Extent) -> Jobs {
    let both = |bench: Bench| {
        let coordinators = extent.coordinators(bench.kind);
        [Form::Literal, Form::Corrected].map(|form| steps(bench, form, coordinators))
    };
    let cases = extent.benchmarks().into_iter().flat_map(both).flatten().collect();
    Jobs { cases, ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let compared = |bench, at, form, of| match form {
        Form::Best => Err(Missing("the steps are run on tables of one node alone".into())),
        _ => {
            let step = |at| step(bench, at, form, &[]);
            over(done.runs, (&step(at), &step(at - 1)), of)
        }
    };
    for bench in done.extent.benchmarks() {
        let workload = bench.kind.name();
        for (at, step) in STEPS.iter().enumerate().skip(1) {
            let metric = format!("throughput with {step}");
            sheet.fill(workload, &metric, &|form| compared(bench, at, form, throughput));
        }
    }
    let bank = done.extent.bank();
    sheet.fill("SmallBank", "99th percentile with lock sharding", &|form| {
        compared(bank, 3, form, p99)
    });
    draw(done, sheet);
}

fn draw(done: &Done<'_>, sheet: &mut Sheet) {
    let benches = done.extent.benchmarks();
    let peak = |bench, at| {
        let series = done.runs.series(&step(bench, at, Form::Corrected, &[])).ok()?;
        series.peak().map(|point| point.throughput_per_s / 1e6)
    };
    let series = STEPS.iter().enumerate().map(|(at, name)| {
        let name = if at == 0 { (*name).to_owned() } else { format!("+ {name}") };
        (name, benches.iter().map(|bench| peak(*bench, at)).collect())
    });
    sheet.draw(Picture::Bars(Bars {
        title: "Highest throughput after each step".into(),
        y_name: "M transactions/s".into(),
        groups: benches.iter().map(|bench| bench.kind.name().to_owned()).collect(),
        series: series.collect(),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::paper::case::Kind;
    use tarn_engine::cluster::info::Switches;
    use tarn_engine::protocol::AnyProtocol;

    /// A step that changes nothing would be given a gain of chance.
    #[test]
    fn each_step_is_another_system_than_the_one_before() {
        let bench = Extent::quick().benchmarks()[0];
        assert_ne!(bench.kind, Kind::Kvs);
        for form in [Form::Literal, Form::Corrected] {
            let what = |case: Case| {
                let system = case.system;
                let protocol = AnyProtocol::by_name(system.protocol, "corrected");
                let info = protocol.expect("a protocol").info();
                let on = Switches::parse(&info, system.variant);
                let on = on.expect("every step's switches are there");
                (system.protocol, on, system.is_routed)
            };
            let all: Vec<_> = steps(bench, form, &[]).into_iter().map(what).collect();
            assert!(all.is_sorted_by(|one, next| one != next), "{form:?}: {all:?}");
        }
    }
}
