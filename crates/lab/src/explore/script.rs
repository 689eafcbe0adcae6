//! The small language of litmus files. The language describes the requests of a transaction, with one
//! string for each step.
//!
//! Invariant: a step means the same to the engine ([`super::coordinate`]) and to the interpreter with which the
//! engine is compared ([`super::oracle`]). The steps of a transaction take effect in their order. An expression uses
//! values that the transaction itself read and wrote. A record that does not exist counts as 0.
//!
//! ```text
//! read x            look at x
//! get x             look at x; of a transaction that is one call, all of whose steps are this
//! update x = y + 1  change x, if it is there; y must have been asked for in this transaction
//! insert x = 5      make x, if it is not there
//! delete x          remove x, if it is there
//! scan 3..7         read the entries of the ordered index from 3 to 7, both included; `back`: from the end,
//!                   `limit 2`: no more than two entries
//! split 5, merge 5  before the transaction, ask for a split or merge of the leaf where 5 belongs
//! fetch             bring the rows that were asked for so far (one more round of the transaction)
//! abort             give up: nothing of it may remain
//! ```
//!
//! In place of a record, an expression may contain the word `count`. The word `count` means the number
//! of entries that the previous scan showed.

use super::parse::parse_op;
use super::ranges::{Entry, Ordered, Range};
use std::collections::BTreeMap;
use std::fmt;
use tarn_store::index::btree::work::TreeTask;

/// A record, given by its position among the names of its litmus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordIndex(pub usize);

/// The value of a record. `None` means that the record does not exist.
pub type Content = Option<u64>;

/// The result of a step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Saw {
    /// The result of a read: the content of the record.
    Content(Content),
    /// The result of a scan: the entries of the range, in the order of the scan.
    Entries(Vec<Entry>),
}

/// The first part of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The number zero.
    Zero,
    /// The content of a record. A record that does not exist counts as 0.
    Record(RecordIndex),
    /// The number of entries that the previous scan saw.
    Count,
}

/// The value that a write writes: a number, or the result of an earlier step plus a number. The addition wraps
/// around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expression {
    /// The value to which the number is added.
    pub base: Base,
    /// The number to add, as two's complement.
    pub number: u64,
}

impl Expression {
    /// Returns the value of the expression. `content` gives the content of a record, and `count` is the
    /// number of entries that the previous scan saw.
    pub fn value(self, content: impl Fn(RecordIndex) -> Content, count: usize) -> u64 {
        let base = match self.base {
            Base::Zero => 0,
            Base::Record(record) => content(record).unwrap_or(0),
            Base::Count => count as u64,
        };
        base.wrapping_add(self.number)
    }
}

/// One step of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads a record.
    Read(RecordIndex),
    /// Reads a record. One call of the engine reads all records of the transaction.
    Get(RecordIndex),
    /// Changes a record that exists.
    Update(RecordIndex, Expression),
    /// Creates a record that does not exist.
    Insert(RecordIndex, Expression),
    /// Removes a record.
    Delete(RecordIndex),
    /// Reads a range of the ordered index.
    Scan(Range),
    /// Requests a change of the tree's shape before the transaction: the leaf of a value is split or merged.
    Reshape(TreeTask, u64),
    /// Fetches the rows that the earlier steps requested.
    Fetch,
    /// Aborts the transaction.
    Abort,
}

impl Op {
    /// Returns the record on which the step acts, if it acts on one.
    pub fn record(self) -> Option<RecordIndex> {
        match self {
            Op::Read(record) | Op::Update(record, _) | Op::Insert(record, _) => Some(record),
            Op::Delete(record) | Op::Get(record) => Some(record),
            Op::Scan(_) | Op::Reshape(..) | Op::Fetch | Op::Abort => None,
        }
    }

    /// Returns whether this step of a transaction needs an ordered index.
    pub fn is_ordered(self) -> bool {
        matches!(self, Op::Scan(_) | Op::Reshape(..))
    }

    pub(super) fn is_change(self) -> bool {
        matches!(self, Op::Update(..) | Op::Insert(..) | Op::Delete(_))
    }
}

/// The steps of one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The steps, in order.
    pub ops: Vec<Op>,
}

impl Script {
    /// Returns whether the transaction only reads. A transaction that only reads is declared as
    /// read-only.
    pub fn only_reads(&self) -> bool {
        self.ops.iter().all(|op| matches!(op, Op::Read(_) | Op::Scan(_) | Op::Fetch))
    }

    /// Returns the records that the transaction reads, if all its steps form one call of the engine.
    pub fn gets(&self) -> Option<Vec<RecordIndex>> {
        let get = |op: &Op| if let Op::Get(record) = *op { Some(record) } else { None };
        self.ops.iter().map(get).collect()
    }

    /// Reads the steps from their text. `names` are the names of the litmus's records.
    ///
    /// # Errors
    /// The error names the step, and the allowed steps.
    pub fn parse(steps: &[String], names: &[String]) -> Result<Script, String> {
        let mut ops = Vec::new();
        for step in steps {
            let op = parse_op(step, names)
                .map_err(|allowed| format!("step \"{step}\"; allowed: {allowed}"))?;
            ops.push(op);
        }
        let script = Script { ops };
        match script.mistake(names) {
            None => Ok(script),
            Some(mistake) => Err(mistake),
        }
    }

    /// Returns whether the script ends with a step that aborts the transaction.
    pub fn gives_up(&self) -> bool {
        self.ops.contains(&Op::Abort)
    }

    /// Describes a step that the engine does not offer or that would have no meaning, if the script has
    /// such a step.
    fn mistake(&self, names: &[String]) -> Option<String> {
        let name = |record: RecordIndex| &names[record.0];
        let mut asked: Vec<RecordIndex> = Vec::new();
        let mut deleted: Vec<RecordIndex> = Vec::new();
        let (mut changes, mut scanned) = (false, false);
        if self.ops.iter().any(|op| matches!(op, Op::Get(_))) && self.gets().is_none() {
            return Some("get beside other steps; allowed: alone".into());
        }
        for (at, op) in self.ops.iter().enumerate() {
            if *op == Op::Abort && at + 1 != self.ops.len() {
                return Some("abort before the last step; allowed: as the last step".into());
            }
            if let Op::Update(record, it) | Op::Insert(record, it) = *op {
                match it.base {
                    Base::Record(other) if other != record && !asked.contains(&other) => {
                        let of = name(other);
                        return Some(format!("{of} before it is asked for; allowed: after"));
                    }
                    Base::Count if !scanned => {
                        return Some("count before a scan; allowed: after".into());
                    }
                    _ => {}
                }
            }
            match *op {
                Op::Insert(record, _) if deleted.contains(&record) => {
                    let of = name(record);
                    return Some(format!(
                        "insert {of} after its delete; allowed: in another transaction"
                    ));
                }
                Op::Delete(record) => deleted.push(record),
                // A scan does not show changes that its transaction made after the last fetch. So a script must have
                // a fetch step between a change and a scan.
                Op::Scan(_) if changes => {
                    return Some("a scan after a change; allowed: with a fetch between".into());
                }
                Op::Scan(_) => scanned = true,
                _ => {}
            }
            changes = *op != Op::Fetch && (changes || op.is_change());
            asked.extend(op.record());
        }
        if asked.is_empty() && !self.ops.iter().any(|op| op.is_ordered()) {
            return Some("a transaction without a record; allowed: at least one".into());
        }
        None
    }

    /// Runs the transaction alone on `state` and returns the results of its reads. `ordered` is the ordered index
    /// over `state`, if the litmus has one. If a unique index refuses the transaction, the result is `None` and
    /// `state` is unchanged. An aborted script also changes nothing.
    pub fn interpret(&self, ordered: Option<&Ordered>, state: &mut [Content]) -> Option<Vec<Saw>> {
        self.interpret_noting(ordered, state, &mut Vec::new())
    }

    /// Like [`Self::interpret`]. In addition, the function adds to `written` the records that the transaction wrote,
    /// in order, whether or not their values changed.
    pub fn interpret_noting(
        &self,
        ordered: Option<&Ordered>,
        state: &mut [Content],
        written: &mut Vec<RecordIndex>,
    ) -> Option<Vec<Saw>> {
        let (mut seen, mut count) = (Vec::new(), 0);
        let mut own = state.to_vec();
        for op in &self.ops {
            match *op {
                Op::Read(record) | Op::Get(record) => seen.push(Saw::Content(own[record.0])),
                Op::Update(record, it) if own[record.0].is_some() => {
                    written.push(record);
                    own[record.0] = Some(it.value(|other| own[other.0], count));
                }
                Op::Insert(record, it) if own[record.0].is_none() => {
                    written.push(record);
                    own[record.0] = Some(it.value(|other| own[other.0], count));
                }
                Op::Delete(record) if own[record.0].is_some() => {
                    written.push(record);
                    own[record.0] = None;
                }
                Op::Scan(range) => {
                    let entries = ordered.map(|it| it.entries(range, &own)).unwrap_or_default();
                    count = entries.len();
                    seen.push(Saw::Entries(entries));
                }
                Op::Update(..) | Op::Insert(..) | Op::Delete(_) => {}
                Op::Reshape(..) | Op::Fetch | Op::Abort => {}
            }
        }
        let refused = ordered.is_some_and(|it| it.refuses(&own));
        if self.gives_up() || refused {
            written.clear();
            return self.gives_up().then_some(seen);
        }
        state.copy_from_slice(&own);
        Some(seen)
    }
}

/// Records with their contents in readable form: `x = 1, y absent`.
pub struct Contents<'a> {
    /// The records' names.
    pub names: &'a [String],
    /// The contents of the records.
    pub contents: &'a [Content],
}

impl fmt::Display for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, content)) in self.names.iter().zip(self.contents).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match content {
                Some(value) => write!(f, "{comma}{name} = {value}")?,
                None => write!(f, "{comma}{name} absent")?,
            }
        }
        Ok(())
    }
}

/// Converts contents by name, as litmus files state them.
pub(super) fn by_name(
    stated: &BTreeMap<String, Stated>,
    names: &[String],
) -> Result<Vec<Content>, String> {
    if let Some(name) = stated.keys().find(|name| !names.contains(name)) {
        return Err(format!("record {name}; allowed: {}", names.join(", ")));
    }
    let of = |name: &String| stated.get(name).map(|it| it.0);
    names
        .iter()
        .map(|name| of(name).ok_or_else(|| format!("no {name} in it; allowed: every record")))
        .collect()
}

/// A record's content in a litmus file: a number, or "absent".
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Stated(pub Content);

impl TryFrom<toml::Value> for Stated {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Stated, String> {
        match &value {
            toml::Value::Integer(number) if *number >= 0 => Ok(Stated(Some(*number as u64))),
            toml::Value::String(text) if text == "absent" => Ok(Stated(None)),
            other => Err(format!("{other}; allowed: a whole number, or \"absent\"")),
        }
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
