//! The format of the history file: JSON lines with one header object, one object per transaction, and
//! one footer object.
//!
//! ```text
//! {"tarn_history":1,"meta":{"workload":"bank"},"tables":["savings"]}
//! {"id":1,"coordinator":0,"invoked_ns":5,"completed_ns":9,"outcome":"committed",
//!  "reads":[[TABLE,KEY,VERSION,PRESENT,FINGERPRINT]],"writes":[[TABLE,KEY,VERSION,KIND,FINGERPRINT]]}
//! {"end":true,"transactions":1}
//! ```
//! In the file a transaction is on one line. `completed_ns` is `null` if the transaction never
//! completed. Transactions may be in any order.
//!
//! Invariant: a file without its footer is not a history, so the file of an interrupted run never
//! counts as a complete history. The reader parses lines directly into the model of the history. If a
//! line fails to parse, [`explain`] parses it again, more slowly. [`explain`] says which field is
//! wrong and which values this field may hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::history::{Read, RecordId, Transaction, Version, Write, WriteKind};

/// The number of the file format, which is the value of `tarn_history` in the header.
pub const FORMAT: u64 = 1;

/// The first line of a history file.
#[derive(Serialize, Deserialize)]
pub(crate) struct Header {
    pub tarn_history: u64,
    pub meta: BTreeMap<String, String>,
    pub tables: Vec<String>,
}

/// The last line of a history file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Footer {
    pub end: bool,
    pub transactions: u64,
}

/// A field that holds a wrong value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldProblem {
    /// The field, such as `reads[2].version`.
    pub field: String,
    /// The value that the field has in the file, as JSON.
    pub found: String,
    /// The values that the field may have.
    pub allowed: String,
}

impl FieldProblem {
    pub(crate) fn new(field: impl Into<String>, found: impl ToString, allowed: &str) -> Self {
        let found = found.to_string();
        Self { field: field.into(), found: shorten(&found), allowed: allowed.to_owned() }
    }
}

/// Returns the first part of a long text, so that an error stays on one line.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}

type ReadRow = (u16, u64, Version, bool, u64);
type WriteRow = (u16, u64, Version, WriteKind, u64);

impl Serialize for Read {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row: ReadRow =
            (self.record.table, self.record.key, self.version, self.present, self.fingerprint);
        row.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (table, key, version, present, fingerprint) = ReadRow::deserialize(deserializer)?;
        Ok(Self { record: RecordId { table, key }, version, present, fingerprint })
    }
}

impl Serialize for Write {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row: WriteRow =
            (self.record.table, self.record.key, self.version, self.kind, self.fingerprint);
        row.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Write {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (table, key, version, kind, fingerprint) = WriteRow::deserialize(deserializer)?;
        Ok(Self { record: RecordId { table, key }, version, kind, fingerprint })
    }
}

/// Reads and writes the field `completed_ns`, where `null` means [`crate::NEVER_NS`].
pub(crate) mod completion {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::history::NEVER_NS;

    pub fn serialize<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        (*ns != NEVER_NS).then_some(*ns).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.unwrap_or(NEVER_NS))
    }
}

/// Checks a parsed transaction for two faults that parsing does not find. The faults are a table
/// number that the header does not define, and an end before the beginning.
pub(crate) fn validate(txn: &Transaction, tables: usize) -> Result<(), FieldProblem> {
    if txn.completed_ns < txn.invoked_ns {
        let allowed = format!("null or at least invoked_ns = {}", txn.invoked_ns);
        return Err(FieldProblem::new("completed_ns", txn.completed_ns, &allowed));
    }
    let reads = txn.reads.iter().map(|read| read.record.table);
    let writes = txn.writes.iter().map(|write| write.record.table);
    let in_reads = reads.enumerate().map(|(at, table)| ("reads", at, table));
    let in_writes = writes.enumerate().map(|(at, table)| ("writes", at, table));
    for (list, at, table) in in_reads.chain(in_writes) {
        if usize::from(table) >= tables {
            let allowed = format!("0 to {} (the header names {tables} tables)", tables.max(1) - 1);
            return Err(FieldProblem::new(format!("{list}[{at}].table"), table, &allowed));
        }
    }
    Ok(())
}

const FIELDS: [&str; 7] =
    ["id", "coordinator", "invoked_ns", "completed_ns", "outcome", "reads", "writes"];

/// Returns the wrong field of a transaction line that does not parse. If every field is right, the
/// function returns `None`, and the caller reports a syntax error.
pub(crate) fn explain(line: &Value) -> Option<FieldProblem> {
    let Value::Object(object) = line else {
        return Some(FieldProblem::new("transaction", line, "an object"));
    };
    if let Some(stranger) = object.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let allowed = format!("only the fields {}", FIELDS.join(", "));
        return Some(FieldProblem::new(stranger.as_str(), &object[stranger], &allowed));
    }
    FIELDS.iter().find_map(|field| explain_field(object, field))
}

fn explain_field(object: &Map<String, Value>, field: &str) -> Option<FieldProblem> {
    let Some(value) = object.get(field) else {
        return Some(FieldProblem::new(field, "nothing", "a value"));
    };
    match field {
        "coordinator" => whole(field, value, u64::from(u32::MAX)),
        "completed_ns" if value.is_null() => None,
        "outcome" => word(field, value, &["committed", "aborted", "unknown"]),
        "reads" | "writes" => explain_rows(field, value),
        _ => whole(field, value, u64::MAX),
    }
}

fn explain_rows(list: &str, value: &Value) -> Option<FieldProblem> {
    let Value::Array(rows) = value else {
        return Some(FieldProblem::new(list, value, "an array"));
    };
    let fourth = if list == "reads" { "present" } else { "kind" };
    rows.iter().enumerate().find_map(|(at, row)| {
        let name = |column: &str| format!("{list}[{at}].{column}");
        let cells = match row {
            Value::Array(cells) if cells.len() == 5 => cells,
            _ => {
                let allowed = format!("an array [table, key, version, {fourth}, fingerprint]");
                return Some(FieldProblem::new(format!("{list}[{at}]"), row, &allowed));
            }
        };
        whole(&name("table"), &cells[0], u64::from(u16::MAX))
            .or_else(|| whole(&name("key"), &cells[1], u64::MAX))
            .or_else(|| whole(&name("version"), &cells[2], u64::MAX))
            .or_else(|| match list {
                "reads" if cells[3].is_boolean() => None,
                "reads" => Some(FieldProblem::new(name("present"), &cells[3], "true, false")),
                _ => word(&name("kind"), &cells[3], &["insert", "update", "delete"]),
            })
            .or_else(|| whole(&name("fingerprint"), &cells[4], u64::MAX))
    })
}

fn whole(field: &str, value: &Value, most: u64) -> Option<FieldProblem> {
    match value.as_u64() {
        Some(number) if number <= most => None,
        _ => Some(FieldProblem::new(field, value, &format!("a whole number from 0 to {most}"))),
    }
}

fn word(field: &str, value: &Value, allowed: &[&str]) -> Option<FieldProblem> {
    match value.as_str() {
        Some(text) if allowed.contains(&text) => None,
        _ => Some(FieldProblem::new(field, value, &allowed.join(", "))),
    }
}
