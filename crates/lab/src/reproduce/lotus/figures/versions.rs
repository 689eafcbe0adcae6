//! Figures 19 and 20: TATP and TPC-C by the number of versions of a record.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::VERSIONS;
use super::{Done, Jobs, Section, busy, extreme, less, name_of, over, peak, throughput};
use crate::reproduce::curve::Point;
use crate::reproduce::paper::case::{Bench, Case, Missing};
use crate::reproduce::paper::sheet::{Answer, Found, Picture};
use crate::sweep::chart::{Chart, Line, Mark, Scale};

pub(super) const SECTION: Section = Section {
    name: "fig-19",
    title: "Figures 19 and 20: TATP and TPC-C by the number of versions",
    targets: VERSIONS,
    jobs,
    fill,
};

/// From fewest to most.
const VERSIONS_RUN: [u8; 4] = [1, 2, 3, 4];
const FEWEST: u8 = VERSIONS_RUN[0];
const MOST: u8 = VERSIONS_RUN[VERSIONS_RUN.len() - 1];
const BOTH: [Who; 2] = [Who::Lotus, Who::Motor];

fn case(bench: Bench, (who, form): (Who, Form), versions: u8, coordinators: &[usize]) -> Case {
    let mut case = Case::of(bench, (who, form), coordinators);
    case.layout.versions = versions;
    case
}

/// At the most coordinators alone: conflicts are what more versions are for.
fn coordinators(extent: &Extent, bench: Bench) -> Vec<usize> {
    extent.most(bench.kind)
}

fn benches(extent: &Extent) -> [Bench; 2] {
    [extent.tatp(), extent.tpcc()]
}

fn jobs(extent: &Extent) -> Jobs {
    let mut cases = Vec::new();
    for bench in benches(extent) {
        for who in BOTH {
            for form in Form::ALL {
                let of =
                    |versions: u8| case(bench, (who, form), versions, &coordinators(extent, bench));
                cases.extend(VERSIONS_RUN.map(of));
            }
        }
    }
    Jobs { cases, ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let of = |bench, who, form, versions| case(bench, (who, form), versions, &[]);
    let [tatp, tpcc] = benches(extent);
    for who in BOTH {
        let name = name_of(who);
        let metric = format!("{name}'s throughput, most versions over fewest");
        sheet.fill("TATP", &metric, &|form| {
            over(runs, (&of(tatp, who, form, MOST), &of(tatp, who, form, FEWEST)), throughput)
        });
        sheet.fill("TPC-C", &format!("{name}'s peak is at"), &|form| -> Answer {
            let mut best: Option<(f64, Found)> = None;
            for versions in VERSIONS_RUN {
                let series = runs.series(&of(tpcc, who, form, versions))?;
                let point = peak(series)?;
                if best.as_ref().is_none_or(|(known, _)| throughput(point) > *known) {
                    let found =
                        Found { value: f64::from(versions), busy: busy(series.name, point) };
                    best = Some((throughput(point), found));
                }
            }
            Ok(best.expect("several numbers are run").1)
        });
    }
    for bench in [tatp, tpcc] {
        sheet.fill(bench.kind.name(), "throughput over Motor's, lowest", &|form| {
            let at = |versions| {
                let pair = (
                    &of(bench, Who::Lotus, form, versions),
                    &of(bench, Who::Motor, form, versions),
                );
                over(runs, pair, throughput)
            };
            extreme(VERSIONS_RUN.map(at).into_iter(), less)
        });
        draw(done, sheet, bench);
    }
    for (metric, versions) in [
        ("Stock-Levels aborted, fewest versions", FEWEST),
        ("Stock-Levels aborted, most versions", MOST),
    ] {
        sheet.fill("TPC-C", metric, &|form| {
            runs.series(&of(tpcc, Who::Lotus, form, versions))?;
            Err(Missing("aborted tries are not counted by kind of transaction".into()))
        });
    }
    let at = |bench| coordinators(extent, bench).iter().sum::<usize>();
    let (at_tatp, at_tpcc) = (at(tatp), at(tpcc));
    sheet.note(format!("every point at {at_tatp} coordinators on TATP, {at_tpcc} on TPC-C"));
}

fn draw(done: &Done<'_>, sheet: &mut Sheet, bench: Bench) {
    let mark = |who, versions: u8| {
        let case = case(bench, (who, Form::Corrected), versions, &[]);
        let series = done.runs.series(&case).ok()?;
        let point: &Point = series.peak()?;
        let title = format!("{}, {versions} versions\n{}", series.name, point.limits());
        Some(Mark { x: f64::from(versions), y: point.throughput_per_s / 1e6, title })
    };
    let line = |(colour, who): (usize, Who)| {
        let marks = VERSIONS_RUN.iter().filter_map(|versions| mark(who, *versions)).collect();
        Line { name: name_of(who).to_owned(), colour, dashed: false, marks }
    };
    sheet.draw(Picture::Lines(Chart {
        title: format!("{}: throughput by number of versions", bench.kind.name()),
        x_name: "versions of a record".into(),
        y_name: "M transactions/s".into(),
        x_scale: Scale::Number,
        y_may_be_logarithmic: false,
        lines: BOTH.into_iter().enumerate().map(line).collect(),
    }));
}
