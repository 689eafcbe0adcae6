//! Figure 11: from OCC to OOCC in three steps, under contention.

use super::super::Sheet;
use super::super::entrant::{Form, STEPS, step};
use super::super::extent::Extent;
use super::super::targets::ABLATION;
use super::{
    Bench, Case, Done, Jobs, OfPoint, Section, aborted, bars, drawn, millions, of_one, over,
    throughput,
};
use crate::reproduce::curve::Point;

pub(super) const SECTION: Section = Section {
    name: "fig-11",
    title: "Figure 11: lease, write unlock, delayed lock; by share of writes and by skew",
    targets: ABLATION,
    jobs,
    fill,
};

/// Of the read-intensive workload.
const READ_INTENSIVE: u32 = 10;
/// At which the lease alone gains nothing.
const FEW: u32 = 5;

/// By share of writes, at the most skew.
fn by_writes(extent: &Extent) -> Vec<(String, Bench)> {
    let each = extent.writes.iter();
    each.map(|writes| (format!("{writes} %"), extent.ycsb(Extent::MOST_SKEWED, *writes))).collect()
}

/// By skew, read-intensive.
fn by_skew(extent: &Extent) -> Vec<(String, Bench)> {
    let each = extent.skews.iter();
    each.map(|zipf| (zipf.to_string(), extent.ycsb(*zipf, READ_INTENSIVE))).collect()
}

fn jobs(extent: &Extent) -> Jobs {
    let benches = by_writes(extent).into_iter().chain(by_skew(extent));
    let few = &extent.few_coordinators;
    let steps = |(_, bench)| {
        let of = move |form: &Form| (0..STEPS.len()).map(move |at| (at, *form)).collect::<Vec<_>>();
        Form::ALL.iter().flat_map(of).map(move |at| step(bench, at, few))
    };
    Jobs { cases: benches.flat_map(steps).collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let gain = |form, writes, (one, other), of: OfPoint| {
        let bench = extent.ycsb(Extent::MOST_SKEWED, writes);
        over(runs, (&step(bench, (one, form), &[]), &step(bench, (other, form), &[])), of)
    };
    let reads = "YCSB, Zipf .99, read-only";
    sheet.fill(reads, "+ lease over OCC", &|form| gain(form, 0, (1, 0), throughput));
    let few = "YCSB, Zipf .99, 5 % write";
    sheet.fill(few, "+ lease over OCC", &|form| gain(form, FEW, (1, 0), throughput));
    sheet.fill(few, "+ write unlock over + lease", &|form| gain(form, FEW, (2, 1), throughput));
    sheet.fill(few, "+ delayed lock over + write unlock", &|form| {
        gain(form, FEW, (3, 2), throughput)
    });
    let many = "YCSB, Zipf .99, read-intensive";
    let most = READ_INTENSIVE;
    sheet.fill(many, "+ lease over OCC", &|form| gain(form, most, (1, 0), throughput));
    sheet.fill(many, "+ write unlock over + lease", &|form| gain(form, most, (2, 1), throughput));
    sheet.fill(many, "aborted tries with + lease", &|form| {
        let bench = extent.ycsb(Extent::MOST_SKEWED, most);
        of_one(runs, &step(bench, (1, form), &[]), &percent_aborted)
    });
    sheet.fill(many, "aborted tries with + lease below OCC's", &|form| {
        gain(form, most, (1, 0), aborted)
    });
    sheet.fill(many, "aborted tries with + delayed lock below OCC's", &|form| {
        gain(form, most, (3, 0), aborted)
    });
    draw(done, sheet);
    sheet.note(
        "write unlock needs all of a transaction on one node, which one of several keys seldom has (--suppose operations=1). \
         \"Drop about 10 %\" and \"17 %\" of aborts are taken for parts of OCC's. The bound without checks is plotted only",
    );
}

fn percent_aborted(point: &Point) -> f64 {
    point.conflict_rate * 100.0
}

fn draw(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let drawn = |benches: &[(String, Bench)], of: OfPoint| -> Vec<(String, Vec<Option<f64>>)> {
        let value = |case: &Case| drawn(runs, case, &of);
        let each = |(at, name): (usize, &&str)| {
            let values =
                benches.iter().map(|(_, bench)| value(&step(*bench, (at, Form::Corrected), &[])));
            ((*name).to_owned(), values.collect())
        };
        STEPS.iter().enumerate().map(each).collect()
    };
    let groups = |benches: &[(String, Bench)]| benches.iter().map(|it| it.0.clone()).collect();
    let (writes, skews) = (by_writes(extent), by_skew(extent));
    let unit = "M transactions/s";
    let title = "Zipf .99: throughput by share of writes";
    sheet.draw(bars(title, unit, groups(&writes), drawn(&writes, millions)));
    let title = "Read-intensive: throughput by skew";
    sheet.draw(bars(title, unit, groups(&skews), drawn(&skews, millions)));
    let title = "Read-intensive: aborted tries by skew";
    sheet.draw(bars(title, "%", groups(&skews), drawn(&skews, percent_aborted)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::paper::Portion as _;

    /// A step that changes nothing would be given a gain of chance.
    #[test]
    fn each_step_is_another_system_than_the_one_before() {
        let bench = Extent::quick().ycsb(Extent::MOST_SKEWED, FEW);
        for form in Form::ALL {
            let of = |at| {
                let system = step(bench, (at, form), &[]).system;
                (system.protocol, system.variant)
            };
            assert!((1..STEPS.len()).all(|at| of(at) != of(at - 1)));
            assert_eq!(of(0), ("occ", form.variant()));
            assert_eq!(of(STEPS.len() - 1), ("oocc", form.variant()));
        }
    }
}
