//! Makes the drawings that a page's data file describes: bars and lines of measures, curves of all points, and
//! crashes over time.
//!
//! Invariant: no two drawings of one page have the same title. If a value is missing, its place in the drawing stays
//! empty.

use super::bars::Bars;
use super::case::Case;
use super::data::{Curves, Entries, Grid, Section, combinations, filled};
use super::occasion::Crashed;
use super::sheet::Picture;
use super::value::{Done, measure};
use crate::reproduce::curve::Point;
use crate::reproduce::text::Text;
use crate::sweep::chart::{Chart, Line, Mark, Scale};

impl Done<'_> {
    /// Returns all drawings of a section that contain at least one value.
    pub(super) fn pictures(&self, section: &Section) -> Vec<Picture> {
        let timeline = section.timeline.map(|title| self.timeline(&title));
        let grids = section.grids.iter().map(|grid| self.grid(grid));
        let curves = section.curves.iter().map(|curves| self.curves(curves));
        grids.chain(curves).chain(timeline).filter(|picture| !picture.is_empty()).collect()
    }

    fn entries(&self, entries: &Entries) -> Vec<Vec<String>> {
        let of = |values: Vec<(Text, Text)>| {
            let each = entries.of.iter();
            each.map(|entry| entry.iter().map(|text| filled(text, &values)).collect())
                .collect::<Vec<_>>()
        };
        combinations(&entries.each, self.extent).into_iter().flat_map(of).collect()
    }

    fn grid(&self, grid: &Grid) -> Picture {
        let groups = self.entries(&grid.groups);
        let title = self.told(&grid.title);
        let value = |series: &[String], group: &[String]| {
            let of = series.get(2).map_or(&*grid.of, |of| of.as_str());
            self.measured(of, &format!("{} {}", series[1], group[1]), grid.at).ok()
        };
        let series = self.entries(&grid.series);
        let Some(x_name) = grid.x_name else {
            let each = series.iter().map(|it| {
                let values = groups.iter().map(|group| value(it, group).map(|found| found.value));
                (it[0].clone(), values.collect())
            });
            return Picture::Bars(Bars {
                title,
                y_name: grid.y_name.to_string(),
                groups: groups.iter().map(|group| group[0].clone()).collect(),
                series: each.collect(),
            });
        };
        let line = |(colour, it): (usize, &Vec<String>)| {
            let mark = |group: &Vec<String>| {
                let found = value(it, group)?;
                let title = format!("{}, {} {x_name}\n{}", it[0], group[0], found.busy);
                Some(Mark { x: group[0].parse().ok()?, y: found.value, title })
            };
            let mut marks: Vec<Mark> = groups.iter().filter_map(mark).collect();
            marks.sort_by(|one, other| one.x.total_cmp(&other.x));
            Line { name: it[0].clone(), colour, dashed: false, marks }
        };
        Picture::Lines(Chart {
            title,
            x_name: x_name.to_string(),
            y_name: grid.y_name.to_string(),
            x_scale: Scale::Number,
            y_may_be_logarithmic: false,
            lines: series.iter().enumerate().map(line).collect(),
        })
    }

    fn curves(&self, curves: &Curves) -> Picture {
        let texts = curves.case.iter().flat_map(|case| {
            combinations(&curves.each, self.extent).into_iter().map(|values| filled(case, &values))
        });
        let texts = texts.chain(curves.cases.iter().map(|it| it.to_string()));
        let line = |(colour, text): (usize, String)| {
            let case = self.paper.case(self.extent, &text).ok()?;
            let series = self.runs.series(&case).ok()?;
            let marks =
                series.points.iter().filter_map(|point| mark(curves, &case, series.name, point));
            let (name, dashed) = (series.name.to_owned(), !series.is_safe);
            Some(Line { name, colour, dashed, marks: marks.collect() })
        };
        Picture::Lines(Chart {
            title: curves.title.to_string(),
            x_name: name_of(&curves.x).into(),
            y_name: name_of(&curves.y).into(),
            x_scale: Scale::Number,
            y_may_be_logarithmic: true,
            lines: texts.enumerate().filter_map(line).collect(),
        })
    }

    /// Draws the throughput over time for every crash that was run.
    fn timeline(&self, title: &str) -> Picture {
        let ran = self.runs.crashes.iter().filter_map(|(_, crashed)| crashed.as_ref().ok());
        Picture::Lines(Chart {
            title: title.to_owned(),
            x_name: "virtual time, ms".into(),
            y_name: "M transactions/s".into(),
            x_scale: Scale::Number,
            y_may_be_logarithmic: false,
            lines: ran.enumerate().map(|(colour, crashed)| over_time(colour, crashed)).collect(),
        })
    }
}

/// Returns the name of a measure for the axis of a drawing.
fn name_of(measure: &str) -> &str {
    match measure {
        "millions" => "M transactions/s",
        "median" => "median latency, µs",
        other => other,
    }
}

fn mark(curves: &Curves, case: &Case, name: &str, point: &Point) -> Option<Mark> {
    let title = format!(
        "{name}\n{} coordinators: {:.3} M transactions/s, p50 {:.1} µs, p99 {:.1} µs\n{}",
        point.coordinators,
        point.throughput_per_s / 1e6,
        point.latency_us.p50,
        point.latency_us.p99,
        point.limits()
    );
    Some(Mark { x: measure(&curves.x, case, point)?, y: measure(&curves.y, case, point)?, title })
}

fn over_time(colour: usize, crashed: &Crashed) -> Line {
    let outage = &crashed.outage;
    let interval_ms = outage.shape.interval_ms;
    let mark = |(at, per_s): (usize, &f64)| {
        let ms = at as f64 * interval_ms;
        let events = outage.events.iter().filter(|it| (ms..ms + interval_ms).contains(&it.at_ms));
        let told: Vec<&str> = events.map(|it| it.what.as_str()).collect();
        let title = format!("{ms} ms: {:.3} M transactions/s\n{}", per_s / 1e6, told.join("\n"));
        Mark { x: ms, y: per_s / 1e6, title }
    };
    let marks = outage.throughput_per_s.iter().enumerate().map(mark).collect();
    Line { name: crashed.system.to_owned(), colour, dashed: false, marks }
}
