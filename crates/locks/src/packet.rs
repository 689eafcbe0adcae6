//! Packets between machines and the decider, and between machines.
//!
//! Invariant: a packet that may be sent again may be taken in again: the decider knows it by its number on its lane, a machine by the
//! names of the request and the number within it.

use crate::value::{LockId, Machine, Mode, RequestId, Thread, Token, View};

/// A lane: the ordered link of one thread to the decider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LaneId {
    /// The thread's machine.
    pub machine: Machine,
    /// The thread.
    pub thread: Thread,
}

/// A request that waits for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Waiter {
    /// The request.
    pub request: RequestId,
    /// How it will hold the lock.
    pub mode: Mode,
}

/// The part of an agent that moves to the next holder's machine.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Payload {
    /// All acquires up to this number are counted.
    pub counted: u64,
    /// The requests that wait, in their order.
    pub queue: Vec<Waiter>,
}

/// A machine's question to the decider about one lock.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Ask {
    /// A client wants the lock.
    Acquire {
        /// The request, and how it will hold the lock.
        waiter: Waiter,
        /// While this request waits, shared requests wait too.
        bars_readers: bool,
    },
    /// The agent has no holder and no waiter.
    Free {
        /// The count of acquires that the agent has seen.
        count: u64,
    },
    /// The agent has no holder, and hands the lock to a waiter.
    Transfer {
        /// The count of acquires that the agent has seen.
        count: u64,
        /// The next holder.
        next: Waiter,
        /// An exclusive request goes on waiting.
        bars_readers: bool,
        /// The agent, for the next holder's machine.
        payload: Payload,
    },
    /// An exclusive request waits at the agent: shared requests are to wait too.
    BarReaders,
    /// Planted fault [`crate::rules::Rule::ReleaseAtAgent`]: a release, as it was published.
    Release,
}

/// The decider's answer. It is recorded with its number, so that a question that comes again has the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Answer {
    /// The decision.
    pub verdict: Verdict,
    /// The machine of the lock's agent.
    pub agent: Option<Machine>,
    /// The acquire's number; of a refusal, the count that the agent has to reach.
    pub number: u64,
}

/// The decider's decision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The lock was free: the requester holds it, and its machine has the agent.
    Granted,
    /// The requester holds the lock beside others.
    Joined,
    /// The requester waits at the agent.
    Queued,
    /// The lock is freed, transferred, or barred.
    Done,
    /// The agent has not seen all acquires yet.
    Refused,
}

/// A packet to the decider.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Question {
    /// The view of the sender.
    pub view: View,
    /// The sender's lane.
    pub lane: LaneId,
    /// The packet's number on the lane, from 1.
    pub number: u32,
    /// The lock.
    pub lock: LockId,
    /// The question.
    pub ask: Ask,
}

/// The decider's answer to the sender of a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reply {
    /// The view of the decider.
    pub view: View,
    /// The lane that asked.
    pub lane: LaneId,
    /// The question's number on the lane.
    pub number: u32,
    /// The lock.
    pub lock: LockId,
    /// The answer.
    pub answer: Answer,
    /// The token of a grant.
    pub token: Token,
}

/// A packet to a machine about one lock; from another machine, or from a decider that sends two packets for one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Notice {
    /// To the agent's machine: an acquire that the decider has numbered.
    Copy {
        /// The request.
        waiter: Waiter,
        /// Its number.
        number: u64,
        /// The decider has granted it.
        granted: bool,
    },
    /// To the agent's machine: a holder has released the lock.
    Release {
        /// The holder.
        request: RequestId,
        /// The number of its acquire, if the decider has granted it.
        number: Option<u64>,
    },
    /// To a waiter's machine: the agent lets the request in.
    Grant {
        /// The request.
        request: RequestId,
        /// The agent's machine, which sends it.
        agent: Machine,
        /// The request's token.
        token: Token,
    },
    /// To the next holder's machine: the lock, with its agent.
    Install {
        /// The next holder.
        holder: Waiter,
        /// The machine that the agent comes from.
        from: Machine,
        /// The agent.
        payload: Payload,
        /// The holder's token.
        token: Token,
    },
}

impl Notice {
    /// The request that it is about.
    #[must_use]
    pub fn request(&self) -> RequestId {
        match self {
            Notice::Copy { waiter, .. } => waiter.request,
            Notice::Release { request, .. } | Notice::Grant { request, .. } => *request,
            Notice::Install { holder, .. } => holder.request,
        }
    }

    /// The machine that waits for its acknowledgement.
    #[must_use]
    pub fn sender(&self) -> Machine {
        match self {
            Notice::Copy { waiter, .. } => waiter.request.machine,
            Notice::Release { request, .. } => request.machine,
            Notice::Grant { agent, .. } => *agent,
            Notice::Install { from, .. } => *from,
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> NoticeKind {
        match self {
            Notice::Copy { granted: false, .. } => NoticeKind::Copy,
            Notice::Copy { granted: true, .. } => NoticeKind::Joined,
            Notice::Release { .. } => NoticeKind::Release,
            Notice::Grant { .. } => NoticeKind::Grant,
            Notice::Install { .. } => NoticeKind::Install,
        }
    }

    /// What its acknowledgement names.
    #[must_use]
    pub fn name(&self) -> NoticeName {
        NoticeName { kind: self.kind(), request: self.request() }
    }
}

/// Kinds of notices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NoticeKind {
    /// [`Notice::Copy`] of a request that waits: it says that the decider has answered.
    Copy,
    /// [`Notice::Copy`] of a request that the decider has granted: the requester has to have the answer itself.
    Joined,
    /// [`Notice::Release`].
    Release,
    /// [`Notice::Grant`].
    Grant,
    /// [`Notice::Install`].
    Install,
}

/// A notice, by its kind and its request: of one kind, a request has at most one notice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NoticeName {
    /// The kind.
    pub kind: NoticeKind,
    /// The request.
    pub request: RequestId,
}
