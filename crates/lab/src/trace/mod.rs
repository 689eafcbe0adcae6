//! Records the timeline of single transactions of a simulated run.
//!
//! Map:
//! - [`recorder`]: watches a run and keeps the wanted transactions. `live`: one transaction that is being recorded.
//! - [`places`]: names the records and logs at the addresses that the transactions accessed.
//! - [`run`]: calls the recorder and then [`places`]. [`text`] and [`svg`]: draw the trace.
//!
//! ```text
//! transaction ─ tries ─┬─ rounds ─ batches (one a memory node) ─ verbs
//!                      ├─ messages
//!                      └─ waits
//! ```
//!
//! Invariant: the recorder does not change the run. With the same flags, a trace and `tarn sim --no-verify` run the
//! same events in the same order, and equal digests prove this. Times are virtual, in nanoseconds since the run
//! began. The same flags and seed give the same trace, byte for byte.

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

/// The largest number of transactions in one trace.
pub const TRANSACTIONS_MAX: u64 = 100;

named! {
    /// The rule that selects the transactions to keep.
    pub enum Pick {
        /// The transactions that began first.
        First = "first",
        /// The transactions that took the longest time.
        Slowest = "slowest",
        /// The transactions with at least one aborted try that began first.
        Aborted = "aborted",
        /// The transactions with the largest number of tries, if they were tried more than once.
        Contended = "contended",
    }
}

/// The selection of the transactions that the recorder keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The number of transactions to keep.
    pub transactions: usize,
    /// The rule that selects the transactions.
    pub pick: Pick,
    /// If this name is given, only transactions of this procedure are kept.
    pub procedure: Option<String>,
}

/// The trace of a run: the run's settings and its selected transactions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// The benchmark's name.
    pub workload: String,
    /// The protocol's name.
    pub protocol: String,
    /// The protocol's variant.
    pub variant: String,
    /// The hardware profile's name.
    pub profile: String,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The number of compute nodes, of all coordinators, of memory nodes, and of copies of every
    /// record.
    pub cluster: Shape,
    /// The rule that selected the transactions.
    pub pick: &'static str,
    /// The number of transactions from which the recorder selected: they are of the wanted procedure and ended in the
    /// measured phase.
    pub of: u64,
    /// The digest of all events of the run.
    pub digest: String,
    /// The selected transactions, in the order of the selection.
    pub transactions: Vec<Transaction>,
}

/// The size of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Shape {
    /// The number of compute nodes.
    pub compute_nodes: usize,
    /// The number of all coordinators.
    pub coordinators: usize,
    /// The number of memory nodes.
    pub memory_nodes: usize,
    /// The number of copies of every record.
    pub replicas: usize,
}

/// One transaction, from its first verb to the last response that it received.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Transaction {
    /// The number of transactions that began before this one.
    pub number: u64,
    /// The name of the transaction's kind.
    pub procedure: &'static str,
    /// The number of the coordinator that ran the transaction.
    pub coordinator: u32,
    /// The number of the compute node on which the coordinator ran.
    pub compute_node: u16,
    /// The number of the compute node's thread on which the coordinator ran.
    pub thread: u16,
    /// The time at which the transaction was drawn.
    pub began_ns: u64,
    /// The time at which the caller had the transaction's reply.
    pub ended_ns: u64,
    /// The transaction's tries; all tries but the last were aborted.
    pub tries: Vec<Try>,
}

/// One try of a transaction.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Try {
    /// The time at which the try began.
    pub began_ns: u64,
    /// The time at which the try's outcome was known.
    pub ended_ns: u64,
    /// The outcome of the try: `committed`, or `aborted` with the reason.
    pub outcome: String,
    /// The rounds, in the order in which they were posted.
    pub rounds: Vec<Round>,
    /// The messages, in the order in which they were sent.
    pub messages: Vec<Message>,
    /// The intervals in which the try's coordinator waited for an event other than a round's end.
    pub waits: Vec<Wait>,
}

/// One round trip of a transaction's try.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Round {
    /// The protocol's phases for which the coordinator posted this round.
    pub phases: Vec<&'static str>,
    /// Whether the coordinator waits for the round.
    pub awaited: bool,
    /// The time at which the round's last response arrived.
    pub completed_ns: u64,
    /// The time at which the coordinator went on; it is later than `completed_ns` if the processor
    /// had other work.
    pub resumed_ns: Option<u64>,
    /// The round's batches of requests: one batch for each memory node.
    pub batches: Vec<Batch>,
}

/// The requests of a round to one memory node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Batch {
    /// The number of the memory node.
    pub to: u16,
    /// The time at which the processor rang the NIC's doorbell for this batch.
    pub posted_ns: u64,
    /// The time at which the NIC had sent the whole batch on its link.
    pub sent_ns: u64,
    /// The time at which the batch arrived at the memory node.
    pub arrived_ns: u64,
    /// The time at which the last response to the batch left the memory node.
    pub left_ns: u64,
    /// The time at which the coordinator's NIC had received the last response to the batch.
    pub taken_ns: u64,
    /// The time from which the processor could see the last response to the batch.
    pub seen_ns: u64,
    /// The batch's verbs, in the order in which they were posted.
    pub verbs: Vec<VerbSeen>,
}

/// A verb of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VerbSeen {
    /// The verb's kind: `READ`, `WRITE`, `CAS` or `FAA`.
    pub kind: &'static str,
    /// The name of the object at the verb's address. If the verb's kind does not already tell the verb's action, this
    /// text also names the action.
    pub what: String,
    /// The number of payload bytes.
    pub bytes: usize,
    /// The holder of the lock, if a compare-and-swap failed because the lock was held.
    pub refused: Option<String>,
    /// The verb's address.
    #[serde(skip)]
    pub address: Address,
    /// The two values of a compare-and-swap.
    #[serde(skip)]
    pub swap: (u64, u64),
}

/// A datagram between compute nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Message {
    /// The number of the compute node that receives the datagram.
    pub to: u16,
    /// The number of the thread that receives the datagram.
    pub thread: u16,
    /// The datagram's length in bytes.
    pub bytes: usize,
    /// The time at which the datagram left the sender's processor.
    pub sent_ns: u64,
    /// The time at which the datagram reached the receiving node.
    pub arrived_ns: u64,
}

/// An interval in which the try had no round in progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Wait {
    /// The reason for the wait.
    pub why: &'static str,
    /// The time at which the wait began.
    pub from_ns: u64,
    /// The time at which the wait ended.
    pub to_ns: u64,
}

impl Transaction {
    /// Returns the time for which the transaction's caller waited.
    pub fn latency_ns(&self) -> u64 {
        self.ended_ns - self.began_ns
    }

    /// Returns the transaction's outcome.
    pub fn outcome(&self) -> &str {
        self.tries.last().map_or("ended without a try", |last| &last.outcome)
    }

    /// Returns the numbers of the memory nodes to which the transaction sent requests, in order.
    pub fn nodes(&self) -> Vec<u16> {
        let batches = self.rounds().flat_map(|round| &round.batches);
        BTreeSet::from_iter(batches.map(|batch| batch.to)).into_iter().collect()
    }

    /// Returns the numbers of the compute nodes to which the transaction sent messages, in order.
    pub fn peers(&self) -> Vec<u16> {
        let messages = self.tries.iter().flat_map(|it| &it.messages);
        BTreeSet::from_iter(messages.map(|message| message.to)).into_iter().collect()
    }

    /// Returns the rounds of all tries of the transaction.
    pub fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.tries.iter().flat_map(|it| &it.rounds)
    }

    /// Returns a line that describes the transaction.
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
    /// Returns the time at which the round's first batch was posted.
    pub fn posted_ns(&self) -> u64 {
        self.batches.iter().map(|batch| batch.posted_ns).min().unwrap_or_default()
    }

    /// Returns the names of the round's phases.
    pub fn name(&self) -> String {
        if self.phases.is_empty() { "round".to_owned() } else { self.phases.join(" + ") }
    }
}

impl Trace {
    /// Returns two lines that describe the run.
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
