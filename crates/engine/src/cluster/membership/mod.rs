//! Who is in the cluster: lives of compute nodes, views, leases, and who recovers whom.
//!
//! Invariants: a view's number only grows, and every change has a new one; an incarnation is given out
//! once. A life goes one way: member, expelled (declared dead, though it may still run), recovered
//! (nothing of it is left but locks, which anybody may release). A slot gets no new life while its last
//! one is expelled and not recovered. A dead life has one recoverer at a time.
//!
//! Nothing here waits. A service across a network answers from what its node has learnt, and
//! [`Claim::Pending`] or [`Renewal::Pending`] until an answer has come; whoever asked asks again. Safety
//! rests on revoked access, never on leases: see docs/fault-model.md.

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

/// How a life of a compute node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It was never given out.
    Unknown,
    /// It takes part.
    Member,
    /// Declared dead; it may still run, and what it left is not settled.
    Expelled,
    /// Its access is gone and its transactions are settled; a lock that names it is nobody's.
    Recovered,
}

/// When a service in one process gives a member up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// It has spoken, or was asked, since the service last looked at its clock: counted from the next look.
    Fresh,
    /// By the service's clock.
    Until(Nanos),
}

/// What a lease is worth. Clocks are taken to gain or lose no more than `drift_ppm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTerms {
    /// How long the service waits, by its own clock, before it takes a silent node for dead.
    pub lease_ns: u64,
    /// How often a node asks for a new one, by its clock.
    pub renew_every_ns: u64,
    /// Most by which a clock may be fast or slow, in parts per million.
    pub drift_ppm: u32,
}

impl LeaseTerms {
    /// No lease: a member stays one until somebody expels it.
    pub const ENDLESS: LeaseTerms =
        LeaseTerms { lease_ns: u64::MAX, renew_every_ns: 1_000_000, drift_ppm: 0 };

    /// Until when a node may act, by its own clock, that asked when this clock showed `asked`: the
    /// service counts from later on, and both clocks may be off in the worse direction.
    pub fn held_until(&self, asked: Nanos) -> Nanos {
        if self.lease_ns == u64::MAX {
            return Nanos(u64::MAX);
        }
        let (million, drift) = (1_000_000u128, u128::from(self.drift_ppm.min(999_999)));
        let held_ns = u128::from(self.lease_ns) * (million - drift) / (million + drift);
        Nanos(asked.0.saturating_add(held_ns as u64))
    }
}

/// What came of asking for a new lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// Counted from the moment at which the node asked.
    Renewed {
        /// The view in which it was granted.
        view: ViewNumber,
        /// What it is worth.
        terms: LeaseTerms,
    },
    /// It is no member any more, and never will be in this life.
    Expelled,
    /// No answer yet.
    Pending,
}

/// What came of asking to recover a dead life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The caller recovers it, alone. Those who had begun before were expelled since; they may still
    /// run, so their access is revoked first, like that of the dead life itself.
    Granted {
        /// Earlier recoverers.
        before: Vec<NodeId>,
    },
    /// A member is at it.
    Held {
        /// Which.
        by: NodeId,
    },
    /// It is recovered.
    Done,
    /// It has not been expelled.
    NotExpelled,
    /// The caller is no member.
    NotMember,
    /// No answer yet.
    Pending,
}

/// What came of asking for a change of the shard map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardChange {
    /// It is made.
    Made,
    /// The entry is another one, or the change is none that the asker may ask for.
    Refused(Option<ShardEntry>),
    /// No answer yet.
    Pending,
}

/// Who gets the shards of a life that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heirs {
    /// All members that own any now, in turn; all members if none of them does.
    Owners,
    /// This one.
    One(NodeId),
    /// Its slot's next life, if that is a member.
    NextLife,
}

/// What came of asking to open the shards of a life that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reopening {
    /// They are open.
    Done,
    /// The life's transactions are not settled.
    NotRecovered,
    /// Of these lives something may rest on locks that it granted.
    Unacknowledged(Vec<NodeId>),
    /// The heir is no member, or there is none.
    NoHeir,
    /// No answer yet.
    Pending,
}

/// Who gives out timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamper {
    /// Which life.
    pub node: NodeId,
    /// Since which view; no two have the same.
    pub since: ViewNumber,
}

/// What came of asking to give out timestamps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Succession {
    /// The caller does, alone: no member takes one any more from those before. They may still run, so
    /// that their access is revoked before the caller reads how far they had come.
    Granted {
        /// Since when.
        since: ViewNumber,
        /// Lives that gave them out before.
        before: Vec<NodeId>,
    },
    /// A member does.
    Held {
        /// Which.
        by: NodeId,
    },
    /// The caller is no member.
    NotMember,
    /// No answer yet.
    Pending,
}

/// What came of asking for readers' leases of another length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadLeaseChange {
    /// It is under way, or that is the length: this is the word of record now.
    Begun(LeaseWord),
    /// Why not yet.
    NotNow(NotNow),
    /// The caller is no member.
    NotMember,
    /// No answer yet.
    Pending,
}

/// What came of asking to adjust the length of readers' leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Management {
    /// The caller does. Nothing rests on its being alone.
    Granted,
    /// A member does.
    Held {
        /// Which.
        by: NodeId,
    },
    /// The caller is no member, or nobody is to.
    NotNow,
    /// No answer yet.
    Pending,
}

/// What the engine asks of a membership service.
pub trait Membership: ShardRecord + Send + Sync {
    /// The current view.
    fn view(&self) -> ViewNumber;

    /// A new life for a compute node's slot. A last life that is still a member stays one: the caller knows
    /// that it runs no coordinator whose number the new one's have, since what a dead one had begun would
    /// be written over.
    ///
    /// # Errors
    /// When the slot has used up its incarnations, is not one of the cluster's, or its last life is
    /// expelled and not recovered.
    fn join(&self, slot: NodeSlot) -> Result<NodeId, UsageError>;

    /// How a life stands.
    fn standing(&self, node: NodeId) -> Standing;

    /// Whether that life of the node is still a member.
    fn is_member(&self, node: NodeId) -> bool {
        self.standing(node) == Standing::Member
    }

    /// A member asks to stay one. See [`LeaseTerms::held_until`].
    fn renew(&self, node: NodeId) -> Renewal;

    /// A member that holds no lock, has nothing in doubt and will never act again goes.
    fn leave(&self, node: NodeId);

    /// Declares a member dead, whether it is or not. Idempotent.
    fn expel(&self, node: NodeId) -> ViewNumber;

    /// Runs `act` if `by` is a member, no life is expelled and not recovered, and the view is still
    /// `view`; none of that changes while it runs. Whether it ran. A service across a network takes the
    /// request itself and decides.
    fn while_settled(&self, by: NodeId, view: ViewNumber, act: &mut dyn FnMut()) -> bool;

    /// Every life that is over, however it ended: what a memory node must know before it is used.
    fn ended(&self) -> Vec<NodeId>;

    /// The lives that are expelled and not recovered, in order.
    fn unrecovered(&self) -> Vec<NodeId>;

    /// `by` will recover `dead`. Asked again by the same, the answer is the same.
    fn claim_recovery(&self, dead: NodeId, by: NodeId) -> Claim;

    /// `by`, if it has claimed it, does not go on recovering `dead`, and nothing of what it did is still on
    /// its way: another may begin at once.
    fn give_back(&self, dead: NodeId, by: NodeId);

    /// `by`, who has claimed it, has recovered `dead`. False if it had lost its claim: somebody else
    /// does it again.
    fn recovered(&self, dead: NodeId, by: NodeId) -> bool;

    /// Whether any shard has ever had an owner.
    fn is_shared_out(&self) -> bool {
        self.shard_changes() > 0
    }

    /// Gives every shard that nobody has owned yet to one of `owners`, in turn.
    ///
    /// # Panics
    /// If there is no owner.
    fn open_shards(&self, owners: &[NodeId]);

    /// Its owner `by` changes an entry that is still `from` into `to`: closes it, opens it again, or, once it
    /// is closed, gives it to another member. `to` is [`ShardEntry::next`] of `from`.
    fn change_shard(
        &self,
        by: NodeId,
        shard: ShardId,
        from: ShardEntry,
        to: ShardEntry,
    ) -> ShardChange;

    /// Nothing of `by` rests any more, or will ever, on a lock that `dead` granted, whose life is over.
    fn ack_lost(&self, dead: NodeId, by: NodeId);

    /// Who has acknowledged so, in order.
    fn lost_acks(&self, dead: NodeId) -> Vec<NodeId>;

    /// A member runs nothing any more and never will: nothing of it rests on anybody's locks, and it inherits no
    /// shards. It stays a member, of whom nothing is asked.
    fn retire(&self, by: NodeId);

    /// The lives that are over and whose shards are not open yet, in order.
    fn bereaved(&self) -> Vec<NodeId>;

    /// Opens the shards of `dead` once its transactions are settled, and nothing of any other life rests on
    /// its locks: each that is a member, or is expelled and not recovered, has acknowledged so, or runs nothing.
    /// Idempotent.
    fn reopen_shards(&self, dead: NodeId, heirs: Heirs) -> Reopening;

    /// Who gives out timestamps; `None` if nobody has begun. Whoever gets one looks here afterwards, and
    /// takes none that is of another view.
    fn timestamper(&self) -> Option<Timestamper>;

    /// `by` wants to give out timestamps, and is to do so if whoever did is a member no more. Asked
    /// again by the same, the answer is the same.
    fn succeed_timestamper(&self, by: NodeId) -> Succession;

    /// The word of record of readers' leases: what every node uses, or is about to (`crates/engine/src/requests/read_lease`).
    fn read_lease(&self) -> LeaseWord;

    /// No thread of `by` will load another word than this before the record's next: a node says so after it was stored
    /// ([`crate::cluster::lease::NodeLease`]).
    fn acknowledge_read_lease(&self, by: NodeId, word: LeaseWord);

    /// A member asks for leases of another length. It is come to over a second word, each as soon as all that may still run use the one before; who
    /// keeps it waiting is expelled in the end, and recovered, which its access is revoked for.
    ///
    /// # Errors
    /// If it is too long.
    fn change_read_lease(&self, by: NodeId, length_ns: u32) -> Result<ReadLeaseChange, UsageError>;

    /// By what the length of readers' leases is adjusted while transactions run; `None`: by nobody.
    fn read_lease_policy(&self) -> Option<LeasePolicy>;

    /// `by` is ready to adjust it, and is to do so if whoever did runs nothing any more. Asked again by the same, the answer is the same.
    fn manage_read_lease(&self, by: NodeId) -> Management;

    /// Members that may run transactions, in order.
    fn running(&self) -> Vec<NodeId>;

    /// How often it has changed who may run transactions, the dead who are not recovered among them: who has looked at so many changes need
    /// not look. A life that joins is counted before it can do anything.
    fn roster_changes(&self) -> u64;

    /// Lives that the word of record waits for, in order: they have not acknowledged it, and may still run.
    fn read_lease_missing(&self) -> Vec<NodeId>;
}
