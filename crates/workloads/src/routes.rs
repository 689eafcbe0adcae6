//! The facts that routing uses: whether a transaction only reads, and the key of its first record.
//!
//! Invariant: each of these facts is stated once. The table of the first record is the table of the
//! procedure's first access. The key of the first record is [`Workload::first_key`].

use crate::workload::Workload;
use tarn_store::schema::TableId;
use tarn_store::schema::procedure::Procedure;

/// The procedures of a workload, which are used to route its transactions.
pub struct Routes {
    procedures: Vec<Procedure>,
}

impl Routes {
    /// Returns the routes of a workload.
    pub fn of<W: Workload>(workload: &W) -> Routes {
        Routes { procedures: workload.procedures() }
    }

    /// Returns whether this transaction is known to only read. Also returns a key in the shard of the
    /// transaction's first record.
    #[inline]
    pub fn of_input<W: Workload>(&self, input: &W::Input) -> (bool, Option<(TableId, u64)>) {
        let Some(procedure) = self.procedures.get(W::kind(input)) else { return (false, None) };
        let first = procedure.accesses.first().map(|access| access.table);
        (procedure.read_only, first.zip(W::first_key(input)))
    }
}
