//! The evaluation as a JSON object for programs and a table for human readers, with the same rows in both.
//!
//! Invariant: except for `wall`, the evaluation depends only on its order: the requested sections and settings.

use super::Order;
use super::adjusting::Adjusted;
use super::case::{Bench, Missing};
use super::data::Paper;
use super::extent::Extent;
use super::occasion::{Crashed, Heated};
use super::runs::{Ran, Runs, there};
use super::sheet::{Beside, Picture, Row};
use crate::bench::checks::CheckKind;
use crate::bench::lines::row;
use crate::reproduce::report::Wall;
use crate::reproduce::row::Verdict;
use crate::reproduce::stage::{Judged, System};
use crate::reproduce::systems::entrant;
use serde::Serialize;
use std::fmt;
use tarn_engine::cluster::info::Switches;
use tarn_engine::protocol::AnyProtocol;
use tarn_sim::profile::{Change, Standing};

/// A section of the page, with its rows and its drawings.
pub struct Part {
    /// The section's name on the command line.
    pub name: &'static str,
    /// The title above the section.
    pub title: &'static str,
    /// The rows of the section's published figures.
    pub rows: Vec<Row>,
    /// The section's drawings.
    pub(crate) pictures: Vec<Picture>,
    /// The notes for a reader.
    pub notes: Vec<String>,
}

/// The statement whether a system is available.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Present {
    /// The system's name in rows.
    pub name: &'static str,
    /// The protocol's name and variant.
    pub protocol: String,
    /// The statement that the system is available, or the reason for which the system is not available.
    pub state: String,
}

impl Present {
    fn of(system: System) -> Present {
        let state = match there(&system) {
            Ok(_) => "there".to_owned(),
            Err(Missing(why)) => why,
        };
        let protocol = format!("{} ({})", system.protocol, system.variant);
        Present { name: system.name, protocol, state }
    }
}

/// Returns the paper's systems in all forms, if the page is to state whether each system is
/// available.
fn entrants(paper: &Paper) -> Vec<Present> {
    let forms = paper.columns.names.iter();
    let each = forms.flat_map(|form| paper.entrants.iter().map(move |name| (name, form)));
    let found = each.filter_map(|(name, form)| entrant(&paper.system, name, form).ok());
    found.map(|entrant| Present::of(entrant.system)).collect()
}

/// The result of a whole evaluation of a paper.
#[derive(Serialize)]
pub struct Evaluation {
    /// The paper.
    #[serde(skip)]
    pub paper: &'static Paper,
    /// The paper's name on the command line.
    pub name: &'static str,
    /// The heading of the page.
    pub title: &'static str,
    /// The paper's authors and title.
    pub source: &'static str,
    /// The hardware profile's name.
    pub profile: String,
    /// A description of the hardware.
    pub hardware: String,
    /// The constants of the profile that the user changed for this run, and the suppositions.
    /// Changed constants and suppositions make the evaluation a counterfactual.
    pub overrides: Vec<Change>,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The number of times that the program ran each point.
    pub repetitions: u32,
    /// The extent of the run.
    pub extent: Extent,
    /// Sentences about the amounts that are smaller than the published amounts.
    pub scaled_down: Vec<String>,
    /// The assumptions: first the assumptions of the set-up, and then the constants of the profile
    /// that were not measured.
    pub assumed: Vec<String>,
    /// The systems that are to run, if some of them may not be available.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrants: Vec<Present>,
    /// The rows of all published figures.
    pub rows: Vec<Row>,
    /// The cases that ran, with all their points.
    pub series: Vec<Ran>,
    /// The results of all crashes.
    pub crashes: Vec<Crashed>,
    /// The results of all hotspots.
    pub hotspots: Vec<Heated>,
    /// The results of all leases that were adjusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adjustments: Vec<Adjusted>,
    /// The verdicts on the memory after the runs.
    pub judged: Vec<Judged>,
    /// The runs that failed although their system is available.
    pub failures: Vec<String>,
    /// The sections of the page.
    #[serde(skip)]
    pub parts: Vec<Part>,
    /// The real time that the run took on this machine.
    pub wall: Wall,
}

impl Evaluation {
    /// Makes an evaluation from finished runs.
    pub(super) fn of(order: &Order, parts: Vec<Part>, mut runs: Runs) -> Evaluation {
        let profile = &order.profile;
        let unmeasured = profile.constants().into_iter();
        let unmeasured = unmeasured.filter(|it| it.constant.standing == Standing::Assumed);
        let constants = unmeasured.map(|it| {
            let (value, source) = (it.constant.value, &it.constant.source);
            format!("{}.{} = {value}: {source}", it.section, it.name)
        });
        Evaluation {
            paper: order.paper,
            name: order.paper.name.0,
            title: order.paper.title.0,
            source: order.paper.source.0,
            profile: profile.name.clone(),
            hardware: profile.hardware.clone(),
            overrides: {
                let supposed = order.suppositions.iter().map(|it| it.shown());
                profile.changes.iter().cloned().chain(supposed).collect()
            },
            seed: order.seed,
            repetitions: 1,
            extent: order.extent.clone(),
            scaled_down: order.extent.scaled_down(order.paper),
            assumed: order.paper.assumed.iter().map(|it| it.to_string()).chain(constants).collect(),
            entrants: entrants(order.paper),
            rows: parts.iter().flat_map(|part| part.rows.clone()).collect(),
            series: runs.ran().cloned().collect(),
            crashes: runs.crashes.drain(..).filter_map(|(_, it)| it.ok()).collect(),
            hotspots: runs.hotspots.drain(..).filter_map(|(_, it)| it.ok()).collect(),
            adjustments: runs.adjustments.drain(..).filter_map(|(_, it)| it.ok()).collect(),
            judged: runs.judged,
            failures: runs.failures,
            parts,
            wall: Wall::default(),
        }
    }

    /// Returns the errors that the checks found in systems that must be correct. A simulated value that misses the
    /// published value is not such an error.
    pub fn failed(&self) -> Vec<String> {
        let mut failed = self.failures.clone();
        for ran in self.series.iter().filter(|ran| ran.must_be_sound) {
            let (series, bench) = (&ran.series, ran.bench.kind.name());
            let of = |what: &str| format!("{} on {bench}: {what}", series.name);
            if series.is_safe && series.history != "accepted" {
                failed.push(of(&format!("history {}", series.history)));
            }
            failed.extend(series.failures.first().map(|failure| of(failure)));
        }
        for judged in self.judged.iter().filter(|judged| !judged.ok()) {
            let Judged { layout, invariants, audit } = judged;
            failed.push(format!("{layout}: {}; {}", invariants.detail, audit.detail));
        }
        for crashed in self.crashes.iter().filter(|crashed| crashed.must_be_sound) {
            let after = |what: String| format!("{} after crashes: {what}", crashed.system);
            failed.extend(crashed.outage.failed().into_iter().map(after));
        }
        for heated in self.hotspots.iter().filter(|heated| heated.must_be_sound) {
            let kinds = heated.hotspot.checks.failed();
            let text =
                |kind: &CheckKind| format!("{} under a hotspot: {}", heated.system, kind.name());
            failed.extend(kinds.iter().map(text));
        }
        for adjusted in self.adjustments.iter().filter(|adjusted| adjusted.must_be_sound) {
            let of = |wrong: &String| format!("{} while a lease changes: {wrong}", adjusted.system);
            failed.extend(adjusted.wrong.iter().map(of));
        }
        failed
    }

    /// Describes the incorrect histories of systems that need not be correct, because they follow papers or public
    /// code with errors.
    pub fn unsound(&self) -> Vec<String> {
        self.unsound_runs().map(unsound).collect()
    }

    /// Describes the incorrect histories of each variant, with the protocol rules that the variant omits.
    pub(super) fn unsound_by_variant(&self) -> Vec<String> {
        let mut by_variant: Vec<((&str, &str), Vec<String>)> = Vec::new();
        for ran in self.unsound_runs() {
            let variant = (ran.protocol, ran.series.variant);
            match by_variant.iter_mut().find(|(known, _)| *known == variant) {
                Some((_, runs)) => runs.push(unsound(ran)),
                None => by_variant.push((variant, vec![unsound(ran)])),
            }
        }
        let told = |((protocol, variant), runs): ((&str, &str), Vec<String>)| {
            let rules = left_out(protocol, variant);
            format!("{protocol} ({variant}) leaves out {rules}. Found: {}", runs.join("; "))
        };
        by_variant.into_iter().map(told).collect()
    }

    fn unsound_runs(&self) -> impl Iterator<Item = &Ran> {
        let runs = self.series.iter().filter(|ran| !ran.must_be_sound);
        runs.filter(|ran| ran.series.is_safe && ran.series.history != "accepted")
    }

    /// Returns the number of rows with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Summarizes the verdicts of all rows in one sentence.
    pub fn verdict(&self) -> String {
        let agree = self.count(Verdict::Agrees);
        let ran = agree + self.count(Verdict::Misses);
        let decided = self.rows.iter().filter_map(|row| row.winner_holds);
        let (won, all) = decided.fold((0, 0), |(won, all), it| (won + usize::from(it), all + 1));
        format!(
            "{agree} of the {ran} simulated values agree with the published ones, the published winner wins in {won} of \
             {all} comparisons, and {} published values are not simulated.",
            self.count(Verdict::NotSimulated)
        )
    }

    /// Summarizes the verdicts of all rows in words.
    pub fn summary(&self) -> String {
        let lost = self.rows.iter().filter(|row| row.winner_holds == Some(false)).count();
        let mut said = format!(
            "{} rows: {} agree, {} miss, {} not simulated; another than the published winner wins in {lost}",
            self.rows.len(),
            self.count(Verdict::Agrees),
            self.count(Verdict::Misses),
            self.count(Verdict::NotSimulated)
        );
        for column in self.paper.columns.names.iter().map(|name| name.0) {
            let beside = self.rows.iter().flat_map(|row| &row.beside);
            let beside: Vec<&Beside> = beside.filter(|it| it.column == column).collect();
            let count = |verdict| beside.iter().filter(|it| it.verdict == verdict).count();
            let lost = beside.iter().filter(|it| it.winner_holds == Some(false)).count();
            if !beside.is_empty() {
                let (agree, miss) = (count(Verdict::Agrees), count(Verdict::Misses));
                let text =
                    format!("; {column}: {agree} agree, {miss} miss, another wins in {lost}");
                said.push_str(&text);
            }
        }
        said
    }
}

/// Returns the names of the corrected variant's rules that this variant omits.
fn left_out(protocol: &str, variant: &str) -> String {
    let Ok(known) = AnyProtocol::by_name(protocol, variant) else { return "all rules".to_owned() };
    let info = known.info();
    let Ok(on) = Switches::parse(&info, variant) else { return "all rules".to_owned() };
    let rules = info.switches.iter().enumerate().filter(|(at, _)| !on.is_on(*at));
    let names: Vec<&str> = rules.map(|(_, rule)| rule.name).collect();
    format!(
        "these rules: {} (tarn rules --protocol {protocol} tells their effects)",
        names.join(", ")
    )
}

/// Describes a run whose history is incorrect.
fn unsound(ran: &Ran) -> String {
    let (series, Bench { kind, mix, zipf, updates, .. }) = (&ran.series, &ran.bench);
    let skew = zipf.map(|zipf| format!(", Zipf {zipf}")).unwrap_or_default();
    let writes = updates.map(|it| format!(", {it} % write")).unwrap_or_default();
    format!("{} on {} ({mix}{skew}{writes}): {}", series.name, kind.name(), series.history)
}

/// Formats a number with three digits. If the number has more than three digits before the decimal point, all of
/// these digits are shown.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a number; a missing number is shown as a dash.
fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

/// Returns a row's published value as text.
pub(in crate::reproduce) fn said(row: &Row) -> String {
    row.published.in_words(&|value| row.said_in.say(value))
}

/// Returns a row's value as text; a missing value is shown as a dash.
pub(in crate::reproduce) fn value_of(row: &Row, value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| row.said_in.say(value))
}

/// Returns the heading of a column.
pub(in crate::reproduce) fn heading(column: &str) -> &str {
    column.split('_').next().unwrap_or(column)
}

/// Returns the name of a row's verdict.
pub(super) fn verdict_name(verdict: Verdict, winner_holds: Option<bool>) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Misses if winner_holds == Some(false) => "MISSES, another wins",
        Verdict::Misses => "MISSES",
        Verdict::NotSimulated => "not simulated",
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}: {}", self.workload, self.metric)?;
        write!(f, "    published {:>9} {:<8} ", said(self), self.said_in.counted())?;
        for (name, value) in &self.values.0 {
            write!(f, "{} {:>6}  ", heading(name), value_of(self, *value))?;
        }
        writeln!(f, "ratio {:>5}  {}", shown(self.ratio), self.verdict_name())?;
        if let Some(apart) = self.apart {
            writeln!(f, "    {}: {}", apart.name(), apart.reason())?;
        }
        for Beside { column, ratio, verdict, winner_holds } in &self.beside {
            let verdict = verdict_name(*verdict, *winner_holds);
            writeln!(f, "    {column}: ratio {:>5}  {verdict}", shown(*ratio))?;
        }
        if let Some(cause) = self.cause.filter(|_| self.misses()) {
            writeln!(f, "    cause: {cause}")?;
        }
        for text in [&self.bottleneck, &self.why] {
            if !text.is_empty() {
                writeln!(f, "    {text}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.title)?;
        row(f, "source", self.source)?;
        row(f, "hardware", format_args!("{}: {}", self.profile, self.hardware))?;
        for Change { key, value, was } in &self.overrides {
            row(f, "COUNTERFACTUAL", format_args!("{key} = {value} instead of {was}"))?;
        }
        row(
            f,
            "scale",
            format_args!("{}, seed {}, each point once", self.extent.scale.name, self.seed),
        )?;
        for said in &self.scaled_down {
            row(f, "scaled down", said)?;
        }
        for Present { name, protocol, state } in &self.entrants {
            row(f, name, format_args!("{protocol}: {state}"))?;
        }
        for part in &self.parts {
            writeln!(f, "{}", part.title)?;
            part.rows.iter().try_for_each(|row| write!(f, "{row}"))?;
            part.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))?;
        }
        for text in self.unsound() {
            row(f, "NOT SOUND", text)?;
        }
        writeln!(f, "curves")?;
        for ran in &self.series {
            write!(f, "{}: {}", ran.bench.kind.name(), ran.series)?;
        }
        writeln!(f, "{}", self.summary())?;
        row(f, "real time", format_args!("{:.0} s", self.wall.seconds))?;
        row(f, "machine", &self.wall.machine)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_that_keeps_to_a_text_is_said_to_leave_out_rules_by_name() {
        let text = left_out("oocc", "literal");
        assert!(text.contains("validate-read-write") && text.contains("--protocol oocc"), "{text}");
        assert!(!left_out("oocc", "corrected").contains("validate-read-write"));
    }
}
