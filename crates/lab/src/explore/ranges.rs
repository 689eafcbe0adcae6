//! The ordered index of a litmus: the records that have entries in this index, and the entries that a scan of the
//! index must show.
//!
//! Invariant: the index orders records by their values, then by name. Keys of records ascend with their names, so the
//! order by key and the order by name are the same. This module knows only values. The judges compare the results of
//! the engine's trees with the results of this module. Fillers are records that no script names. Fillers only fill
//! the leaves of the tree, and their values never change.

use super::litmus::Litmus;
use super::script::{Content, RecordIndex};
use serde::Deserialize;
use std::collections::BTreeSet;
use tarn_store::index::btree::work::{TreeTask, TreeWork};
use tarn_store::layout::index_plan::KeyBytes;
use tarn_store::schema::range::{IndexKey, Scan};
use tarn_store::schema::{ColumnId, INDEX_KEY_BYTES_MAX, IndexId, IndexPart, TableSchema};

/// The only index of the table.
pub const INDEX: IndexId = IndexId(0);
/// The largest number of fillers of a litmus. A few leaves have room for this number of fillers.
const FILLERS_MAX: usize = 200;

/// The ordered index of a litmus.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// Whether the index is unique, so that no two records may have the same value.
    pub unique: bool,
    /// The values of the fillers, ascending. Each value belongs to one filler.
    pub fillers: Vec<u64>,
    /// The values that select leaves: the leaf of each value is split before all other changes.
    pub splits: Vec<u64>,
    /// The values of fillers that transactions insert after the splits. Late fillers are needed because loading fills
    /// leaves only to three quarters.
    pub late: Vec<u64>,
}

/// The index as a litmus file states it.
#[derive(Clone, Deserialize, Debug)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileOrdered {
    #[serde(default)]
    unique: bool,
    /// The ranges of the values of fillers. Each range includes its smallest and its largest value.
    #[serde(default)]
    fillers: Vec<(u64, u64)>,
    #[serde(default)]
    splits: Vec<u64>,
    /// The ranges of the values of late fillers. Each range includes its smallest and its largest value.
    #[serde(default)]
    late: Vec<(u64, u64)>,
}

impl FileOrdered {
    /// Returns the index.
    ///
    /// # Errors
    /// The error names the impossible range of fillers.
    pub fn ordered(&self) -> Result<Ordered, String> {
        let mut fillers = BTreeSet::new();
        let mut of = |ranges: &[(u64, u64)]| -> Result<Vec<u64>, String> {
            let mut all = Vec::new();
            for &(from, to) in ranges {
                let count = to.saturating_sub(from).saturating_add(1);
                let fits = from <= to && count <= FILLERS_MAX as u64;
                if !fits || !(from..=to).all(|value| fillers.insert(value)) {
                    let allowed = format!("ranges apart, of at most {FILLERS_MAX} values in all");
                    return Err(format!("fillers = [{from}, {to}]; allowed: {allowed}"));
                }
                all.extend(from..=to);
            }
            Ok(all)
        };
        of(&self.fillers)?;
        let late = of(&self.late)?;
        if fillers.len() > FILLERS_MAX {
            return Err(format!("{} fillers; allowed: at most {FILLERS_MAX}", fillers.len()));
        }
        let (unique, splits) = (self.unique, self.splits.clone());
        Ok(Ordered { unique, fillers: fillers.into_iter().collect(), splits, late })
    }
}

/// The range of values that a scan step reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The smallest value of the range.
    pub from: u64,
    /// The largest value of the range; the range includes this value.
    pub to: u64,
    /// The largest number of entries that the scan shows, if a limit is given.
    pub limit: Option<u32>,
    /// Whether the scan goes from the largest value to the smallest.
    pub backward: bool,
}

impl Range {
    /// Returns the engine's form of this scan.
    pub fn scan(self) -> Scan {
        let key = |value| IndexKey::new().u64(value);
        let mut scan = Scan::range(key(self.from), key(self.to));
        scan = self.limit.map_or(scan, |limit| scan.limit(limit));
        if self.backward { scan.backward() } else { scan }
    }
}

/// The holder of an entry that a scan saw.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holder {
    /// A record of the litmus.
    Record(RecordIndex),
    /// A filler.
    Filler,
    /// A record that no transaction created.
    Nobody,
}

/// An entry that a scan saw: the value, and the holder of this value.
pub type Entry = (u64, Holder);

impl Ordered {
    /// Returns the table's schema with the index, laid out for all records.
    pub fn schema(&self, table: TableSchema, records: usize) -> TableSchema {
        let parts = [IndexPart::Column(ColumnId(0))];
        let mut table = table.index("by_value", &parts, self.unique);
        table.expected_records = (records + self.fillers.len()) as u64;
        table
    }

    /// Returns the entries that a scan shows if the records hold `contents`.
    pub fn entries(&self, range: Range, contents: &[Content]) -> Vec<Entry> {
        let named = contents.iter().enumerate();
        let named = named.filter_map(|(at, it)| Some(((*it)?, Holder::Record(RecordIndex(at)))));
        let fillers = self.fillers.iter().map(|&value| (value, Holder::Filler));
        let is_inside = |entry: &Entry| (range.from..=range.to).contains(&entry.0);
        let mut all: Vec<Entry> = named.chain(fillers).filter(is_inside).collect();
        all.sort_unstable();
        if range.backward {
            all.reverse();
        }
        all.truncate(range.limit.map_or(usize::MAX, |limit| limit as usize));
        all
    }

    /// Returns whether the index refuses a change after which the records would hold `contents`.
    pub fn refuses(&self, contents: &[Content]) -> bool {
        let mut values: Vec<u64> = contents.iter().flatten().copied().collect();
        values.sort_unstable();
        let is_twice = values.windows(2).any(|pair| pair[0] == pair[1]);
        let is_filler = |value: &u64| self.fillers.binary_search(value).is_ok();
        self.unique && (is_twice || values.iter().any(is_filler))
    }
}

/// Returns a request to change the tree's shape: the change concerns the leaf to which `value` belongs.
pub fn work(task: TreeTask, value: u64) -> TreeWork {
    let mut key: KeyBytes = [0; INDEX_KEY_BYTES_MAX];
    key[..8].copy_from_slice(&value.to_be_bytes());
    TreeWork { index: INDEX, task, level: 0, key }
}

/// Describes a mistake in a litmus's use of its ordered index, or of the missing index.
pub fn mistake(litmus: &Litmus) -> Option<String> {
    if litmus.records.iter().any(|name| name == "count") {
        return Some("a record called count; allowed: another name".into());
    }
    let scripts = || litmus.coordinators.iter().flat_map(|crew| &crew.transactions);
    let Some(ordered) = &litmus.ordered else {
        let needs = scripts().any(|script| script.ops.iter().any(|op| op.is_ordered()));
        return needs.then(|| "a scan, split or merge; allowed: with an ordered index".into());
    };
    let refused = ordered.refuses(&litmus.initial);
    refused.then(|| "records that say the same; allowed: if the index is not unique".into())
}

#[cfg(test)]
#[path = "ranges_tests.rs"]
mod tests;
