//! Tests the RTT budget of DSLR: the number of round trips of its transactions.
//!
//! Invariant checked: the costs in the table in `protocol/dslr/mod.rs`. Rows also count the FAAs: one FAA to take a
//! ticket and one to return the ticket.

use super::*;
use crate::common::budget::{add_one, phase, read};
use By::{Cold, Warm};
use Step::*;
use std::cell::Cell;
use std::rc::Rc;
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::executor::Executor;
use tarn_store::ids::Failure;

const READ: &str = "read, address known";
const WRITE: &str = "write, address known";
const TURN: &str = "other tickets are before";
const UNKNOWN: &str = "address unknown";
const AWAY: &str = "record away from its home, or absent";
const UPGRADED: &str = "read, then written";
const FOUND: &str = "absence found beside other reads";
const ABORT: &str = "abort";
const OWN_ABORT: &str = "own abort, an absence found beside other reads";

/// The time for which a transaction keeps other transactions waiting. This time is much shorter than the longest time
/// that any of the other transactions waits.
const HELD: Nanos = Nanos(5_000);

fn tickets(faa: u64, cost: Cost) -> Cost {
    Cost { faa, ..cost }
}

fn rows(copies: usize) -> Vec<Row<'static>> {
    let (read, add) = ([Read(NARROW, &[1, 2, 3])], Add(NARROW, &[1]));
    let (own, writes) = (AbortReason::User, 2 * copies as u64);
    vec![
        // The transaction reads the bins, then takes tickets and reads records.
        row([READ, UNKNOWN], Cold, read, tickets(6, cost(2, 1, 6, 0, 0))),
        unmeasured(Warm, read),
        row([READ], Warm, read, tickets(6, cost(1, 1, 3, 0, 0))).phase("wait_turn", 0),
        row([WRITE], Warm, [add], tickets(2, cost(3, 1, 1, writes, 0))),
        // In this row, one atomic changes a reader's ticket into a writer's ticket.
        row(
            [WRITE, UPGRADED],
            Warm,
            [Read(NARROW, &[1]), add],
            tickets(3, cost(4, 1, 2, writes, 0)),
        ),
        // The transaction validates that records are absent, unless there is only one absent record.
        row([AWAY], Warm, [Absent(&[77])], cost(2, 0, 4, 0, 0)).phase("validate", 0),
        row([AWAY, FOUND], Warm, [Absent(&[78, 79])], cost(3, 0, 10, 0, 0)).phase("validate", 1),
        row([ABORT], Warm, [add, Abort], tickets(2, cost(1, 1, 1, 0, 0))).aborts(own),
        row([AWAY, OWN_ABORT], Warm, [Absent(&[78, 79]), Abort], cost(3, 0, 10, 0, 0))
            .aborts(own)
            .phase("validate", 1),
    ]
}

#[test]
fn the_table_of_dslr() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/dslr/mod.rs"));
    for copies in COPIES {
        budget.run(&Scene::of("dslr", copies), rows(copies));
    }
    waits_for_a_turn(&mut budget);
    budget.end();
}

/// Rows in which the second transaction waits until the first one has returned its ticket, and then reads. Two
/// readers do not wait for each other.
fn waits_for_a_turn(budget: &mut Budget) {
    let mut bench = Bench::new(&Scene::of("dslr", 1));
    budget.run_in(&mut bench, vec![unmeasured(Warm, [Read(NARROW, &[1])])]);
    let (first, second) = (&mut bench.cold, &mut bench.warm);
    for (writes, waits) in [([false, false], false), ([true, false], true), ([false, true], true)] {
        let (holder, waiter) = (Rc::clone(first.context()), Rc::clone(second.context()));
        let waited_before = phase(&waiter, "wait_turn");
        let (before, served) = (waiter.port.counts(), Cell::new(false));
        let mut executor = Executor::new();
        executor.spawn(async {
            let held = async |tx: &mut Transaction<'_>| {
                take(tx, writes[0]).await?;
                holder.port.sleep(HELD).await;
                Ok(())
            };
            first.transact(held).await.expect("its ticket is the first");
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
    bench.world.assert_clean();
    budget.covers(&[TURN]);
}

async fn take(tx: &mut Transaction<'_>, writes: bool) -> Result<(), Failure> {
    match writes {
        true => add_one(tx, NARROW, &[1]).await,
        false => read(tx, NARROW, &[1]).await,
    }
}
