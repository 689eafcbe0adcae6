//! The timeline of single transactions: a simulated run, looked at closely.
//!
//! Map: [`recorder`] watches a run and keeps the transactions that were asked for (`live` is one of them); [`places`] names
//! the records and logs at the addresses that they touched; [`run`] is both in their order. [`text`] and [`svg`] draw.
//!
//! ```text
//! transaction ─ tries ─┬─ rounds ─ batches (one a memory node) ─ verbs
//!                      ├─ messages
//!                      └─ waits
//! ```
//!
//! Invariant: being watched changes nothing: the run of a trace is the run that `tarn sim --no-verify` measures with the
//! same flags, event for event, which the digest shows. Times are virtual, in nanoseconds since the run began. The same
//! flags and seed give the same trace, byte for byte.

mod live;
pub mod places;
pub mod recorder;
pub mod run;
pub mod svg;
pub mod text;

use crate::harness::named::named;
use serde::Serialize;
use std::collections::BTreeSet;
use tarn_fabric::address::Address;

/// Most transactions of one trace.
pub const TRANSACTIONS_MAX: u64 = 100;

named! {
    /// Which transactions to keep.
    pub enum Pick {
        /// Transactions that began first.
        First = "first",
        /// Transactions that took longest.
        Slowest = "slowest",
        /// Transactions with an aborted try that began first.
        Aborted = "aborted",
        /// Transactions with most tries, if they were tried more than once.
        Contended = "contended",
    }
}

/// The transactions of a run to keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// So many transactions.
    pub transactions: usize,
    /// Which.
    pub pick: Pick,
    /// Only those of this name.
    pub procedure: Option<String>,
}

/// A run, looked at closely; see the module's text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// The benchmark.
    pub workload: String,
    /// The protocol.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// The hardware profile.
    pub profile: String,
    /// Seed of every generator.
    pub seed: u64,
    /// Compute nodes, coordinators in all, memory nodes, copies of every record.
    pub cluster: Shape,
    /// How transactions were picked.
    pub pick: &'static str,
    /// Transactions that ended in the measured phase, of the name asked for.
    pub of: u64,
    /// Digest of all events of the run.
    pub digest: String,
    /// The picked transactions, in their order.
    pub transactions: Vec<Transaction>,
}

/// How large the cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Shape {
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Coordinators in all.
    pub coordinators: usize,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of every record.
    pub replicas: usize,
}

/// One transaction, from its first verb to the last answer to something of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Transaction {
    /// How many began before it.
    pub number: u64,
    /// Its kind.
    pub procedure: &'static str,
    /// The coordinator that ran it.
    pub coordinator: u32,
    /// On which compute node.
    pub compute_node: u16,
    /// On which of its threads.
    pub thread: u16,
    /// It was drawn.
    pub began_ns: u64,
    /// Its caller had the reply.
    pub ended_ns: u64,
    /// Its tries; all but the last were aborted.
    pub tries: Vec<Try>,
}

/// One try.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Try {
    /// It began.
    pub began_ns: u64,
    /// Its outcome was known.
    pub ended_ns: u64,
    /// `committed`, or `aborted` with the reason.
    pub outcome: String,
    /// In the order in which they were posted.
    pub rounds: Vec<Round>,
    /// In the order in which they were sent.
    pub messages: Vec<Message>,
    /// When its coordinator waited for something else than a round.
    pub waits: Vec<Wait>,
}

/// One round trip.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Round {
    /// The protocol's phases that it serves.
    pub phases: Vec<&'static str>,
    /// Whether the coordinator waits for it.
    pub awaited: bool,
    /// The last answer was there.
    pub completed_ns: u64,
    /// The coordinator went on; later than `completed_ns` by the processor's other work.
    pub resumed_ns: Option<u64>,
    /// One for each memory node.
    pub batches: Vec<Batch>,
}

/// The requests of a round to one memory node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Batch {
    /// The memory node.
    pub to: u16,
    /// The processor had rung the doorbell.
    pub posted_ns: u64,
    /// The NIC had put it on its link.
    pub sent_ns: u64,
    /// It was at the memory node.
    pub arrived_ns: u64,
    /// The last response left the memory node.
    pub left_ns: u64,
    /// The NIC had taken it in.
    pub taken_ns: u64,
    /// The processor could see it.
    pub seen_ns: u64,
    /// In their order.
    pub verbs: Vec<VerbSeen>,
}

/// A verb.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VerbSeen {
    /// `READ`, `WRITE`, `CAS`, `FAA`.
    pub kind: &'static str,
    /// The thing that lies there, and the action on it, if the kind does not say so.
    pub what: String,
    /// Payload.
    pub bytes: usize,
    /// A compare-and-swap that found something else: the holder of the lock.
    pub refused: Option<String>,
    /// Where.
    #[serde(skip)]
    pub address: Address,
    /// A compare-and-swap's values.
    #[serde(skip)]
    pub swap: (u64, u64),
}

/// A datagram.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Message {
    /// The compute node.
    pub to: u16,
    /// Its thread.
    pub thread: u16,
    /// Length.
    pub bytes: usize,
    /// It left the processor.
    pub sent_ns: u64,
    /// It reached the node.
    pub arrived_ns: u64,
}

/// Time that passed without a round of the try on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Wait {
    /// The reason.
    pub why: &'static str,
    /// From then on.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

impl Transaction {
    /// How long its caller waited.
    pub fn latency_ns(&self) -> u64 {
        self.ended_ns - self.began_ns
    }

    /// How it ended.
    pub fn outcome(&self) -> &str {
        self.tries.last().map_or("ended without a try", |last| &last.outcome)
    }

    /// Memory nodes that it asked for something, in order.
    pub fn nodes(&self) -> Vec<u16> {
        let batches = self.rounds().flat_map(|round| &round.batches);
        BTreeSet::from_iter(batches.map(|batch| batch.to)).into_iter().collect()
    }

    /// Compute nodes that it sent a message to, in order.
    pub fn peers(&self) -> Vec<u16> {
        let messages = self.tries.iter().flat_map(|it| &it.messages);
        BTreeSet::from_iter(messages.map(|message| message.to)).into_iter().collect()
    }

    /// The rounds of all tries.
    pub fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.tries.iter().flat_map(|it| &it.rounds)
    }

    /// One line about it.
    pub fn heading(&self) -> String {
        let Transaction { procedure, number, coordinator, compute_node, thread, tries, .. } = self;
        let tries = match tries.len() {
            1 => String::new(),
            count => format!(" after {count} tries"),
        };
        format!(
            "{procedure} (transaction {number}) by coordinator {coordinator} (compute node \
             {compute_node}, thread {thread}): {}{tries}, {:.2} µs",
            self.outcome(),
            self.latency_ns() as f64 / 1e3
        )
    }
}

impl Round {
    /// When its first batch was posted.
    pub fn posted_ns(&self) -> u64 {
        self.batches.iter().map(|batch| batch.posted_ns).min().unwrap_or_default()
    }

    /// Its phases in words.
    pub fn name(&self) -> String {
        if self.phases.is_empty() { "round".to_owned() } else { self.phases.join(" + ") }
    }
}

impl Trace {
    /// Two lines about the run.
    pub fn heading(&self) -> String {
        let Shape { compute_nodes, coordinators, memory_nodes, replicas } = self.cluster;
        format!(
            "{} on {} ({}), simulated, profile {}, seed {}\ncompute nodes {compute_nodes}, \
             coordinators {coordinators}, memory nodes {memory_nodes}, replicas {replicas}; {} of {} \
             transactions ({})",
            self.workload,
            self.protocol,
            self.variant,
            self.profile,
            self.seed,
            self.transactions.len(),
            self.of,
            self.pick
        )
    }
}
