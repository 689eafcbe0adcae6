//! The small language of litmus files: what a transaction asks for, one step a string.
//!
//! Invariant: a step means the same to the engine ([`super::coordinate`]) and to the interpreter that the
//! engine is held against ([`super::oracle`]): steps take effect in order, an expression sees what the
//! transaction itself saw and wrote, an absent record counts as 0.
//!
//! ```text
//! read x            look at x
//! update x = y + 1  change x, if it is there; y must have been asked for in this transaction
//! insert x = 5      make x, if it is not there
//! delete x          remove x, if it is there
//! fetch             bring what was asked for so far (one more round of the transaction)
//! abort             give up: nothing of it may remain
//! ```

use std::collections::BTreeMap;
use std::fmt;

/// A record, by position among the names of its litmus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordIndex(pub usize);

/// What is in a record: `None` if it is not there.
pub type Content = Option<u64>;

/// What a write writes: a number, or a record's content and a number, wrapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expression {
    /// Whose content is added; an absent record counts as 0.
    pub record: Option<RecordIndex>,
    /// What is added, as two's complement.
    pub number: u64,
}

impl Expression {
    /// Its value, where a record's content is known.
    pub fn value(self, content: impl Fn(RecordIndex) -> Content) -> u64 {
        let base = self.record.map_or(0, |record| content(record).unwrap_or(0));
        base.wrapping_add(self.number)
    }
}

/// One step of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Looks at a record.
    Read(RecordIndex),
    /// Changes a record that is there.
    Update(RecordIndex, Expression),
    /// Makes a record that is not there.
    Insert(RecordIndex, Expression),
    /// Removes a record.
    Delete(RecordIndex),
    /// Brings what was asked for.
    Fetch,
    /// Gives up.
    Abort,
}

impl Op {
    /// The record that it is about.
    pub fn record(self) -> Option<RecordIndex> {
        match self {
            Op::Read(record) | Op::Update(record, _) | Op::Insert(record, _) => Some(record),
            Op::Delete(record) => Some(record),
            Op::Fetch | Op::Abort => None,
        }
    }
}

/// The steps of one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// In order.
    pub ops: Vec<Op>,
}

impl Script {
    /// Reads the steps; `names` are the litmus's records.
    ///
    /// # Errors
    /// Names the step, and what is allowed.
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

    /// What the engine does not offer, or what would mean nothing.
    fn mistake(&self, names: &[String]) -> Option<String> {
        let name = |record: RecordIndex| &names[record.0];
        let mut asked: Vec<RecordIndex> = Vec::new();
        let mut deleted: Vec<RecordIndex> = Vec::new();
        for (at, op) in self.ops.iter().enumerate() {
            if *op == Op::Abort && at + 1 != self.ops.len() {
                return Some("abort before the last step; allowed: as the last step".into());
            }
            if let Op::Update(record, it) | Op::Insert(record, it) = *op
                && let Some(other) = it.record
                && other != record
                && !asked.contains(&other)
            {
                return Some(format!("{} before it is asked for; allowed: after", name(other)));
            }
            match *op {
                Op::Insert(record, _) if deleted.contains(&record) => {
                    let of = name(record);
                    return Some(format!(
                        "insert {of} after its delete; allowed: in another transaction"
                    ));
                }
                Op::Delete(record) => deleted.push(record),
                _ => {}
            }
            asked.extend(op.record());
        }
        if asked.is_empty() {
            return Some("a transaction without a record; allowed: at least one".into());
        }
        None
    }

    /// Runs it alone on `state`; what its reads saw. An aborted script changes nothing.
    pub fn interpret(&self, state: &mut [Content]) -> Vec<Content> {
        let mut seen = Vec::new();
        let mut own = state.to_vec();
        for op in &self.ops {
            match *op {
                Op::Read(record) => seen.push(own[record.0]),
                Op::Update(record, it) if own[record.0].is_some() => {
                    own[record.0] = Some(it.value(|other| own[other.0]));
                }
                Op::Insert(record, it) if own[record.0].is_none() => {
                    own[record.0] = Some(it.value(|other| own[other.0]));
                }
                Op::Delete(record) => own[record.0] = None,
                Op::Update(..) | Op::Insert(..) | Op::Fetch | Op::Abort => {}
            }
        }
        if !self.gives_up() {
            state.copy_from_slice(&own);
        }
        seen
    }
}

const STEPS: &str = "read R, update R = E, insert R = E, delete R, fetch, abort; E is a number, R, \
                     R + a number or R - a number";

fn parse_op(step: &str, names: &[String]) -> Result<Op, String> {
    let (left, right) = match step.split_once('=') {
        Some((left, right)) => (left, Some(right)),
        None => (step, None),
    };
    let words: Vec<&str> = left.split_whitespace().collect();
    match (&words[..], right) {
        (["fetch"], None) => Ok(Op::Fetch),
        (["abort"], None) => Ok(Op::Abort),
        (["read", name], None) => Ok(Op::Read(record(name, names)?)),
        (["delete", name], None) => Ok(Op::Delete(record(name, names)?)),
        (["update", name], Some(right)) => {
            Ok(Op::Update(record(name, names)?, expression(right, names)?))
        }
        (["insert", name], Some(right)) => {
            Ok(Op::Insert(record(name, names)?, expression(right, names)?))
        }
        _ => Err(STEPS.to_owned()),
    }
}

fn record(name: &str, names: &[String]) -> Result<RecordIndex, String> {
    let at = names.iter().position(|known| known == name);
    at.map(RecordIndex).ok_or_else(|| format!("records {}", names.join(", ")))
}

fn expression(text: &str, names: &[String]) -> Result<Expression, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().map_err(|_| STEPS.to_owned());
    match words[..] {
        [word] => match word.parse() {
            Ok(number) => Ok(Expression { record: None, number }),
            Err(_) => Ok(Expression { record: Some(record(word, names)?), number: 0 }),
        },
        [name, "+", word] => {
            Ok(Expression { record: Some(record(name, names)?), number: number(word)? })
        }
        [name, "-", word] => {
            let number = number(word)?.wrapping_neg();
            Ok(Expression { record: Some(record(name, names)?), number })
        }
        _ => Err(STEPS.to_owned()),
    }
}

/// Records with their contents, for people: `x = 1, y absent`.
pub struct Contents<'a> {
    /// The records' names.
    pub names: &'a [String],
    /// What is in them.
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
mod tests {
    use super::*;

    fn script(steps: &[&str]) -> Result<Script, String> {
        let steps: Vec<String> = steps.iter().map(|&step| step.to_owned()).collect();
        Script::parse(&steps, &["x".to_owned(), "y".to_owned()])
    }

    #[test]
    fn steps_take_effect_in_order_and_see_the_transaction_s_own_writes() {
        let all = script(&["read y", "update x = y + 2", "fetch", "read x", "delete y", "read y"]);
        let mut state = [Some(1), Some(5)];
        let seen = all.expect("a script").interpret(&mut state);
        assert_eq!((seen, state), (vec![Some(5), Some(7), None], [Some(7), None]));
    }

    #[test]
    fn what_is_not_there_is_not_updated_and_what_is_there_not_inserted() {
        let mut state = [None, Some(1)];
        script(&["update x = 3", "insert y = 9"]).expect("a script").interpret(&mut state);
        assert_eq!(state, [None, Some(1)]);
        script(&["insert x = y - 1"]).expect_err("y was not asked for");
        script(&["read y", "insert x = y - 1"]).expect("a script").interpret(&mut state);
        assert_eq!(state, [Some(0), Some(1)]);
        script(&["update x = 8", "abort"]).expect("a script").interpret(&mut state);
        assert_eq!(state, [Some(0), Some(1)]);
    }

    #[test]
    fn bad_steps_are_named_with_what_is_allowed() {
        for (steps, part) in [
            (&["raed x"][..], "read R"),
            (&["read z"], "records x, y"),
            (&["update x"], "update R = E"),
            (&["update x = 1 1"], "a number"),
            (&["fetch"], "at least one"),
            (&["abort", "read x"], "as the last step"),
            (&["delete x", "fetch", "insert x = 1"], "another transaction"),
        ] {
            let said = script(steps).expect_err("refused");
            assert!(said.contains(part) && said.contains("allowed"), "{said}");
        }
    }
}
