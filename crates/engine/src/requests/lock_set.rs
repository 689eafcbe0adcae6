//! What one transaction has locked and asks for, wherever the locks are.
//!
//! Invariants: a lock of this node's own shards is granted or refused when it is asked for; locks of other
//! nodes are asked for together, one message a node, and all replies are awaited before anything is
//! decided: a reply that comes after its transaction's locks were given up would grant for ever. After a
//! refusal nothing more is asked for. Whatever was granted, or may have been, is given up by
//! [`LockSet::release`], which waits for nothing. (Lock-first execution: Hu et al., "LOTUS: Optimizing
//! Disaggregated Transactions with Disaggregated Locks".)

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
    /// Another transaction begins, whatever the one before was refused.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if !self.not_upgraded.is_empty() {
            self.not_upgraded.clear();
        }
    }

    /// The mode to ask for: a writer's lock at once, where the transaction has once read and then could not write. Two
    /// readers that both want to write refuse one another as often as both read first.
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

    /// Notes a refusal, if the name is held by this transaction, as a reader: see [`LockSet::mode_for`].
    #[cold]
    fn note_refused(&mut self, name: LockName) {
        let hash = name.hash();
        if self.is_held(name).is_some() && !self.not_upgraded.contains(&hash) {
            self.not_upgraded.push(hash);
        }
    }

    /// Locks `name`, which lies in `shard`, or notes that it is to be locked by another node. A refusal
    /// shows in [`LockSet::collect`].
    #[inline]
    pub fn ask(&mut self, cx: &Context, name: LockName, shard: ShardId, mode: LockMode) {
        let services = cx.node_services();
        if self.refused.is_some() {
            return;
        }
        let mode = self.mode_for(name, mode);
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

    /// A lock of the node that owns its shard.
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

    /// Something of this node is about to be asked for, whose shards can move.
    #[inline(always)]
    fn enter_own(&mut self, cx: &Context, services: &NodeServices, shard: ShardId) {
        if self.period.is_none() {
            self.period = Some(cx.thread_services().periods.enter());
        }
        if let Some(load) = services.load() {
            load.ask(shard);
        }
    }

    /// As [`LockSet::ask`] for each, of a node whose neighbours are asked without messages.
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

    /// As [`LockSet::ask`] for each, of a node that grants all locks there are and tells nobody.
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

    /// A lock of this node's; whether it was granted.
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
        // The name's fields by themselves: who only may be told of it does not have it in memory.
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

    /// What a refusal is to the transaction: one that fills the lock table by itself would be refused for ever.
    fn refusal(&self, cx: &Context, reason: AbortReason) -> Failure {
        if !self.fills_table {
            return Failure::Abort(reason);
        }
        let (field, locks) = ("locks of one transaction at one node", self.own.len() + 1);
        let allowed = "half of what its lock table has room for (lock_table_bytes)";
        cx.explain(Explanation::usage(field, locks, allowed))
    }

    /// A lock of another node, or of none.
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

    /// Has the locks of other nodes that were noted granted: one message a node, and all replies.
    ///
    /// # Errors
    /// An abort: `LockRefused` (somebody holds one), `WrongOwner` (the shard is another node's, or not
    /// open), `OwnerLost` (a node that was asked is no member any more). What was granted stays until
    /// [`LockSet::release`].
    pub async fn collect(&mut self, cx: &Context, id: TxnId) -> Result<(), Failure> {
        if self.send(cx, id) {
            poll_fn(|waiting| self.await_replies(cx, waiting)).await;
            self.settle_remote();
        }
        self.refused.map_or(Ok(()), |reason| Err(self.refusal(cx, reason)))
    }

    /// As [`LockSet::collect`], where nobody is asked by a message.
    ///
    /// # Errors
    /// As [`LockSet::collect`].
    #[inline]
    pub(crate) fn collect_at_once(&mut self, cx: &Context, id: TxnId) -> Result<(), Failure> {
        if !self.remote.is_empty() && self.send(cx, id) {
            debug_assert!(self.sent.is_empty(), "nobody is waited for");
            self.settle_remote();
        }
        self.refused.map_or(Ok(()), |reason| Err(self.refusal(cx, reason)))
    }

    /// Whether there is anything to [`LockSet::collect`], or a refusal to be told.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.refused.is_none() && self.granted == self.remote.len()
    }

    /// All owners have answered. They do not say which lock was refused: it may be any that was held by a reader.
    #[inline]
    fn settle_remote(&mut self) {
        let is_refused = self.refused == Some(AbortReason::LockRefused);
        let first = if is_refused { self.granted } else { self.remote.len() };
        (first..self.remote.len()).for_each(|at| self.note_refused(self.remote[at].ask.name));
        self.granted = self.remote.len();
    }

    /// Asks other nodes for what was noted; whether there was anything.
    fn send(&mut self, cx: &Context, id: TxnId) -> bool {
        if self.refused.is_some() || self.granted == self.remote.len() {
            return false;
        }
        debug_assert!(self.id.is_none_or(|before| before == id), "one set, one transaction");
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

    /// Ready once every message is answered, or never will be.
    fn await_replies(&mut self, cx: &Context, waiting: &mut Waiting<'_>) -> Poll<()> {
        if self.sent.is_empty() {
            return Poll::Ready(());
        }
        // Whoever waits moves messages on: the thread's service may not run before.
        cx.serve();
        let LockSet { sent, refused, owners, remote, granted, .. } = self;
        let membership = &cx.database().membership;
        // The next life of this node's slot may have its replies.
        let is_over = !membership.is_member(cx.node.id);
        sent.retain_mut(|Sent { owner, call }| match Pin::new(call).poll(waiting) {
            // The dead do not answer, and a deadline is long.
            Poll::Pending if is_over || !membership.is_member(*owner) => {
                take_reply(cx, *owner, None, refused);
                false
            }
            Poll::Pending => true,
            Poll::Ready(answer) => {
                // One that says nothing is none: whatever was asked for may have been granted.
                let reply = answer.ok().and_then(|bytes| LockReply::take(&bytes));
                if !take_reply(cx, *owner, reply, refused) {
                    forget(owners, &remote[..*granted], *owner);
                }
                false
            }
        });
        if sent.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// How a name is locked.
    #[inline]
    pub fn is_held(&self, name: LockName) -> Option<LockMode> {
        let remote = self.remote[..self.granted].iter().filter(|it| it.ask.name == name);
        let own = self.own.is_held(name);
        own.max(remote.map(|it| it.ask.mode).max())
    }

    /// How a name is locked, if this node granted it.
    #[inline]
    pub fn is_own(&self, name: LockName) -> Option<LockMode> {
        self.own.is_held(name)
    }

    /// The names that this node has granted.
    pub fn own_names(&self) -> impl Iterator<Item = (LockName, LockMode)> {
        self.own.names()
    }

    /// The names that other nodes have granted.
    pub fn others(&self) -> impl Iterator<Item = LockName> {
        self.remote[..self.granted].iter().map(|it| it.ask.name)
    }

    /// Whether nobody else holds a lock that this node has granted. Of one that another has granted it is
    /// taken for granted.
    pub fn is_alone(&self, cx: &Context, name: LockName) -> bool {
        self.own.is_alone(&cx.node_services().locks, name)
    }

    /// Whether nothing is locked or asked for.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.remote.is_empty() && self.refused.is_none()
    }

    /// Other nodes that have granted anything, or may have.
    pub fn owners(&self) -> impl Iterator<Item = NodeId> {
        self.owners.iter().copied()
    }

    /// Other nodes that will be asked, or were.
    #[cfg(test)]
    pub(super) fn remote_owners(&self) -> impl Iterator<Item = NodeId> {
        self.remote.iter().map(|it| it.owner)
    }

    /// Under which name other nodes know the transaction, if they do.
    #[cfg(test)]
    pub(super) fn id(&self) -> Option<TxnId> {
        self.id
    }

    /// Before a transaction writes anything: from now on, and until its locks are given up, what rests on them
    /// counts. The shards of a node that granted some open nowhere before that: its locks hold, whether it lives
    /// or not, and need not be looked at again.
    ///
    /// # Errors
    /// As [`LockSet::check`].
    #[inline]
    pub fn secure(&mut self, cx: &Context) -> Result<(), Failure> {
        self.check(cx)?;
        if !self.secured && !self.owners.is_empty() {
            cx.thread_services().rest_on(&self.owners);
            self.secured = true;
        }
        Ok(())
    }

    /// Whether all that was granted holds until now.
    ///
    /// # Errors
    /// `OwnerLost` if one of the nodes that granted is no member any more: its next life, or an heir, may have
    /// granted the same.
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

    /// Gives up everything that was granted, or may have been; `committed` is when the transaction committed,
    /// if it did. Waits for nothing: other nodes are told by and by.
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
        (self.refused, self.fills_table) = (None, false);
    }

    #[cold]
    fn release_remote(&mut self, cx: &Context, committed: Option<Timestamp>) {
        if std::mem::take(&mut self.secured) {
            cx.thread_services().rest_no_more(&self.owners);
        }
        // A LOCK that has not left never does; one that has comes before the RELEASE.
        self.sent.clear();
        self.granted = 0;
        let id = self.id.take();
        for owner in self.owners.drain(..) {
            let id = id.expect("asked under a name");
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

/// An owner has refused, and what it had granted before is all that it has granted.
fn forget(owners: &mut Vec<NodeId>, granted: &[Remote], owner: NodeId) {
    if !granted.iter().any(|it| it.owner == owner) {
        owners.retain(|it| *it != owner);
    }
}

/// What an owner's reply means; `None`: there is none and will be none. Whether it may have granted anything.
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
        // The reply's entry is a hint; the record decides.
        cx.refresh_view();
    }
    refused.get_or_insert(reason);
    reply.is_none()
}
