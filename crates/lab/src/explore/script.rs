//! The small language of litmus files: the requests of a transaction, one step a string.
//!
//! Invariant: a step means the same to the engine ([`super::coordinate`]) and to the interpreter that the engine is held
//! against ([`super::oracle`]). Steps take effect in order, an expression uses values that the transaction itself read and
//! wrote, an absent record counts as 0.
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
//! Instead of a record an expression may say `count`: the number of entries that the scan before it showed.

use super::parse::parse_op;
use super::ranges::{Entry, Ordered, Range};
use std::collections::BTreeMap;
use std::fmt;
use tarn_store::index::btree::work::TreeTask;

/// A record, by position among the names of its litmus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordIndex(pub usize);

/// The value of a record: `None` if it is not there.
pub type Content = Option<u64>;

/// The result of a step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Saw {
    /// A read: the record.
    Content(Content),
    /// A scan: its entries, in its order.
    Entries(Vec<Entry>),
}

/// The first part of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Nothing.
    Zero,
    /// A record's content; an absent record counts as 0.
    Record(RecordIndex),
    /// How many entries the scan before it saw.
    Count,
}

/// The value that a write writes: a number, or a result and a number, wrapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expression {
    /// The value that the number is added to.
    pub base: Base,
    /// The number to add, as two's complement.
    pub number: u64,
}

impl Expression {
    /// Its value, where a record's content is known, and how many entries were counted.
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
    /// Looks at a record.
    Read(RecordIndex),
    /// Looks at a record, in one call with all that its transaction looks at.
    Get(RecordIndex),
    /// Changes a record that is there.
    Update(RecordIndex, Expression),
    /// Makes a record that is not there.
    Insert(RecordIndex, Expression),
    /// Removes a record.
    Delete(RecordIndex),
    /// Looks at a range of the ordered index.
    Scan(Range),
    /// Asks, before the transaction, that the leaf of a value change its shape.
    Reshape(TreeTask, u64),
    /// Brings the rows that were asked for.
    Fetch,
    /// Gives up.
    Abort,
}

impl Op {
    /// The record that it is about.
    pub fn record(self) -> Option<RecordIndex> {
        match self {
            Op::Read(record) | Op::Update(record, _) | Op::Insert(record, _) => Some(record),
            Op::Delete(record) | Op::Get(record) => Some(record),
            Op::Scan(_) | Op::Reshape(..) | Op::Fetch | Op::Abort => None,
        }
    }

    /// Whether it needs an ordered index.
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
    /// In order.
    pub ops: Vec<Op>,
}

impl Script {
    /// Whether it only looks at records: then it is declared to.
    pub fn only_reads(&self) -> bool {
        self.ops.iter().all(|op| matches!(op, Op::Read(_) | Op::Scan(_) | Op::Fetch))
    }

    /// The records that it looks at, if it is one call.
    pub fn gets(&self) -> Option<Vec<RecordIndex>> {
        let get = |op: &Op| if let Op::Get(record) = *op { Some(record) } else { None };
        self.ops.iter().map(get).collect()
    }

    /// Reads the steps; `names` are the litmus's records.
    ///
    /// # Errors
    /// Names the step, and the allowed ones.
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

    /// Whether it gives up.
    pub fn gives_up(&self) -> bool {
        self.ops.contains(&Op::Abort)
    }

    /// Returns a step that the engine does not offer, or that would mean nothing.
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
                // A scan shows the changes before its fetch.
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

    /// Runs it alone on `state`, whose index, if it has one, is `ordered`; returns the results of its reads. `None`, with
    /// nothing changed: a unique index refuses it. An aborted script changes nothing.
    pub fn interpret(&self, ordered: Option<&Ordered>, state: &mut [Content]) -> Option<Vec<Saw>> {
        self.interpret_noting(ordered, state, &mut Vec::new())
    }

    /// As [`Self::interpret`]; `written` are the records that it wrote, in order, whether or not their values changed.
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

/// Records with their contents, for people: `x = 1, y absent`.
pub struct Contents<'a> {
    /// The records' names.
    pub names: &'a [String],
    /// Their contents.
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

/// Contents by name, as litmus files state them.
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
