//! Messages of the control channel, as JSON.
//!
//! Invariant: a message that decodes has ids that exist; everything else about it is judged where it is used.

use crate::counters::Counters;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tarn_locks::packet::Waiter;
use tarn_locks::recovery::{Hold, Seat, Submission, Tenure};
use tarn_locks::value::{LockId, Machine, Mode, RequestId, Thread, Token, View};

/// A life of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Life {
    /// The machine.
    pub machine: u16,
    /// A random number that no two lives share.
    pub incarnation: u64,
}

/// To the decider.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ToDecider {
    /// A process wants to take part.
    Join {
        /// The machine's configured id; `None`: any id for clients.
        machine: Option<u16>,
        /// The incarnation of the life that is to begin.
        incarnation: u64,
        /// Where its UDP socket is.
        address: SocketAddr,
        /// A life of this process that has ended. Nothing is held in it any more.
        previous: Option<Life>,
    },
    /// A life goes on over a new connection.
    Attach {
        /// The life.
        life: Life,
        /// The view of the machine.
        view: u32,
        /// Where its UDP socket is.
        address: SocketAddr,
        /// It waits for the view to begin.
        is_paused: bool,
    },
    /// Asks for a longer lease, or whether the decider is there.
    Renew {
        /// Counts the renewals of a connection.
        seq: u64,
        /// The view of the machine; 0 without a life.
        view: u32,
    },
    /// Everything of the machine that survives a view.
    Submit(Submitted),
    /// A life ends. Nothing is held in it any more.
    Leave {
        /// No other machine waits for anything of it.
        is_clean: bool,
    },
    /// Asks for [`ToMachine::Status`].
    Status,
    /// Asks for a new view.
    Raise,
}

/// To a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ToMachine {
    /// A life begins.
    Joined {
        /// The machine's id.
        machine: u16,
        /// The view.
        view: u32,
        /// The machines of the view.
        members: Vec<(u16, SocketAddr)>,
    },
    /// A life goes on.
    Attached,
    /// The life is unknown: it has ended.
    Ended,
    /// A process cannot take part.
    Refused {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// A machine has joined.
    Added {
        /// The view.
        view: u32,
        /// The machine.
        machine: u16,
        /// Where its UDP socket is.
        address: SocketAddr,
    },
    /// The machines that take part.
    Members {
        /// The view.
        view: u32,
        /// The machines.
        members: Vec<(u16, SocketAddr)>,
    },
    /// A new view is about to begin.
    Pause {
        /// The view.
        view: u32,
    },
    /// The new view begins.
    Resume {
        /// The view.
        view: u32,
        /// The machine's seats.
        seats: Vec<SeatText>,
        /// The machines of the view.
        members: Vec<(u16, SocketAddr)>,
    },
    /// The answer to a renewal.
    Renewed {
        /// The renewal.
        seq: u64,
        /// The lease is longer. Otherwise the decider is there, and no more.
        counts: bool,
    },
    /// The state of the decider.
    Status(Box<Status>),
    /// A new view is durable.
    Raised {
        /// The view.
        view: u32,
    },
}

/// The state of a decider.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The view.
    pub view: u32,
    /// It grants locks; otherwise it waits for machines to submit.
    pub is_serving: bool,
    /// The number of locks.
    pub locks: u32,
    /// Locks that are held.
    pub held: u64,
    /// The machines that take part: id, address, milliseconds of lease that are left.
    pub members: Vec<(u16, SocketAddr, u64)>,
    /// Processes that wait to take part.
    pub joining: usize,
    /// Views since the process began.
    pub views: u64,
    /// Milliseconds that the last view took to begin.
    pub recovery_ms: u64,
    /// The process's counters.
    pub counters: Counters,
    /// The interface whose driver decides, and the counters of its program. `None`: the process decides.
    #[serde(default)]
    pub program: Option<(String, Vec<(String, u64)>)>,
}

/// A request: machine, thread, sequence number.
pub type RequestText = (u16, u16, u32);
/// A waiter: its request, and whether it is exclusive.
pub type WaiterText = (RequestText, bool);

/// [`Submission`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Submitted {
    view: u32,
    /// Lock, waiter, view and order of the token.
    holds: Vec<(u32, WaiterText, u32, u64)>,
    waits: Vec<(u32, WaiterText)>,
    queues: Vec<(u32, Vec<RequestText>)>,
}

/// [`Seat`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeatText {
    lock: u32,
    agent: u16,
    tenure: Option<TenureText>,
}

/// [`Tenure`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TenureText {
    exclusive: bool,
    holders: Vec<RequestText>,
    queue: Vec<WaiterText>,
}

fn request_text(request: RequestId) -> RequestText {
    (request.machine.0, request.thread.0, request.seq)
}

fn request(text: RequestText) -> Option<RequestId> {
    let (machine, thread, seq) = text;
    (machine != 0).then_some(RequestId { machine: Machine(machine), thread: Thread(thread), seq })
}

fn waiter_text(waiter: &Waiter) -> WaiterText {
    (request_text(waiter.request), waiter.mode == Mode::Exclusive)
}

fn mode(exclusive: bool) -> Mode {
    if exclusive { Mode::Exclusive } else { Mode::Shared }
}

fn waiter((text, exclusive): WaiterText) -> Option<Waiter> {
    Some(Waiter { request: request(text)?, mode: mode(exclusive) })
}

impl Submitted {
    /// A submission as text.
    #[must_use]
    pub fn of(it: &Submission) -> Submitted {
        let hold =
            |it: &Hold| (it.lock.0, waiter_text(&it.waiter), it.token.view.0, it.token.order);
        let queue = |(lock, queue): &(LockId, Vec<RequestId>)| {
            (lock.0, queue.iter().map(|it| request_text(*it)).collect())
        };
        Submitted {
            view: it.view.0,
            holds: it.holds.iter().map(hold).collect(),
            waits: it.waits.iter().map(|(lock, it)| (lock.0, waiter_text(it))).collect(),
            queues: it.queues.iter().map(queue).collect(),
        }
    }

    /// The submission of a machine. `None`: it has an id that does not exist, a request of another machine, or a lock that does not exist.
    #[must_use]
    pub fn submission(&self, of: Machine, locks: u32) -> Option<Submission> {
        let lock = |lock: u32| (lock < locks).then_some(LockId(lock));
        let own = |it: WaiterText| waiter(it).filter(|it| it.request.machine == of);
        let hold = |&(at, it, view, order): &(u32, WaiterText, u32, u64)| {
            let token = Token { view: View(view), order };
            Some(Hold { lock: lock(at)?, waiter: own(it)?, token })
        };
        let wait = |&(at, it): &(u32, WaiterText)| Some((lock(at)?, own(it)?));
        let queue = |(at, queue): &(u32, Vec<RequestText>)| {
            let queue: Option<Vec<RequestId>> = queue.iter().map(|it| request(*it)).collect();
            Some((lock(*at)?, queue?))
        };
        Some(Submission {
            view: View(self.view),
            holds: self.holds.iter().map(hold).collect::<Option<_>>()?,
            waits: self.waits.iter().map(wait).collect::<Option<_>>()?,
            queues: self.queues.iter().map(queue).collect::<Option<_>>()?,
        })
    }
}

impl SeatText {
    /// A seat as text.
    #[must_use]
    pub fn of(seat: &Seat) -> SeatText {
        let tenure = seat.tenure.as_ref().map(|tenure| TenureText {
            exclusive: tenure.mode == Mode::Exclusive,
            holders: tenure.holders.iter().map(|it| request_text(*it)).collect(),
            queue: tenure.queue.iter().map(waiter_text).collect(),
        });
        SeatText { lock: seat.lock.0, agent: seat.agent.0, tenure }
    }

    /// The seat. `None`: it has an id that does not exist.
    #[must_use]
    pub fn seat(&self) -> Option<Seat> {
        let tenure = match &self.tenure {
            None => None,
            Some(text) => Some(Tenure {
                mode: mode(text.exclusive),
                holders: text.holders.iter().map(|it| request(*it)).collect::<Option<_>>()?,
                queue: text.queue.iter().map(|it| waiter(*it)).collect::<Option<_>>()?,
            }),
        };
        let agent = (self.agent != 0).then_some(Machine(self.agent))?;
        Some(Seat { lock: LockId(self.lock), agent, tenure })
    }
}
