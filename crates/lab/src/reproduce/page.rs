//! Shows a reproduced figure as one HTML page with its curves and its rows.
//!
//! Invariant: the page needs no other file, is readable on light and dark backgrounds, and does not depend on the
//! machine that ran the figure. The page of a sweep has the same properties.

use super::curve::{Axis, Point, Series};
use super::report::{Reproduction, Sent};
use super::row::{Row, Verdict};
use crate::sweep::chart::{Chart, Line, Mark, Scale, escape};
use crate::sweep::page::figure;
use crate::sweep::style::STYLE;
use std::fmt::Write as _;

/// Returns the whole page as HTML.
pub fn page(report: &Reproduction) -> String {
    let title = escape(report.title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"note\">{}</p>\n",
        escape(&note(report))
    );
    curves(&mut html, report);
    rows(&mut html, report);
    verbs(&mut html, report);
    html.push_str("<h2>Notes</h2>\n");
    for note in &report.notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn note(report: &Reproduction) -> String {
    let chosen: Vec<String> =
        report.config.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let scale = &report.scale;
    format!(
        "{}. Simulated: this ran on no real hardware. Times are virtual, from a model of profile {} \
         ({}). Scale {}: {} of what the workload counts, each point {} ms after {} ms of warm-up, run \
         once, seed {}. {}.",
        report.source,
        report.profile,
        report.hardware,
        scale.name,
        super::report::each(&scale.sizes),
        scale.virtual_ms,
        scale.warm_up_ms,
        report.seed,
        chosen.join(". ")
    )
}

fn curves(html: &mut String, report: &Reproduction) {
    let over = report.series.first().map_or(Axis::Coordinators, |series| series.over);
    let along = |point: &Point| over.of(point) as f64;
    let millions = |point: &Point| point.throughput_per_s / 1e6;
    let median = |point: &Point| point.latency_us.p50;
    let lines = |x: &dyn Fn(&Point) -> f64, y: &dyn Fn(&Point) -> f64| -> Vec<Line> {
        let each = report.series.iter().enumerate();
        each.map(|(colour, series)| line(series, colour, x, y)).collect()
    };
    let charts = [
        (
            format!("Throughput over {}", over.what()),
            (over.name(), "M transactions/s"),
            lines(&along, &millions),
        ),
        (
            format!("Median latency over {}", over.what()),
            (over.name(), "latency, µs"),
            lines(&along, &median),
        ),
    ];
    html.push_str("<section class=\"figures\">\n");
    for (title, (x_name, y_name), lines) in charts {
        let chart = Chart {
            title,
            x_name: x_name.into(),
            y_name: y_name.into(),
            x_scale: Scale::Number,
            y_may_be_logarithmic: true,
            lines,
        };
        figure(html, &chart);
    }
    html.push_str("</section>\n");
}

/// Makes the line of a series; a dashed line means that the system does not isolate its
/// transactions.
fn line(
    series: &Series,
    colour: usize,
    x: &dyn Fn(&Point) -> f64,
    y: &dyn Fn(&Point) -> f64,
) -> Line {
    let mark = |point: &Point| Mark {
        x: x(point),
        y: y(point),
        title: format!(
            "{}\n{} {}: {:.3} M transactions/s, p50 {:.1} µs\n{}",
            series.name,
            series.over.of(point),
            series.over.name(),
            point.throughput_per_s / 1e6,
            point.latency_us.p50,
            point.limits()
        ),
    };
    let unsafely = if series.is_safe { "" } else { " (unsafe)" };
    Line {
        name: format!("{}{unsafely}", series.name),
        colour,
        dashed: !series.is_safe,
        marks: series.points.iter().map(mark).collect(),
    }
}

fn rows(html: &mut String, report: &Reproduction) {
    let head = ["metric", "published", "simulated", "ratio", "", "source", "busiest"];
    let body = report.rows.iter().map(|row| {
        let Row { metric, published, simulated, ratio, verdict, why, .. } = row;
        let number =
            |value: &Option<f64>| value.map_or("–".into(), |value| format!("{value:.2}"));
        let verdict = match verdict {
            Verdict::Agrees => "agrees",
            Verdict::Misses => "misses",
            Verdict::NotSimulated => "not simulated",
        };
        [
            metric.clone(),
            published.to_string(),
            number(simulated),
            number(ratio),
            verdict.into(),
            published.source.into(),
            why.clone(),
        ]
    });
    table(html, "Published and simulated", &head, body);
}

fn verbs(html: &mut String, report: &Reproduction) {
    let head = ["verb", "public code", "simulated", "series", "what"];
    let body = report.verbs.iter().map(|sent| {
        let Sent { verb, series, counted, of, simulated } = sent;
        let (counted, simulated) = (format!("{counted:.2}"), format!("{simulated:.2}"));
        [(*verb).to_owned(), counted, simulated, (*series).to_owned(), (*of).to_owned()]
    });
    table(html, "Verbs of one transaction", &head, body);
}

/// Writes a table, under a heading if `title` is not empty.
pub(super) fn table(
    html: &mut String,
    title: &str,
    head: &[&str],
    body: impl Iterator<Item = impl AsRef<[String]>>,
) {
    if !title.is_empty() {
        let _ = writeln!(html, "<h2>{title}</h2>");
    }
    html.push_str("<div class=\"wide\"><table>\n");
    let cell = |kind: &str, text: &str| format!("<{kind}>{}</{kind}>", escape(text));
    let heads: String = head.iter().map(|text| cell("th", text)).collect();
    let _ = writeln!(html, "<tr>{heads}</tr>");
    for row in body {
        let cells: String = row.as_ref().iter().map(|text| cell("td", text)).collect();
        let _ = writeln!(html, "<tr>{cells}</tr>");
    }
    html.push_str("</table></div>\n");
}
