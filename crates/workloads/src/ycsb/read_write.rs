//! Runs a transaction that reads some records and updates others.
//!
//! Invariant: if several operations update one record, the transaction writes the record once, with
//! all changes. An operation sees the writes of earlier operations of its transaction.

use super::{Input, Operation, Tally, Ycsb};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;

#[inline]
pub(super) async fn run(
    ycsb: &Ycsb,
    coordinator: &mut Coordinator,
    input: &Input,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let done = coordinator
        .transact(async |tx| {
            let (mut done, mut before) = (Tally::default(), 0);
            for operations in input.steps().into_iter().filter(|step| !step.is_empty()) {
                let handles = ycsb.request(tx, operations);
                tx.fetch().await?;
                for (&operation, handle) in operations.iter().zip(handles) {
                    done.torn += ycsb.look(tx, operation, handle);
                    if operation.is_write() {
                        done.fields_written += ycsb.advance(tx, operation, handle);
                        let earlier = &input.operations()[..before];
                        done.records_written += u64::from(is_first(earlier, operation));
                    }
                    before += 1;
                }
            }
            Ok(done)
        })
        .await?;
    tally.records_written += done.records_written;
    tally.fields_written += done.fields_written;
    tally.torn += done.torn;
    Ok(())
}

/// Returns whether none of the earlier operations updates the same record.
#[inline]
pub(super) fn is_first(earlier: &[Operation], operation: Operation) -> bool {
    !earlier.iter().any(|other| other.is_write() && other.key() == operation.key())
}
