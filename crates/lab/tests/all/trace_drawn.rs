//! Tests drawings of traces with features that no current run produces: messages, an unknown outcome, and many nodes.
//!
//! Invariant: for every trace, the drawing as text has at most 100 columns and omits no part of the trace.

use tarn_fabric::address::Address;
use tarn_lab::trace::{
    Batch, Message, Round, Shape, Trace, Transaction, Try, VerbSeen, Wait, svg, text,
};

fn batch(to: u16, at_ns: u64) -> Batch {
    let verb = VerbSeen {
        kind: "CAS",
        what: format!("lock a_table_with_quite_a_long_name {to}"),
        bytes: 8,
        refused: (to == 1).then(|| "coordinator 7".to_owned()),
        address: Address::NULL,
        swap: (0, 1),
    };
    Batch {
        to,
        posted_ns: at_ns,
        sent_ns: at_ns + 10,
        arrived_ns: at_ns + 600,
        left_ns: at_ns + 900,
        taken_ns: at_ns + 1_500,
        seen_ns: at_ns + 1_600,
        verbs: vec![verb],
    }
}

fn trace(nodes: u16, messages: usize) -> Trace {
    let batches = (0..nodes).map(|node| batch(node, 2_000 + 100 * u64::from(node))).collect();
    let round = Round {
        phases: vec!["lock", "lock_directory"],
        awaited: true,
        completed_ns: 9_000,
        resumed_ns: Some(9_500),
        batches,
    };
    let message = |to: usize| Message {
        to: to as u16,
        thread: 0,
        bytes: 48,
        sent_ns: 9_600,
        arrived_ns: 10_400,
    };
    let it = Try {
        began_ns: 1_000,
        ended_ns: 80_000,
        outcome: "outcome unknown".into(),
        rounds: vec![round],
        messages: (0..messages).map(message).collect(),
        waits: vec![Wait { why: "pause after the abort", from_ns: 11_000, to_ns: 79_000 }],
    };
    let txn = Transaction {
        number: 3,
        procedure: "pay",
        coordinator: 5,
        compute_node: 0,
        thread: 0,
        began_ns: 1_000,
        ended_ns: 80_000,
        tries: vec![it],
    };
    Trace {
        workload: "w".into(),
        protocol: "p".into(),
        variant: "corrected".into(),
        profile: "cx5-100g".into(),
        seed: 1,
        cluster: Shape { compute_nodes: 1, coordinators: 8, memory_nodes: 60, replicas: 1 },
        pick: "first",
        of: 1,
        digest: String::new(),
        transactions: vec![txn],
    }
}

#[test]
fn messages_have_arrows_and_lanes_of_their_own() {
    let trace = trace(2, 2);
    let drawn = text::draw(&trace);
    assert_eq!(drawn.matches("message, 48 B").count(), 2, "{drawn}");
    for words in ["M0", "M1", "C0", "C1", "lock + lock_directory", "outcome unknown", "68.00 µs"] {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
    assert_eq!(drawn.matches("refused: coordinator 7 has it").count(), 1, "{drawn}");
    let svg = svg::draw(&trace);
    assert_eq!(svg.matches("message, 48 B").count(), 2);
    for words in ["compute node 1", "memory node 1", "refused: coordinator 7 has it"] {
        assert!(svg.contains(words), "{words}");
    }
    // The pause is longer than the picture, so the drawing cuts it and marks the cut.
    assert!(svg.contains("time is cut short here"));
}

#[test]
fn text_stays_within_100_columns_for_any_number_of_nodes() {
    for nodes in [1, 2, 3, 4, 9, 16, 60] {
        let drawn = text::draw(&trace(nodes, 0));
        let widest = drawn.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= 100), "{nodes} nodes: {drawn}");
        let verbs = drawn.lines().filter(|line| line.contains("CAS lock ")).count();
        assert_eq!(verbs, usize::from(nodes), "{drawn}");
    }
}
