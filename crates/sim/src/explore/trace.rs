//! What happened in one execution, step by step: enough to draw it.
//!
//! Invariant: `number` counts transitions from 1 and never falls; what one transition caused has its
//! number. A trace is a function of model, configuration and schedule.

use super::actor::Fault;
use tarn_fabric::address::{NodeId, NodeSlot, Target};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::VerbKind;

/// One event of an execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The transition that it belongs to.
    pub number: u32,
    /// Whose event it is, a position in the model's actors; none for faults.
    pub actor: Option<usize>,
    /// What the actor said it was doing when it posted ([`super::ExploreFabric::phase`]).
    pub phase: &'static str,
    /// What happened.
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
        /// Counts the rounds of this actor, from 1.
        round: u32,
        /// Its verbs.
        verbs: u32,
        /// Nobody awaits it.
        detached: bool,
    },
    /// One line of a READ or WRITE, or one atomic, was executed.
    Landed {
        /// Round of the actor.
        round: u32,
        /// Position of the verb in the round.
        verb: u32,
        /// Its kind.
        kind: VerbKind,
        /// The first byte of this piece.
        target: Target,
        /// Bytes of this piece.
        len_bytes: usize,
        /// The step in which its round was posted.
        posted: u32,
        /// The words of the line that it touches, before.
        before: Vec<u64>,
        /// The same words after. A READ saw what was before.
        after: Vec<u64>,
    },
    /// All that the round asked of one node was refused, or the rest of it was cut off.
    Refused {
        /// Round of the actor.
        round: u32,
        /// The memory node.
        at: NodeSlot,
        /// Why.
        error: FabricError,
    },
    /// The coroutine was polled and saw the end of a round.
    Completed {
        /// Round of the actor.
        round: u32,
        /// Its error, if it had one.
        error: Option<FabricError>,
    },
    /// The coroutine has ended.
    Finished,
    /// The coroutine panicked.
    Panicked(String),
    /// Something broke.
    Broke(Fault),
    /// The coroutine's window opened.
    WindowOpened,
    /// Its window closed.
    WindowClosed {
        /// What it was held against.
        lease_ns: u64,
        /// Whether it was found shorter.
        is_shorter: bool,
    },
    /// Its wait began.
    WaitBegan,
    /// Its wait has ended.
    WaitEnded {
        /// For so long it has waited.
        length_ns: u64,
    },
    /// A revocation was asked for.
    RevokeAsked {
        /// Who is to lose access.
        whom: NodeId,
        /// Where.
        at: NodeSlot,
    },
    /// A revocation has taken effect: nothing of `whom` will land at `at` any more.
    Revoked {
        /// Who lost access.
        whom: NodeId,
        /// Where.
        at: NodeSlot,
    },
    /// A datagram was sent.
    MessageSent {
        /// Counts the datagrams of this actor, from 1.
        message: u32,
        /// To whom.
        to: Endpoint,
    },
    /// A datagram has arrived; its receiver has still to look.
    MessageDelivered {
        /// Counts the datagrams of its sender.
        message: u32,
        /// To whom.
        to: Endpoint,
    },
}
