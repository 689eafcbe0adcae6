//! The evaluation of a lock service as an object for programs, a table for readers, and a page.
//!
//! Invariant: all three have the same rows. A row that misses shows the counters of the runs behind it.

use super::LockOrder;
use super::case::{Case, Ran, request_cost};
use super::data::Lengths;
use crate::bench::lines::row;
use crate::reproduce::page::table;
use crate::reproduce::paper::page::{cells, opening};
use crate::reproduce::paper::report::{heading, said, value_of};
use crate::reproduce::paper::sheet::{Apart, Beside, Row};
use crate::reproduce::report::Wall;
use crate::reproduce::row::Verdict;
use crate::sweep::chart::escape;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use tarn_sim::profile::Change;

/// A section of the result.
#[derive(Serialize)]
pub struct Part {
    /// The section's name on the command line.
    pub name: &'static str,
    /// The title above the section.
    pub title: &'static str,
    /// The rows of the section's published figures.
    pub rows: Vec<Row>,
    /// The notes for a reader.
    pub notes: Vec<&'static str>,
}

/// A run, as the result shows it.
#[derive(Serialize)]
pub struct Line {
    /// The service and its load.
    pub case: String,
    /// Millions of acquires per second.
    pub acquires_millions: f64,
    /// Millions of transactions per second.
    pub transactions_millions: f64,
    /// Transactions that ended because their time was over.
    pub timed_out: u64,
    /// The median and the 90th percentile of the time to a grant, in microseconds.
    pub granted_us: [Option<f64>; 2],
    /// Where the requests were decided, and which cores were busy.
    pub counters: String,
    /// The digest of the trace that was replayed.
    pub trace: String,
    /// The digest of all events of the run.
    pub digest: String,
}

impl Line {
    pub(super) fn of(case: String, ran: &Ran) -> Line {
        Line {
            case,
            acquires_millions: ran.acquires_millions(),
            transactions_millions: ran.transactions_millions(),
            timed_out: ran.timed_out,
            granted_us: [0.5, 0.9].map(|share| ran.granted_us(share)),
            counters: ran.counters(),
            trace: format!("{:016x}", ran.trace),
            digest: format!("{:016x}", ran.digest),
        }
    }
}

/// The text at the top of this file describes this type.
#[derive(Serialize)]
pub struct LockEvaluation {
    /// The paper's name on the command line.
    pub name: &'static str,
    /// The heading of the page.
    pub title: &'static str,
    /// The paper's authors and title.
    pub source: &'static str,
    /// A description of the machines and columns.
    pub legend: &'static str,
    /// The hardware profile's name.
    pub profile: String,
    /// A description of the hardware.
    pub hardware: String,
    /// The constants of the profile that the user changed for this run. They make it a counterfactual.
    pub overrides: Vec<Change>,
    /// The seed of every random generator.
    pub seed: u64,
    /// The number of times that each case was run.
    pub repetitions: u32,
    /// `quick` or `full`.
    pub scale: &'static str,
    /// The lengths of runs.
    pub lengths: Lengths,
    /// The time of a core for one request.
    pub request_cost: String,
    /// The sections with their rows.
    pub parts: Vec<Part>,
    /// All runs.
    pub runs: Vec<Line>,
    /// The choices that the paper leaves open.
    pub assumed: Vec<&'static str>,
    /// Cases that could not be run.
    pub failed: Vec<String>,
    /// The columns of rows.
    #[serde(skip)]
    columns: Vec<&'static str>,
    /// The real time on this machine.
    pub wall: Wall,
}

impl LockEvaluation {
    pub(super) fn of(
        order: &LockOrder,
        parts: Vec<Part>,
        ran: BTreeMap<Case, Result<Ran, String>>,
    ) -> LockEvaluation {
        let paper = order.paper;
        let failed = ran
            .iter()
            .filter_map(|(case, ran)| ran.as_ref().err().map(|why| format!("{case}: {why}")));
        LockEvaluation {
            name: paper.name.0,
            title: paper.title.0,
            source: paper.source.0,
            legend: paper.legend.0,
            profile: order.profile.name.clone(),
            hardware: order.profile.hardware.clone(),
            overrides: order.profile.changes.clone(),
            seed: order.seed,
            repetitions: 1,
            scale: if order.is_quick { "quick" } else { "full" },
            lengths: order.lengths(),
            request_cost: request_cost(),
            failed: failed.collect(),
            runs: ran
                .iter()
                .filter_map(|(case, ran)| {
                    ran.as_ref().ok().map(|ran| Line::of(case.to_string(), ran))
                })
                .collect(),
            assumed: paper.assumed.iter().map(|text| text.0).collect(),
            columns: paper.columns.names.iter().map(|name| name.0).collect(),
            parts,
            wall: Wall { machine: String::new(), seconds: 0.0 },
        }
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.parts.iter().flat_map(|part| &part.rows)
    }

    /// Summarizes the rows' verdicts in one sentence.
    pub fn verdict(&self) -> String {
        let judged = || self.rows().filter(|row| row.apart.is_none());
        let count = |verdict| judged().filter(|row| row.verdict == verdict).count();
        let (agree, miss) = (count(Verdict::Agrees), count(Verdict::Misses));
        let decided = judged().filter_map(|row| row.winner_holds);
        let (won, all) = decided.fold((0, 0), |(won, all), it| (won + usize::from(it), all + 1));
        let apart = self.rows().filter_map(|row| row.apart);
        let (follow, unjudged): (Vec<Apart>, Vec<Apart>) =
            apart.partition(|apart| matches!(apart, Apart::FollowsFrom(_)));
        format!(
            "{agree} of the {} judged values agree with the published ones, and the published winner wins in {won} of \
             {all} comparisons. Counted apart: {} that follow from inputs of the model, {} that the paper gives no number \
             for, and {} that are not simulated.",
            agree + miss,
            follow.len(),
            unjudged.len(),
            count(Verdict::NotSimulated)
        )
    }

    /// Returns the rows and the verdict in Markdown, as the page in the folder of documents has them. Bold values miss,
    /// † follows from an input, ‡ is not judged.
    pub fn table(&self) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|name| heading(name)).collect();
        let lines = "---|".repeat(columns.len());
        let mut text = format!(
            "| | published | {} | cause of a miss |\n|---|---|{lines}---|\n",
            columns.join(" | ")
        );
        for row in self.rows() {
            let cells = self.columns.iter().map(|column| cell(row, column));
            let cause = row.cause.filter(|_| row.misses()).unwrap_or_default();
            let cells: Vec<String> = cells.chain([cause.to_owned()]).collect();
            let _ = writeln!(text, "{}{} |", opening_cells(row), cells.join(" | "));
        }
        let _ = writeln!(text, "\n{}", self.verdict());
        text
    }

    /// Returns the whole result as a page that needs no other file.
    pub fn page(&self) -> String {
        let rows: Vec<&Row> = self.rows().collect();
        let mut html =
            opening(self.title, &self.verdict(), (self.overrides.as_slice(), rows.as_slice()));
        let note = format!(
            "{}. Simulated: this ran on no real hardware. Times are virtual, from a model of profile {} ({}), and {}. \
             Each case ran once, seed {}. {}",
            self.source, self.profile, self.hardware, self.request_cost, self.seed, self.legend
        );
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&note));
        let columns = self.columns.iter().map(|name| heading(name));
        let head: Vec<&str> = ["figure", "workload", "metric", "published", "unit"]
            .into_iter()
            .chain(columns)
            .chain(["ratio", "", "counters", "source"])
            .collect();
        for part in &self.parts {
            let _ = writeln!(html, "<h2 id=\"{}\">{}</h2>", part.name, escape(part.title));
            table(&mut html, "", &head, part.rows.iter().map(cells));
            for note in &part.notes {
                let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
            }
        }
        let head = [
            "case",
            "M acquires/s",
            "M transactions/s",
            "timed out",
            "trace",
            "digest",
            "counters",
        ];
        let body = self.runs.iter().map(|it| {
            [
                it.case.clone(),
                format!("{:.2}", it.acquires_millions),
                format!("{:.2}", it.transactions_millions),
                it.timed_out.to_string(),
                it.trace.clone(),
                it.digest.clone(),
                it.counters.clone(),
            ]
        });
        table(&mut html, "Runs", &head, body);
        let _ = writeln!(html, "<h2>Assumed, not measured</h2>");
        for text in &self.assumed {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(text));
        }
        html.push_str("</main>\n</body>\n</html>\n");
        html
    }
}

/// Returns the first two cells of a row in Markdown: the measure and the published value.
pub(super) fn opening_cells(row: &Row) -> String {
    let published = format!("{} {}", said(row), row.said_in.counted());
    format!("| {}: {} | {} | ", row.workload, row.metric, published.trim_end())
}

/// Returns the cell of a column in Markdown.
fn cell(row: &Row, column: &str) -> String {
    let is_deciding = column == row.judged_by;
    let Some(value) = row.value(column) else {
        return if is_deciding { "not simulated".to_owned() } else { String::new() };
    };
    let text = value_of(row, Some(value));
    let is_of = |it: &&Beside| it.column == column;
    let misses = match row.beside.iter().find(is_of) {
        Some(beside) => beside.verdict == Verdict::Misses,
        None => is_deciding && row.verdict == Verdict::Misses,
    };
    match row.apart {
        Some(Apart::FollowsFrom(_)) => format!("{text} †"),
        Some(Apart::NotJudged(_)) => format!("{text} ‡"),
        None if misses => format!("**{text}**"),
        None => text,
    }
}

impl fmt::Display for LockEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.title)?;
        row(f, "source", self.source)?;
        row(f, "hardware", format_args!("{}: {}, simulated", self.profile, self.hardware))?;
        for Change { key, value, was } in &self.overrides {
            row(f, "COUNTERFACTUAL", format_args!("{key} = {value} instead of {was}"))?;
        }
        row(f, "cost", &self.request_cost)?;
        row(f, "scale", format_args!("{}, seed {}, each case once", self.scale, self.seed))?;
        for part in &self.parts {
            writeln!(f, "{}", part.title)?;
            part.rows.iter().try_for_each(|row| write!(f, "{row}"))?;
            part.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))?;
        }
        writeln!(f, "runs")?;
        for Line { case, acquires_millions, trace, digest, .. } in &self.runs {
            writeln!(
                f,
                "  {case}: {acquires_millions:.2} M acquires/s, trace {trace}, run {digest}"
            )?;
        }
        for text in &self.failed {
            row(f, "NOT RUN", text)?;
        }
        writeln!(f, "{}", self.verdict())?;
        row(f, "real time", format_args!("{:.0} s", self.wall.seconds))?;
        row(f, "machine", &self.wall.machine)
    }
}
