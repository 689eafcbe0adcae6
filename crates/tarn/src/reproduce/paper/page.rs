//! The evaluation as one page: sections with their drawings and rows.
//!
//! Invariant: it stands alone (no script, no font, no link), is readable in light and dark, and nothing in it
//! is of the machine that ran it.

use super::report::{Evaluation, Part, shown, verdict_name};
use super::sheet::{Picture, Row};
use super::target::JudgedBy;
use crate::reproduce::page::table;
use crate::sweep::chart::escape;
use crate::sweep::page::figure;
use crate::sweep::style::STYLE;
use std::fmt::Write as _;

/// The whole page.
pub fn page(evaluation: &Evaluation) -> String {
    let title = escape(evaluation.title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"note\">{}</p>\n",
        escape(&note(evaluation))
    );
    for change in &evaluation.overrides {
        let text = format!("{} = {} instead of {}", change.key, change.value, change.was);
        let _ = writeln!(html, "<p><strong>Counterfactual:</strong> {}</p>", escape(&text));
    }
    let _ = writeln!(html, "<p>{}</p>", escape(&evaluation.summary()));
    paragraphs(&mut html, "Scaled down", &evaluation.scaled_down);
    for part in &evaluation.parts {
        section(&mut html, part);
    }
    checks(&mut html, evaluation);
    paragraphs(&mut html, "Assumed, and measured by nobody", &evaluation.assumed);
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn note(evaluation: &Evaluation) -> String {
    let scale = &evaluation.extent.scale;
    format!(
        "{}. Simulated: this ran on no real hardware. Times are virtual, from a model of profile {} ({}); 9 \
         compute nodes of up to 10 threads, 3 memory nodes, 3 replicas. Each point {} ms after {} ms of \
         warm-up, run once, seed {}. Literal: LOTUS as its text says, the others as they were measured. \
         Corrected: LOTUS corrected over the same others; where only the others are in a row, these \
         corrected. Best: everybody corrected, records spread by hash. The ratio is the corrected value over \
         the published one (of rows without LOTUS the literal one), percentages as the factors that they \
         stand for; a row agrees within 25 %, SmallBank's headline within 15 %, if the published winner wins.",
        evaluation.source,
        evaluation.profile,
        evaluation.hardware,
        scale.virtual_ms,
        scale.warm_up_ms,
        evaluation.seed
    )
}

fn section(html: &mut String, part: &Part) {
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
    let head = [
        "figure",
        "workload",
        "metric",
        "published",
        "unit",
        "literal",
        "corrected",
        "best",
        "ratio",
        "",
        "limiting resource",
        "source",
    ];
    table(html, "", &head, part.rows.iter().map(cells));
    for note in &part.notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
}

fn cells(row: &Row) -> [String; 12] {
    let of = match row.judged_by {
        JudgedBy::Corrected => "",
        JudgedBy::Literal => " (literal)",
    };
    let ratio = row.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}{of}"));
    let limit = if row.why.is_empty() { &row.bottleneck } else { &row.why };
    [
        row.figure.to_owned(),
        row.workload.to_owned(),
        row.metric.to_owned(),
        row.published.to_string(),
        row.unit.to_owned(),
        shown(row.literal),
        shown(row.corrected),
        shown(row.best_form),
        ratio,
        verdict_name(row).to_owned(),
        limit.clone(),
        row.published.source.to_owned(),
    ]
}

/// What was found out about histories and memory.
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
        paragraphs(html, "FAILED", &failed);
    }
}

fn paragraphs(html: &mut String, title: &str, each: &[String]) {
    let _ = writeln!(html, "<details open><summary>{}</summary>", escape(title));
    for text in each {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(text));
    }
    html.push_str("</details>\n");
}
