//! The faults that happen once in a run, and their times: nodes die, are taken for dead, come back.
//!
//! Invariant: nothing is asked of the engine that it does not claim (docs/fault-model.md): no more memory nodes die than
//! there are further copies, and one compute node always lives. Logs and locks of the dead are settled by the engine's own
//! recovery, which runs on every compute node and may die with it.

use super::desk::Desk;
use super::drawn::{Drawn, Fault, What};
use super::life::Life;
use crate::harness::in_words;
use crate::harness::mortal::Lives;
use crate::harness::rest;
use std::rc::Rc;
use tarn_engine::admin::repair::repair;
use tarn_engine::recovery::reconfigure::Terms;
use tarn_engine::recovery::{self, Pace};
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::site::{Context, admission_gate};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::{Explanation, Failure};

/// How recovery goes about it: as fast as a small cluster can, so that transactions meet it.
pub(super) const PACE: Pace =
    Pace { blocks: 8, pause_ns: 500, look_every_ns: 4_000, ..Pace::UNPACED };
/// A member whose threads are not quiet after so long is expelled.
const TERMS: Terms = Terms { patience_ns: 400_000, look_every_ns: 1_000 };
/// Transactions of one coordinator that may end in a failure before it gives up.
const ENDS_MAX: u32 = 8;
/// How long a coordinator waits that is kept from working.
const WAIT: Nanos = Nanos(5_000);

/// Something that happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A memory node dies, with all that it holds.
    MemoryNode(u16),
    /// The threads of a compute node stop, with whatever of its verbs is on its way.
    Stops(u16),
    /// A compute node is declared dead, whether it is or not.
    Expelled(u16),
    /// One that has stopped is declared dead, unless it was before.
    Noticed(u16),
}

/// Returns the events of these faults, in order.
pub(super) fn events(faults: &[Fault]) -> Vec<(Nanos, Event)> {
    let mut events = Vec::new();
    for fault in faults {
        let at = Nanos(fault.at_ns);
        match fault.what {
            What::MemoryNode { slot } => events.push((at, Event::MemoryNode(slot))),
            What::Zombie { slot } => events.push((at, Event::Expelled(slot))),
            What::Crash { slot, noticed_after_ns } => {
                events.push((at, Event::Stops(slot)));
                events.push((at + Nanos(noticed_after_ns), Event::Noticed(slot)));
            }
        }
    }
    events.sort_unstable();
    events
}

/// Whether a life of a compute node takes part.
pub(super) fn is_member(cx: &Context) -> bool {
    cx.database().membership.is_member(cx.node.id)
}

/// Handles a failure of a coordinator; returns whether the coordinator goes on. Where nothing breaks, nothing may fail.
pub(super) async fn go_on_after<T>(
    failure: Failure,
    by: &mut Coordinator,
    drawn: &Drawn,
    (desk, ends): (&Desk<T>, &mut u32),
) -> bool {
    *ends += 1;
    let cx = Rc::clone(by.context());
    match (failure, cx.explanation(failure)) {
        (failure, explanation) if !drawn.has_faults() => {
            let text = in_words(failure, explanation);
            let text = format!("nothing has died, and a transaction failed: {text}");
            desk.left.borrow_mut().failures.push(text);
            return false;
        }
        (Failure::DeadlineExceeded, _) => desk.left.borrow_mut().incidents.deadlines_missed += 1,
        (Failure::Fabric, _) => cx.port.sleep(WAIT).await,
        (Failure::CommitUnknown, Some(Explanation::Unknown(id))) => {
            while by.resolve(id).await.is_err() && is_member(&cx) {
                cx.port.sleep(WAIT).await;
            }
        }
        (failure, explanation) => {
            let text = in_words(failure, explanation);
            desk.left.borrow_mut().failures.push(format!("a transaction failed: {text}"));
            return false;
        }
    }
    *ends < ENDS_MAX && is_member(&cx)
}

/// The coroutines of a compute node that look after the dead, and after its own lease.
pub(super) fn spawn_keepers<'a, T>(
    lives: &mut Lives<'a>,
    (cx, life): (&Rc<Context>, &Rc<Life>),
    drawn: &Drawn,
    desk: &'a Desk<T>,
) {
    let (keeper, is_dead) = (Rc::clone(cx), &life.is_dead);
    lives.spawn(is_dead, cx, async move {
        // Expelled itself: nothing to do any more.
        let _ = recovery::attend(&keeper, PACE, || desk.is_over.get(), |_, _| {}).await;
    });
    if drawn.replicas > 1 {
        let keeper = Rc::clone(cx);
        lives.spawn(is_dead, cx, async move {
            let _ = repair(&keeper, TERMS, PACE, || desk.is_over.get(), |_| {}).await;
        });
    }
    if drawn.lease.is_some() {
        let keeper = Rc::clone(cx);
        lives.spawn(is_dead, cx, async move {
            admission_gate::keep(&keeper, || desk.is_over.get()).await;
        });
    }
}

/// Whether nothing is left to be looked after: the dead are recovered, their shards are open, and each copy that was lost is on a
/// spare, as far as there are any.
pub(super) fn is_mended(cx: &Context, drawn: &Drawn) -> bool {
    let wanted = |group: usize| {
        let hosts = (group..group + drawn.replicas).map(|node| node % drawn.memory_nodes);
        let lost = hosts.filter(|node| drawn.memory_node_dies(*node)).count();
        drawn.replicas - lost + lost.min(drawn.spares)
    };
    let lives = |node: NodeSlot| !drawn.memory_node_dies(usize::from(node.0));
    rest::is_mended(cx.database(), lives, wanted)
}

/// The slot of the compute node that always lives: behind all others.
pub(super) fn standby(drawn: &Drawn) -> NodeSlot {
    NodeSlot(drawn.compute_nodes as u16)
}
