//! Reads the data file of a paper. The file describes the set-up, the published figures, the simulated value for each
//! figure, and the drawings.
//!
//! A *case* is a text with a system, a benchmark, the system's form as `@form`, and settings as `key=value` (see
//! `setting`). In a text, `{name}` is replaced by a value of the axis `name`. An axis is a list of the axis's name
//! and then its values. A value `*list` is replaced by all values of the list with this name in the extent. The first
//! axis varies slowest. The file `value.rs` defines the measures.
//!
//! Invariant: a file with a field that is not described here is refused. Every case, measure, list
//! and layout that a file names exists, and the tests check all of them.

use super::case::Kind;
use super::extent::{Amount, Extent};
use super::target::{Party, Target, Unit};
use crate::reproduce::row::{Published, Relation, Standing, TOLERANCE};
use crate::reproduce::stage::Machines;
use crate::reproduce::systems::{Layouts, Systems};
use crate::reproduce::text::Text;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A paper: its set-up, its published figures, and the cases to run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The paper's name on the command line.
    pub name: Text,
    /// The heading of the paper's page.
    pub title: Text,
    /// The paper's authors and title.
    pub source: Text,
    /// The hardware profile of the testbed.
    pub profile: Text,
    /// A description of the machines and columns, for a reader of the page.
    pub(super) legend: Text,
    /// The choices that the paper leaves open, so that this evaluation has to make them.
    pub(super) assumed: Vec<Text>,
    /// The way in which a row names the resource that limits its value.
    pub(super) told: Told,
    /// The text that the page shows as the old value of a constant which a supposition replaces.
    pub(super) was: Text,
    /// Protocols and variants whose histories and memory must be correct, in addition to the variants whose names
    /// begin with "corrected".
    #[serde(default)]
    pub(super) also_sound: Vec<Text>,
    /// The systems of which the page states whether they are available.
    #[serde(default)]
    pub(super) entrants: Vec<Text>,
    pub(super) columns: Columns,
    pub(super) testbed: Machines,
    pub(super) layout: Layouts,
    pub(super) system: Systems,
    pub(super) bench: BTreeMap<Text, Benchmark>,
    pub(super) extent: Extents,
    /// Sentences about amounts that may be smaller than the published amounts.
    pub(super) smaller: Vec<Smaller>,
    /// The suppositions that a user can make.
    pub(super) what_if: Vec<Supposable>,
    #[serde(rename = "section")]
    pub(super) sections: Vec<Section>,
}

/// The way in which a row names the resource that limits its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// The row names the busiest hardware parts.
    BusiestParts,
    /// The row names the resource that was the limit.
    LimitingResource,
}

/// The forms in which the systems run. A row has one column for each form.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::reproduce) struct Columns {
    pub names: Vec<Text>,
    /// The columns of rows that contain the paper's own system.
    own: Column,
    /// The columns of rows that contain only systems to which the paper compares its own system.
    baselines: Column,
    /// Whether the report also gives a verdict on each column that does not decide the row's verdict.
    #[serde(default)]
    pub judges_all: bool,
}

/// For each column, the form of the systems in this column, if there is one. One column decides the row's verdict.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::reproduce) struct Column {
    pub forms: Vec<Text>,
    pub decides: usize,
}

impl Columns {
    /// Returns the columns of a row.
    pub(super) fn of(&self, party: Party) -> &Column {
        match party {
            Party::Own => &self.own,
            Party::Baselines => &self.baselines,
        }
    }

    /// Returns the forms of a row's columns.
    pub(in crate::reproduce) fn forms(&self, party: Party) -> &[Text] {
        &self.of(party).forms
    }

    /// Returns the form that decides the verdict of rows with the paper's own system.
    pub(super) fn decisive(&self) -> Text {
        self.own.forms[self.own.decides]
    }
}

/// A benchmark of the paper's evaluation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Benchmark {
    pub kind: Kind,
    /// The name of the benchmark's profile; `*name` takes this name from the extent.
    pub mix: Text,
    /// The name of the extent's amount that gives the benchmark's number of records.
    pub records: Text,
    /// The settings of every case with this benchmark.
    #[serde(default)]
    pub settings: Text,
    /// The name of the extent's list of coordinators; `None` means the numbers of the extent's
    /// scale.
    pub coordinators: Option<Text>,
    /// The number of transactions of a whole published run, and its number of records. The numbers of transactions
    /// and records determine the addresses that threads know after half of such a run.
    pub ran: [f64; 2],
    /// Whether threads begin with the addresses that they would know after half of a published run.
    #[serde(default)]
    pub remembers: bool,
    /// The length of the leases for systems that leave this length to the benchmark.
    #[serde(default)]
    pub lease_ns: u32,
}

/// The extents to which the evaluation can be run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extents {
    /// The published extent, as far as a machine's memory allows.
    pub full: Extent,
    /// An extent that takes some minutes.
    pub quick: Extent,
}

/// A sentence about an amount that may be smaller than the published amount.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Smaller {
    /// The amount's name in the extent. The page has the sentence only if this amount is smaller than `than`. If the
    /// amount is a name, the page has the sentence only if the name is not `than`.
    pub amount: Option<Text>,
    pub than: Option<Amount>,
    pub say: Text,
}

/// A supposition that a user can make: an assumed change that applies to all systems of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Supposable {
    pub key: Text,
    /// A description of the allowed values.
    pub allowed: Text,
    /// The protocols that the supposition changes; an empty list means all protocols.
    #[serde(default)]
    pub protocols: Vec<Text>,
    /// The benchmarks that the supposition changes; an empty list means all benchmarks.
    #[serde(default)]
    pub benches: Vec<Kind>,
    /// A benchmark profile that the supposition does not change.
    pub not_mix: Option<Text>,
    /// The settings for each value of the supposition.
    #[serde(default)]
    pub values: BTreeMap<Text, Text>,
    /// The setting that takes the supposition's value, if this value is a number.
    pub number: Option<Bounds>,
}

/// The range of a number that may be supposed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    pub from: f64,
    pub to: f64,
    /// The name of the setting to which the number is assigned.
    pub sets: Text,
    /// The form in which the page shows the number.
    pub shown: Text,
    #[serde(default)]
    pub is_fraction: bool,
}

/// An axis: a list of the axis's name and then its values.
pub(in crate::reproduce) type Axis = Vec<Text>;

/// A section of the page: its cases, and the rows and drawings that show them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    /// The section's name on the command line.
    pub name: Text,
    /// The title above the section.
    pub title: Text,
    #[serde(default)]
    pub run: Vec<Cases>,
    pub crashes: Option<Crashes>,
    /// The hotspots: runs in which hot shards move to other nodes.
    #[serde(default)]
    pub hotspots: Vec<Cases>,
    /// The cases in which the manager adjusts the length of read leases.
    #[serde(default)]
    pub adjusted: Vec<Cases>,
    /// The forms in which the section's rows have no simulated value, with the reason for each form.
    #[serde(default)]
    pub not_run: BTreeMap<Text, Text>,
    #[serde(rename = "group")]
    pub groups: Vec<Group>,
    #[serde(default)]
    pub grids: Vec<Grid>,
    #[serde(default)]
    pub curves: Vec<Curves>,
    /// The title of the drawing that shows the throughput over time for all crashes of the section.
    pub timeline: Option<Text>,
    /// The notes for a reader.
    #[serde(default)]
    pub notes: Vec<Text>,
}

/// The cases that a section runs: one case for each combination of the axes' values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cases {
    #[serde(default)]
    pub each: Vec<Axis>,
    pub case: Text,
    /// The name of the extent's list of coordinators. `most` means only the benchmark's largest
    /// number, and `None` means all numbers of the benchmark.
    pub at: Option<Text>,
    /// The numbers of coordinators of these cases. If this list is not empty, it replaces the numbers in the extent.
    #[serde(default)]
    pub coordinators: Vec<usize>,
}

/// The crashes of compute nodes that a section runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Crashes {
    pub cases: Vec<Text>,
    /// The number of compute nodes that crash.
    pub nodes: usize,
    /// The length of the run before the crash, in virtual milliseconds.
    pub before_ms: f64,
    /// The length of the run after the crashed machines have joined again, in virtual milliseconds.
    pub after_ms: f64,
}

/// A group of published values: the values of one of the paper's figures for one workload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub figure: Text,
    pub workload: Text,
    /// The place of the values in the paper.
    pub source: Text,
    /// The reason for which no value of the group can be simulated.
    pub why: Option<Text>,
    pub rows: Vec<Stated>,
}

/// A published value, and the rule for the simulated value to which it is compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    metric: Text,
    unit: Unit,
    published: f64,
    /// The place of the value in the paper, if it differs from the place of the group's other
    /// values.
    source: Option<Text>,
    /// Whether the value was computed from values that the paper states.
    #[serde(default)]
    derived: bool,
    bound: Option<Relation>,
    /// The allowed deviation as a share of the published factor, if it differs from [`TOLERANCE`].
    within: Option<f64>,
    /// Whether the row contains only systems to which the paper compares its own system.
    #[serde(default)]
    baselines: bool,
    pub is: Value,
}

impl Stated {
    /// Converts the published value to a target, which rows use for their verdict.
    pub(super) fn target(&self, group: &Group) -> Target {
        let source = self.source.unwrap_or(group.source).0;
        Target {
            figure: group.figure.0,
            workload: group.workload.0,
            metric: self.metric.0,
            unit: self.unit,
            published: Published {
                range: (self.published, self.published),
                relation: self.bound.unwrap_or(Relation::Equal),
                standing: if self.derived { Standing::Derived } else { Standing::Stated },
                source,
            },
            party: if self.baselines { Party::Baselines } else { Party::Own },
            tolerance: self.within.unwrap_or(TOLERANCE),
        }
    }
}

/// The rule for a simulated value: a measure of one case, or a ratio of the measures of two cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Value {
    /// The name of the measure.
    pub of: Text,
    /// The case that is measured, without its form. The text is empty if the measure needs no case.
    #[serde(default)]
    pub one: Text,
    /// The case by whose measure the first case's measure is divided.
    pub over: Option<Text>,
    /// Two further cases: the first ratio is divided by the ratio of these two cases' measures.
    pub again_over: Option<[Text; 2]>,
    /// The point of a curve at which the measure is taken.
    #[serde(default)]
    pub at: At,
    /// The rule that selects one of several values, if each combination of the axes' values gives a value.
    pub best: Option<Best>,
    #[serde(default)]
    pub each: Vec<Axis>,
    /// If this is an axis's name, the result is the value of this axis in the combination that `best` selects.
    pub tells: Option<Text>,
    /// Whether the selection ignores missing values. If it does not, one missing value makes the whole result
    /// missing.
    #[serde(default)]
    pub skips_missing: bool,
    /// The reason for a missing value, for rows that have no simulated value although all their
    /// cases can run.
    pub why: Option<Text>,
}

/// The rule that selects one point of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum At {
    /// The point with the highest throughput.
    #[default]
    Peak,
    /// The last point whose throughput is near the peak: this point is used for latencies under load.
    Loaded,
    /// The point with the fewest coordinators whose throughput is near the highest throughput.
    Saturation,
    /// The point with the largest number of coordinators that was run.
    Most,
}

/// The rule that selects one of several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Best {
    Lowest,
    Highest,
}

/// A drawing that shows one measure for each series and each group. If the axis of the groups has a name, the drawing
/// has lines; otherwise the drawing has bars.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grid {
    pub title: Text,
    pub x_name: Option<Text>,
    pub y_name: Text,
    pub of: Text,
    #[serde(default)]
    pub at: At,
    pub groups: Entries,
    pub series: Entries,
}

/// The groups or the series of a drawing. Each entry has a label and a part of a case's text. A series may also have
/// its own measure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entries {
    #[serde(default)]
    pub each: Vec<Axis>,
    pub of: Vec<Vec<Text>>,
}

/// A drawing of all points of several cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Curves {
    pub title: Text,
    #[serde(default)]
    pub each: Vec<Axis>,
    /// The text of a case, which is used for each combination of the axes' values.
    pub case: Option<Text>,
    /// A list of cases, as an alternative to `case`.
    #[serde(default)]
    pub cases: Vec<Text>,
    /// The measure along the horizontal axis; the default measure is throughput.
    #[serde(default = "millions")]
    pub x: Text,
    #[serde(default = "median")]
    pub y: Text,
}

fn millions() -> Text {
    Text("millions")
}

fn median() -> Text {
    Text("median")
}

const FILES: [&str; 2] =
    [include_str!("../../../data/lotus.toml"), include_str!("../../../data/oocc.toml")];

/// All papers that have a data file.
///
/// # Panics
/// Panics if a data file cannot be read. The tests read all data files.
pub static ALL: LazyLock<Vec<Paper>> = LazyLock::new(|| {
    let read = |text: &str| toml::from_str(text).unwrap_or_else(|error| panic!("a paper: {error}"));
    FILES.into_iter().map(read).collect()
});

/// Returns the paper with this name.
pub fn by_name(name: &str) -> Option<&'static Paper> {
    ALL.iter().find(|paper| &*paper.name == name)
}

/// Returns all combinations of the axes' values, as pairs of names and values; the first axis
/// varies slowest.
pub(super) fn combinations(axes: &[Axis], extent: &Extent) -> Vec<Vec<(Text, Text)>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        let (name, values) = axis.split_first().expect("an axis has a name");
        let values: Vec<Text> = values.iter().flat_map(|value| extent.expand(*value)).collect();
        let longer = |known: &Vec<(Text, Text)>| {
            let known = known.clone();
            values.clone().into_iter().map(move |it| [known.clone(), vec![(*name, it)]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Returns the text in which each `{name}` is replaced by the value with this name.
pub(super) fn filled(text: &str, values: &[(Text, Text)]) -> String {
    let replaced =
        |text: String, (name, value): &(Text, Text)| text.replace(&format!("{{{name}}}"), value);
    values.iter().fold(text.to_owned(), replaced)
}
