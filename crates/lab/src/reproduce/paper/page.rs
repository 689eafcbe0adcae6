//! Shows the evaluation as one HTML page. The page has the verdict and one drawing of all rows, and then the sections
//! with their drawings and rows.
//!
//! Invariant: the page needs no other file (no script, no font, no link) and is readable on light and dark
//! backgrounds. The page does not depend on the machine that ran the evaluation.

use super::against;
use super::report::{Evaluation, Part, Present, heading, said, value_of, verdict_name};
use super::sheet::{Picture, Row};
use crate::reproduce::page::table;
use crate::sweep::chart::escape;
use crate::sweep::page::figure;
use crate::sweep::style::STYLE;
use std::fmt::Write as _;
use tarn_sim::profile::Change;

/// Returns the whole page as HTML.
pub fn page(evaluation: &Evaluation) -> String {
    let rows: Vec<&Row> = evaluation.rows.iter().collect();
    let (title, verdict) = (evaluation.title, evaluation.verdict());
    let mut html = opening(title, &verdict, (evaluation.overrides.as_slice(), rows.as_slice()));
    let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&note(evaluation)));
    let _ = writeln!(html, "<p>{}</p>", escape(&evaluation.summary()));
    paragraphs(&mut html, ("Scaled down", true), &evaluation.scaled_down);
    if !evaluation.entrants.is_empty() {
        let cells = |it: &Present| [it.name.to_owned(), it.protocol.clone(), it.state.clone()];
        let head = ["system", "protocol", "state"];
        table(&mut html, "Systems", &head, evaluation.entrants.iter().map(cells));
    }
    let unsound = evaluation.unsound();
    if !unsound.is_empty() {
        let title = format!(
            "{} histories are not sound, each of a variant that keeps to a paper's text or to public code",
            unsound.len()
        );
        paragraphs(&mut html, (&title, false), &evaluation.unsound_by_variant());
    }
    for part in &evaluation.parts {
        section(&mut html, part, evaluation);
    }
    checks(&mut html, evaluation);
    paragraphs(&mut html, ("Assumed, not measured", true), &evaluation.assumed);
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

/// Begins the page of an evaluation: title, verdict, changed constants, and the drawing of all rows.
pub(in crate::reproduce) fn opening(
    title: &str,
    verdict: &str,
    (overrides, rows): (&[Change], &[&Row]),
) -> String {
    let title = escape(title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p><strong>{}</strong></p>\n",
        escape(verdict)
    );
    for Change { key, value, was } in overrides {
        let text = format!("{key} = {value} instead of {was}");
        let _ = writeln!(html, "<p><strong>Counterfactual:</strong> {}</p>", escape(&text));
    }
    let _ = writeln!(html, "<section class=\"figures\">\n{}</section>", against::html(rows));
    html
}

fn note(evaluation: &Evaluation) -> String {
    let scale = &evaluation.extent.scale;
    format!(
        "{}. Simulated: this ran on no real hardware. Times are virtual, from a model of profile {} ({}). Each \
         point {} ms after {} ms of warm-up, run once, seed {}. {}",
        evaluation.source,
        evaluation.profile,
        evaluation.hardware,
        scale.virtual_ms,
        scale.warm_up_ms,
        evaluation.seed,
        evaluation.paper.legend
    )
}

fn section(html: &mut String, part: &Part, evaluation: &Evaluation) {
    let _ = writeln!(html, "<h2 id=\"{}\">{}</h2>", part.name, escape(part.title));
    if !part.pictures.is_empty() {
        html.push_str("<section class=\"figures\">\n");
        for picture in &part.pictures {
            match picture {
                Picture::Lines(chart) => figure(html, chart),
                Picture::Bars(bars) => html.push_str(&bars.html()),
            }
        }
        html.push_str("</section>\n");
    }
    let columns = evaluation.paper.columns.names.iter().map(|name| heading(name.0));
    let head: Vec<&str> = ["figure", "workload", "metric", "published", "unit"]
        .into_iter()
        .chain(columns)
        .chain(["ratio", "", "limiting resource", "source"])
        .collect();
    table(html, "", &head, part.rows.iter().map(cells));
    for note in &part.notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
}

pub(in crate::reproduce) fn cells(row: &Row) -> Vec<String> {
    let of = if row.is_of_baselines { format!(" ({})", row.judged_by) } else { String::new() };
    let told = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut ratio = row.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}{of}"));
    let mut verdict = row.verdict_name().to_owned();
    if let Some(apart) = row.apart {
        let _ = write!(verdict, ": {}", apart.reason());
    }
    if let Some(cause) = row.cause.filter(|_| row.misses()) {
        let _ = write!(verdict, ": {cause}");
    }
    for it in &row.beside {
        let _ = write!(ratio, "; {} {}", it.column, told(it.ratio));
        let name = verdict_name(it.verdict, it.winner_holds);
        let _ = write!(verdict, "; {} {name}", it.column);
    }
    let limit = if row.why.is_empty() { &row.bottleneck } else { &row.why };
    let values = row.values.0.iter().map(|(_, value)| value_of(row, *value));
    [row.figure, row.workload, row.metric]
        .map(str::to_owned)
        .into_iter()
        .chain([said(row), row.said_in.counted().to_owned()])
        .chain(values)
        .chain([ratio, verdict])
        .chain([limit.clone(), row.published.source.to_owned()])
        .collect()
}

/// Writes the verdicts on the recorded histories and on the memory.
fn checks(html: &mut String, evaluation: &Evaluation) {
    let head =
        ["system", "workload", "layout", "history", "transactions recorded", "must be sound"];
    let body = evaluation.series.iter().map(|ran| {
        [
            ran.series.name.to_owned(),
            ran.bench.kind.name().to_owned(),
            ran.layout.to_owned(),
            ran.series.history.to_owned(),
            ran.series.history_transactions.to_string(),
            if ran.must_be_sound { "yes" } else { "no" }.to_owned(),
        ]
    });
    table(html, "Histories", &head, body);
    let head = ["database", "rules of the workload", "audit of the memory"];
    let body = evaluation
        .judged
        .iter()
        .map(|it| [it.layout.clone(), it.invariants.detail.clone(), it.audit.detail.clone()]);
    table(html, "Memory after what must be sound", &head, body);
    let failed = evaluation.failed();
    if !failed.is_empty() {
        paragraphs(html, ("FAILED", true), &failed);
    }
}

/// Writes paragraphs under a summary that the reader can open; if `is_open` is true, the browser shows the paragraphs
/// from the start.
fn paragraphs(html: &mut String, (title, is_open): (&str, bool), each: &[String]) {
    let open = if is_open { " open" } else { "" };
    let _ = writeln!(html, "<details{open}><summary>{}</summary>", escape(title));
    for text in each {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(text));
    }
    html.push_str("</details>\n");
}
