//! Tests that DSLR's transactions that fail pass their tickets on.
//!
//! Invariant checked: after every failure of a fetch except a failure of the fabric, the transaction passes its
//! tickets on. The lock word returns to its initial state, and the next transaction is served.

use crate::common::budget::add_one;
use crate::common::*;
use std::cell::Cell;
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::{Executor, block_on};
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const NARROW: TableId = TableId(0);
const APART: TableId = TableId(1);

/// Tests a transaction that waits until its ticket for one record is served, and finds no memory for another record.
#[test]
fn a_ticket_is_passed_on_where_memory_runs_out() {
    let mut shape = Shape::of(&[narrow("narrow", 4), apart("apart", 4)]).protocol("dslr");
    (shape.options.spare_bytes, shape.options.chunk_bytes) = (0, 4096);
    let world = World::new(&shape);
    let [mut holder, mut failing] = [0, 1].map(|slot| world.coordinator(slot, 64));
    fill(&mut holder, NARROW, 0..4);
    let insert = |by: &mut Coordinator, key: u64| {
        block_on(by.transact(async |tx| {
            tx.insert_zeros(APART, key);
            tx.fetch().await
        }))
    };
    let full = (0..).find_map(|key| insert(&mut failing, key).err().map(|failure| (key, failure)));
    let Some((key, Failure::OutOfMemory)) = full else { panic!("{full:?}") };
    // The transaction knows the address of the record. So the transaction takes its ticket in the same round in which
    // it searches for memory.
    block_on(failing.transact(async |tx| add_one(tx, NARROW, &[1]).await)).expect("alone");

    let (holds, ended) = (Cell::new(false), Cell::new(None));
    let mut executor = Executor::new();
    executor.spawn(async {
        let port = holder.context().port.clone();
        let held = holder.transact(async |tx| {
            add_one(tx, NARROW, &[1]).await?;
            holds.set(true);
            port.sleep(Nanos(2_000_000)).await;
            Ok(())
        });
        assert_eq!(held.await, Ok(()));
    });
    executor.spawn(async {
        let port = failing.context().port.clone();
        while !holds.get() {
            port.sleep(Nanos(1_000)).await;
        }
        let both = failing.transact(async |tx| {
            tx.update(NARROW, 1u64, Cells::ALL);
            tx.insert_zeros(APART, key);
            tx.fetch().await
        });
        ended.set(Some(both.await));
    });
    executor.run();
    drop(executor);
    assert_eq!(ended.take(), Some(Err(Failure::OutOfMemory)));
    world.assert_clean();
    block_on(holder.transact(async |tx| add_one(tx, NARROW, &[1]).await)).expect("it is served");
}
