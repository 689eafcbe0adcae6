//! Tests of traces drawn for a terminal.
//!
//! Invariant checked: if a coordinator goes on before its round has ended, the drawing shows this event. The drawing
//! does not show the thread as busy in this case.

use super::*;

/// Returns the drawing of a transaction with one round that ended after 1,900 ns. The transaction's coordinator went
/// on at `resumed_ns`.
fn drawn(resumed_ns: u64) -> String {
    let batch = Batch {
        to: 0,
        posted_ns: 0,
        sent_ns: 100,
        arrived_ns: 900,
        left_ns: 1_000,
        taken_ns: 1_800,
        seen_ns: 1_900,
        verbs: Vec::new(),
    };
    let round = Round {
        phases: vec!["lock"],
        awaited: true,
        completed_ns: 1_900,
        resumed_ns: Some(resumed_ns),
        batches: vec![batch],
    };
    let tries = vec![Try {
        ended_ns: 5_000,
        outcome: "committed".into(),
        rounds: vec![round],
        ..Try::default()
    }];
    draw_one(&Transaction {
        number: 0,
        procedure: "p",
        coordinator: 0,
        compute_node: 0,
        thread: 0,
        began_ns: 0,
        ended_ns: 5_000,
        tries,
    })
}

#[test]
fn a_coordinator_that_goes_on_before_its_round_has_ended_is_not_busy() {
    assert!(drawn(4_000).contains("its thread was busy for 2.10 µs"), "{}", drawn(4_000));
    assert!(!drawn(1_000).contains("busy"), "{}", drawn(1_000));
}
