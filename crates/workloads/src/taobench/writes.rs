//! Writes of objects and edges, a single write or up to 103 writes in one transaction.
//!
//! Invariant: a transaction writes either both an edge that goes both ways and its reverse edge, or
//! neither of the two. A transaction does not add a row that already exists.

use super::graph::{EDGES, TIMESTAMP, VALUE, timestamp, value};
use super::operation::{Operation, What};
use super::sizes::WRITES_MAX;
use super::{Input, Tally, TaoBench, Written};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;

/// The handle of an operation's record. If the record is an edge that goes both ways, also the handle
/// of the reverse edge's record.
type Asked = Option<(Handle, Option<Handle>)>;

#[inline]
pub(super) async fn run(
    bench: &TaoBench,
    coordinator: &mut Coordinator,
    input: &Input,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let (written, torn) = coordinator
        .transact(async |tx| {
            if input.len() == 1 {
                let asked = ask(bench, tx, input, [None]);
                tx.fetch().await?;
                return Ok(write(bench, tx, input, &asked));
            }
            let asked = ask(bench, tx, input, [None; WRITES_MAX]);
            tx.fetch().await?;
            Ok(write(bench, tx, input, &asked))
        })
        .await?;
    tally.written.add(&written);
    tally.torn += torn;
    Ok(())
}

#[inline]
fn ask<const N: usize>(
    bench: &TaoBench,
    tx: &mut Transaction<'_>,
    input: &Input,
    mut asked: [Asked; N],
) -> [Asked; N] {
    for (asked, operation) in asked.iter_mut().zip(bench.source.operations(input)) {
        let (key, reverse) = operation.keys();
        let mut one = |key| match operation.what {
            What::Add => tx.insert(operation.table, key),
            What::Update | What::Read => tx.update(operation.table, key, Cells::ALL),
        };
        *asked = Some((one(key), reverse.map(&mut one)));
    }
    asked
}

/// Writes all records that the transaction has requested. Returns the numbers of written rows, and
/// the number of rows that were missing or torn.
#[inline]
fn write(
    bench: &TaoBench,
    tx: &mut Transaction<'_>,
    input: &Input,
    asked: &[Asked],
) -> (Written, u64) {
    let (mut written, mut torn) = (Written::default(), 0);
    for (operation, &(handle, reverse)) in bench.source.operations(input).zip(asked.iter().flatten()) {
        let rows = [Some(handle), reverse];
        for handle in rows.into_iter().flatten() {
            let Some(next) = next_timestamp(tx, &operation, handle) else {
                torn += u64::from(operation.what == What::Update);
                continue;
            };
            tx.set(handle, TIMESTAMP, next);
            tx.set(handle, VALUE, &value(next));
            written.count(operation.table == EDGES, operation.what == What::Add);
        }
    }
    (written, torn)
}

/// Returns the new timestamp of the row. Returns `None` if the row to update is missing or torn, or
/// if the row to add already exists.
#[inline]
fn next_timestamp(tx: &Transaction<'_>, operation: &Operation, handle: Handle) -> Option<u64> {
    match operation.what {
        What::Add => (!tx.existed(handle)).then_some(0),
        What::Update | What::Read => tx.get(handle).as_ref().and_then(timestamp).map(|was| was + 1),
    }
}
