//! A paper on locks, as its data file describes it: the published figures, and the runs whose values stand beside
//! them.
//!
//! In a text of a case, `{name}` is replaced by each value of the axis `name`; an axis is a list of its name and
//! its values. [`super::case::Case`] describes the text.
//!
//! Invariant: a file with a field that is not described here is refused. The tests read every case of a file.

use super::case::{Case, Form};
use crate::reproduce::paper::data::{Axis, Columns};
use crate::reproduce::paper::sheet::Apart;
use crate::reproduce::paper::target::{Party, Target, Unit};
use crate::reproduce::row::{Published, Relation, Standing, TOLERANCE};
use crate::reproduce::text::Text;
use serde::Deserialize;
use std::sync::LazyLock;

/// The text at the top of this file describes this type.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockPaper {
    /// The paper's name on the command line.
    pub name: Text,
    /// The heading of the paper's page.
    pub title: Text,
    /// The paper's authors and title.
    pub source: Text,
    /// The hardware profile of the testbed.
    pub profile: Text,
    /// A description of the machines and columns, for a reader of the page.
    pub legend: Text,
    /// The choices that the paper leaves open and this evaluation makes.
    pub assumed: Vec<Text>,
    pub(super) columns: Columns,
    /// The lengths of runs.
    pub full: Lengths,
    /// The lengths of a quick test run.
    pub quick: Lengths,
    #[serde(rename = "section")]
    pub(super) sections: Vec<Section>,
}

/// The lengths of runs, in virtual time.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    /// The transactions that a trace has; clients begin again after the last one.
    pub transactions: usize,
    /// The time before counting.
    pub warm_up_ms: f64,
    /// The time of counting.
    pub virtual_ms: f64,
    /// The same two times for transactions that end after 10 ms at the latest: deadlocks last so long.
    pub patient_warm_up_ms: f64,
    /// See [`Lengths::patient_warm_up_ms`].
    pub patient_virtual_ms: f64,
    /// The requests after which a hotspot moves.
    pub hotspot_moves_after: u64,
    /// Locks that are held when a view changes: a smaller and a larger number.
    pub held: [u32; 2],
}

/// A section of the page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The section's name on the command line.
    pub name: Text,
    /// The title above the section.
    pub title: Text,
    #[serde(rename = "row")]
    pub(super) rows: Vec<Stated>,
    /// The notes for a reader.
    #[serde(default)]
    pub notes: Vec<Text>,
}

/// A published value, and the rule for the simulated value beside it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    figure: Text,
    workload: Text,
    metric: Text,
    unit: Unit,
    published: f64,
    source: Text,
    #[serde(default)]
    derived: bool,
    bound: Option<Relation>,
    /// The input of the model from which the simulated value follows.
    follows: Option<Text>,
    /// The reason for which the value is shown and not judged.
    unjudged: Option<Text>,
    /// The cause of a value that misses, as the counters of its runs show it. The text has no number that a run gives.
    pub because: Option<Text>,
    /// The reason for which the value is not simulated.
    pub not_simulated: Option<Text>,
    /// The measure; empty if the value is not simulated.
    #[serde(default)]
    pub of: Text,
    /// The case, without its form; empty if the measure needs none.
    #[serde(default)]
    pub one: Text,
    /// The case by whose measure the first one's is divided.
    pub over: Option<Text>,
    #[serde(default)]
    pub each: Vec<Axis>,
    /// The choice among the values of the axes.
    pub best: Option<Best>,
}

/// The choice of one of several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Best {
    Lowest,
    Highest,
}

impl Stated {
    /// Whether a text of the value's cases contains a word.
    fn names(&self, word: &str) -> bool {
        let texts = [Some(self.one), self.over].into_iter().flatten();
        texts.chain(self.each.iter().flatten().copied()).any(|text| text.contains(word))
    }

    /// Whether the sources of the paper state the value's load differently, so that each form has a column.
    fn has_forms(&self) -> bool {
        self.has_form(Form::Text)
    }

    /// Whether the value has a column of this form.
    pub(super) fn has_form(&self, form: Form) -> bool {
        match form {
            Form::Code => true,
            Form::Text => self.names("zipf") || self.names("tatp"),
            Form::Shares => self.names("zipf"),
        }
    }

    /// Returns the published value in the form that rows use for their verdict.
    pub(super) fn target(&self) -> Target {
        Target {
            figure: self.figure.0,
            workload: self.workload.0,
            metric: self.metric.0,
            unit: self.unit,
            published: Published {
                range: (self.published, self.published),
                relation: self.bound.unwrap_or(Relation::Equal),
                standing: if self.derived { Standing::Derived } else { Standing::Stated },
                source: self.source.0,
            },
            party: if self.has_forms() { Party::Own } else { Party::Baselines },
            tolerance: TOLERANCE,
        }
    }

    /// Returns the reason for which the value is counted apart, if it is.
    pub(super) fn apart(&self) -> Option<Apart> {
        let follows = self.follows.map(|text| Apart::FollowsFrom(text.0));
        follows.or_else(|| self.unjudged.map(|text| Apart::NotJudged(text.0)))
    }

    /// Returns the two texts of the value's cases for each combination of the axes; the second may be missing.
    pub(super) fn pairs(&self) -> Vec<(String, Option<String>)> {
        let mut all = vec![(self.one.to_string(), self.over.map(|text| text.to_string()))];
        for axis in &self.each {
            let (name, values) = axis.split_first().expect("an axis has a name");
            let place = format!("{{{name}}}");
            let longer = all.iter().flat_map(|(one, over)| {
                values.iter().map(|value| {
                    let over = over.as_ref().map(|over| over.replace(&place, value));
                    (one.replace(&place, value), over)
                })
            });
            all = longer.collect();
        }
        all
    }

    /// Returns all runs that the value needs, in all of its forms.
    ///
    /// # Panics
    /// If the program cannot read the text of a case: this is a mistake in a data file, which the tests find.
    pub(super) fn cases(&self, columns: &Columns) -> Vec<Case> {
        if self.one.is_empty() {
            return Vec::new();
        }
        let forms = columns.forms(self.target().party);
        let texts = self.pairs().into_iter().flat_map(|(one, over)| [Some(one), over]).flatten();
        let each = texts.flat_map(|text| {
            let has = |form: &&Text| Form::by_name(form).is_some_and(|form| self.has_form(form));
            let read = |form: &Text| case_of(&text, form);
            forms.iter().filter(has).map(read).collect::<Vec<_>>()
        });
        each.collect()
    }
}

/// Reads a case of a data file.
///
/// # Panics
/// The text is none.
pub(super) fn case_of(text: &str, form: &str) -> Case {
    let form = Form::by_name(form).unwrap_or_else(|| panic!("a form: {form}"));
    Case::read(text, form).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// All papers on locks.
///
/// # Panics
/// A file cannot be read; the tests read all files.
pub static ALL: LazyLock<Vec<LockPaper>> = LazyLock::new(|| {
    let text = include_str!("../../../data/fisslock.toml");
    vec![toml::from_str(text).unwrap_or_else(|error| panic!("a paper: {error}"))]
});

/// Returns the paper with this name.
pub fn by_name(name: &str) -> Option<&'static LockPaper> {
    ALL.iter().find(|paper| &*paper.name == name)
}
