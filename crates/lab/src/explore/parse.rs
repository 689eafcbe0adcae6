//! Reads the steps of litmus files from their text.
//!
//! Invariant: a step that cannot be read is refused, and the error lists the allowed steps. [`super::script`] defines
//! the meaning of the steps.

use super::ranges::Range;
use super::script::{Base, Expression, Op, RecordIndex};
use tarn_store::index::btree::work::TreeTask;

/// The largest number of entries that a scan with a limit may request.
const LIMIT_MAX: u32 = 100;

const STEPS: &str = "read R, get R, update R = E, insert R = E, delete R, scan N..N with back and limit N behind \
                     it, split N, merge N, fetch, abort; E is a number, R or count, with + or - a number \
                     behind it";

/// Reads a step. `names` are the names of the litmus's records.
///
/// # Errors
/// The error lists the steps that are allowed in place of the unreadable step.
pub(super) fn parse_op(step: &str, names: &[String]) -> Result<Op, String> {
    let (left, right) = match step.split_once('=') {
        Some((left, right)) => (left, Some(right)),
        None => (step, None),
    };
    let words: Vec<&str> = left.split_whitespace().collect();
    match (&words[..], right) {
        (["fetch"], None) => Ok(Op::Fetch),
        (["abort"], None) => Ok(Op::Abort),
        (["read", name], None) => Ok(Op::Read(record(name, names)?)),
        (["get", name], None) => Ok(Op::Get(record(name, names)?)),
        (["delete", name], None) => Ok(Op::Delete(record(name, names)?)),
        (["scan", range, how @ ..], None) => Ok(Op::Scan(scanned(range, how)?)),
        (["split", value], None) => Ok(Op::Reshape(TreeTask::Split, number(value)?)),
        (["merge", value], None) => Ok(Op::Reshape(TreeTask::Merge, number(value)?)),
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

fn number(word: &str) -> Result<u64, String> {
    word.parse::<u64>().map_err(|_| STEPS.to_owned())
}

fn scanned(range: &str, how: &[&str]) -> Result<Range, String> {
    let (from, to) = range.split_once("..").ok_or_else(|| STEPS.to_owned())?;
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err("a range that does not end before it begins".into());
    }
    let (backward, rest) = match how {
        ["back", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let limit = match rest {
        [] => None,
        ["limit", entries] => {
            let entries = entries.parse().ok().filter(|entries| (1..=LIMIT_MAX).contains(entries));
            Some(entries.ok_or_else(|| format!("a limit of 1 to {LIMIT_MAX}"))?)
        }
        _ => return Err(STEPS.to_owned()),
    };
    Ok(Range { from, to, limit, backward })
}

fn expression(text: &str, names: &[String]) -> Result<Expression, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let base = |word: &str| match word {
        "count" => Ok(Base::Count),
        name => record(name, names).map(Base::Record),
    };
    match words[..] {
        [word] => match word.parse() {
            Ok(number) => Ok(Expression { base: Base::Zero, number }),
            Err(_) => Ok(Expression { base: base(word)?, number: 0 }),
        },
        [word, "+", plus] => Ok(Expression { base: base(word)?, number: number(plus)? }),
        [word, "-", minus] => {
            Ok(Expression { base: base(word)?, number: number(minus)?.wrapping_neg() })
        }
        _ => Err(STEPS.to_owned()),
    }
}
