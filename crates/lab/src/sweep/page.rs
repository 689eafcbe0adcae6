//! Writes a sweep as one page: its figures, its table, and the commands that run the sweep again.
//!
//! Invariant: the page needs no other file (no script, no font, no link) and is readable on light and dark
//! backgrounds. The page depends only on the points' configurations and seeds, and not on the machine that ran them.

use super::chart::{Chart, Line, Mark, Scale, class, escape};
use super::report::{
    CONFLICTS, Figure, P50, P99, Ran, SweepReport, THROUGHPUT, UTILISATION, brief,
};
use super::{Axis, style::STYLE};
use crate::harness::lines::put_part;
use serde_json::Value;
use std::fmt::Write as _;

/// The largest number of charts of the hardware's utilisation. The page has one such chart for each series, up to
/// this number of charts. The table has the figures of all series.
const UTILISATIONS_MAX: usize = 12;

/// The axis along which the lines of charts run, and the points of each line.
struct Series<'a> {
    along: &'a Axis,
    /// Whether all values of the axis are numbers.
    is_number: bool,
    each: Vec<(String, Vec<&'a Ran>)>,
}

impl<'a> Series<'a> {
    /// Chooses the axis along which the lines of charts run: the numeric axis with the most values. If no axis is
    /// numeric, the axis with the most values is chosen.
    fn of(report: &'a SweepReport) -> Option<Series<'a>> {
        let is_number = |axis: &Axis| axis.values.iter().all(|value| value.parse::<f64>().is_ok());
        let rank = |axis: &&Axis| (is_number(axis) && axis.values.len() > 1, axis.values.len());
        // `max_by_key` returns the last of several equal axes, so the reversed order gives the
        // first.
        let along = report.axes.iter().rev().max_by_key(rank)?;
        let mut each: Vec<(String, Vec<&Ran>)> = Vec::new();
        for point in &report.points {
            let others = point.labels.iter().filter(|(name, _)| *name != along.name);
            let name: Vec<String> = others.map(|(name, value)| format!("{name} {value}")).collect();
            let name = name.join(", ");
            match each.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => each.push((name, vec![point])),
            }
        }
        Some(Series { along, is_number: is_number(along), each })
    }

    /// Returns the position of a point along the axis.
    fn place(&self, point: &Ran) -> Option<f64> {
        let (_, value) = point.labels.iter().find(|(name, _)| *name == self.along.name)?;
        match self.is_number {
            true => value.parse().ok(),
            false => self.along.values.iter().position(|it| it == value).map(|at| at as f64),
        }
    }

    fn scale(&self) -> Scale {
        match self.is_number {
            true => Scale::Number,
            false => Scale::Names(self.along.values.clone()),
        }
    }

    /// Makes a line of marks. `x` and `y` give the place of each point's mark.
    fn line(
        &self,
        (name, colour, dashed): (String, usize, bool),
        points: &[&Ran],
        x: &dyn Fn(&Ran) -> Option<f64>,
        y: Figure,
    ) -> Line {
        let mark = |point: &&Ran| {
            let value = y.of(&point.report)?;
            let title = format!("{}: {} = {}\n{}", point.name(), y.name, brief(value), told(point));
            Some(Mark { x: x(point)?, y: value, title })
        };
        Line { name, colour, dashed, marks: points.iter().filter_map(mark).collect() }
    }
}

/// Returns the text of a point's tooltip.
fn told(point: &Ran) -> String {
    let figures = [THROUGHPUT, P50, P99, CONFLICTS].map(|figure| {
        let value = figure.of(&point.report).map_or_else(|| "–".to_owned(), brief);
        format!("{}: {value}", figure.name)
    });
    format!("{}\nbusiest: {}", figures.join("\n"), point.bottleneck())
}

/// Returns the whole page as HTML.
pub fn page(report: &SweepReport) -> String {
    let title = escape(&format!("tarn {}", report.arguments.join(" ")));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"note\">{}</p>\n",
        escape(&note(report))
    );
    if let Some(series) = Series::of(report) {
        figures(&mut html, &series);
    }
    table(&mut html, report);
    configuration(&mut html, report);
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn note(report: &SweepReport) -> String {
    let first = report.points.first().map_or(&Value::Null, |point| &point.report);
    let text = |path: &str| first.pointer(path).and_then(Value::as_str).unwrap_or("–");
    let axes: Vec<String> = report
        .axes
        .iter()
        .map(|axis| format!("{} ({})", axis.name, axis.values.join("; ")))
        .collect();
    let varied = |name: &str| report.axes.iter().any(|axis| axis.name == name);
    let profile = match varied("profile") {
        true => "the profile of each point".to_owned(),
        false => {
            let is_modified = first.pointer("/profile_modified") == Some(&Value::Bool(true));
            let modified = if is_modified { ", MODIFIED" } else { "" };
            format!("profile {} ({}{modified})", text("/profile"), text("/hardware"))
        }
    };
    let seed = match (varied("seed"), first.pointer("/seed")) {
        (false, Some(seed)) => format!("seed {seed}"),
        _ => "the seed of each point".to_owned(),
    };
    format!(
        "Simulated: this ran on no real hardware. Times are virtual, from a model of {profile}, \
         {seed}, each point once: the same configuration and seed give the same figures on every \
         machine. Varied: {}.",
        axes.join(", ")
    )
}

fn figures(html: &mut String, series: &Series<'_>) {
    let throughput = |point: &Ran| THROUGHPUT.of(&point.report);
    let place = |point: &Ran| series.place(point);
    let each = || series.each.iter().enumerate();
    let lines = |y: Figure, dashed: bool, x: &dyn Fn(&Ran) -> Option<f64>| -> Vec<Line> {
        let line = |(colour, (name, points)): (usize, &(String, Vec<&Ran>))| {
            series.line((name.clone(), colour, dashed), points, x, y)
        };
        each().map(line).collect()
    };
    html.push_str("<section class=\"figures\">\n");
    let named = |mut line: Line, what: &str| {
        line.name =
            if line.name.is_empty() { what.into() } else { format!("{what}, {}", line.name) };
        line
    };
    let medians = lines(P50, false, &throughput).into_iter().map(|line| named(line, "p50"));
    let tails = lines(P99, true, &throughput).into_iter().map(|line| named(line, "p99"));
    figure(
        html,
        &Chart {
            title: format!("Latency over throughput, along {}", series.along.name),
            x_name: THROUGHPUT.name.into(),
            y_name: "latency, µs".into(),
            x_scale: Scale::Number,
            y_may_be_logarithmic: true,
            lines: medians.chain(tails).collect(),
        },
    );
    for (title, y) in [("Throughput", THROUGHPUT), ("Aborted tries", CONFLICTS)] {
        figure(
            html,
            &Chart {
                title: format!("{title} over {}", series.along.name),
                x_name: series.along.name.clone(),
                y_name: y.name.into(),
                x_scale: series.scale(),
                y_may_be_logarithmic: false,
                lines: lines(y, false, &place),
            },
        );
    }
    utilisation(html, series);
    html.push_str("</section>\n");
}

/// Writes charts of the hardware's utilisation: one chart for each line of the throughput and
/// latency charts.
fn utilisation(html: &mut String, series: &Series<'_>) {
    for (name, points) in series.each.iter().take(UTILISATIONS_MAX) {
        let of = if name.is_empty() { String::new() } else { format!(": {name}") };
        let line = |(colour, figure): (usize, &Figure)| {
            series.line(
                (figure.name.into(), colour, false),
                points,
                &|point| series.place(point),
                *figure,
            )
        };
        figure(
            html,
            &Chart {
                title: format!("Utilisation of the busiest part of each kind{of}"),
                x_name: series.along.name.clone(),
                y_name: "busy, % of the time; atomics: at a time, × 100".into(),
                x_scale: series.scale(),
                y_may_be_logarithmic: false,
                lines: UTILISATION.iter().enumerate().map(line).collect(),
            },
        );
    }
}

/// Writes a chart with its caption and its legend.
pub(crate) fn figure(html: &mut String, chart: &Chart) {
    let _ = put_part!(html =>
        "<figure>\n<figcaption>{}</figcaption>\n{}", escape(&chart.title), chart.svg());
    if chart.lines.iter().any(|line| !line.name.is_empty()) {
        html.push_str("<ul class=\"legend\">");
        for line in &chart.lines {
            let _ = put_part!(html =>
                "<li><svg viewBox=\"0 0 24 8\" class=\"key\"><g class=\"{}\"><path class=\"line\" \
                 d=\"M1 4H23\"/></g></svg>{}</li>", class(line), escape(&line.name));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("</figure>\n");
}

fn table(html: &mut String, report: &SweepReport) {
    html.push_str("<h2>Points</h2>\n<div class=\"wide\"><table>\n");
    for (at, row) in report.rows().iter().enumerate() {
        let cell = if at == 0 { "th" } else { "td" };
        html.push_str("<tr>");
        for text in row {
            let _ = write!(html, "<{cell}>{}</{cell}>", escape(text));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

/// Writes the configuration of each point: the point's command, and the settings in the point's report.
fn configuration(html: &mut String, report: &SweepReport) {
    html.push_str("<h2>Configuration</h2>\n");
    for point in &report.points {
        let chosen = |name: &str| point.report.get(name).filter(|value| !value.is_null());
        let names = [
            "workload",
            "protocol",
            "variant",
            "profile",
            "overrides",
            "hardware",
            "seed",
            "virtual_ms",
        ];
        let mut lines = Vec::new();
        for name in names {
            if let Some(value) = chosen(name) {
                lines.push(format!("{name} = {value}"));
            }
        }
        if let Some(Value::Object(config)) = chosen("config") {
            lines.extend(config.iter().map(|(name, value)| format!("{name} = {value}")));
        }
        let digest = point.report.get("digest").and_then(Value::as_str).unwrap_or("–");
        let _ = put_part!(html =>
            "<details><summary>{}</summary>\n<pre>tarn {}\n\n{}\ndigest = {}</pre></details>\n",
            escape(&point.name()), escape(&point.arguments.join(" ")), escape(&lines.join("\n")),
            escape(digest));
    }
}
