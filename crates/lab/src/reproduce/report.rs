//! The report of a figure that was run again: a JSON object for programs and a table for human readers, with the same
//! contents.
//!
//! Invariant: except for `wall`, the report depends only on the figure, its scale and its seed.

use super::Scale;
use super::curve::Series;
use super::figure::Figure;
use super::row::Row;
use super::stage::Judged;
use crate::bench::lines::{row, verdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tarn_sim::profile::Profile;

/// The result of one figure that was run again, with the settings of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// The figure's name on the command line.
    pub figure: &'static str,
    /// The figure's heading.
    pub title: &'static str,
    /// The authors, the title, and the place of the values in the paper.
    pub source: &'static str,
    /// The hardware profile's name.
    pub profile: String,
    /// A description of the hardware.
    pub hardware: String,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The number of times that the program ran each point.
    pub repetitions: u32,
    /// The scale of the run.
    pub scale: Scale,
    /// The settings of the run that have no separate field in the report.
    pub config: BTreeMap<&'static str, String>,
    /// The published values beside the simulated values.
    pub rows: Vec<Row>,
    /// The number of verbs that a simulated transaction sends, beside the number in the public code.
    pub verbs: Vec<Sent>,
    /// The series with all points.
    pub series: Vec<Series>,
    /// The verdicts on the memory.
    pub judged: Vec<Judged>,
    /// The notes for a reader.
    pub notes: Vec<String>,
    /// The real time that the run took on this machine.
    pub wall: Wall,
}

/// The number of verbs of one kind that a transaction sends: in the public code, and in the simulation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sent {
    /// The kind of the verb.
    pub verb: &'static str,
    /// The name of the series that sent the verbs.
    pub series: &'static str,
    /// The number of verbs that a transaction of the published system sends.
    pub counted: f64,
    /// A description of the parts whose sum is the published system's number of verbs.
    pub of: &'static str,
    /// The number of verbs that a transaction of the simulated system sends.
    pub simulated: f64,
}

/// The real time that the run took on this machine. Only these figures differ from run to run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Wall {
    /// The processor, the number of cores, and the operating system.
    pub machine: String,
    /// The number of seconds that the whole run took.
    pub seconds: f64,
}

impl Reproduction {
    /// Makes a report that contains the figure's settings but no results yet.
    pub fn of(figure: &Figure, profile: &Profile, (scale, seed): (&Scale, u64)) -> Reproduction {
        Reproduction {
            figure: figure.name.0,
            title: figure.title.0,
            source: figure.source.0,
            profile: profile.name.clone(),
            hardware: profile.hardware.clone(),
            seed,
            repetitions: 1,
            scale: scale.clone(),
            config: figure.config.iter().map(|[name, value]| (name.0, value.to_string())).collect(),
            rows: Vec::new(),
            verbs: Vec::new(),
            series: Vec::new(),
            judged: Vec::new(),
            notes: Vec::new(),
            wall: Wall::default(),
        }
    }

    /// Returns the errors that the checks found. A simulated value that misses the published value is not such an
    /// error.
    pub fn failed(&self) -> Vec<String> {
        let history = |series: &&Series| series.is_safe && series.history != "accepted";
        let histories = self.series.iter().filter(history);
        let histories = histories.map(|it| format!("{}: history {}", it.name, it.history));
        let failures = self.series.iter().filter(|series| !series.failures.is_empty());
        let failures = failures.map(|it| format!("{}: {}", it.name, it.failures[0]));
        let memory = self.judged.iter().filter(|judged| !judged.ok());
        let memory = memory
            .map(|it| format!("{}: {}; {}", it.layout, it.invariants.detail, it.audit.detail));
        histories.chain(failures).chain(memory).collect()
    }

    /// Adds a series to the report. If the report has the same series on smaller databases, the points are appended
    /// to that series.
    pub(super) fn add(&mut self, series: Series) {
        match self.series.iter_mut().find(|earlier| earlier.name == series.name) {
            Some(earlier) => earlier.join(series),
            None => self.series.push(series),
        }
    }

    /// Returns the series with this name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }
}

/// Returns the numbers, separated by commas.
pub(super) fn each(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<String>>().join(", ")
}

impl fmt::Display for Reproduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.figure, self.title)?;
        row(f, "source", self.source)?;
        row(f, "hardware", format_args!("{}: {}", self.profile, self.hardware))?;
        for (name, value) in &self.config {
            row(f, name, value)?;
        }
        let Scale { name, sizes, virtual_ms, warm_up_ms, .. } = &self.scale;
        row(
            f,
            "scale",
            format_args!(
                "{name}: {} of what the workload counts; each point {virtual_ms} ms of virtual \
                 time after {warm_up_ms} ms of warm-up, run once, seed {}",
                each(sizes),
                self.seed
            ),
        )?;
        writeln!(f, "published and simulated")?;
        for each in &self.rows {
            write!(f, "{each}")?;
        }
        writeln!(f, "verbs of one transaction: public code and simulated")?;
        for Sent { verb, series, counted, of, simulated } in &self.verbs {
            let counts = format!("{counted:>6.2} {simulated:>6.2}");
            row(f, verb, format_args!("{counts}  {of} ({series})"))?;
        }
        for series in &self.series {
            write!(f, "{series}")?;
        }
        writeln!(f, "checks of the memory that the safe series left")?;
        for Judged { layout, invariants, audit } in &self.judged {
            row(f, layout, format_args!("{}: {}", verdict(invariants.ok), invariants.detail))?;
            row(f, "", format_args!("{}: {}", verdict(audit.ok), audit.detail))?;
        }
        writeln!(f, "notes")?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        writeln!(f, "what simulating it took")?;
        row(f, "real time", format_args!("{:.0} s", self.wall.seconds))?;
        row(f, "machine", &self.wall.machine)
    }
}
