//! Runs the litmus suite. The corrected protocols pass all litmuses. For the protocols with few orders, the explorer
//! tries every order, also with crashes.
//!
//! Invariant checked: no judge reports a violation, and the executions of each litmus reach all of its correct
//! outcomes. Other tests, of the program's commands, run protocols without one of their rules
//! (`crates/cli/tests/all/explore.rs`).

use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::protocol::ALL;
use tarn_lab::explore::order::{FaultKind, Order};
use tarn_lab::explore::report::Sum;
use tarn_lab::explore::run::run;
use tarn_sim::explore::Bounds;

/// The bound for items that a test does not explore completely. The bound is a number of executions instead of a
/// time, so that the result is the same on every machine.
const BOUNDED: Bounds = Bounds { executions: 500, ..Bounds::NONE };

fn explored(order: &Order) -> Sum {
    run(order, &|_| {}).expect("an order that can be")
}

#[test]
fn the_corrected_protocols_pass_and_are_exhausted() {
    for info in ALL {
        // The other protocols have too many orders for a test; `tarn explore all --protocol motor`
        // explores all of them.
        let is_small = ["ford", "occ"].contains(&info.name);
        let bounds = if is_small { Bounds::NONE } else { BOUNDED };
        let order = Order { deep: is_small, bounds, jobs: 2, ..Order::all(info.name, "corrected") };
        let sum = explored(&order);
        assert_eq!(sum.total.violations, 0, "{sum}");
        assert!(sum.total.exhausted == sum.total.items || !is_small, "{sum}");
        assert!(sum.litmus.iter().all(|row| row.judged > 0 && row.stuck == 0), "{sum}");
        // The protocol must also commit, because a protocol that commits nothing violates no rule.
        assert!(sum.is_good(), "{sum}");
    }
}

#[test]
fn locks_in_compute_nodes_are_explored_under_both_isolations() {
    let small = ["absent-skew", "insert-insert", "lost-update", "torn-row", "write-skew"];
    for (variant, litmuses) in [("corrected", &small[..]), ("corrected,si", &small[4..])] {
        let order = Order {
            litmuses: litmuses.iter().map(|&name| name.to_owned()).collect(),
            shape: Some("1x1".parse().expect("a shape")),
            ..Order::all("lotus", variant)
        };
        let sum = explored(&order);
        // Under snapshot isolation the explorer must find the write skew; otherwise `is_good` would return false,
        // because an expected result is missing.
        assert!(sum.is_good() && sum.total.exhausted == litmuses.len(), "{sum}");
    }
}

#[test]
fn locks_in_compute_nodes_outlive_a_memory_node_at_every_point() {
    let litmuses = ["lost-update", "write-skew"];
    let order = Order {
        litmuses: litmuses.iter().map(|&name| name.to_owned()).collect(),
        shape: Some("1x1".parse().expect("a shape")),
        crashes: 1,
        fault: Some(FaultKind::Memory),
        ..Order::all("lotus", "corrected")
    };
    let sum = explored(&order);
    assert!(sum.is_good() && sum.total.exhausted == litmuses.len(), "{sum}");
    assert!(sum.litmus.iter().all(|row| row.broken > 0), "{sum}");
}

#[test]
fn small_litmuses_pass_with_every_crash_point() {
    for info in ALL.iter().filter(|info| info.caps.crash_recovery) {
        survives(info);
    }
}

fn survives(info: &ProtocolInfo) {
    let all = [
        ("intermediate-read", FaultKind::Compute, false),
        ("intermediate-read", FaultKind::Zombie, false),
        ("lost-update", FaultKind::Memory, true),
        ("successor", FaultKind::Zombie, false),
        ("split-lost", FaultKind::Compute, true),
        ("range-phantom", FaultKind::Compute, false),
    ];
    for (litmus, fault, is_exhausted) in all {
        let is_ordered = litmus.starts_with("split") || litmus.starts_with("range");
        let dies = fault == FaultKind::Memory && !info.caps.memory_recovery;
        if dies || (is_ordered && !info.caps.ranges) {
            continue;
        }
        let order = Order {
            litmuses: vec![litmus.to_owned()],
            shape: Some("1x1".parse().expect("a shape")),
            crashes: 1,
            fault: Some(fault),
            bounds: if is_exhausted { Bounds::NONE } else { BOUNDED },
            ..Order::all(info.name, "corrected")
        };
        let sum = explored(&order);
        assert_eq!(sum.total.violations, 0, "{sum}");
        // At least one execution had a crash.
        assert!(sum.litmus[0].broken > 0, "{sum}");
        assert!(sum.total.exhausted == 1 || !is_exhausted, "{sum}");
    }
}
