//! The RTT budget of DSLR: the table in `protocol/dslr/mod.rs`, asserted by counting.
//!
//! Every assertion below gives the rounds until the reply, the detached rounds (posted before the reply, not
//! awaited), and the verbs of both. It also gives the tickets: FAAs, one to take a ticket and one to return
//! it.

use crate::common::budget::{Cost, add_one, measure_with_tickets, phase, read};
use crate::common::*;
use std::cell::Cell;
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::Executor;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const NARROW: TableId = TableId(0);
/// How long a transaction keeps others waiting: far less than any of them is willing to wait.
const HELD: Nanos = Nanos(5_000);

fn world(replicas: usize) -> World {
    let schemas = [narrow("narrow", 4000)];
    let mut shape = Shape::of(&schemas).protocol("dslr").nodes(replicas, replicas);
    shape.options.placement = tarn_store::placement::catalog::Placement::Table;
    World::new(&shape)
}

/// Two coordinators that know where keys 1 to 9 are.
fn warm(world: &World) -> [Coordinator; 2] {
    let mut both = [0, 1].map(|slot| world.coordinator(slot, 1024));
    fill(&mut both[0], NARROW, 1..10);
    for by in &mut both {
        measure_with_tickets(by, async |tx| read(tx, NARROW, &[1, 2, 3]).await);
    }
    both
}

fn reading(rounds: u64, reads: u64) -> Cost {
    Cost { rounds, detached: 1, reads, writes: 0, cas: 0 }
}

#[test]
fn a_read_costs_two_tickets_and_no_transaction_awaits_its_release() {
    let world = world(1);
    let mut cold = world.coordinator(0, 0);
    fill(&mut cold, NARROW, 1..10);
    let keys = [1, 2, 3];
    let cost = measure_with_tickets(&mut cold, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, (reading(2, 6), 6), "the bins, then tickets and records");
    let [mut warm, _] = warm(&world);
    let cost = measure_with_tickets(&mut warm, async |tx| read(tx, NARROW, &keys).await);
    assert_eq!(cost, (reading(1, 3), 6), "at remembered addresses");
    assert_eq!(phase(warm.context(), "wait_turn"), 0);
    world.assert_clean();
}

#[test]
fn a_writer_logs_behind_its_ticket() {
    for replicas in [1, 3] {
        let world = world(replicas);
        let [mut by, _] = warm(&world);
        let writes = 2 * replicas as u64;
        let cost = measure_with_tickets(&mut by, async |tx| add_one(tx, NARROW, &[1]).await);
        assert_eq!(cost, (Cost { rounds: 3, detached: 1, reads: 1, writes, cas: 0 }, 2));
        let cost = measure_with_tickets(&mut by, async |tx| {
            read(tx, NARROW, &[1]).await?;
            add_one(tx, NARROW, &[1]).await
        });
        let upgraded = Cost { rounds: 4, detached: 1, reads: 2, writes, cas: 0 };
        assert_eq!(cost, (upgraded, 3), "a reader's ticket becomes a writer's in one");
        world.assert_clean();
    }
}

#[test]
fn a_transaction_validates_absences_unless_one_absence_is_all() {
    let world = world(1);
    let [mut by, _] = warm(&world);
    for (keys, rounds, reads, validations) in [(&[77][..], 2, 4, 0), (&[78, 79], 3, 10, 1)] {
        let before = phase(by.context(), "validate");
        let cost = measure_with_tickets(&mut by, async |tx| {
            let rows: Vec<_> = keys.iter().map(|&key| tx.read(NARROW, key, Cells::ALL)).collect();
            tx.fetch().await?;
            assert!(rows.into_iter().all(|row| tx.get(row).is_none()));
            Ok(())
        });
        assert_eq!(cost, (Cost { rounds, detached: 0, reads, writes: 0, cas: 0 }, 0));
        assert_eq!(phase(by.context(), "validate") - before, validations);
    }
}

#[test]
fn an_abort_releases_the_tickets_that_it_holds() {
    let world = world(1);
    let [mut by, _] = warm(&world);
    let cost = measure_with_tickets(&mut by, async |tx| {
        add_one(tx, NARROW, &[1]).await?;
        tx.abort()
    });
    assert_eq!(cost, (Cost { rounds: 1, detached: 1, reads: 1, writes: 0, cas: 0 }, 2));
    world.assert_clean();
}

/// Takes a record, and keeps it for a while.
async fn hold(cx: &Context, tx: &mut Transaction<'_>, writes: bool) -> Result<(), Failure> {
    take(tx, writes).await?;
    cx.port.sleep(HELD).await;
    Ok(())
}

async fn take(tx: &mut Transaction<'_>, writes: bool) -> Result<(), Failure> {
    match writes {
        true => add_one(tx, NARROW, &[1]).await,
        false => read(tx, NARROW, &[1]).await,
    }
}

#[test]
fn the_second_transaction_waits_for_its_turn_and_then_reads() {
    let world = world(1);
    let [mut first, mut second] = warm(&world);
    for (writes, waits) in [([false, false], false), ([true, false], true), ([false, true], true)] {
        let (holder, waiter) = (Rc::clone(first.context()), Rc::clone(second.context()));
        let waited_before = phase(&waiter, "wait_turn");
        let (before, served) = (waiter.port.counts(), Cell::new(false));
        let mut executor = Executor::new();
        executor.spawn(async {
            let held = async |tx: &mut Transaction<'_>| hold(&holder, tx, writes[0]).await;
            first.transact(held).await.expect("nobody is in its way");
        });
        executor.spawn(async {
            let taken = async |tx: &mut Transaction<'_>| take(tx, writes[1]).await;
            second.transact(taken).await.expect("its turn comes");
            served.set(true);
        });
        executor.run();
        drop(executor);
        assert!(served.get());
        assert_eq!(phase(&waiter, "wait_turn") - waited_before, u64::from(waits), "{writes:?}");
        let [_, _, cas, faa, _] = (waiter.port.counts() - before).verbs;
        assert_eq!((cas, faa), (0, 2), "one ticket, however long it waits");
    }
    world.assert_clean();
}
