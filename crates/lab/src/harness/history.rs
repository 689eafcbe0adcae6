//! Converts the engine's records of transactions to the form that the checker needs. The checker itself depends on no
//! engine.
//!
//! Invariant: the conversion adds no transaction and omits none. A transaction's id is its owner
//! tag, which no other transaction of the cluster ever has.

use std::collections::BTreeMap;
use std::path::Path;
use tarn_check::{
    History, HistoryError, HistoryWriter, Outcome, Read, RecordId, Transaction, TxnId, Version,
    Write, WriteKind,
};
use tarn_store::history::{self as engine, RecordedOutcome, RecordedTxn};
use tarn_store::ids::UsageError;
use tarn_store::schema::TableSchema;

/// Opens a history file. The caller opens the file before the run starts, so that a path that
/// cannot be written costs no work. The file appears under its name only when it is whole.
///
/// # Errors
/// Fails if the path cannot be written, or if the run has no phase to record.
pub fn create(
    path: &Path,
    is_recorded: bool,
    meta: &BTreeMap<String, String>,
    schemas: &[TableSchema],
) -> Result<HistoryWriter, UsageError> {
    let refuse = |allowed: String| UsageError {
        field: "history".into(),
        value: path.display().to_string(),
        allowed,
    };
    if !is_recorded {
        return Err(refuse("only with a verification phase, which records it".into()));
    }
    if path.is_dir() {
        return Err(refuse("a file, not a folder".into()));
    }
    let writer = HistoryWriter::create(path, meta, &table_names(schemas));
    writer.map_err(|error| refuse(format!("a file that can be written ({error})")))
}

/// Writes the recorded transactions, and ends the file.
///
/// # Errors
/// Returns the operating system's error if the file cannot be written.
pub fn write_all(mut writer: HistoryWriter, recorded: &[RecordedTxn]) -> Result<(), HistoryError> {
    recorded.iter().try_for_each(|txn| writer.write(&transaction(txn)))?;
    writer.finish()
}

/// Returns a run's history in the checker's form. The history's transactions are in the order in which they were
/// invoked.
pub fn history_of(
    meta: BTreeMap<String, String>,
    schemas: &[TableSchema],
    recorded: &[RecordedTxn],
) -> History {
    let tables = table_names(schemas);
    let mut transactions: Vec<Transaction> = recorded.iter().map(transaction).collect();
    transactions.sort_unstable_by_key(|txn| (txn.invoked_ns, txn.id));
    History { meta, tables, transactions }
}

/// Returns the names of the tables, by table id, and after them the names of the ordered indexes. The history treats
/// each leaf of an ordered index as a record.
pub fn table_names(schemas: &[TableSchema]) -> Vec<String> {
    let tables = schemas.iter().map(|schema| schema.name.clone());
    let name = |schema: &TableSchema, index: &str| format!("{}.{index}", schema.name);
    let indexes = schemas
        .iter()
        .flat_map(|schema| schema.indexes.iter().map(|index| name(schema, &index.name)));
    tables.chain(indexes).collect()
}

/// Returns one recorded transaction in the checker's form.
pub fn transaction(txn: &RecordedTxn) -> Transaction {
    Transaction {
        id: TxnId(txn.id.word()),
        coordinator: txn.coordinator,
        invoked_ns: txn.invoked.0,
        completed_ns: txn.completed.0,
        outcome: match txn.outcome {
            RecordedOutcome::Committed | RecordedOutcome::GaveUp => Outcome::Committed,
            RecordedOutcome::Aborted => Outcome::Aborted,
            RecordedOutcome::Unknown | RecordedOutcome::MayBeThere => Outcome::Unknown,
        },
        reads: txn.reads.iter().map(read).collect(),
        writes: txn.writes.iter().map(write).collect(),
    }
}

fn read(read: &engine::RecordedRead) -> Read {
    Read {
        record: RecordId::new(read.table.0, read.key),
        version: Version(read.version),
        present: read.present,
        fingerprint: read.fingerprint,
    }
}

fn write(write: &engine::RecordedWrite) -> Write {
    Write {
        record: RecordId::new(write.table.0, write.key),
        version: Version(write.version),
        kind: match write.kind {
            engine::WriteKind::Insert => WriteKind::Insert,
            engine::WriteKind::Update => WriteKind::Update,
            engine::WriteKind::Delete => WriteKind::Delete,
        },
        fingerprint: write.fingerprint,
    }
}
