//! Records the events of a run with a hotspot: the number of transactions in each interval, and the moves of shards.
//!
//! Invariant: the recording of these events does not change the run.

use serde::Serialize;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_engine::requests::resharding::Move;
use tarn_engine::site::Context;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::AbortReason;
use tarn_store::placement::shard_map::ShardId;

/// The interval at which the recorder checks whether the new owner has received a request for a
/// moved shard.
const LOOK_EVERY: Nanos = Nanos(500);
/// If no request arrives for this long after a shard's handover, the shard is not hot.
const GRANTED_WITHIN: Nanos = Nanos(5_000_000);

/// A move of a shard from one compute node to another.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Moved {
    /// The number of the shard.
    pub shard: u16,
    /// The number of the compute node that owned the shard before.
    pub from: u16,
    /// The number of the compute node that owns the shard now.
    pub to: u16,
    /// The time at which the old owner closed the shard, since the phase began.
    pub at_ms: f64,
    /// The time from the shard's closing until the new owner had the shard.
    pub handover_us: f64,
    /// The time from the shard's closing until the new owner, with the shard open, received the
    /// first lock request; `None` if no request arrived soon.
    pub interruption_us: Option<f64>,
    /// The number of refused tries since the previous move. The try of a transaction is refused if it requests a lock
    /// at a node that does not have the shard open.
    pub refused: u64,
}

/// The recorder of the events of one phase with a hotspot.
#[derive(Default)]
pub(crate) struct Trail {
    /// The time at which the phase began.
    pub(crate) start: std::cell::Cell<Nanos>,
    /// The length of an interval.
    pub(crate) interval: Nanos,
    /// The number of transactions that ended in each interval.
    pub(crate) ended: RefCell<Vec<u64>>,
    pub(crate) moved: RefCell<Vec<Moved>>,
    /// The number of moves of shards that the old owner took back.
    pub(crate) taken_back: std::cell::Cell<u64>,
}

impl Trail {
    pub(crate) fn new(interval: Nanos) -> Trail {
        Trail { interval, ..Trail::default() }
    }

    /// Counts a transaction that has ended.
    pub(crate) fn ended(&self, now: Nanos) {
        let at = ((now.0.saturating_sub(self.start.get().0)) / self.interval.0) as usize;
        let mut ended = self.ended.borrow_mut();
        if ended.len() <= at {
            ended.resize(at + 1, 0);
        }
        ended[at] += 1;
    }

    /// Records a move of a shard. `cx` is the thread that made the move, and `all` are all threads. Before it records
    /// a successful move, the function waits until the new owner receives a lock request, or until a time limit.
    pub(crate) async fn moved(
        &self,
        (cx, all): (&Context, &[Rc<Context>]),
        (shard, to): (ShardId, NodeId),
        came: Move,
        before: &std::cell::Cell<u64>,
    ) {
        let Move::Made { closed_at, given_at } = came else {
            self.taken_back.set(self.taken_back.get() + u64::from(came == Move::TakenBack));
            return;
        };
        let receiver = all.iter().find(|it| it.node.id == to);
        let load = receiver.and_then(|it| it.node.services()).and_then(|its| its.load());
        let mut first = None;
        if let Some(load) = load {
            let asked = load.asked(shard);
            while first.is_none() && cx.port.now() - given_at < GRANTED_WITHIN {
                cx.port.sleep(LOOK_EVERY).await;
                first = (load.asked(shard) != asked).then(|| cx.port.now());
            }
        }
        let refused = refused(all);
        let us = |until: Nanos| (until - closed_at).0 as f64 / 1e3;
        self.moved.borrow_mut().push(Moved {
            shard: shard.0,
            from: cx.node.id.slot.0,
            to: to.slot.0,
            at_ms: (closed_at - self.start.get()).0 as f64 / 1e6,
            handover_us: us(given_at),
            interruption_us: first.map(us),
            refused: refused - before.replace(refused),
        });
    }
}

/// Returns the number of refused tries of all threads. The try of a transaction is refused if it requests a lock at a
/// node that does not have the shard open.
pub(crate) fn refused(all: &[Rc<Context>]) -> u64 {
    let of = |cx: &Rc<Context>| cx.metrics.snapshot().aborts[AbortReason::WrongOwner as usize];
    all.iter().map(of).sum()
}
