//! The events of one execution, step by step. The events contain enough data to draw a diagram of the
//! execution.
//!
//! Invariant: `number` counts transitions from 1 and never falls. All events that one transition caused
//! have the number of that transition. A trace is a function of model, configuration and schedule.

use super::actor::Fault;
use tarn_fabric::address::{NodeId, NodeSlot, Target};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::VerbKind;

/// One event of an execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The transition that the event belongs to.
    pub number: u32,
    /// The actor, as a position in the model's actors. `None` means that the event is a fault.
    pub actor: Option<usize>,
    /// The phase that the actor named before it posted the round ([`super::ExploreFabric::phase`]).
    pub phase: &'static str,
    /// The event.
    pub what: What,
}

/// The kinds of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The coroutine was polled for the first time.
    Started,
    /// A transaction began, as its harness reported.
    Began,
    /// A transaction ended, as its harness reported.
    Ended,
    /// A round was posted.
    Posted {
        /// The number of this round among the actor's rounds, counted from 1.
        round: u32,
        /// The number of verbs in the round.
        verbs: u32,
        /// Whether no coroutine awaits the round.
        detached: bool,
    },
    /// One line of a READ or WRITE, or one atomic, was executed.
    Landed {
        /// The number of the actor's round.
        round: u32,
        /// The position of the verb in the round.
        verb: u32,
        /// The verb's kind.
        kind: VerbKind,
        /// The first byte of this piece.
        target: Target,
        /// The length of this piece in bytes.
        len_bytes: usize,
        /// The number of the step in which the round was posted.
        posted: u32,
        /// The contents of the words that the piece touches, before the piece was executed.
        before: Vec<u64>,
        /// The contents of the words that the piece touches, after the piece was executed. A READ saw
        /// the words in `before`.
        after: Vec<u64>,
    },
    /// A round's batch to one node was refused, or the rest of the batch was cut off.
    Refused {
        /// The number of the actor's round.
        round: u32,
        /// The memory node of the batch.
        at: NodeSlot,
        /// The reason for the refusal.
        error: FabricError,
    },
    /// The coroutine was polled and saw the end of a round.
    Completed {
        /// The number of the actor's round.
        round: u32,
        /// The round's error, if the round had one.
        error: Option<FabricError>,
    },
    /// The coroutine has ended.
    Finished,
    /// The coroutine panicked.
    Panicked(String),
    /// A fault happened.
    Broke(Fault),
    /// The coroutine's window opened.
    WindowOpened,
    /// The coroutine's window closed.
    WindowClosed {
        /// The lease that the window was compared with.
        lease_ns: u64,
        /// Whether the window was found shorter than the lease.
        is_shorter: bool,
    },
    /// The coroutine's wait began.
    WaitBegan,
    /// The coroutine's wait has ended.
    WaitEnded {
        /// The length of the wait.
        length_ns: u64,
    },
    /// A coroutine requested a revocation.
    RevokeAsked {
        /// The compute node that is to lose access.
        whom: NodeId,
        /// The memory node at which the compute node is to lose its access.
        at: NodeSlot,
    },
    /// A revocation has taken effect: no verb of `whom` will land at `at` any more.
    Revoked {
        /// The compute node that lost access.
        whom: NodeId,
        /// The memory node at which the compute node lost its access.
        at: NodeSlot,
    },
    /// A datagram was sent.
    MessageSent {
        /// The number of this datagram among the actor's datagrams, counted from 1.
        message: u32,
        /// The receiver.
        to: Endpoint,
    },
    /// A datagram has arrived. The receiver has not read the arrived datagram yet.
    MessageDelivered {
        /// The number of this datagram among its sender's datagrams.
        message: u32,
        /// The receiver.
        to: Endpoint,
    },
}
