//! Runs a transaction that only reads.
//!
//! Invariant: the transaction has one fetch, or two if the keys of the second fetch become known by
//! the first fetch. If records have one field and all keys are known, the transaction is one call of
//! the engine.

use super::{Input, TABLE, Tally, Ycsb};
use crate::field;
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::row::Row;

#[inline]
pub(super) async fn run(
    ycsb: &Ycsb,
    coordinator: &mut Coordinator,
    input: &Input,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let [known, rest] = input.steps();
    if rest.is_empty() && ycsb.variant.fields == 1 {
        // This transaction is one call of the engine.
        let keys = known.iter().map(|operation| operation.key());
        return coordinator.multi_get(TABLE, keys, |_, row| tally.torn += is_torn(row)).await;
    }
    let torn = coordinator
        .transact_read_only(async |tx| {
            let mut torn = 0;
            for operations in input.steps().into_iter().filter(|step| !step.is_empty()) {
                let handles = ycsb.request_reads(tx, operations);
                tx.fetch().await?;
                for (&operation, handle) in operations.iter().zip(handles) {
                    torn += ycsb.look(tx, operation, handle);
                }
            }
            Ok(torn)
        })
        .await?;
    tally.torn += torn;
    Ok(())
}

/// Returns 1 if a record's only field is torn or missing, and otherwise 0.
#[inline]
fn is_torn(row: Option<Row<'_>>) -> u64 {
    let is_whole = |row: Row<'_>| field::count(row.payload()).is_some();
    u64::from(!row.is_some_and(is_whole))
}
