//! The counted cost of a transaction: rounds until the reply, detached rounds, and the verbs of all these rounds.
//!
//! Invariant: during a measurement, one coroutine of a thread runs, and it makes only one try.

use crate::common::A;
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// The number of rounds until the reply.
    pub rounds: u64,
    /// The number of rounds that are posted before the reply and that no transaction awaits.
    pub detached: u64,
    pub reads: u64,
    pub writes: u64,
    pub cas: u64,
    pub faa: u64,
    /// The number of messages to other compute nodes whose replies were awaited.
    pub messages: u64,
}

/// Returns the cost of a transaction without FAAs and messages.
pub const fn cost(rounds: u64, detached: u64, reads: u64, writes: u64, cas: u64) -> Cost {
    Cost { rounds, detached, reads, writes, cas, faa: 0, messages: 0 }
}

pub const fn reading(rounds: u64, reads: u64) -> Cost {
    cost(rounds, 0, reads, 0, 0)
}

pub fn phase(cx: &Context, name: &str) -> u64 {
    let phases = cx.database().protocol.info().phases;
    let position = phases.iter().position(|&phase| phase == name).expect("a phase");
    cx.metrics.snapshot().phases[position]
}

/// Runs one try of a transaction. Returns the cost of the try.
pub fn measure(
    by: &mut Coordinator,
    declared: bool,
    body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure>,
) -> Cost {
    measure_call(by, |by| {
        let _ = block_on(try_once(by, declared, body));
    })
}

/// Runs one try of a transaction that is `declared` as read-only or not. A second try would abort immediately.
pub async fn try_once(
    by: &mut Coordinator,
    declared: bool,
    mut body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut tries = 0;
    let once = async |tx: &mut Transaction<'_>| {
        tries += 1;
        if tries > 1 {
            return tx.abort();
        }
        body(tx).await
    };
    match declared {
        true => by.transact_read_only(once).await,
        false => by.transact(once).await,
    }
}

/// Runs a call. Returns the cost of the call.
pub fn measure_call(by: &mut Coordinator, call: impl FnOnce(&mut Coordinator)) -> Cost {
    measure_bytes(by, call).0
}

/// Runs a call. Returns the cost of the call, and the number of bytes that its READs and atomics returned.
pub fn measure_bytes(by: &mut Coordinator, call: impl FnOnce(&mut Coordinator)) -> (Cost, u64) {
    let cx = Rc::clone(by.context());
    // If a system keeps no locks beside its records, only its last writes, which make versions visible, follow the
    // reply.
    let unlocks = cx.database().protocol.info().phases.contains(&"unlock");
    let names: &[&str] = if unlocks { &["unlock", "release"] } else { &["show"] };
    let detached = || names.iter().map(|name| phase(&cx, name)).sum::<u64>();
    let (before, detached_before) = (cx.port.counts(), detached());
    call(by);
    let (spent, detached) = (cx.port.counts() - before, detached() - detached_before);
    let [reads, writes, cas, faa, masked] = spent.verbs;
    assert_eq!(masked, 0);
    let (rounds, messages) = (spent.rounds - detached, spent.messages);
    (Cost { rounds, detached, reads, writes, cas, faa, messages }, spent.bytes_in)
}

pub async fn read(tx: &mut Transaction<'_>, table: TableId, keys: &[u64]) -> Result<(), Failure> {
    let rows: Vec<_> = keys.iter().map(|&key| tx.read(table, key, Cells::ALL)).collect();
    tx.fetch().await?;
    assert!(rows.into_iter().all(|row| tx.get(row).is_some()));
    Ok(())
}

pub async fn add_one(
    tx: &mut Transaction<'_>,
    table: TableId,
    keys: &[u64],
) -> Result<(), Failure> {
    add_one_to(tx, table, keys, Cells::ALL).await
}

/// Adds one to column A of each key. Requests only `cells` of the records.
pub async fn add_one_to(
    tx: &mut Transaction<'_>,
    table: TableId,
    keys: &[u64],
    cells: Cells,
) -> Result<(), Failure> {
    let rows: Vec<_> = keys.iter().map(|&key| tx.update(table, key, cells)).collect();
    tx.fetch().await?;
    for row in rows {
        let value = tx.get(row).expect("there").u64(A);
        tx.set(row, A, value + 1);
    }
    Ok(())
}
