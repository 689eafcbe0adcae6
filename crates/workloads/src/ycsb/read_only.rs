//! A transaction that only reads.
//!
//! Invariant: one fetch, or two where the second's keys become known by the first.

use super::{Input, Tally, Ycsb};
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::Failure;

#[inline]
pub(super) async fn run(
    ycsb: &Ycsb,
    coordinator: &mut Coordinator,
    input: &Input,
    tally: &mut Tally,
) -> Result<(), Failure> {
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
