//! The lease manager: it adjusts the length of leases to how long transactions take, and monitors the clocks on which
//! leases rely.
//!
//! Invariants: each node that may receive a request from the manager, or become the manager, runs
//! [`LeaseKeeper::run`]. At most one of these nodes is the manager; the membership service chooses it. The manager
//! stores nothing on which other nodes rely. The members keep the counts, the membership service keeps the lease word
//! of record, and acknowledgements alone continue a change. So if a manager dies in the middle of a change, nothing
//! needs repair. The next manager begins by gathering the counts itself. Two managers may exist at the same time, if
//! one of them was expelled and does not know it yet. Two managers at the same time are just two members that request
//! changes.
//!
//! ```text
//! request   empty                                  reply   how far the node's clock has run u64 | {place u8, count u64}*
//! ```
//! The design follows OOCC, section VII, whose manager holds the leases itself and writes them to all nodes.

use super::monitor::{ClockMonitor, Sighting};
use crate::cluster::lease::{Delays, LeasePolicy};
use crate::cluster::membership::{Management, ReadLeaseChange};
use crate::services::lease_desk::Adjustment;
use crate::site::Context;
use std::collections::BTreeMap;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rpc::{Answer, HandlerId, Peer, Rpc, RpcConfig};

/// The number of the handler that returns a node's counts. The handler `STAMP` has a smaller number.
pub const DELAYS: HandlerId = HandlerId(9);
/// The interval at which a keeper checks for calls, and reads the lease word of record.
const LOOK_AGAIN: Nanos = Nanos(20_000);
/// The interval at which a keeper checks while it waits for an answer or an acknowledgement.
const LOOK_SOON: Nanos = Nanos(1_000);
/// The number of datagrams that a keeper processes in one step.
const BUDGET: usize = 64;

/// The lease keeper of one node; see the module's text.
pub struct LeaseKeeper {
    cx: Rc<Context>,
    policy: LeasePolicy,
    /// The messages to other nodes, and the number of the thread that answers on each node. `None` if all nodes are
    /// in one process.
    rpc: Option<(Rpc, u16)>,
}

/// The state that the manager keeps from one round of questions to the next.
#[derive(Default)]
struct Memory {
    counted: Option<BTreeMap<NodeId, Delays>>,
    clocks: ClockMonitor,
}

/// The result of one round in which the manager asks all members.
#[derive(Default)]
struct Look {
    counted: BTreeMap<NodeId, Delays>,
    seen: BTreeMap<NodeId, Sighting>,
}

impl LeaseKeeper {
    /// Creates the keeper of a node that is in one process with all other nodes. `None` if the length of leases is
    /// not adjusted, or there are no leases.
    pub fn near(cx: Rc<Context>) -> Option<LeaseKeeper> {
        let policy = cx.database().membership.read_lease_policy()?;
        cx.node.delays()?;
        Some(LeaseKeeper { cx, policy, rpc: None })
    }

    /// Creates the keeper of a node that calls the other nodes through this thread's messages. The messages of this
    /// thread serve no other purpose. On each other node, a keeper calls the thread that has its own thread number.
    pub fn apart(cx: Rc<Context>, config: RpcConfig) -> Option<LeaseKeeper> {
        let keeper = LeaseKeeper::near(cx)?;
        let thread = keeper.cx.port.endpoint().thread;
        let rpc = Rpc::new(keeper.cx.port.clone(), config);
        let (port, delays) = (keeper.cx.port.clone(), Arc::clone(keeper.cx.node.delays()?));
        rpc.register(DELAYS, move |_, reply| {
            reply.extend(port.stopwatch().unwrap_or_default().0.to_le_bytes());
            delays.snapshot().encode(reply);
            Answer::Now
        });
        Some(LeaseKeeper { rpc: Some((rpc, thread)), ..keeper })
    }

    /// Answers requests, follows the lease word of record, and acts as the manager if the membership service chooses
    /// this node. The function ends when the node's incarnation has ended or `goes_on` returns false.
    pub async fn run(&self, goes_on: impl Fn() -> bool) {
        let (port, mut memory) = (&self.cx.port, Memory::default());
        let mut next = port.now() + Nanos(self.policy.every_ns);
        while goes_on() && self.is_member() {
            self.attend();
            if port.now() >= next {
                match self.cx.database().membership.manage_read_lease(self.cx.node.id) {
                    Management::Granted => self.manage(&mut memory, &goes_on).await,
                    _ => memory = Memory::default(),
                }
                next = port.now() + Nanos(self.policy.every_ns);
            }
            let rest = next - port.now();
            port.sleep(rest.min(LOOK_AGAIN)).await;
        }
    }

    fn is_member(&self) -> bool {
        self.cx.database().membership.is_member(self.cx.node.id)
    }

    fn attend(&self) {
        if let Some((rpc, _)) = &self.rpc {
            rpc.poll(BUDGET);
        }
        self.cx.node.read_lease();
    }

    /// Makes one round of the manager: the manager gathers the counts, and adjusts the lease length or expels
    /// members.
    async fn manage(&self, memory: &mut Memory, goes_on: &impl Fn() -> bool) {
        let (database, drift) = (self.cx.database(), self.cx.port.drift());
        let (membership, desk) = (&database.membership, &database.lease_desk);
        let look = self.look(goes_on).await;
        desk.looked();
        if self.policy.monitors_clocks {
            for node in memory.clocks.look(drift, self.cx.node.id, &look.seen) {
                membership.expel(node);
                desk.expelled(node);
            }
        }
        let Some(before) = memory.counted.replace(look.counted) else { return };
        let mut delays = Delays::default();
        for (node, counted) in memory.counted.iter().flatten() {
            delays.add(&before.get(node).map_or_else(|| counted.clone(), |it| counted.since(it)));
        }
        let present = membership.read_lease();
        if let Some(length_ns) = self.policy.decide(present, &delays, drift) {
            self.adjust((present.read_ns(), length_ns), &delays, goes_on).await;
        }
    }

    /// Gathers the counts of all members that run transactions.
    async fn look(&self, goes_on: &impl Fn() -> bool) -> Look {
        let (database, me) = (self.cx.database(), self.cx.node.id);
        let mut look = Look::default();
        for node in database.membership.running() {
            let found = match &self.rpc {
                Some((rpc, thread)) if node != me => {
                    let seen = &mut look.seen;
                    self.ask(rpc, Peer { node, thread: *thread }, seen, goes_on).await
                }
                _ => database.lease_desk.delays(node),
            };
            look.counted.extend(found.map(|delays| (node, delays)));
        }
        look
    }

    /// Requests the counts of one node; `None` if the node does not answer in time. The manager then requests the
    /// counts of that node again in the next round.
    async fn ask(
        &self,
        rpc: &Rpc,
        of: Peer,
        seen: &mut BTreeMap<NodeId, Sighting>,
        goes_on: &impl Fn() -> bool,
    ) -> Option<Delays> {
        let port = &self.cx.port;
        let before = port.stopwatch()?;
        let within = Nanos(self.policy.every_ns);
        let mut call = pin!(rpc.call_within(of, DELAYS, within, |_| {}));
        let reply = loop {
            self.attend();
            match poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
                Poll::Ready(reply) => break reply.ok()?,
                Poll::Pending if !goes_on() || !self.is_member() => return None,
                Poll::Pending => port.sleep(LOOK_SOON).await,
            }
        };
        let (shown, counted) = reply.split_first_chunk()?;
        let (shown, after) = (Nanos(u64::from_le_bytes(*shown)), port.stopwatch()?);
        seen.insert(of.node, Sighting { before, shown, after });
        Delays::decode(counted)
    }

    /// Requests another lease length, and waits until all members have acknowledged the lease word with that length.
    async fn adjust(
        &self,
        (from_ns, to_ns): (u32, u32),
        delays: &Delays,
        goes_on: &impl Fn() -> bool,
    ) {
        let (database, port) = (self.cx.database(), &self.cx.port);
        let (membership, asked) = (&database.membership, port.now());
        let begun = membership.change_read_lease(self.cx.node.id, to_ns);
        let Ok(ReadLeaseChange::Begun(first)) = begun else { return };
        let second = first.change().wrapping_add(u16::from(!first.is_settled()));
        loop {
            self.attend();
            let word = membership.read_lease();
            if word.change() != first.change() && word.change() != second {
                // Another manager has begun a later change.
                return;
            }
            if word.change() == second && membership.read_lease_missing().is_empty() {
                break;
            }
            if !goes_on() || !self.is_member() {
                return;
            }
            port.sleep(LOOK_SOON).await;
        }
        database.lease_desk.adjusted(Adjustment {
            asked,
            from_ns,
            to_ns,
            took: port.now() - asked,
            reads: delays.reads(),
            in_lease: delays.in_lease(),
        });
    }
}
