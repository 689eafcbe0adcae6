//! Events while a hotspot moved: transactions by interval, moves of shards.
//!
//! Invariant: counting changes nothing of the run.

use serde::Serialize;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_engine::requests::resharding::Move;
use tarn_engine::site::Context;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::AbortReason;
use tarn_store::placement::shard_map::ShardId;

/// How often a waiter for the first lock at the new owner looks.
const LOOK_EVERY: Nanos = Nanos(500);
/// A shard without a request for so long after it was given is not hot.
const GRANTED_WITHIN: Nanos = Nanos(5_000_000);

/// A move of a shard.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Moved {
    /// Which.
    pub shard: u16,
    /// From which compute node.
    pub from: u16,
    /// To which.
    pub to: u16,
    /// When it was closed, since the phase began.
    pub at_ms: f64,
    /// From then until its new owner had it.
    pub handover_us: f64,
    /// From then until its new owner was first asked for a lock and the shard was open; `None` if there was no request
    /// soon.
    pub interruption_us: Option<f64>,
    /// Tries that were refused since the shard was not open where they looked, until then.
    pub refused: u64,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Trail {
    /// When the phase began.
    pub(crate) start: std::cell::Cell<Nanos>,
    /// How long an interval is.
    pub(crate) interval: Nanos,
    /// Transactions that ended, by interval.
    pub(crate) ended: RefCell<Vec<u64>>,
    pub(crate) moved: RefCell<Vec<Moved>>,
    /// Moves that were taken back.
    pub(crate) taken_back: std::cell::Cell<u64>,
}

impl Trail {
    pub(crate) fn new(interval: Nanos) -> Trail {
        Trail { interval, ..Trail::default() }
    }

    /// A transaction has ended.
    pub(crate) fn ended(&self, now: Nanos) {
        let at = ((now.0.saturating_sub(self.start.get().0)) / self.interval.0) as usize;
        let mut ended = self.ended.borrow_mut();
        if ended.len() <= at {
            ended.resize(at + 1, 0);
        }
        ended[at] += 1;
    }

    /// A move came to its end at `cx`, one of `all` threads; waits for the first lock at the new owner.
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

/// Tries of all threads that found a shard not open where they looked.
pub(crate) fn refused(all: &[Rc<Context>]) -> u64 {
    let of = |cx: &Rc<Context>| cx.metrics.snapshot().aborts[AbortReason::WrongOwner as usize];
    all.iter().map(of).sum()
}
