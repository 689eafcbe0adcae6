//! Rows that a transaction needs and that nobody takes away: warehouses, districts, customers, items,
//! stocks, orders and their lines.
//!
//! A try that misses one ends at once. It may have put together what never stood side by side; a commit
//! would find that out, but there is nothing to commit. So the row is looked for once more, by a
//! transaction that is validated: clause 2.3.6 wants it detected and reported if it is not there.
//!
//! Invariant: a row counts as missing if a validated read does not find it either; a transaction that
//! missed one which is there is run again.

use super::Tally;
use std::cell::Cell;
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::{AbortReason, Failure};
use tarn_engine::row::Row;
use tarn_engine::schema::{Cells, TableId};
use tarn_engine::transaction::Transaction;
use tarn_engine::working_set::Handle;

/// What a try has missed, if anything.
#[derive(Default)]
pub(super) struct Wanted {
    missed: Cell<Option<(TableId, u64)>>,
}

impl Wanted {
    /// The row that was fetched, which must be there.
    ///
    /// # Errors
    /// It is not: the transaction gives itself up.
    #[inline]
    pub(super) fn row<'a>(
        &self,
        tx: &'a Transaction<'_>,
        (table, key): (TableId, u64),
        handle: Handle,
    ) -> Result<Row<'a>, Failure> {
        match tx.get(handle) {
            Some(row) => Ok(row),
            None => self.miss(tx, table, key),
        }
    }

    #[cold]
    fn miss<R>(&self, tx: &Transaction<'_>, table: TableId, key: u64) -> Result<R, Failure> {
        self.missed.set(Some((table, key)));
        tx.abort()
    }

    /// Whether nothing was missed.
    pub(super) fn is_complete(&self) -> bool {
        self.missed.get().is_none()
    }

    /// Whether to run the transaction again that has failed so; if not, the missing row is counted.
    ///
    /// # Errors
    /// The failure itself, if no row was missed; what the look at it meets.
    #[cold]
    pub(super) async fn is_again(
        &self,
        coordinator: &mut Coordinator,
        failure: Failure,
        tally: &mut Tally,
    ) -> Result<bool, Failure> {
        let missed = match failure {
            Failure::Abort(AbortReason::User) => self.missed.take(),
            _ => None,
        };
        let Some((table, key)) = missed else { return Err(failure) };
        let is_there = coordinator
            .transact(async |tx| {
                let row = tx.read(table, key, Cells::NONE);
                tx.fetch().await?;
                Ok(tx.existed(row))
            })
            .await?;
        if !is_there {
            tally.missed(table, key);
        }
        Ok(is_there)
    }
}
