//! Figure 12: one record a transaction, skewed and uniform, at all ratios of updates.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::KVS;
use super::{
    Done, Jobs, SYSTEMS, Section, extreme, in_all_forms, less, median, more, name_of, throughput,
    versus_at,
};
use crate::reproduce::curve::Point;
use crate::reproduce::paper::case::{Bench, Case};
use crate::reproduce::paper::sheet::Answer;

pub(super) const SECTION: Section = Section {
    name: "fig-12",
    title: "Figure 12: KVS, throughput and median latency by share of updates",
    targets: KVS,
    jobs,
    fill,
};

const SKEWS: [(&str, f64); 2] = [("KVS, Zipf .99", 0.99), ("KVS, uniform", 0.0)];

fn benches(extent: &Extent, zipf: f64) -> Vec<Bench> {
    extent.updates.iter().map(|updates| extent.kvs(zipf, *updates)).collect()
}

fn jobs(extent: &Extent) -> Jobs {
    let benches = SKEWS.into_iter().flat_map(|(_, zipf)| benches(extent, zipf));
    let cases = benches.flat_map(|it| in_all_forms(it, &SYSTEMS, &extent.scale.coordinators));
    Jobs { cases: cases.collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let extent = done.extent;
    let most = extent.scale.coordinators.iter().copied().max().unwrap_or(1);
    for (workload, zipf) in SKEWS {
        let benches = benches(extent, zipf);
        for other in [Who::Motor, Who::Ford] {
            let name = name_of(other);
            let answers = |form, of| -> Vec<Answer> {
                benches
                    .iter()
                    .map(|bench| versus_at(done, most, *bench, (other, form), of))
                    .collect()
            };
            let mut range = |what: &str, of: fn(&Point) -> f64, ends: [fn(f64, f64) -> bool; 2]| {
                for (end, is_better) in ["lowest", "highest"].into_iter().zip(ends) {
                    let metric = format!("{what} {name}'s, {end} of all ratios");
                    sheet.fill(workload, &metric, &|form| {
                        extreme(answers(form, of).into_iter(), is_better)
                    });
                }
            };
            range("throughput over", throughput, [less, more]);
            // The lowest cut is the largest factor.
            range("median latency below", median, [more, less]);
        }
        for form in [Form::Corrected, Form::Best] {
            draw(done, sheet, (workload, zipf), (form, most));
        }
    }
    sheet.note(format!(
        "all systems with {most} transactions at once, the most that were run. The paper does not say how many; \
         but its factors of throughput and of latency are inverse of one another (1.6 and 44 %, 2.9 and 64 %, 10.6 and \
         90 %), as they are where equally many run, and not where each is at its own peak"
    ));
}

/// With so many at once, by share of updates.
fn draw(
    done: &Done<'_>,
    sheet: &mut Sheet,
    (workload, zipf): (&str, f64),
    (form, most): (Form, usize),
) {
    use crate::reproduce::paper::bars::Bars;
    use crate::reproduce::paper::sheet::Picture;
    let benches = benches(done.extent, zipf);
    let bars = |title: String, y_name: &str, of: &dyn Fn(&Point) -> f64| {
        let value = |case: &Case| {
            let series = done.runs.series(case).ok()?;
            series.at(most).map(of)
        };
        let series = SYSTEMS.map(|who| {
            let values =
                benches.iter().map(|bench| value(&Case::of(*bench, (who, form), &[]))).collect();
            (who.system(form).name.to_owned(), values)
        });
        let groups = done.extent.updates.iter().map(|it| format!("{it} %")).collect();
        Picture::Bars(Bars { title, y_name: y_name.to_owned(), groups, series: series.into() })
    };
    let title = format!("{workload}, {most} at once: throughput by share of updates");
    sheet.draw(bars(title, "M transactions/s", &|point| point.throughput_per_s / 1e6));
    let title = format!("{workload}, {most} at once: median latency");
    sheet.draw(bars(title, "median latency, µs", &median));
}
