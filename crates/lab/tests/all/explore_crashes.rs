//! Tests recovery in the litmus suite. In orders that the explorer chooses, backups are promoted, spares are filled,
//! and nodes take over recoveries of other nodes. All final states must be correct.
//!
//! Invariant checked: the explored executions contain the events that the suite claims to explore. The engine's own
//! counters show these events. The exploration stops after a number of executions, so that the result is the same on
//! every machine.

use std::cell::RefCell;
use std::ops::ControlFlow;
use tarn_engine::site::metrics::{RecoveryEvent, Tally};
use tarn_lab::explore::model::LitmusModel;
use tarn_lab::explore::order::{FaultKind, Order};
use tarn_lab::explore::run::{prepare, run};
use tarn_sim::explore::{Actor, Bounds, End, ExploreFabric, Explored, Model, explore};

/// A litmus model, and the events that its contexts have counted over all final states.
struct Counting {
    inner: LitmusModel,
    tally: RefCell<Tally>,
}

impl Model for Counting {
    fn load(&self, fabric: &ExploreFabric) {
        self.inner.load(fabric);
    }

    fn build(&self, fabric: &ExploreFabric) -> Vec<Actor> {
        self.inner.build(fabric)
    }

    fn judge(&self, end: &End<'_>) -> Result<(), String> {
        let verdict = self.inner.judge(end);
        let desk = self.inner.desk();
        desk.left()
            .contexts
            .iter()
            .for_each(|cx| self.tally.borrow_mut().add(&cx.metrics.snapshot()));
        verdict
    }
}

fn order(litmus: &str, shape: &str, fault: FaultKind, crashes: u32) -> Order {
    Order {
        litmuses: vec![litmus.to_owned()],
        shape: Some(shape.parse().expect("a shape")),
        crashes,
        fault: Some(fault),
        ..Order::all("ford", "corrected")
    }
}

fn explored(order: &Order, executions: u64) -> (Explored, Tally) {
    let items = order.items().expect("items");
    let (inner, mut config) = prepare(order, &items[0]).expect("it can be");
    config.bounds = Bounds { executions, ..Bounds::NONE };
    let model = Counting { inner, tally: RefCell::default() };
    let explored = explore(&model, &config, &mut |_| ControlFlow::Continue(())).expect("it runs");
    (explored, model.tally.into_inner())
}

#[test]
fn keepers_do_what_they_are_there_for() {
    use RecoveryEvent::{Promoted, Recovered, Rereplicated, TookOver};
    for (litmus, shape, fault, crashes, executions, reached) in [
        ("lost-update", "2x2", FaultKind::Memory, 1, 2_000, &[Promoted][..]),
        ("intermediate-read", "2x2+1", FaultKind::Memory, 1, 200, &[Promoted, Rereplicated]),
        ("intermediate-read", "1x1", FaultKind::Compute, 2, 2_000, &[Recovered, TookOver]),
        // In this case of the test, the recovering node is alive but presumed dead. The recovering node notices its
        // expulsion and releases its claim, so no other node takes over the recovery.
        ("intermediate-read", "1x1", FaultKind::Zombie, 2, 2_000, &[Recovered]),
        ("intermediate-read", "2x2", FaultKind::Memory, 2, 3_000, &[Promoted, Recovered]),
    ] {
        let order = order(litmus, shape, fault, crashes);
        let (explored, tally) = explored(&order, executions);
        let told = format!("{litmus} {shape} {fault} {crashes}: {:?}", explored.progress);
        println!("{told}, {:?}", tally.recovery);
        assert!(explored.violations.is_empty(), "{told}: {:?}", explored.violations);
        assert_eq!(explored.stuck, 0, "{told}");
        for event in reached {
            assert!(tally.recovery[*event as usize] > 0, "{told}: {} never", event.name());
        }
    }
}

#[test]
fn a_small_litmus_is_exhausted_with_a_lost_compute_node() {
    for shape in ["1x1", "2x2"] {
        let order = order("intermediate-read", shape, FaultKind::Compute, 1);
        let sum = run(&order, &|_| {}).expect("an order that can be");
        assert_eq!((sum.total.violations, sum.total.exhausted), (0, 1), "{sum}");
    }
}

/// The only copy of the log and of the data is lost between the last unlocks of a commit. Another transaction has
/// already read the written values, so no client may get the answer that this transaction was aborted.
#[test]
fn who_loses_the_only_copy_of_a_log_is_not_told_that_nothing_happened() {
    let order = order("ack-then-die", "1x1", FaultKind::Memory, 1);
    let (explored, _) = explored(&order, 4_000);
    assert!(explored.violations.is_empty(), "{:?}", explored.violations);
}

/// This test checks that the litmuses about splits and merges really cause splits and merges of leaves.
#[test]
fn trees_change_their_shape_in_the_litmuses_that_are_about_it() {
    for (litmus, shape, splits, merges) in [
        ("split-scan", "2x2", true, false),
        ("split-leaf", "1x1", true, false),
        ("split-lost", "1x1", true, false),
        ("split-insert", "1x1", true, false),
        ("merge-scan", "2x2", false, true),
    ] {
        let order = Order { crashes: 0, fault: None, ..order(litmus, shape, FaultKind::None, 0) };
        let (explored, tally) = explored(&order, 200);
        assert!(explored.violations.is_empty(), "{litmus}: {:?}", explored.violations);
        assert_eq!((tally.node_splits > 0, tally.node_merges > 0), (splits, merges), "{litmus}");
    }
}
