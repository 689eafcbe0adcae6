//! A transaction that only reads.
//!
//! Invariant: one fetch, or two where the second's keys become known by the first. A transaction on
//! records of one field is one call, if all keys are known.

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
        // This transaction is one call.
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

/// Returns 1 if a record's only field is not whole.
#[inline]
fn is_torn(row: Option<Row<'_>>) -> u64 {
    let is_whole = |row: Row<'_>| field::count(row.payload()).is_some();
    u64::from(!row.is_some_and(is_whole))
}
