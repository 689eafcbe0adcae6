//! The members of the cluster: incarnations of compute nodes, views, leases, and the right to recover a dead
//! incarnation.
//!
//! Invariants: the view number only grows, and every change has a new view number. The service gives out each
//! incarnation number only once. The state of an incarnation changes only in this order: member, expelled (declared
//! dead, though it may still run), recovered (only its locks remain, and any node may release them). A slot gets no
//! new incarnation while its last incarnation is expelled and not recovered. A dead incarnation has one recoverer at
//! a time.
//!
//! No function of this module waits. A service across a network answers with the knowledge that its node has. While
//! the answer is not known, the function returns [`Claim::Pending`] or [`Renewal::Pending`], and the caller asks
//! again. Safety relies on revoked access, never on leases: see docs/fault-model.md.

mod embedded;
mod read_leases;
mod register;
mod shards;

pub use embedded::EmbeddedMembership;

use crate::cluster::lease::{LeasePolicy, LeaseWord, NotNow};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_store::ids::{UsageError, ViewNumber};
use tarn_store::placement::shard_map::{ShardEntry, ShardId, ShardRecord};

/// The membership state of a compute node's incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The service never gave out this incarnation.
    Unknown,
    /// The incarnation is a member.
    Member,
    /// The incarnation is declared dead. The incarnation may still run, and its transactions are not settled.
    Expelled,
    /// The incarnation's access is revoked and its transactions are settled. A lock that names it has no owner.
    Recovered,
}

/// The time that a service in one process gives a silent member before it decides that the member is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// The member has contacted the service, or received a request, since the service last checked its clock. The
    /// member's time begins at the service's next check.
    Fresh,
    /// The member has time until this moment, by the service's clock.
    Until(Nanos),
}

/// The terms of a membership lease. The service assumes that clocks gain or lose no more than `drift_ppm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTerms {
    /// How long the service waits, by its own clock, before it regards a silent node as dead.
    pub lease_ns: u64,
    /// How often a node requests a new lease, by its own clock.
    pub renew_every_ns: u64,
    /// The most by which a clock may be fast or slow, in parts per million.
    pub drift_ppm: u32,
}

impl LeaseTerms {
    /// The terms without a lease: a node stays a member until another node expels it.
    pub const ENDLESS: LeaseTerms =
        LeaseTerms { lease_ns: u64::MAX, renew_every_ns: 1_000_000, drift_ppm: 0 };

    /// The time until which a node may act, by its own clock. The node requested its lease when this clock showed
    /// `asked`. The service counts the lease from a later moment. The result allows for drift of both clocks in the
    /// worse direction.
    pub fn held_until(&self, asked: Nanos) -> Nanos {
        if self.lease_ns == u64::MAX {
            return Nanos(u64::MAX);
        }
        let (million, drift) = (1_000_000u128, u128::from(self.drift_ppm.min(999_999)));
        let held_ns = u128::from(self.lease_ns) * (million - drift) / (million + drift);
        Nanos(asked.0.saturating_add(held_ns as u64))
    }
}

/// The answer to a node that requests a new lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The lease is renewed. The lease counts from the moment of the node's request.
    Renewed {
        /// The view in which the lease was granted.
        view: ViewNumber,
        /// The terms of the lease.
        terms: LeaseTerms,
    },
    /// The node is no longer a member, and this incarnation will never be a member again.
    Expelled,
    /// The service has not answered yet.
    Pending,
}

/// The answer to a node that requests the right to recover a dead incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The caller alone recovers the incarnation. Earlier recoverers have been expelled, but may still run. So the
    /// caller first revokes the access of the earlier recoverers and of the dead incarnation.
    Granted {
        /// The earlier recoverers of the dead incarnation.
        before: Vec<NodeId>,
    },
    /// Another member is recovering the incarnation.
    Held {
        /// The member that is recovering the incarnation.
        by: NodeId,
    },
    /// The incarnation is recovered.
    Done,
    /// The incarnation has not been expelled.
    NotExpelled,
    /// The caller is not a member.
    NotMember,
    /// The service has not answered yet.
    Pending,
}

/// The answer to a request to change the shard map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardChange {
    /// The service has changed the shard map.
    Made,
    /// The service refused the change: the present entry differs from the expected entry, or the caller may not make
    /// this change.
    Refused(Option<ShardEntry>),
    /// The service has not answered yet.
    Pending,
}

/// The nodes that inherit the shards of an ended incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heirs {
    /// All members that own shards now inherit the shards, in turn. If no member owns any shard, all members inherit.
    Owners,
    /// This node inherits all shards.
    One(NodeId),
    /// The next incarnation of the same slot inherits the shards, if that incarnation is a member.
    NextLife,
}

/// The answer to a request to open the shards of an ended incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reopening {
    /// The shards of the ended incarnation are open.
    Done,
    /// The transactions of the ended incarnation are not settled.
    NotRecovered,
    /// These incarnations may still rely on locks that the dead incarnation granted.
    Unacknowledged(Vec<NodeId>),
    /// The heir is not a member, or there is no heir.
    NoHeir,
    /// The service has not answered yet.
    Pending,
}

/// The node that runs the timestamp service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamper {
    /// The incarnation of the node that runs the timestamp service.
    pub node: NodeId,
    /// The view in which the node began to give out timestamps. No two timestampers have the same view.
    pub since: ViewNumber,
}

/// The answer to a node that requests the right to give out timestamps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Succession {
    /// The caller alone gives out timestamps: no member accepts a timestamp from earlier timestampers any more.
    /// Earlier timestampers may still run. So the caller revokes their access before it reads their bound.
    Granted {
        /// The view in which the caller begins to give out timestamps.
        since: ViewNumber,
        /// The incarnations that gave out timestamps before the caller.
        before: Vec<NodeId>,
    },
    /// Another member gives out timestamps.
    Held {
        /// The member that gives out timestamps.
        by: NodeId,
    },
    /// The caller is not a member.
    NotMember,
    /// The service has not answered yet.
    Pending,
}

/// The answer to a request for another length of readers' leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadLeaseChange {
    /// The change of the lease length is under way, or leases already have the requested length. The value is the
    /// present lease word of record.
    Begun(LeaseWord),
    /// The change of the lease length cannot begin yet, for this reason.
    NotNow(NotNow),
    /// The caller is not a member.
    NotMember,
    /// The service has not answered yet.
    Pending,
}

/// The answer to a node that requests the right to adjust the length of readers' leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Management {
    /// The caller adjusts the lease length. Safety does not require that only one node adjusts the length.
    Granted,
    /// Another member adjusts the lease length.
    Held {
        /// The member that adjusts the lease length.
        by: NodeId,
    },
    /// The caller is not a member, or the lease length is not adjusted in this cluster.
    NotNow,
    /// The service has not answered yet.
    Pending,
}

/// The questions that the engine asks a membership service.
pub trait Membership: ShardRecord + Send + Sync {
    /// The current view of the cluster's membership.
    fn view(&self) -> ViewNumber;

    /// Creates a new incarnation for a compute node's slot. If the slot's last incarnation is still a member, that
    /// incarnation stays a member. In that case the caller ensures that the old incarnation runs no coordinator under
    /// a number that the new incarnation uses. Otherwise the new incarnation would overwrite the log of transactions
    /// that a dead coordinator had begun.
    ///
    /// # Errors
    /// If the slot has used up its incarnations, does not belong to the cluster, or if the slot's last incarnation is
    /// expelled and not recovered.
    fn join(&self, slot: NodeSlot) -> Result<NodeId, UsageError>;

    /// The membership state of an incarnation.
    fn standing(&self, node: NodeId) -> Standing;

    /// Whether this incarnation of the node is still a member.
    fn is_member(&self, node: NodeId) -> bool {
        self.standing(node) == Standing::Member
    }

    /// Renews a member's lease. See [`LeaseTerms::held_until`].
    fn renew(&self, node: NodeId) -> Renewal;

    /// Ends the membership of a node that leaves. The node holds no lock, has no transaction in doubt and will not
    /// act again.
    fn leave(&self, node: NodeId);

    /// Declares a member dead, even if it is alive. A repeated call has no further effect.
    fn expel(&self, node: NodeId) -> ViewNumber;

    /// Runs `act` if `by` is a member, every expelled incarnation is recovered, and the view is still `view`. None of
    /// these conditions changes while `act` runs. Returns whether `act` ran. A service across a network receives the
    /// request for the action itself and checks the conditions.
    fn while_settled(&self, by: NodeId, view: ViewNumber, act: &mut dyn FnMut()) -> bool;

    /// All incarnations that have ended because they left or were expelled. Before any node uses a memory node, that
    /// memory node must learn of all ended incarnations.
    fn ended(&self) -> Vec<NodeId>;

    /// The incarnations that are expelled and not recovered, in ascending order.
    fn unrecovered(&self) -> Vec<NodeId>;

    /// Claims the right to recover `dead`, for `by`. If `by` repeats the claim, the answer is the same.
    fn claim_recovery(&self, dead: NodeId, by: NodeId) -> Claim;

    /// Gives back the claim of `by` to recover `dead`, if `by` has the claim. All verbs of `by` have ended, so
    /// another node may begin the recovery of `dead` immediately.
    fn give_back(&self, dead: NodeId, by: NodeId);

    /// Records that `by`, which has the claim, has recovered `dead`. Returns false if `by` had lost its claim. In
    /// that case another node recovers the incarnation again.
    fn recovered(&self, dead: NodeId, by: NodeId) -> bool;

    /// Whether any shard has ever had an owner.
    fn is_shared_out(&self) -> bool {
        self.shard_changes() > 0
    }

    /// Gives each shard that never had an owner to one of `owners`, in turn.
    ///
    /// # Panics
    /// If `owners` is empty.
    fn open_shards(&self, owners: &[NodeId]);

    /// Changes a shard's entry from `from` to `to`, if the entry is still `from` and `by` owns the shard. The owner
    /// may close the entry or open it again. Once the entry is closed, the owner may give the shard to another
    /// member. `to` is [`ShardEntry::next`] of `from`.
    fn change_shard(
        &self,
        by: NodeId,
        shard: ShardId,
        from: ShardEntry,
        to: ShardEntry,
    ) -> ShardChange;

    /// Records the declaration of `by` that none of its threads relies on a lock that `dead` granted, now or later.
    /// The incarnation `dead` has ended.
    fn ack_lost(&self, dead: NodeId, by: NodeId);

    /// The incarnations that have declared that they rely on no lock of `dead`, in ascending order.
    fn lost_acks(&self, dead: NodeId) -> Vec<NodeId>;

    /// Records that a member runs no transaction any more and will never run one again. So the node relies on no
    /// locks, and it inherits no shards. The node stays a member, but the service never waits for the node.
    fn retire(&self, by: NodeId);

    /// The ended incarnations whose shards are not open yet, in ascending order.
    fn bereaved(&self) -> Vec<NodeId>;

    /// Opens the shards of `dead` once its transactions are settled and no other incarnation relies on its locks. The
    /// function considers every incarnation that is a member, or is expelled and not recovered. Each of these
    /// incarnations must have declared that it does not rely on the locks of `dead`, or must run no transaction. A
    /// repeated call has no further effect.
    fn reopen_shards(&self, dead: NodeId, heirs: Heirs) -> Reopening;

    /// The node that gives out timestamps; `None` if there has been no such node. A caller that receives a timestamp
    /// calls this function afterwards, and discards the timestamp if it came from another view.
    fn timestamper(&self) -> Option<Timestamper>;

    /// Requests the right to give out timestamps, for `by`. The service grants the right if the last timestamper is
    /// no member any more. If `by` repeats the request, the answer is the same.
    fn succeed_timestamper(&self, by: NodeId) -> Succession;

    /// The lease word of record for readers: the lease word that every node uses, or will use soon
    /// (`crates/engine/src/requests/read_lease`).
    fn read_lease(&self) -> LeaseWord;

    /// Records that `by` acknowledges `word`: until the next word of record, none of its threads will load any other
    /// word. A node acknowledges a word after it has stored it ([`crate::cluster::lease::NodeLease`]).
    fn acknowledge_read_lease(&self, by: NodeId, word: LeaseWord);

    /// Changes the length of readers' leases, for a member. The lease word of record changes twice. The service sets
    /// each word as soon as all incarnations that may still run use the previous word. If a node delays the change
    /// too long, it is finally expelled and recovered, and its access is then revoked.
    ///
    /// # Errors
    /// If the lease length is too long.
    fn change_read_lease(&self, by: NodeId, length_ns: u32) -> Result<ReadLeaseChange, UsageError>;

    /// The policy that adjusts the length of readers' leases while transactions run; `None` if no policy adjusts it.
    fn read_lease_policy(&self) -> Option<LeasePolicy>;

    /// Requests the right to adjust the length of readers' leases, for `by`. The service grants the right if the last
    /// manager runs nothing any more. If `by` repeats the request, the answer is the same.
    fn manage_read_lease(&self, by: NodeId) -> Management;

    /// The members that may run transactions, in ascending order.
    fn running(&self) -> Vec<NodeId>;

    /// The number of changes of the set of incarnations that may run transactions. Dead incarnations that are not
    /// recovered belong to this set. If this number has not changed, a node need not read the set again. The service
    /// counts an incarnation that joins before the incarnation can act.
    fn roster_changes(&self) -> u64;

    /// The incarnations for which a change of the lease word waits, in ascending order. The listed incarnations have
    /// not acknowledged the lease word, and may still run.
    fn read_lease_missing(&self) -> Vec<NodeId>;
}
