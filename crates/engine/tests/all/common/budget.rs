//! The counted cost of a transaction: rounds until the reply, detached rounds, and the verbs of both.
//!
//! Invariant: during a measurement one coroutine of a thread runs, and it makes one try.

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
    /// Number of rounds until the reply.
    pub rounds: u64,
    pub detached: u64,
    pub reads: u64,
    pub writes: u64,
    pub cas: u64,
}

pub fn reading(rounds: u64, reads: u64) -> Cost {
    Cost { rounds, detached: 0, reads, writes: 0, cas: 0 }
}

pub fn phase(cx: &Context, name: &str) -> u64 {
    let phases = cx.database().protocol.info().phases;
    let position = phases.iter().position(|&phase| phase == name).expect("a phase");
    cx.metrics.snapshot().phases[position]
}

/// Runs one try. Returns its cost.
pub fn measure(
    by: &mut Coordinator,
    declared: bool,
    body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure>,
) -> Cost {
    let (cost, tickets) = measure_all(by, declared, body);
    assert_eq!(tickets, 0);
    cost
}

/// As `measure`, and also returns the number of FAAs.
pub fn measure_with_tickets(
    by: &mut Coordinator,
    body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure>,
) -> (Cost, u64) {
    measure_all(by, false, body)
}

fn measure_all(
    by: &mut Coordinator,
    declared: bool,
    mut body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure>,
) -> (Cost, u64) {
    let mut tries = 0;
    let once = async |tx: &mut Transaction<'_>| {
        tries += 1;
        if tries > 1 {
            return tx.abort();
        }
        body(tx).await
    };
    spent_by(by, |by| {
        let _ = match declared {
            true => block_on(by.transact_read_only(once)),
            false => block_on(by.transact(once)),
        };
    })
}

/// Returns the cost of a call that takes no tickets.
pub fn measure_call(by: &mut Coordinator, call: impl FnOnce(&mut Coordinator)) -> Cost {
    let (cost, tickets) = spent_by(by, call);
    assert_eq!(tickets, 0);
    cost
}

fn spent_by(by: &mut Coordinator, call: impl FnOnce(&mut Coordinator)) -> (Cost, u64) {
    let cx = Rc::clone(by.context());
    let detached = |cx: &Context| phase(cx, "unlock") + phase(cx, "release");
    let (before, detached_before) = (cx.port.counts(), detached(&cx));
    call(by);
    let (spent, detached) = (cx.port.counts() - before, detached(&cx) - detached_before);
    let [reads, writes, cas, faa, masked] = spent.verbs;
    assert_eq!((masked, spent.messages), (0, 0));
    (Cost { rounds: spent.rounds - detached, detached, reads, writes, cas }, faa)
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
    let rows: Vec<_> = keys.iter().map(|&key| tx.update(table, key, Cells::ALL)).collect();
    tx.fetch().await?;
    for row in rows {
        let value = tx.get(row).expect("there").u64(A);
        tx.set(row, A, value + 1);
    }
    Ok(())
}
