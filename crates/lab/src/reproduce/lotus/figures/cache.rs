//! Figure 18: TATP by the number of version tables that a compute node remembers.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::CACHE;
use super::{Done, Jobs, Section, over, p99, peak, quotient, throughput};
use crate::reproduce::curve::Point;
use crate::reproduce::paper::case::Case;
use crate::reproduce::paper::sheet::{Answer, Picture};
use crate::sweep::chart::{Chart, Line, Mark, Scale};

pub(super) const SECTION: Section = Section {
    name: "fig-18",
    title: "Figure 18: TATP by the size of the version table cache",
    targets: CACHE,
    jobs,
    fill,
};

/// From smallest to largest; the last is what the paper calls its maximum, and has everywhere else.
const ENTRIES_RUN: [usize; 4] = [1 << 10, 1 << 12, 1 << 14, 1 << 16];
const SMALLEST: usize = ENTRIES_RUN[0];
const LARGEST: usize = ENTRIES_RUN[ENTRIES_RUN.len() - 1];

fn case(extent: &Extent, form: Form, entries: usize) -> Case {
    // Conflicts are few there: the most coordinators load the memory nodes most.
    let most: Vec<usize> = extent.scale.coordinators.last().copied().into_iter().collect();
    let mut case = Case::of(extent.tatp(), (Who::Lotus, form), &most);
    case.system.version_cache_entries = entries;
    case
}

fn jobs(extent: &Extent) -> Jobs {
    // The drawing is of one form; rows compare the ends.
    let between = ENTRIES_RUN.map(|entries| case(extent, Form::Corrected, entries));
    let ends = |form| [SMALLEST, LARGEST].map(|entries| case(extent, form, entries));
    let ends = [Form::Literal, Form::Best].into_iter().flat_map(ends);
    Jobs { cases: between.into_iter().chain(ends).collect(), ..Jobs::default() }
}

/// Of the version tables that were asked for, the part that was remembered.
fn hit_rate(point: &Point) -> f64 {
    point.remembered.unwrap_or(0.0)
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let Done { extent, runs, .. } = *done;
    let compared =
        |form, of| over(runs, (&case(extent, form, LARGEST), &case(extent, form, SMALLEST)), of);
    sheet.fill("TATP", "throughput, largest cache over smallest", &|form| {
        compared(form, throughput)
    });
    sheet.fill("TATP", "99th percentile, largest cache over smallest", &|form| compared(form, p99));
    sheet.fill("TATP", "hit rate, largest cache over smallest", &|form| -> Answer {
        let (large, small) = (case(extent, form, LARGEST), case(extent, form, SMALLEST));
        let (large, small) = (runs.series(&large)?, runs.series(&small)?);
        quotient((large.name, peak(large)?), (small.name, peak(small)?), hit_rate)
    });
    draw(done, sheet);
    sheet.note("when a point begins, nodes remember the tables of the records with which their last transactions began");
}

fn draw(done: &Done<'_>, sheet: &mut Sheet) {
    let line = |(colour, name, of): (usize, &str, fn(&Point) -> f64)| {
        let mark = |entries: usize| {
            let series = done.runs.series(&case(done.extent, Form::Corrected, entries)).ok()?;
            let point = series.peak()?;
            let title = format!(
                "{entries} tables: {:.0} % remembered, {:.3} M transactions/s, p99 {:.1} µs",
                hit_rate(point) * 100.0,
                point.throughput_per_s / 1e6,
                point.latency_us.p99
            );
            Some(Mark { x: entries as f64, y: of(point), title })
        };
        let marks = ENTRIES_RUN.into_iter().filter_map(mark).collect();
        Line { name: name.to_owned(), colour, dashed: false, marks }
    };
    let lines = [
        (0, "part of the tables that is remembered", hit_rate as fn(&Point) -> f64),
        (1, "M transactions/s", |point| point.throughput_per_s / 1e6),
        (2, "99th percentile, 10 µs", |point| point.latency_us.p99 / 10.0),
    ];
    sheet.draw(Picture::Lines(Chart {
        title: "TATP: what a larger cache brings".into(),
        x_name: "version tables that each compute node remembers".into(),
        y_name: "see the names".into(),
        x_scale: Scale::Number,
        y_may_be_logarithmic: false,
        lines: lines.into_iter().map(line).collect(),
    }));
}
