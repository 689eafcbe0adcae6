//! The faults that happen once in a run, and the times of these faults: nodes die, are declared dead by mistake, and
//! return.
//!
//! Invariant: a run causes no fault that the engine does not promise to survive (docs/fault-model.md). Fewer memory
//! nodes die than there are copies of a record, and one compute node is never lost. The engine's own recovery
//! finishes the logs and locks of dead nodes. The recovery runs on every compute node and may die with its node.

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

/// The pace of recovery. The recovery runs as fast as a small cluster allows, so that it runs at the same time as
/// transactions.
pub(super) const PACE: Pace =
    Pace { blocks: 8, pause_ns: 500, look_every_ns: 4_000, ..Pace::UNPACED };
/// The terms of membership. If a member's threads have not become quiet after this patience, the member is expelled.
const TERMS: Terms = Terms { patience_ns: 400_000, look_every_ns: 1_000 };
/// The number of transactions of one coordinator that may fail before the coordinator stops.
const ENDS_MAX: u32 = 8;
/// How long a coordinator waits before it checks again whether it may work.
const WAIT: Nanos = Nanos(5_000);

/// An event that the faults of a run cause at one moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A memory node dies, and its contents are lost.
    MemoryNode(u16),
    /// The threads of a compute node stop. Some verbs of this node are still in flight.
    Stops(u16),
    /// A compute node is declared dead, whether it is dead or not.
    Expelled(u16),
    /// A compute node that has stopped is declared dead, unless it was declared dead before.
    Noticed(u16),
}

/// Returns the events that these faults cause, in the order of their times.
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

/// Returns whether an incarnation of a compute node is a member.
pub(super) fn is_member(cx: &Context) -> bool {
    cx.database().membership.is_member(cx.node.id)
}

/// Handles a failure of a coordinator. Returns whether the coordinator continues. In a run without
/// faults, no transaction may fail.
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

/// Starts the coroutines of a compute node that recover dead nodes and renew the node's own lease.
pub(super) fn spawn_keepers<'a, T>(
    lives: &mut Lives<'a>,
    (cx, life): (&Rc<Context>, &Rc<Life>),
    drawn: &Drawn,
    desk: &'a Desk<T>,
) {
    let (keeper, is_dead) = (Rc::clone(cx), &life.is_dead);
    lives.spawn(is_dead, cx, async move {
        // An error means that the keeper's own node was expelled, so the keeper has nothing more to do.
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

/// Returns whether the keepers have repaired everything. When everything is repaired, the dead nodes are recovered
/// and their shards are open. In addition, the spare nodes hold the lost copies, as far as the cluster has spares.
pub(super) fn is_mended(cx: &Context, drawn: &Drawn) -> bool {
    let wanted = |group: usize| {
        let hosts = (group..group + drawn.replicas).map(|node| node % drawn.memory_nodes);
        let lost = hosts.filter(|node| drawn.memory_node_dies(*node)).count();
        drawn.replicas - lost + lost.min(drawn.spares)
    };
    let lives = |node: NodeSlot| !drawn.memory_node_dies(usize::from(node.0));
    rest::is_mended(cx.database(), lives, wanted)
}

/// Returns the slot of the compute node that is never lost. The number of this slot is larger than the numbers of all
/// other slots.
pub(super) fn standby(drawn: &Drawn) -> NodeSlot {
    NodeSlot(drawn.compute_nodes as u16)
}
