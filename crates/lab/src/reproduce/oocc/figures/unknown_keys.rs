//! Section VIII-C: transactions that read two records to know two others.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::UNKNOWN_KEYS;
use super::{
    Done, Jobs, Section, everybody, everybody_as, median, p99, throughput, throughput_latency,
    versus, versus_lowest,
};

pub(super) const SECTION: Section = Section {
    name: "unknown",
    title: "Section VIII-C: two keys that are known by reading two others, 5 % write",
    targets: UNKNOWN_KEYS,
    jobs,
    fill,
};

fn jobs(extent: &Extent) -> Jobs {
    Jobs { cases: everybody(extent.ycsb_unknown(), extent.coordinators()), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (bench, runs) = (done.extent.ycsb_unknown(), done.runs);
    let workload = "YCSB, half of the keys unknown";
    for other in Who::OTHERS {
        let metric = format!("throughput over {}'s", other.name());
        sheet.fill(workload, &metric, &|form| versus(runs, bench, (other, form), throughput));
    }
    sheet.fill(workload, "median latency over the lowest of the others", &|form| {
        versus_lowest(runs, bench, form, median)
    });
    sheet.fill(workload, "99th percentile over the lowest of the others", &|form| {
        versus_lowest(runs, bench, form, p99)
    });
    let title = "YCSB, half of the keys unknown";
    sheet.draw(throughput_latency(runs, &everybody_as(Form::Corrected, bench, &[]), title));
    sheet.note("the introduction says \"up to 1.5×\" of such transactions, section VIII-C 1.7 to 2.3: the latter is held here");
}
