//! The events of one execution, step by step: enough to draw it.
//!
//! Invariant: `number` counts transitions from 1 and never falls; all events that one transition caused
//! carry its number. A trace is a function of model, configuration and schedule.

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
    /// The actor, as a position in the model's actors; `None` for faults.
    pub actor: Option<usize>,
    /// The phase that the actor named before it posted ([`super::ExploreFabric::phase`]).
    pub phase: &'static str,
    /// The event.
    pub what: What,
}

/// Kinds of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The coroutine was polled for the first time.
    Started,
    /// A transaction began, as its harness said.
    Began,
    /// A transaction ended, as its harness said.
    Ended,
    /// A round was posted.
    Posted {
        /// The number of this round among the actor's rounds, from 1.
        round: u32,
        /// Number of verbs in the round.
        verbs: u32,
        /// Whether no coroutine awaits it.
        detached: bool,
    },
    /// One line of a READ or WRITE, or one atomic, was executed.
    Landed {
        /// Number of the actor's round.
        round: u32,
        /// Position of the verb in the round.
        verb: u32,
        /// The verb's kind.
        kind: VerbKind,
        /// The first byte of this piece.
        target: Target,
        /// Length of this piece in bytes.
        len_bytes: usize,
        /// The step in which its round was posted.
        posted: u32,
        /// The words that it touches, before it was executed.
        before: Vec<u64>,
        /// The same words after it. A READ saw the words in `before`.
        after: Vec<u64>,
    },
    /// A round's batch to one node was refused, or the rest of the batch was cut off.
    Refused {
        /// Number of the actor's round.
        round: u32,
        /// The memory node.
        at: NodeSlot,
        /// The reason.
        error: FabricError,
    },
    /// The coroutine was polled and saw the end of a round.
    Completed {
        /// Number of the actor's round.
        round: u32,
        /// Its error, if it had one.
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
    /// Its window closed.
    WindowClosed {
        /// The lease that the window was compared with.
        lease_ns: u64,
        /// Whether the window was found shorter.
        is_shorter: bool,
    },
    /// Its wait began.
    WaitBegan,
    /// Its wait has ended.
    WaitEnded {
        /// The length of the wait.
        length_ns: u64,
    },
    /// A revocation was asked for.
    RevokeAsked {
        /// The compute node that is to lose access.
        whom: NodeId,
        /// The memory node at which it is to lose access.
        at: NodeSlot,
    },
    /// A revocation has taken effect: no verb of `whom` will land at `at` any more.
    Revoked {
        /// The compute node that lost access.
        whom: NodeId,
        /// The memory node at which it lost access.
        at: NodeSlot,
    },
    /// A datagram was sent.
    MessageSent {
        /// The number of this datagram among the actor's datagrams, from 1.
        message: u32,
        /// The receiver.
        to: Endpoint,
    },
    /// A datagram has arrived; its receiver has not looked at it yet.
    MessageDelivered {
        /// The number of this datagram among its sender's datagrams.
        message: u32,
        /// The receiver.
        to: Endpoint,
    },
}
