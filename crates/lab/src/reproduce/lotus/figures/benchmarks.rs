//! Figure 13: TATP, TPC-C and SmallBank over 9 to 540 concurrent transactions.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::BENCHMARKS;
use super::{
    Done, Jobs, OfPoint, SYSTEMS, Section, in_all_forms, median, name_of, p99, throughput,
    throughput_latency, versus, versus_loaded,
};
use crate::reproduce::paper::case::Case;

pub(super) const SECTION: Section = Section {
    name: "fig-13",
    title: "Figure 13: throughput and latency on TATP, TPC-C and SmallBank",
    targets: BENCHMARKS,
    jobs,
    fill,
};

fn jobs(extent: &Extent) -> Jobs {
    let benches = extent.benchmarks().into_iter();
    let cases = benches.flat_map(|it| in_all_forms(it, &SYSTEMS, extent.coordinators(it.kind)));
    Jobs { cases: cases.collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    for bench in done.extent.benchmarks() {
        let workload = bench.kind.name();
        for other in [Who::Motor, Who::Ford] {
            let name = name_of(other);
            let metric = format!("highest throughput over {name}'s");
            sheet.fill(workload, &metric, &|form| versus(done, bench, (other, form), throughput));
            let latencies: [(&str, OfPoint); 2] =
                [("median latency", median), ("99th percentile", p99)];
            for (what, of) in latencies {
                let metric = format!("{what} there below {name}'s");
                sheet
                    .fill(workload, &metric, &|form| versus_loaded(done, bench, (other, form), of));
            }
        }
        let measured = [
            (Who::Lotus, Form::Corrected),
            (Who::Lotus, Form::Literal),
            (Who::Motor, Form::Corrected),
            (Who::Ford, Form::Corrected),
        ];
        let of = |list: &[(Who, Form)]| -> Vec<Case> {
            list.iter().map(|entrant| Case::of(bench, *entrant, &[])).collect()
        };
        let title = format!("{workload}, baselines as they were measured");
        sheet.draw(throughput_latency(done.runs, &of(&measured), &title));
        let best = SYSTEMS.map(|who| (who, Form::Best));
        let title = format!("{workload}, everybody corrected and spread by hash");
        sheet.draw(throughput_latency(done.runs, &of(&best), &title));
    }
    sheet.note(
        "latencies are those of the most transactions at once with 95 % of the highest throughput: a curve is flat \
         from its saturation on. Published factors of throughput and latency multiply to 0.8 to 1.6, so that \
         about equally many ran",
    );
}
