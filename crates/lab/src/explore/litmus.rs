//! A litmus: a few transactions on a few records, and a description of the result that would be wrong. A TOML file
//! describes the litmus.
//!
//! Invariant: a litmus names no protocol. A file is refused if it has an unknown key, a step without a meaning, or an
//! outcome that no order of the transactions gives. The error names the file. The files of the repository are part of
//! the program.

use super::oracle;
use super::ranges::{self, FileOrdered, Ordered};
use super::script::{Content, Contents, Script, Stated, by_name};
use super::shape::Shape;
use crate::harness::layout::Layout;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use tarn_check::Isolation;
use tarn_store::ids::UsageError;

/// The largest number of compute nodes of a litmus.
pub const COMPUTE_NODES_MAX: u16 = 3;
/// The largest number of transactions of one litmus. The number is small because the oracle tries all orders of these
/// transactions.
const TRANSACTIONS_MAX: usize = 6;
/// The largest number of tries of one transaction.
const TRIES_MAX: u32 = 3;

macro_rules! embedded {
    ($($name:literal)+) => {
        /// The litmuses that are part of the program, by name.
        const EMBEDDED: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../scenarios/litmus/", $name, ".toml")))),+
        ];
    };
}

embedded! {
    "aba" "absent-skew" "ack-then-die" "cache-fill" "cache-local-reader" "delete-reader"
    "dirty-read" "fractured-get" "fractured-read" "get-in-turn" "half-commit" "insert-insert"
    "intermediate-read" "late-read" "later-read" "lock-twice" "long-reader" "lost-update"
    "merge-scan" "phantom" "range-edge" "range-gap" "range-move" "range-phantom" "range-skew"
    "read-in-turn" "read-only-anomaly" "real-time" "recycled-record" "split-insert" "split-leaf"
    "split-lost" "split-scan" "stale-address" "successor" "three-writers" "torn-body" "torn-row"
    "unique-insert" "user-abort" "write-skew" "write-then-read"
}

/// A litmus test.
#[derive(Clone, Debug)]
pub struct Litmus {
    /// The name of the litmus, or of its file.
    pub name: String,
    /// The subject of the litmus.
    pub title: String,
    /// The result that would be wrong.
    pub wrong: String,
    /// The layout of the litmus's records.
    pub layout: Layout,
    /// Whether the litmus may run with every layout of records. A litmus whose file names no layout may run with
    /// every layout.
    pub any_layout: bool,
    /// The ordered index of the litmus, by the values of records, if the litmus has an index.
    pub ordered: Option<Ordered>,
    /// The names of the records, ascending.
    pub records: Vec<String>,
    /// The initial contents of the records.
    pub initial: Vec<Content>,
    /// Sets of records. The records of one set share one bin of the index, so that one record can take a slot that
    /// another record has freed.
    pub together: Vec<Vec<usize>>,
    /// The coordinators and their transactions.
    pub coordinators: Vec<Crew>,
    /// The compute nodes that may be lost in the litmus, if there are any.
    pub mortal: Vec<u16>,
    /// The number of tries of each transaction.
    pub tries: u32,
    /// The clusters on which the litmus should run, the most informative cluster first.
    pub shapes: Vec<Shape>,
}

/// One coordinator and the list of transactions that it runs in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crew {
    /// The compute node of the coordinator.
    pub node: u16,
    /// Whether the coordinator remembers the addresses at which it saw records.
    pub remembers: bool,
    /// The coordinator that this coordinator succeeds. This coordinator begins when the node of the other coordinator
    /// is lost, and it takes the coordinator number of the other.
    pub succeeds: Option<usize>,
    /// The transactions of the coordinator.
    pub transactions: Vec<Script>,
}

impl Litmus {
    /// Returns the names of the litmuses that are part of the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// Returns the litmus called `name`. If `name` ends in `.toml`, returns the litmus in that file.
    ///
    /// # Errors
    /// The error names the unknown litmus, or the file and its mistake.
    pub fn load(name: &str) -> Result<Litmus, UsageError> {
        let refuse = |allowed: String| UsageError {
            field: "litmus".into(),
            value: name.to_owned(),
            allowed,
        };
        if let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
            return Litmus::parse(name, text).map_err(refuse);
        }
        if !name.ends_with(".toml") {
            let names: Vec<&str> = Litmus::names().collect();
            return Err(refuse(format!("all, {} or a file.toml", names.join(", "))));
        }
        let text = std::fs::read_to_string(Path::new(name))
            .map_err(|error| refuse(format!("a file that can be read ({error})")))?;
        Litmus::parse(name, &text).map_err(refuse)
    }

    /// Reads a litmus from its text.
    ///
    /// # Errors
    /// The error describes the mistake and its place.
    pub fn parse(name: &str, text: &str) -> Result<Litmus, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..at].matches('\n').count() + 1;
            format!("a litmus in TOML; line {line}: {}", error.message())
        })?;
        let (litmus, stated) = file.litmus(name)?;
        // The litmus is checked before the orders of its transactions are tried, because it may have
        // too many transactions.
        litmus.validate()?;
        if !stated.is_empty() {
            litmus.compare(&stated)?;
        }
        Ok(litmus)
    }

    /// Returns the number of compute nodes that the litmus's coordinators need.
    pub fn compute_nodes(&self) -> u16 {
        self.coordinators.iter().map(|crew| crew.node + 1).max().unwrap_or(1)
    }

    fn may_succeed(&self, crew: &Crew, of: usize) -> bool {
        let before = self.coordinators.get(of);
        before.is_some_and(|it| it.node != crew.node && self.mortal.contains(&it.node))
    }

    fn validate(&self) -> Result<(), String> {
        let count: usize = self.coordinators.iter().map(|crew| crew.transactions.len()).sum();
        if !(1..=TRANSACTIONS_MAX).contains(&count) {
            return Err(format!("{count} transactions; allowed: 1 to {TRANSACTIONS_MAX}"));
        }
        if let Some(crew) = self.coordinators.iter().find(|crew| crew.node >= COMPUTE_NODES_MAX) {
            let most = COMPUTE_NODES_MAX - 1;
            return Err(format!("node = {}; allowed: 0 to {most}", crew.node));
        }
        let is_mortal = |node: &u16| self.coordinators.iter().any(|crew| crew.node == *node);
        let is_again = |at: usize| self.mortal[..at].contains(&self.mortal[at]);
        let odd = (0..self.mortal.len()).find(|&at| !is_mortal(&self.mortal[at]) || is_again(at));
        if let Some(at) = odd {
            let allowed = "compute nodes of coordinators, each once";
            return Err(format!("mortal = {}; allowed: {allowed}", self.mortal[at]));
        }
        let lonely = |crew: &&Crew| crew.succeeds.is_some_and(|of| !self.may_succeed(crew, of));
        if let Some(crew) = self.coordinators.iter().find(lonely) {
            let of = crew.succeeds.unwrap_or_default();
            return Err(format!(
                "succeeds = {of}; allowed: a coordinator of another compute node that is mortal"
            ));
        }
        if !(1..=TRIES_MAX).contains(&self.tries) {
            return Err(format!("tries = {}; allowed: 1 to {TRIES_MAX}", self.tries));
        }
        if self.shapes.is_empty() {
            return Err("shapes = []; allowed: one at the least".into());
        }
        ranges::mistake(self).map_or(Ok(()), Err)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    title: String,
    wrong: String,
    layout: Option<String>,
    records: BTreeMap<String, Stated>,
    ordered: Option<FileOrdered>,
    #[serde(default)]
    together: Vec<Vec<String>>,
    #[serde(default = "one")]
    tries: u32,
    shapes: Vec<String>,
    coordinator: Vec<FileCrew>,
    /// The compute nodes that may be lost. If the file names none, all compute nodes may be lost.
    mortal: Option<Vec<u16>>,
    /// The results that are right if all transactions commit. The file must state all of these results, and no other
    /// result.
    #[serde(default)]
    outcome: Vec<BTreeMap<String, Stated>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FileCrew {
    node: u16,
    #[serde(default)]
    remembers: bool,
    succeeds: Option<usize>,
    transactions: Vec<Vec<String>>,
}

fn one() -> u32 {
    1
}

impl File {
    /// Returns the litmus before validation, and the results that the litmus's file states.
    fn litmus(self, name: &str) -> Result<(Litmus, Vec<Vec<Content>>), String> {
        let records: Vec<String> = self.records.keys().cloned().collect();
        let initial = by_name(&self.records, &records)?;
        let layout = self.layout.as_deref().map(str::parse::<Layout>).transpose();
        let said = || self.layout.as_deref().unwrap_or_default();
        let layout =
            layout.map_err(|allowed| format!("layout = {}; allowed: {allowed}", said()))?;
        let position = |name: &String| {
            let at = records.iter().position(|known| known == name);
            at.ok_or_else(|| format!("together = {name}; allowed: {}", records.join(", ")))
        };
        let together = self.together.iter().map(|names| names.iter().map(position).collect());
        let crew = |crew: &FileCrew| {
            let scripts = crew.transactions.iter().map(|steps| Script::parse(steps, &records));
            let transactions = scripts.collect::<Result<_, String>>()?;
            let FileCrew { node, remembers, succeeds, .. } = *crew;
            Ok(Crew { node, remembers, succeeds, transactions })
        };
        let shape = |text: &String| {
            text.parse().map_err(|allowed| format!("shapes = {text}; allowed: {allowed}"))
        };
        let nodes = || BTreeSet::from_iter(self.coordinator.iter().map(|crew| crew.node));
        let litmus = Litmus {
            mortal: self.mortal.clone().unwrap_or_else(|| nodes().into_iter().collect()),
            name: name.to_owned(),
            title: self.title,
            wrong: self.wrong,
            layout: layout.unwrap_or(Layout::Narrow),
            any_layout: layout.is_none(),
            ordered: self.ordered.as_ref().map(FileOrdered::ordered).transpose()?,
            together: together.collect::<Result<_, String>>()?,
            coordinators: self.coordinator.iter().map(crew).collect::<Result<_, String>>()?,
            tries: self.tries,
            shapes: self.shapes.iter().map(shape).collect::<Result<_, String>>()?,
            initial,
            records: records.clone(),
        };
        let stated = self.outcome.iter().map(|it| by_name(it, &records));
        Ok((litmus, stated.collect::<Result<_, String>>()?))
    }
}

impl Litmus {
    /// Checks that the file states exactly the results that the orders of the litmus's transactions give.
    fn compare(&self, stated: &[Vec<Content>]) -> Result<(), String> {
        let mut stated = stated.to_vec();
        stated.sort_unstable();
        let given = oracle::results(self, Isolation::StrictSerializable);
        if stated == given {
            return Ok(());
        }
        let mut text =
            "the outcomes are not those of the orders of its transactions; allowed:".to_owned();
        for (at, contents) in given.iter().enumerate() {
            let or = if at == 0 { " " } else { "; " };
            let _ = write!(text, "{or}{}", Contents { names: &self.records, contents });
        }
        Err(text)
    }
}

#[cfg(test)]
#[path = "litmus_tests.rs"]
mod tests;
