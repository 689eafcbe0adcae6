//! A thread's work for other nodes: the thread answers calls, continues work that outlives its transactions, and
//! handles deaths of other nodes.
//!
//! Invariant: a thread that waits for a lock also serves requests. So two nodes that wait for each other make
//! progress.

use crate::cluster::membership::ShardChange;
use crate::services::lock_stations::LockStations;
use crate::services::{NodeServices, Transport};
use crate::site::thread_services::ThreadServices;
use crate::site::{Context, Database};
use tarn_fabric::address::NodeId;
use tarn_fabric::rpc::{Peer as Called, Rpc};
use tarn_store::ids::{Explanation, Failure};
use tarn_store::placement::shard_map::{ShardId, ShardState};

/// The number of datagrams that a thread processes in one step.
const DATAGRAMS_A_POLL: usize = 64;

impl Context {
    /// Returns the services of the thread's node.
    ///
    /// # Panics
    /// If the protocol needs no services, or the driver created none. Both would be bugs of the caller.
    #[inline]
    pub fn node_services(&self) -> &NodeServices {
        self.node.services.as_ref().expect("a node of a protocol with locks has services")
    }

    /// Returns the thread's own state for locks.
    ///
    /// # Panics
    /// Panics under the same conditions as [`Context::node_services`].
    #[inline]
    pub fn thread_services(&self) -> &ThreadServices {
        self.services.as_ref().expect("a node of a protocol with locks has services")
    }

    /// Whether the thread has state for locks.
    #[inline]
    pub fn has_services(&self) -> bool {
        self.services.is_some()
    }

    /// Whether the thread must call [`Context::serve`] while other threads run, because requests may arrive for it.
    pub fn answers(&self) -> bool {
        self.has_services()
            || self.readers.as_ref().is_some_and(|its| its.has_messages())
            || self.locks.as_ref().is_some_and(|its| its.has_messages())
    }

    /// The thread's RPC endpoint. The first use creates the endpoint, because the endpoint receives all datagrams of
    /// the thread's port.
    pub fn rpc(&self) -> &Rpc {
        let services = self.thread_services();
        services.rpc.get_or_init(|| Rpc::new(self.port.clone(), services.node.options().rpc))
    }

    /// The peer from which the thread requests another node's locks, in an ordered session.
    pub(crate) fn lock_peer(&self, owner: NodeId) -> (&Rpc, Called) {
        let (services, rpc) = (self.thread_services(), self.rpc());
        let thread = services.thread % services.node.options().threads;
        let peer = Called { node: owner, thread };
        // If no ordered session with a peer is possible, a call to that peer also fails.
        let _ = rpc.order(peer);
        (rpc, peer)
    }

    /// Answers requests to this thread, continues work of transactions that have ended, and handles deaths and
    /// changes of shards. A coroutine that waits for a lock calls this function. [`run`] calls this function too,
    /// between the turns of all coroutines.
    pub fn serve(&self) {
        if let Some(readers) = &self.readers {
            readers.serve(&self.port);
        }
        self.serve_locks();
        let Some(services) = &self.services else { return };
        if let Some(rpc) = services.rpc.get() {
            while rpc.poll(DATAGRAMS_A_POLL) == DATAGRAMS_A_POLL {}
        }
        self.advance_closing();
        if services.node.transport() != Transport::Own {
            self.refresh_view();
            services.periods.advance(&services.node.drains, services.thread);
        }
        services.look_after_lives(&self.port);
    }

    /// Checks whether any shard has ever had an owner. A transaction that found a shard without an owner calls this
    /// function before it tries again.
    ///
    /// # Errors
    /// `Usage`, if no shard ever had an owner: then no node will ever grant a lock.
    #[cold]
    pub(crate) fn check_shards(&self) -> Result<(), Failure> {
        if self.database().membership.is_shared_out() {
            return Ok(());
        }
        let allowed = "shards that `requests::serve::share_out` gave to nodes before transactions \
                       run";
        Err(self.explain(Explanation::usage("shards", "without owners", allowed)))
    }

    /// Counts a new coordinator of this thread.
    pub(crate) fn coordinator_comes(&self) {
        if let Some(services) = &self.services {
            services.coordinators.set(services.coordinators.get() + 1);
        }
        if let Some(locks) = &self.locks {
            locks.coordinators.set(locks.coordinators.get() + 1);
        }
    }

    /// Removes an ended coordinator from the count of this thread's coordinators.
    pub(crate) fn coordinator_goes(&self) {
        if let Some(services) = &self.services {
            services.coordinators.set(services.coordinators.get() - 1);
        }
        if let Some(locks) = &self.locks {
            locks.coordinators.set(locks.coordinators.get() - 1);
        }
    }

    /// Whether the thread has coordinators. A thread without coordinators requests no locks any more.
    pub fn has_coordinators(&self) -> bool {
        self.services.as_ref().is_some_and(|services| services.coordinators.get() > 0)
            || self.locks.as_ref().is_some_and(|locks| locks.coordinators.get() > 0)
    }
}

/// Waits until this thread has no work that outlives its transaction. When the function returns, all locks of the
/// thread are released.
pub async fn settle(cx: &Context) {
    while cx.has_services() && cx.advance_closing() > 0 {
        cx.serve();
        cx.port.yield_now().await;
    }
    settle_closed(cx).await;
}

/// Settles transactions whose last writes ended in an error, and other transactions that no other coroutine of the
/// thread would settle. If a transaction cannot be settled yet, the next call of this function tries again.
async fn settle_closed(cx: &Context) {
    if cx.has_left_doubts() && cx.database().membership.is_member(cx.node.id) {
        let _ = cx.settle_left().await;
    }
}

/// A thread's service: one coroutine of each thread runs this function beside the thread's coordinators. The function
/// ends under three conditions. First, `stop` says that the thread begins no transaction any more. Second, all locks
/// of the thread are released. Third, no other running thread of a member may still request locks from this thread.
pub async fn run(cx: &Context, stop: impl Fn() -> bool) {
    let Some(services) = &cx.services else {
        return match &cx.locks {
            Some(locks) => take_part(cx, &locks.stations, stop).await,
            None => answer(cx, stop).await,
        };
    };
    services.node.start_running(services.thread);
    while !stop() || !services.is_idle() {
        cx.serve();
        if cx.locks.is_some() {
            // Another thread may have settled a transaction whose locks this thread still holds.
            cx.reap();
        }
        settle_closed(cx).await;
        cx.port.yield_now().await;
    }
    settle_closed(cx).await;
    services.node.stop_running(services.thread);
    let is_asked = matches!(services.node.transport(), Transport::Rpc | Transport::Near);
    while is_asked && cx.database().directory.is_any_running() {
        cx.serve();
        cx.port.yield_now().await;
    }
    // The service answers the requests of the last messages.
    cx.serve();
}

/// Counts a thread that may request locks, also if its service is dropped before it ends.
struct Running<'a> {
    cx: &'a Context,
    stations: &'a LockStations,
}

impl<'a> Running<'a> {
    fn start(cx: &'a Context, stations: &'a LockStations) -> Running<'a> {
        stations.start_running(cx.node.id);
        Running { cx, stations }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stations.stop_running(self.cx.node.id);
    }
}

/// The service of a thread under a lock service. Its station may have the decider, or agents of locks that other
/// threads want.
async fn take_part(cx: &Context, stations: &LockStations, stop: impl Fn() -> bool) {
    let running = Running::start(cx, stations);
    while !stop() {
        cx.serve();
        // Another thread may have settled a transaction whose locks this thread still holds.
        cx.reap();
        settle_closed(cx).await;
        cx.port.yield_now().await;
    }
    cx.reap();
    settle_closed(cx).await;
    drop(running);
    while stations.is_any_running(&*cx.database().membership) {
        cx.serve();
        cx.port.yield_now().await;
    }
    cx.serve();
}

/// The service of a thread that has no state for locks but still receives questions. After this function has ended,
/// no answer comes. An asking thread then waits as long as it would have waited without this service.
async fn answer(cx: &Context, stop: impl Fn() -> bool) {
    while cx.answers() && !stop() {
        cx.serve();
        cx.port.yield_now().await;
    }
}

/// Distributes all shards among `owners`, in turn, before any of the owners' transactions runs. The function
/// distributes the shards that never had an owner. The function also distributes the shards of members that run no
/// transaction any more (for example, after a driver's earlier phase). Recovery distributes the shards of dead
/// incarnations. If no protocol needs shards, the function does nothing.
///
/// # Panics
/// If `owners` is empty, or another node changes the map meanwhile. Both would be bugs of the caller.
pub fn share_out(database: &Database, owners: &[NodeId]) {
    if database.directory.members().is_empty() {
        return;
    }
    let membership = &database.membership;
    membership.open_shards(owners);
    for shard in ShardId::all() {
        let entry = membership.shard(shard).expect("all shards were opened above");
        if owners.contains(&entry.owner) || !membership.is_member(entry.owner) {
            continue;
        }
        let heir = owners[usize::from(shard.0) % owners.len()];
        let closed = entry.next(entry.owner, ShardState::Closed);
        let moved = closed.next(heir, ShardState::Open);
        for (from, to) in [(entry, closed), (closed, moved)] {
            let made = membership.change_shard(entry.owner, shard, from, to);
            assert_eq!(made, ShardChange::Made, "the cluster is at rest");
        }
    }
}
