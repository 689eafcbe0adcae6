//! Recovery: a new view from the requests of the machines that live.
//!
//! Invariant: the new view is built from submissions alone, so that a decider without any memory of the old view can build it. A holder is
//! a request whose client believes that it holds the lock; a machine submits only after it has stopped taking packets of the old view.
//! The caller waits until the leases of all other machines have ended, and, where holders are transactions, until the transactions of dead
//! machines are settled: a lock that is freed before that lets others read data that recovery is about to change.
//! After Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024, steps S1 to S3.

use crate::decider::{Entry, Held};
use crate::packet::Waiter;
use crate::value::{LockId, Machine, Mode, Policy, RequestId, Token, View};
use std::collections::BTreeMap;

/// A request that holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Hold {
    /// The lock.
    pub lock: LockId,
    /// The request, and how it holds the lock.
    pub waiter: Waiter,
    /// The token that it was granted with.
    pub token: Token,
}

/// Everything of a machine that survives a view.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Submission {
    /// The new view.
    pub view: View,
    /// The requests that hold a lock.
    pub holds: Vec<Hold>,
    /// The requests that wait.
    pub waits: Vec<(LockId, Waiter)>,
    /// The requests that waited at an agent of this machine, in their order; of any machine.
    pub queues: Vec<(LockId, Vec<RequestId>)>,
}

/// Where a lock's agent is in the new view, for a machine whose clients hold the lock or wait for it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Seat {
    /// The lock.
    pub lock: LockId,
    /// The machine of the agent.
    pub agent: Machine,
    /// The agent; for its own machine only.
    pub tenure: Option<Tenure>,
}

/// An agent in the new view.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tenure {
    /// How the lock is held.
    pub mode: Mode,
    /// The requests that hold the lock. Without any, the agent hands the lock to the first waiter.
    pub holders: Vec<RequestId>,
    /// The requests that wait, in their order.
    pub queue: Vec<Waiter>,
}

/// A new view.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    /// The decider's entries that are not free.
    pub entries: Vec<(LockId, Entry)>,
    /// The seats of each machine that submitted, in the order of the submissions.
    pub seats: Vec<(Machine, Vec<Seat>)>,
}

#[derive(Default)]
struct Lock {
    holds: Vec<Hold>,
    waits: Vec<Waiter>,
    order: Vec<RequestId>,
}

/// Builds a view from the submissions of all machines that take part in it.
#[must_use]
pub fn rebuild(policy: Policy, submissions: &[(Machine, Submission)]) -> Rebuilt {
    let mut locks: BTreeMap<LockId, Lock> = BTreeMap::new();
    for (_, submission) in submissions {
        for hold in &submission.holds {
            locks.entry(hold.lock).or_default().holds.push(*hold);
        }
        for (lock, waiter) in &submission.waits {
            locks.entry(*lock).or_default().waits.push(*waiter);
        }
        for (lock, order) in &submission.queues {
            locks.entry(*lock).or_default().order.extend(order);
        }
    }
    let mut rebuilt = Rebuilt::default();
    rebuilt.seats.extend(submissions.iter().map(|(machine, _)| (*machine, Vec::new())));
    for (lock, it) in locks {
        let Some((held, tenure)) = it.elect(policy) else { continue };
        rebuilt.entries.push((lock, Entry { count: 0, held: Some(held) }));
        let concerns = |machine: Machine| {
            machine == held.agent
                || it.holds.iter().any(|hold| hold.waiter.request.machine == machine)
                || it.waits.iter().any(|waiter| waiter.request.machine == machine)
        };
        for (machine, seats) in rebuilt.seats.iter_mut().filter(|(machine, _)| concerns(*machine)) {
            let tenure = (*machine == held.agent).then(|| tenure.clone());
            seats.push(Seat { lock, agent: held.agent, tenure });
        }
    }
    rebuilt
}

impl Lock {
    /// The agent is elected on a holder's machine; without a holder, on the first waiter's.
    fn elect(&self, policy: Policy) -> Option<(Held, Tenure)> {
        let place = |waiter: &Waiter| {
            let at = self.order.iter().position(|request| *request == waiter.request);
            (at.unwrap_or(usize::MAX), waiter.request)
        };
        let mut queue = self.waits.clone();
        queue.sort_unstable_by_key(place);
        let first = self.holds.first().map(|hold| hold.waiter).or(queue.first().copied())?;
        // Without a holder the mode says nothing. An exclusive agent lets nobody join it.
        let mode = self.holds.first().map_or(Mode::Exclusive, |hold| hold.waiter.mode);
        let bars_readers = policy != Policy::ReadsFirst
            && queue.iter().any(|waiter| waiter.mode == Mode::Exclusive);
        let holders = self.holds.iter().map(|hold| hold.waiter.request).collect();
        let held = Held { agent: first.request.machine, mode, bars_readers };
        Some((held, Tenure { mode, holders, queue }))
    }
}
