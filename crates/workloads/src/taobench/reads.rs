//! Reads of objects and edges, a single read or up to 500 reads in one transaction.
//!
//! Invariant: the transaction reads all rows in one fetch.

use super::graph::timestamp;
use super::sizes::OPERATIONS_MAX;
use super::{Input, Tally, TaoBench};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;

#[inline]
pub(super) async fn run(
    bench: &TaoBench,
    coordinator: &mut Coordinator,
    input: &Input,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let torn = coordinator
        .transact_read_only(async |tx| {
            // Most reads are single reads, which need no room for handles.
            if input.len() == 1 {
                let handles = ask(bench, tx, input, [None]);
                tx.fetch().await?;
                return Ok(torn(tx, &handles));
            }
            let handles = ask(bench, tx, input, [None; OPERATIONS_MAX]);
            tx.fetch().await?;
            Ok(torn(tx, &handles))
        })
        .await?;
    tally.torn += torn;
    Ok(())
}

#[inline]
fn ask<const N: usize>(
    bench: &TaoBench,
    tx: &mut Transaction<'_>,
    input: &Input,
    mut handles: [Option<Handle>; N],
) -> [Option<Handle>; N] {
    for (handle, operation) in handles.iter_mut().zip(bench.source.operations(input)) {
        *handle = Some(tx.read(operation.table, operation.keys().0, Cells::ALL));
    }
    handles
}

/// Counts the rows that are missing or torn.
#[inline]
fn torn(tx: &Transaction<'_>, handles: &[Option<Handle>]) -> u64 {
    let rows = handles.iter().flatten().map(|&handle| tx.get(handle));
    rows.filter(|row| row.as_ref().and_then(timestamp).is_none()).count() as u64
}
