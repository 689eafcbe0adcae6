//! A paper as its data file describes it: set-up, published figures, the simulated value beside each, and drawings.
//!
//! Map: a *case* is a text: a system, a benchmark, `@form`, and settings as `key=value` ([`super::setting`]). `{name}` in a
//! text stands for a value of an axis. An axis is a list: its name, then its values; `*list` stands for a list of the extent.
//! The first axis runs slowest. [`super::value`] says which measures there are.
//!
//! Invariant: a file with a field that is not described here is refused. Every case, measure, list and layout that a file
//! names exists: the tests look at all of them.

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

/// See the module's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its name on the command line.
    pub name: Text,
    /// Its heading.
    pub title: Text,
    /// Authors and title.
    pub source: Text,
    /// The testbed's hardware.
    pub profile: Text,
    /// The machines and columns, for a reader of its page.
    pub(super) legend: Text,
    /// Choices that the paper leaves open and the page makes.
    pub(super) assumed: Vec<Text>,
    /// How a row names its limit.
    pub(super) told: Told,
    /// The words for the value that a supposition replaces.
    pub(super) was: Text,
    /// Protocols and variants, beside all that are called corrected, whose histories and memory must be sound.
    #[serde(default)]
    pub(super) also_sound: Vec<Text>,
    /// Systems of which the page says whether they are there.
    #[serde(default)]
    pub(super) entrants: Vec<Text>,
    pub(super) columns: Columns,
    pub(super) testbed: Machines,
    pub(super) layout: Layouts,
    pub(super) system: Systems,
    pub(super) bench: BTreeMap<Text, Benchmark>,
    pub(super) extent: Extents,
    /// Sentences about amounts that may be smaller than published.
    pub(super) smaller: Vec<Smaller>,
    /// Suppositions that can be made.
    pub(super) what_if: Vec<Supposable>,
    #[serde(rename = "section")]
    pub(super) sections: Vec<Section>,
}

/// How a row names its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// By the busiest parts.
    BusiestParts,
    /// By the resource that was the limit.
    LimitingResource,
}

/// In which forms the systems run: a column of a row each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Columns {
    pub names: Vec<Text>,
    /// Of rows with the paper's own system.
    own: Column,
    /// Of rows of those that it is compared with.
    baselines: Column,
    /// Whether the other columns are judged, too, and shown beside; they decide nothing.
    #[serde(default)]
    pub judges_all: bool,
}

/// Which form stands in each column, as far as any does, and which column decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Column {
    pub forms: Vec<Text>,
    pub decides: usize,
}

impl Columns {
    /// The columns of a row.
    pub(super) fn of(&self, party: Party) -> &Column {
        match party {
            Party::Own => &self.own,
            Party::Baselines => &self.baselines,
        }
    }

    /// The form that decides where the paper's own system runs.
    pub(super) fn decisive(&self) -> Text {
        self.own.forms[self.own.decides]
    }
}

/// A benchmark of the paper's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Benchmark {
    pub kind: Kind,
    /// Its profile; `*name`: as the extent says.
    pub mix: Text,
    /// The extent's amount that is its number of records.
    pub records: Text,
    /// Settings of every case of it.
    #[serde(default)]
    pub settings: Text,
    /// The extent's list of coordinators; none: those of its scale.
    pub coordinators: Option<Text>,
    /// Transactions of a whole run, and records: addresses can be remembered as after half of such a run.
    pub ran: [f64; 2],
    /// Whether they are.
    #[serde(default)]
    pub remembers: bool,
    /// Leases of systems that leave their length to the benchmark.
    #[serde(default)]
    pub lease_ns: u32,
}

/// How much is run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extents {
    /// As published, where a machine's memory allows.
    pub full: Extent,
    /// In some minutes.
    pub quick: Extent,
}

/// A sentence about an amount that may be smaller than published.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Smaller {
    /// Said only if this amount of the extent is smaller, or another name, than `than`.
    pub amount: Option<Text>,
    pub than: Option<Amount>,
    pub say: Text,
}

/// A supposition that can be made: a cause that is changed for all systems of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Supposable {
    pub key: Text,
    /// The values, in words.
    pub allowed: Text,
    /// The protocols that it is about; none: all.
    #[serde(default)]
    pub protocols: Vec<Text>,
    /// The benchmarks that it is about; none: all.
    #[serde(default)]
    pub benches: Vec<Kind>,
    /// A profile of a benchmark that it is not about.
    pub not_mix: Option<Text>,
    /// Settings by value.
    #[serde(default)]
    pub values: BTreeMap<Text, Text>,
    /// The setting that takes a number.
    pub number: Option<Bounds>,
}

/// A number that may be supposed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    pub from: f64,
    pub to: f64,
    /// The setting.
    pub sets: Text,
    /// How the page shows it.
    pub shown: Text,
    #[serde(default)]
    pub is_fraction: bool,
}

/// An axis: its name, then its values.
pub(super) type Axis = Vec<Text>;

/// A part of the page: its cases, and how they become rows and drawings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    /// Its name on the command line.
    pub name: Text,
    /// Above it.
    pub title: Text,
    #[serde(default)]
    pub run: Vec<Cases>,
    pub crashes: Option<Crashes>,
    /// Hotspots that are dealt out.
    #[serde(default)]
    pub hotspots: Vec<Cases>,
    /// Leases that are adjusted.
    #[serde(default)]
    pub adjusted: Vec<Cases>,
    /// Forms that no row has, and why.
    #[serde(default)]
    pub not_run: BTreeMap<Text, Text>,
    #[serde(rename = "group")]
    pub groups: Vec<Group>,
    #[serde(default)]
    pub grids: Vec<Grid>,
    #[serde(default)]
    pub curves: Vec<Curves>,
    /// The title of a drawing of all crashes over time.
    pub timeline: Option<Text>,
    /// Notes for a reader.
    #[serde(default)]
    pub notes: Vec<Text>,
}

/// Cases that are run: one for each combination of the axes' values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cases {
    #[serde(default)]
    pub each: Vec<Axis>,
    pub case: Text,
    /// The extent's list of coordinators, or `most`: the most of the benchmark's alone; none: all of the benchmark's.
    pub at: Option<Text>,
    /// These coordinators, whatever the extent says.
    #[serde(default)]
    pub coordinators: Vec<usize>,
}

/// Crashes of compute nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Crashes {
    pub cases: Vec<Text>,
    /// Compute nodes that crash.
    pub nodes: usize,
    /// Watched before the crash, in virtual milliseconds.
    pub before_ms: f64,
    /// Watched after the machines are back.
    pub after_ms: f64,
}

/// Published values of one figure and workload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub figure: Text,
    pub workload: Text,
    /// Where the values stand.
    pub source: Text,
    /// Why none of them can be simulated.
    pub why: Option<Text>,
    pub rows: Vec<Stated>,
}

/// A published value, and the simulated one that it is held against.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    metric: Text,
    unit: Unit,
    published: f64,
    /// Where it stands, if elsewhere than the rest of its group.
    source: Option<Text>,
    /// Whether it is arithmetic on stated values.
    #[serde(default)]
    derived: bool,
    bound: Option<Relation>,
    /// How far off it may be, as a share, if not [`TOLERANCE`].
    within: Option<f64>,
    /// Whether only those are in it that the paper's own system is compared with.
    #[serde(default)]
    baselines: bool,
    pub is: Value,
}

impl Stated {
    /// The value as rows are judged by it.
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

/// How a simulated value is computed: a measure of one case, or of one over another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Value {
    /// The measure.
    pub of: Text,
    /// The case, without its form; none: the measure needs none.
    #[serde(default)]
    pub one: Text,
    /// The case that it is divided by.
    pub over: Option<Text>,
    /// Two further cases, by whose ratio the first is divided.
    pub again_over: Option<[Text; 2]>,
    /// The point of a curve.
    #[serde(default)]
    pub at: At,
    /// Which of several values is taken: one for each combination of the axes' values.
    pub best: Option<Best>,
    #[serde(default)]
    pub each: Vec<Axis>,
    /// The axis whose value is the answer, where the best is.
    pub tells: Option<Text>,
    /// Whether values that are missing are left out, instead of making all missing.
    #[serde(default)]
    pub skips_missing: bool,
    /// Why there is none, if all that it needs could be run.
    pub why: Option<Text>,
}

/// A point of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum At {
    /// Of highest throughput.
    #[default]
    Peak,
    /// The last point near the peak: for latencies there.
    Loaded,
    /// The fewest coordinators with nearly the highest throughput.
    Saturation,
    /// The most coordinators that were run.
    Most,
}

/// Which of several values is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Best {
    Lowest,
    Highest,
}

/// A drawing of a measure of series by groups: bars, or lines over the groups if the axis along them has a name.
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

/// Groups or series: a label, a part of a case, and of series their own measure if they have one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entries {
    #[serde(default)]
    pub each: Vec<Axis>,
    pub of: Vec<Vec<Text>>,
}

/// A drawing of all points of some cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Curves {
    pub title: Text,
    #[serde(default)]
    pub each: Vec<Axis>,
    /// A case for each combination of the axes' values.
    pub case: Option<Text>,
    /// Or these.
    #[serde(default)]
    pub cases: Vec<Text>,
    /// The measure along the axis; throughput if it has none.
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

/// Every paper there is.
///
/// # Panics
/// A file that cannot be read; the tests read all.
pub static ALL: LazyLock<Vec<Paper>> = LazyLock::new(|| {
    let read = |text: &str| toml::from_str(text).unwrap_or_else(|error| panic!("a paper: {error}"));
    FILES.into_iter().map(read).collect()
});

/// The paper of this name.
pub fn by_name(name: &str) -> Option<&'static Paper> {
    ALL.iter().find(|paper| &*paper.name == name)
}

/// All combinations of values of the axes, the first axis slowest: names and values.
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

/// A text with its `{name}`s replaced.
pub(super) fn filled(text: &str, values: &[(Text, Text)]) -> String {
    let replaced =
        |text: String, (name, value): &(Text, Text)| text.replace(&format!("{{{name}}}"), value);
    values.iter().fold(text.to_owned(), replaced)
}
