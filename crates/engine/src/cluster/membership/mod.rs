//! The members of the cluster: lives of compute nodes, views, leases, and the right to recover a dead life.
//!
//! Invariants: a view's number only grows, and every change has a new one. An incarnation is given out once. A life
//! goes one way: member, expelled (declared dead, though it may still run), recovered (only its locks are left, and any
//! node may release them). A slot gets no new life while its last one is expelled and not recovered. A dead life has
//! one recoverer at a time.
//!
//! Nothing here waits. A service across a network answers from the knowledge that its node has. Until an answer has
//! come it returns [`Claim::Pending`] or [`Renewal::Pending`], and the caller asks again. Safety rests on revoked
//! access, never on leases: see docs/fault-model.md.

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

/// The state of a compute node's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// This life was never given out.
    Unknown,
    /// The life takes part.
    Member,
    /// Declared dead. The life may still run, and its transactions are not settled.
    Expelled,
    /// The life's access is revoked and its transactions are settled. A lock that names it has no owner.
    Recovered,
}

/// When a service in one process gives a member up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// The member has spoken, or was asked, since the service last looked at its clock. Its time counts from the next
    /// look.
    Fresh,
    /// The member has until this time, by the service's clock.
    Until(Nanos),
}

/// The terms of a lease. Clocks are assumed to gain or lose no more than `drift_ppm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTerms {
    /// How long the service waits, by its own clock, before it takes a silent node for dead.
    pub lease_ns: u64,
    /// How often a node asks for a new lease, by its clock.
    pub renew_every_ns: u64,
    /// The most by which a clock may be fast or slow, in parts per million.
    pub drift_ppm: u32,
}

impl LeaseTerms {
    /// No lease: a member stays one until some node expels it.
    pub const ENDLESS: LeaseTerms =
        LeaseTerms { lease_ns: u64::MAX, renew_every_ns: 1_000_000, drift_ppm: 0 };

    /// The time until which a node may act, by its own clock. The node asked when this clock showed `asked`. The
    /// service counts from a later moment, and both clocks may be off in the worse direction.
    pub fn held_until(&self, asked: Nanos) -> Nanos {
        if self.lease_ns == u64::MAX {
            return Nanos(u64::MAX);
        }
        let (million, drift) = (1_000_000u128, u128::from(self.drift_ppm.min(999_999)));
        let held_ns = u128::from(self.lease_ns) * (million - drift) / (million + drift);
        Nanos(asked.0.saturating_add(held_ns as u64))
    }
}

/// The answer to a node that asks for a new lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The lease is renewed. It counts from the moment at which the node asked.
    Renewed {
        /// The view in which the lease was granted.
        view: ViewNumber,
        /// The terms of the lease.
        terms: LeaseTerms,
    },
    /// The node is no member any more, and never will be in this life.
    Expelled,
    /// No answer yet.
    Pending,
}

/// The answer to a node that asks to recover a dead life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The caller recovers the life, alone. Earlier recoverers have been expelled. They may still run, so the caller
    /// first revokes their access, as it does for the dead life itself.
    Granted {
        /// The earlier recoverers.
        before: Vec<NodeId>,
    },
    /// A member is recovering the life.
    Held {
        /// That member.
        by: NodeId,
    },
    /// The life is recovered.
    Done,
    /// The life has not been expelled.
    NotExpelled,
    /// The caller is no member.
    NotMember,
    /// No answer yet.
    Pending,
}

/// The answer to a request to change the shard map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardChange {
    /// The change is made.
    Made,
    /// Refused: the entry is a different one, or the caller may not ask for this change.
    Refused(Option<ShardEntry>),
    /// No answer yet.
    Pending,
}

/// The nodes that inherit the shards of a life that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heirs {
    /// All members that own shards now, in turn. If no member owns any, all members.
    Owners,
    /// This node.
    One(NodeId),
    /// The next life of the same slot, if that is a member.
    NextLife,
}

/// The answer to a request to open the shards of a life that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reopening {
    /// The shards are open.
    Done,
    /// The life's transactions are not settled.
    NotRecovered,
    /// These lives may still rely on locks that the dead life granted.
    Unacknowledged(Vec<NodeId>),
    /// The heir is no member, or there is none.
    NoHeir,
    /// No answer yet.
    Pending,
}

/// The node that gives out timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamper {
    /// Its life.
    pub node: NodeId,
    /// The view since which it gives them out. No two timestampers have the same view.
    pub since: ViewNumber,
}

/// The answer to a node that asks to give out timestamps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Succession {
    /// The caller gives them out, alone: no member takes a timestamp from earlier timestampers any more. Those may
    /// still run. So the caller revokes their access before it reads how far they had come.
    Granted {
        /// The view since which the caller gives them out.
        since: ViewNumber,
        /// Lives that gave them out before.
        before: Vec<NodeId>,
    },
    /// A member gives them out.
    Held {
        /// That member.
        by: NodeId,
    },
    /// The caller is no member.
    NotMember,
    /// No answer yet.
    Pending,
}

/// The answer to a request for another length of readers' leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadLeaseChange {
    /// The change is under way, or the length was this one already. This is the word of record now.
    Begun(LeaseWord),
    /// The reason why the change cannot begin yet.
    NotNow(NotNow),
    /// The caller is no member.
    NotMember,
    /// No answer yet.
    Pending,
}

/// The answer to a node that asks to adjust the length of readers' leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Management {
    /// The caller adjusts it. Nothing depends on its being alone.
    Granted,
    /// A member adjusts it.
    Held {
        /// That member.
        by: NodeId,
    },
    /// The caller is no member, or the length is not to be adjusted.
    NotNow,
    /// No answer yet.
    Pending,
}

/// The questions that the engine asks a membership service.
pub trait Membership: ShardRecord + Send + Sync {
    /// The current view.
    fn view(&self) -> ViewNumber;

    /// A new life for a compute node's slot. If the slot's last life is still a member, it stays one. In that case the
    /// caller ensures that the old life runs no coordinator under a number that the new life uses. Otherwise the new
    /// life would overwrite transactions that a dead coordinator had begun.
    ///
    /// # Errors
    /// If the slot has used up its incarnations, does not belong to the cluster, or if its last life is expelled and
    /// not recovered.
    fn join(&self, slot: NodeSlot) -> Result<NodeId, UsageError>;

    /// The state of a life.
    fn standing(&self, node: NodeId) -> Standing;

    /// Whether this life of the node is still a member.
    fn is_member(&self, node: NodeId) -> bool {
        self.standing(node) == Standing::Member
    }

    /// A member asks to stay one. See [`LeaseTerms::held_until`].
    fn renew(&self, node: NodeId) -> Renewal;

    /// A member leaves. It holds no lock, has nothing in doubt and will never act again.
    fn leave(&self, node: NodeId);

    /// Declares a member dead, whether it is or not. Idempotent.
    fn expel(&self, node: NodeId) -> ViewNumber;

    /// Runs `act` if `by` is a member, no life is expelled and not recovered, and the view is still `view`. None of
    /// these conditions changes while `act` runs. Returns whether `act` ran. A service across a network takes the
    /// request itself and decides.
    fn while_settled(&self, by: NodeId, view: ViewNumber, act: &mut dyn FnMut()) -> bool;

    /// Every life that is over, whether it left or was expelled. A memory node must know them before it is used.
    fn ended(&self) -> Vec<NodeId>;

    /// The lives that are expelled and not recovered, in order.
    fn unrecovered(&self) -> Vec<NodeId>;

    /// Claims the right to recover `dead`, for `by`. If the same node asks again, the answer is the same.
    fn claim_recovery(&self, dead: NodeId, by: NodeId) -> Claim;

    /// Gives back the claim of `by` to recover `dead`, if `by` has it. All of its verbs have landed, so another node
    /// may begin at once.
    fn give_back(&self, dead: NodeId, by: NodeId);

    /// `by`, which has the claim, has recovered `dead`. Returns false if `by` had lost its claim; then another node
    /// recovers the life again.
    fn recovered(&self, dead: NodeId, by: NodeId) -> bool;

    /// Whether any shard has ever had an owner.
    fn is_shared_out(&self) -> bool {
        self.shard_changes() > 0
    }

    /// Gives every shard that never had an owner to one of `owners`, in turn.
    ///
    /// # Panics
    /// If `owners` is empty.
    fn open_shards(&self, owners: &[NodeId]);

    /// Changes an entry from `from` to `to`, if it is still `from` and `by` owns it. The owner closes the entry, opens
    /// it again, or, once it is closed, gives it to another member. `to` is [`ShardEntry::next`] of `from`.
    fn change_shard(
        &self,
        by: NodeId,
        shard: ShardId,
        from: ShardEntry,
        to: ShardEntry,
    ) -> ShardChange;

    /// `by` declares that nothing on it relies on a lock that `dead` granted, now or ever. The life of `dead` is over.
    fn ack_lost(&self, dead: NodeId, by: NodeId);

    /// The lives that have declared so, in order.
    fn lost_acks(&self, dead: NodeId) -> Vec<NodeId>;

    /// A member runs nothing any more and never will. So nothing on it relies on locks, and it inherits no shards. It
    /// stays a member, but the service waits for nothing from it.
    fn retire(&self, by: NodeId);

    /// The lives that are over and whose shards are not open yet, in order.
    fn bereaved(&self) -> Vec<NodeId>;

    /// Opens the shards of `dead` once its transactions are settled and no other life relies on its locks. Every life
    /// that is a member, or is expelled and not recovered, must have declared that, or must run nothing. Idempotent.
    fn reopen_shards(&self, dead: NodeId, heirs: Heirs) -> Reopening;

    /// The node that gives out timestamps; `None` if there has been none. A caller that receives a timestamp checks
    /// this afterwards, and discards a timestamp of another view.
    fn timestamper(&self) -> Option<Timestamper>;

    /// `by` asks to give out timestamps. It is granted if the last timestamper is no member any more. If the same node
    /// asks again, the answer is the same.
    fn succeed_timestamper(&self, by: NodeId) -> Succession;

    /// The word of record of readers' leases: the word that every node uses, or is about to
    /// (`crates/engine/src/requests/read_lease`).
    fn read_lease(&self) -> LeaseWord;

    /// `by` acknowledges `word`: until the record's next word, none of its threads will load any other. A node
    /// acknowledges a word after it has stored it ([`crate::cluster::lease::NodeLease`]).
    fn acknowledge_read_lease(&self, by: NodeId, word: LeaseWord);

    /// A member asks for leases of another length. The change passes through a second word. Each word begins as soon as
    /// all lives that may still run use the one before. A node that delays the change too long is expelled in the end
    /// and recovered, and its access is revoked for that.
    ///
    /// # Errors
    /// If it is too long.
    fn change_read_lease(&self, by: NodeId, length_ns: u32) -> Result<ReadLeaseChange, UsageError>;

    /// The policy by which the length of readers' leases is adjusted while transactions run; `None` if it is not
    /// adjusted.
    fn read_lease_policy(&self) -> Option<LeasePolicy>;

    /// `by` offers to adjust the length. It is granted if the last manager runs nothing any more. If the same node asks
    /// again, the answer is the same.
    fn manage_read_lease(&self, by: NodeId) -> Management;

    /// Members that may run transactions, in order.
    fn running(&self) -> Vec<NodeId>;

    /// How often the set of lives that may run transactions has changed; dead lives that are not recovered belong to
    /// it. A node that has seen this many changes need not look again. A life that joins is counted before it can do
    /// anything.
    fn roster_changes(&self) -> u64;

    /// Lives that the word of record waits for, in order. They have not acknowledged it, and may still run.
    fn read_lease_missing(&self) -> Vec<NodeId>;
}
