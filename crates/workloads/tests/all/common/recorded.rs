//! Converts recorded histories to the checker's form.
//!
//! Invariant: the conversion leaves out only transactions that had no visible effect.

use tarn_check::{
    History, Isolation, Outcome, Read, RecordId, Transaction, Version, Write, WriteKind, check,
};
use tarn_store::history::{self, RecordedOutcome, RecordedTxn};

/// Checks that the transactions are strictly serializable. The error is the checker's report.
pub fn verdict(recorded: &[RecordedTxn]) -> Result<(), String> {
    let tables = (0..8).map(|table| format!("table {table}")).collect();
    let transactions = recorded.iter().map(transaction).collect();
    let history = History { tables, transactions, ..History::default() };
    let report = check(&history, Isolation::StrictSerializable);
    match report.is_accepted() {
        true => Ok(()),
        false => Err(report.anomalies.iter().take(3).map(|it| format!("{it}\n")).collect()),
    }
}

fn transaction(txn: &RecordedTxn) -> Transaction {
    let (invoked, completed) = (txn.invoked.0, txn.completed.0);
    let outcome = match txn.outcome {
        RecordedOutcome::Committed | RecordedOutcome::GaveUp => Outcome::Committed,
        RecordedOutcome::Aborted => Outcome::Aborted,
        RecordedOutcome::Unknown | RecordedOutcome::MayBeThere => Outcome::Unknown,
    };
    let mut out = Transaction::committed(txn.id.word(), txn.coordinator, invoked, completed)
        .with_outcome(outcome);
    for read in &txn.reads {
        let record = RecordId::new(read.table.0, read.key);
        let (version, present) = (Version(read.version), read.present);
        out.reads.push(Read { record, version, present, fingerprint: read.fingerprint });
    }
    for write in &txn.writes {
        let kind = match write.kind {
            history::WriteKind::Insert => WriteKind::Insert,
            history::WriteKind::Update => WriteKind::Update,
            history::WriteKind::Delete => WriteKind::Delete,
        };
        let record = RecordId::new(write.table.0, write.key);
        let (version, fingerprint) = (Version(write.version), write.fingerprint);
        out.writes.push(Write { record, version, kind, fingerprint });
    }
    out
}
