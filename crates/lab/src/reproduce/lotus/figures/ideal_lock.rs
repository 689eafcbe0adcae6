//! Figure 17: LOTUS against an idealised lock: a counter in each compute node, and an FAA at the memory node
//! when it goes from or to zero.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::IDEAL_LOCK;
use super::{Done, Jobs, Section, extreme, less, more, over, throughput, throughput_latency};
use crate::reproduce::paper::case::{Bench, Case};
use crate::reproduce::paper::sheet::Answer;

pub(super) const SECTION: Section = Section {
    name: "fig-17",
    title: "Figure 17: an ideal lock by FAA",
    targets: IDEAL_LOCK,
    jobs,
    fill,
};

fn ideal(bench: Bench, form: Form, coordinators: &[usize]) -> Case {
    let about = "counters of locks in compute nodes, FAA at memory nodes from and to zero";
    let case = Case::of(bench, (Who::Lotus, form), coordinators);
    match form {
        Form::Literal => case.with("ideal lock, literal", about, "literal,-locks-apart"),
        Form::Corrected => case.with("ideal lock", about, "corrected,-locks-apart"),
        Form::Best => case.with("ideal lock, hash placement", about, "corrected,-locks-apart"),
    }
}

fn jobs(extent: &Extent) -> Jobs {
    let both = |bench: Bench, form| {
        let coordinators = extent.coordinators(bench.kind);
        [ideal(bench, form, coordinators), Case::of(bench, (Who::Lotus, form), coordinators)]
    };
    let benches = extent.benchmarks().into_iter();
    let each = benches.flat_map(|bench| Form::ALL.map(|form| both(bench, form)));
    Jobs { cases: each.flatten().collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let answers = |form| {
        let of = |bench| -> Answer {
            let lotus = Case::of(bench, (Who::Lotus, form), &[]);
            over(done.runs, (&lotus, &ideal(bench, form, &[])), throughput)
        };
        done.extent.benchmarks().map(of).into_iter()
    };
    let workload = IDEAL_LOCK[0].workload;
    sheet.fill(workload, "throughput over the ideal lock's, lowest", &|form| {
        extreme(answers(form), less)
    });
    sheet.fill(workload, "throughput over the ideal lock's, highest", &|form| {
        extreme(answers(form), more)
    });
    for bench in done.extent.benchmarks() {
        let cases = [
            Case::of(bench, (Who::Lotus, Form::Corrected), &[]),
            ideal(bench, Form::Corrected, &[]),
        ];
        let title = format!("{}: LOTUS and the ideal lock", bench.kind.name());
        sheet.draw(throughput_latency(done.runs, &cases, &title));
    }
}
