//! One transaction's locks and requests for locks, on all nodes.
//!
//! Invariants: if this node owns the shard of a lock, the lock is granted or refused immediately. If other nodes own
//! locks, the transaction requests these locks together, with one message for each node. The transaction awaits all
//! replies before any decision. Otherwise a grant could arrive after the release and never be released. After a
//! refusal, the transaction requests no further lock. [`LockSet::release`] releases all locks that were granted, or
//! may have been granted, and does not wait. (Lock-first execution: Hu et al., "LOTUS: Optimizing Disaggregated
//! Transactions with Disaggregated Locks".)

use crate::services::lock::message::{self, Ask, LOCK, LockReply, Verdict};
use crate::services::lock::name::{LockMode, LockName};
use crate::services::{NodeServices, Transport};
use crate::site::Context;
use crate::transaction::lock_set::{LockSet, Remote, Sent};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context as Waiting, Poll};
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Cost;
use tarn_store::ids::{AbortReason, Explanation, Failure, Timestamp, TxnId};
use tarn_store::placement::shard_map::{ShardEntry, ShardId, ShardState};

impl LockSet {
    /// Prepares the set for another transaction, and clears the list of refusals of the previous transaction.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if !self.not_upgraded.is_empty() {
            self.not_upgraded.clear();
        }
    }

    /// The mode in which to request a lock. If the transaction once held the lock as a reader and could not become
    /// the writer, it requests the writer's lock directly. Otherwise two readers that both intend to write would
    /// refuse one another each time that both read first.
    #[inline(always)]
    fn mode_for(&self, name: LockName, mode: LockMode) -> LockMode {
        match self.not_upgraded.is_empty() {
            true => mode,
            false => self.careful_mode(name, mode),
        }
    }

    #[cold]
    fn careful_mode(&self, name: LockName, mode: LockMode) -> LockMode {
        match self.not_upgraded.contains(&name.hash()) {
            true => LockMode::Write,
            false => mode,
        }
    }

    /// Records a refusal, if this transaction holds the lock of this name as a reader: see [`LockSet::mode_for`].
    #[cold]
    fn note_refused(&mut self, name: LockName) {
        let hash = name.hash();
        if self.is_held(name).is_some() && !self.not_upgraded.contains(&hash) {
            self.not_upgraded.push(hash);
        }
    }

    /// Requests the lock `name`, which belongs to `shard`, if this node owns the shard. Otherwise the function
    /// records that another node must grant the lock. [`LockSet::collect`] reports a refusal.
    #[inline]
    pub fn ask(&mut self, cx: &Context, name: LockName, shard: ShardId, mode: LockMode) {
        let services = cx.node_services();
        if self.refused.is_some() {
            return;
        }
        let mode = self.mode_for(name, mode);
        if cx.locks.is_some() {
            return self.ask_service(cx, name, mode);
        }
        match services.transport() {
            Transport::Own => _ = self.ask_own(cx, services, name, mode),
            Transport::Rpc | Transport::Near => self.ask_owner(cx, services, (name, mode), shard),
            Transport::Direct => {
                let entry = cx.believed(services, shard);
                if !entry.is_some_and(|it| it.is_served_by(services.id)) {
                    return self.note(services, name, shard, mode, entry);
                }
                self.enter_own(cx, services, shard);
                let granted = self.ask_own(cx, services, name, mode);
                cx.saw_own(name, granted);
            }
        }
    }

    /// Requests a lock from the node that owns the lock's shard.
    #[inline(always)]
    fn ask_owner(
        &mut self,
        cx: &Context,
        services: &NodeServices,
        (name, mode): (LockName, LockMode),
        shard: ShardId,
    ) {
        if !services.shards.is_served(shard, services.serving) {
            let entry = services.entry_of(shard);
            if !entry.is_some_and(|it| it.is_served_by(services.id)) {
                return self.note(services, name, shard, mode, entry);
            }
        }
        self.enter_own(cx, services, shard);
        self.ask_own(cx, services, name, mode);
    }

    /// Records the transaction's period before the transaction requests a lock of this node, because this node's
    /// shards can move.
    #[inline(always)]
    fn enter_own(&mut self, cx: &Context, services: &NodeServices, shard: ShardId) {
        if self.period.is_none() {
            self.period = Some(cx.thread_services().periods.enter());
        }
        if let Some(load) = services.load() {
            load.ask(shard);
        }
    }

    /// Does the same as [`LockSet::ask`] for each lock, on a node that requests other nodes' locks without messages.
    #[inline(always)]
    pub(crate) fn ask_owners(
        &mut self,
        cx: &Context,
        services: &NodeServices,
        asks: impl Iterator<Item = (LockName, LockMode, ShardId)>,
    ) {
        debug_assert!(services.transport() == Transport::Near);
        for (name, mode, shard) in asks {
            if self.refused.is_some() {
                return;
            }
            self.ask_owner(cx, services, (name, self.mode_for(name, mode)), shard);
        }
    }

    /// Does the same as [`LockSet::ask`] for each lock, on a node that grants all locks itself and reports to no
    /// explorer.
    #[inline(always)]
    pub(crate) fn ask_each(
        &mut self,
        cx: &Context,
        services: &NodeServices,
        asks: impl Iterator<Item = (LockName, LockMode)>,
    ) {
        debug_assert!(services.transport() == Transport::Own);
        if self.refused.is_some() {
            return;
        }
        for (name, mode) in asks {
            if !self.ask_own(cx, services, name, self.mode_for(name, mode)) {
                return;
            }
        }
    }

    /// Requests a lock that this node grants. Returns whether the lock was granted.
    #[inline(always)]
    fn ask_own(
        &mut self,
        cx: &Context,
        services: &NodeServices,
        name: LockName,
        mode: LockMode,
    ) -> bool {
        if cx.port.charges() {
            cx.port.charge(Cost::LocalAtomic);
        }
        // The name's fields are passed one by one. Otherwise the compiler would store the name to memory only for a
        // hook, which is usually not set.
        let LockName { table, kind, key } = name;
        let tell = move || services.write_granted(LockName { table, kind, key });
        let granted = self.own.ask(&services.locks, name, mode, tell);
        if !granted {
            self.note_refused(LockName { table, kind, key });
            self.refused = Some(AbortReason::LockRefused);
            self.fills_table = services.locks.is_full_of(self.own.len());
        }
        granted
    }

    /// The failure to return after a refusal. If a transaction fills the lock table by itself, it would be refused at
    /// every try. So such a transaction gets a different failure.
    fn refusal(&self, cx: &Context, reason: AbortReason) -> Failure {
        if !self.fills_table {
            return Failure::Abort(reason);
        }
        let (field, locks) = ("locks of one transaction at one node", self.own.len() + 1);
        let allowed = "half the locks that the node's lock table has room for (lock_table_bytes)";
        cx.explain(Explanation::usage(field, locks, allowed))
    }

    /// Records a lock that another node must grant. If no node grants the shard's locks now, the function refuses the
    /// request.
    fn note(
        &mut self,
        services: &NodeServices,
        name: LockName,
        shard: ShardId,
        mode: LockMode,
        entry: Option<ShardEntry>,
    ) {
        let is_known = |it: &Remote| it.ask.name == name && it.ask.mode >= mode;
        if self.remote.iter().any(is_known) {
            return;
        }
        let is_anothers = |it: &ShardEntry| it.state == ShardState::Open && it.owner != services.id;
        match entry.filter(is_anothers) {
            Some(ShardEntry { owner, epoch, .. }) => {
                self.remote.push(Remote { owner, ask: Ask { name, mode, shard, epoch } });
            }
            None => self.refused = Some(AbortReason::WrongOwner),
        }
    }

    /// Requests the recorded locks from other nodes, with one message for each node. Waits for all replies.
    ///
    /// # Errors
    /// An abort: `LockRefused` if another transaction holds one of the locks. `WrongOwner` if the shard belongs to
    /// another node, or is not open. `OwnerLost` if a node that received a request is no member any more. The
    /// transaction keeps granted locks until [`LockSet::release`].
    pub async fn collect(&mut self, cx: &Context, id: TxnId) -> Result<(), Failure> {
        if cx.locks.is_some() {
            return Box::pin(self.collect_service(cx)).await;
        }
        if self.send(cx, id) {
            poll_fn(|waiting| self.await_replies(cx, waiting)).await;
            self.settle_remote();
        }
        self.refused.map_or(Ok(()), |reason| Err(self.refusal(cx, reason)))
    }

    /// Does the same as [`LockSet::collect`], on a node whose requests to other nodes need no messages.
    ///
    /// # Errors
    /// The same errors as [`LockSet::collect`].
    #[inline]
    pub(crate) fn collect_at_once(&mut self, cx: &Context, id: TxnId) -> Result<(), Failure> {
        if !self.remote.is_empty() && self.send(cx, id) {
            debug_assert!(self.sent.is_empty(), "owners that are called at once have all answered");
            self.settle_remote();
        }
        self.refused.map_or(Ok(()), |reason| Err(self.refusal(cx, reason)))
    }

    /// Whether [`LockSet::collect`] has no recorded lock to request and no refusal to report.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.refused.is_none() && self.granted == self.remote.len()
    }

    /// Processes the result after all owners have answered. The owners do not say which lock was refused. Any lock
    /// that the transaction held as a reader may be the refused lock.
    #[inline]
    fn settle_remote(&mut self) {
        let is_refused = self.refused == Some(AbortReason::LockRefused);
        let first = if is_refused { self.granted } else { self.remote.len() };
        (first..self.remote.len()).for_each(|at| self.note_refused(self.remote[at].ask.name));
        self.granted = self.remote.len();
    }

    /// Requests the recorded locks from other nodes. Returns whether any lock was recorded.
    fn send(&mut self, cx: &Context, id: TxnId) -> bool {
        if self.refused.is_some() || self.granted == self.remote.len() {
            return false;
        }
        debug_assert!(
            self.id.is_none_or(|before| before == id),
            "a lock set belongs to one \
            transaction"
        );
        self.id = Some(id);
        let fresh = &self.remote[self.granted..];
        let known = cx.timestamps.known(cx);
        for (at, Remote { owner, .. }) in fresh.iter().enumerate() {
            if fresh[..at].iter().any(|earlier| earlier.owner == *owner) {
                continue;
            }
            let asks = fresh.iter().filter(|it| it.owner == *owner).map(|it| it.ask);
            if !self.owners.contains(owner) {
                self.owners.push(*owner);
            }
            if cx.node_services().transport().is_at_once() {
                let reply = cx.lock_at_once(*owner, (id, known), asks);
                if !take_reply(cx, *owner, reply, &mut self.refused) {
                    forget(&mut self.owners, &self.remote[..self.granted], *owner);
                }
                continue;
            }
            let (rpc, peer) = cx.lock_peer(*owner);
            let call = rpc.call(peer, LOCK, |bytes| message::put_lock(bytes, id, known, asks));
            self.sent.push(Sent { owner: *owner, call });
        }
        true
    }

    /// Ready when every message is answered, or can no longer be answered.
    fn await_replies(&mut self, cx: &Context, waiting: &mut Waiting<'_>) -> Poll<()> {
        if self.sent.is_empty() {
            return Poll::Ready(());
        }
        // A coroutine that waits must itself process messages, because the thread's service may not run before the
        // wait ends.
        cx.serve();
        let LockSet { sent, refused, owners, remote, granted, .. } = self;
        let membership = &cx.database().membership;
        // If this node's incarnation has ended, the replies may go to the next incarnation of its slot.
        let is_over = !membership.is_member(cx.node.id);
        sent.retain_mut(|Sent { owner, call }| match Pin::new(call).poll(waiting) {
            // A dead node does not answer, and it would take long to wait for the deadline of the call.
            Poll::Pending if is_over || !membership.is_member(*owner) => {
                take_reply(cx, *owner, None, refused);
                false
            }
            Poll::Pending => true,
            Poll::Ready(answer) => {
                // A malformed reply is treated like a missing reply: the owner may have granted all requested locks.
                let reply = answer.ok().and_then(|bytes| LockReply::take(&bytes));
                if !take_reply(cx, *owner, reply, refused) {
                    forget(owners, &remote[..*granted], *owner);
                }
                false
            }
        });
        if sent.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The mode in which the transaction holds the lock of this name; `None` if it does not hold the lock.
    #[inline]
    pub fn is_held(&self, name: LockName) -> Option<LockMode> {
        let remote = self.remote[..self.granted].iter().filter(|it| it.ask.name == name);
        let own = self.own.is_held(name).max(self.is_served(name));
        own.max(remote.map(|it| it.ask.mode).max())
    }

    /// The mode in which this node granted the lock of this name; `None` if this node did not grant it.
    #[inline]
    pub fn is_own(&self, name: LockName) -> Option<LockMode> {
        self.own.is_held(name)
    }

    /// The names of the locks that this node has granted.
    pub fn own_names(&self) -> impl Iterator<Item = (LockName, LockMode)> {
        self.own.names()
    }

    /// The names of the locks that other nodes, or a lock service, have granted.
    pub fn others(&self) -> impl Iterator<Item = LockName> {
        let served = self.served[..self.served_granted].iter().map(|it| it.name);
        self.remote[..self.granted].iter().map(|it| it.ask.name).chain(served)
    }

    /// Whether no other transaction holds a lock that this node has granted. For a lock that another node granted,
    /// the function returns true.
    pub fn is_alone(&self, cx: &Context, name: LockName) -> bool {
        self.own.is_alone(&cx.node_services().locks, name)
    }

    /// Whether the set contains no held lock and no requested lock.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
            && self.remote.is_empty()
            && self.served.is_empty()
            && self.refused.is_none()
    }

    /// The other nodes that have granted locks, or may have granted locks.
    pub fn owners(&self) -> impl Iterator<Item = NodeId> {
        self.owners.iter().copied()
    }

    /// The other nodes that have received requests, or will receive them.
    #[cfg(test)]
    pub(super) fn remote_owners(&self) -> impl Iterator<Item = NodeId> {
        self.remote.iter().map(|it| it.owner)
    }

    /// The identifier under which other nodes know the transaction; `None` if no other node knows it.
    #[cfg(test)]
    pub(super) fn id(&self) -> Option<TxnId> {
        self.id
    }

    /// Declares that the transaction is about to write. From now on, until the release, the thread counts the
    /// transaction as relying on its locks. If a node that granted some of these locks dies, no heir opens that
    /// node's shards before the release. So the locks remain valid even if that node dies, and the transaction need
    /// not check them again.
    ///
    /// # Errors
    /// The same errors as [`LockSet::check`].
    #[inline]
    pub fn secure(&mut self, cx: &Context) -> Result<(), Failure> {
        self.check(cx)?;
        if !self.secured && !self.owners.is_empty() {
            cx.thread_services().rest_on(&self.owners);
            self.secured = true;
        }
        Ok(())
    }

    /// Checks that all granted locks are still valid.
    ///
    /// # Errors
    /// `OwnerLost` if one of the nodes that granted locks is no member any more. The next incarnation of that node,
    /// or an heir of its shards, may have granted the same locks to another transaction.
    #[inline]
    pub fn check(&self, cx: &Context) -> Result<(), Failure> {
        if self.owners.is_empty() {
            return Ok(());
        }
        let membership = &cx.database().membership;
        match self.owners.iter().all(|owner| membership.is_member(*owner)) {
            true => Ok(()),
            false => Err(Failure::Abort(AbortReason::OwnerLost)),
        }
    }

    /// Releases all locks that were granted, or may have been granted. `committed` is the transaction's commit
    /// timestamp, if it committed. The function does not wait: releases to other nodes are sent later.
    #[inline]
    pub fn release(&mut self, cx: &Context, committed: Option<Timestamp>) {
        if !self.own.is_empty() {
            if cx.port.charges() {
                (0..self.own.len()).for_each(|_| cx.port.charge(Cost::LocalAtomic));
            }
            let services = cx.node_services();
            if services.transport() == Transport::Direct {
                cx.gives_own(self.own.names().map(|(name, _)| name));
            }
            self.own.release(&services.locks);
        }
        if let Some(period) = self.period.take() {
            cx.thread_services().periods.leave(period);
        }
        if !self.remote.is_empty() {
            self.release_remote(cx, committed);
        }
        if !self.served.is_empty() {
            self.release_service(cx, committed);
        }
        (self.refused, self.fills_table) = (None, false);
    }

    #[cold]
    fn release_remote(&mut self, cx: &Context, committed: Option<Timestamp>) {
        if std::mem::take(&mut self.secured) {
            cx.thread_services().rest_no_more(&self.owners);
        }
        // A LOCK message that was not sent will never be sent. A LOCK message that was sent runs before the RELEASE
        // message.
        self.sent.clear();
        self.granted = 0;
        let id = self.id.take();
        for owner in self.owners.drain(..) {
            let id = id.expect("locks were asked for under a transaction's name");
            if cx.node_services().transport().is_at_once() {
                let its = self.remote.iter().filter(|it| it.owner == owner);
                cx.release_at_once(owner, (id, committed), its.map(|it| it.ask.name));
            } else {
                cx.send_release(owner, id, committed);
            }
        }
        self.remote.clear();
    }
}

/// Handles an owner's refusal. If the owner had granted no lock before, the transaction need not send the owner a
/// release.
fn forget(owners: &mut Vec<NodeId>, granted: &[Remote], owner: NodeId) {
    if !granted.iter().any(|it| it.owner == owner) {
        owners.retain(|it| *it != owner);
    }
}

/// Processes an owner's reply; `None` if no reply will come. Returns whether the owner may have granted any lock.
fn take_reply(
    cx: &Context,
    owner: NodeId,
    reply: Option<LockReply>,
    refused: &mut Option<AbortReason>,
) -> bool {
    let reason = match reply {
        Some(reply) => {
            cx.timestamps.observe(cx, reply.known);
            match reply.verdict {
                Verdict::Granted => return true,
                Verdict::Conflict => AbortReason::LockRefused,
                Verdict::WrongOwner => AbortReason::WrongOwner,
                Verdict::NotMember => AbortReason::OwnerLost,
            }
        }
        None if cx.database().membership.is_member(owner) => AbortReason::LockRefused,
        None => AbortReason::OwnerLost,
    };
    if reason == AbortReason::WrongOwner {
        // The entry in the reply is only a hint. So the node reads the shard's record, which decides.
        cx.refresh_view();
    }
    refused.get_or_insert(reason);
    reply.is_none()
}
