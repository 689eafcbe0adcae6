//! The kinds of locks on records. Each system chooses one kind of locks, which decides the node that grants a lock,
//! the meaning of the lock word, and whether a transaction waits.
//!
//! Invariant: a system chooses its kind of locks as a type, so all its transactions use the same kind of locks. The
//! module `steps::node_locks` has the lock words in memory nodes and the release of these locks.

pub(crate) mod lease;
pub(crate) mod service;
pub(crate) mod ticket;

use super::access::{Access, LockOutcome, LockState};
use super::node_locks;
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{Leases, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::{Failure, Mode, OwnerTag};

/// A kind of locks on records. The default functions are for the simplest kind of locks. In that kind a CAS takes the
/// lock, a lock word is 0 or its holder's tag, and only writers take locks. By default, a transaction aborts if its
/// request for a lock is refused.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Locks {
    /// Whether a transaction releases its readers' locks when it ends.
    const GIVES_SHARES_BACK: bool = false;

    /// Returns the meaning of a record's LOCK word for the transaction `me`, which has read the word and wants the
    /// record in this mode.
    #[inline(always)]
    fn judge<A: Access>(access: &A, lock: u64, me: OwnerTag, _: Mode) -> LockState {
        match lock != 0 && lock != me.word() && access.keeps(Rule::RefuseLocked) {
            true => LockState::InTheWay,
            false => LockState::Free,
        }
    }

    /// Returns the meaning of a LOCK word that validation reads again. The LOCK word belongs to a record or to a
    /// directory record. A directory record's LOCK word always contains its holder's tag.
    #[inline(always)]
    fn judge_again<A: Access>(
        access: &A,
        _: LockKind,
        (lock, me, mode): (u64, OwnerTag, Mode),
    ) -> LockState {
        access.judge(lock, me, mode)
    }

    /// Requests the lock on a record that the transaction has not locked yet. Returns the index of this lock in the
    /// transaction's list of locks.
    #[inline(always)]
    fn lock_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        node_locks::ask(cx, txn, address, LockKind::Record)
    }

    /// Returns whether this transaction locks records that it only reads. The answer of `locks_reads` does not change
    /// once the transaction has read a record.
    #[inline(always)]
    fn locks_reads(_: &Leases) -> bool {
        false
    }

    /// Returns whether one round requests all locks on records that it can request. If the function returns false,
    /// each round requests only one lock.
    #[inline(always)]
    fn locks_together<A: Access>(_: &A) -> bool {
        true
    }

    /// Requests the readers' lock on a record, in the same way as [`Locks::lock_record`].
    fn share_record(_: &Context, _: &mut Txn, _: Address) -> u32 {
        unreachable!("this protocol does not lock records that are only read");
    }

    /// Requests the lock on a record again, if the transaction does not hold the lock in the mode that it wants now.
    /// The transaction requested this lock before, perhaps in another mode.
    #[inline(always)]
    fn lock_again(_: &Context, _: &mut Txn, _: u32, _: Mode) {}

    /// Returns the outcome of the request for a record's lock in this mode; the last round or an earlier round sent
    /// this request.
    #[inline(always)]
    fn taken<A: Access>(_: &A, cx: &Context, txn: &mut Txn, (lock, _): (u32, Mode)) -> LockOutcome {
        if node_locks::granted(cx, txn, lock) { LockOutcome::Held } else { LockOutcome::Refused }
    }

    /// Returns whether the transaction must wait before it requests locks again.
    #[inline(always)]
    fn has_to_wait(_: &Txn) -> bool {
        false
    }

    /// Waits until the transaction can request locks again.
    ///
    /// # Errors
    /// The wait might never end, or the fabric fails.
    async fn wait<A: Access>(_: &A, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether locks are requested before the round that reads under them: see [`Locks::obtain`].
    const ARE_APART: bool = false;

    /// Waits for all locks on records that the next round needs, before this round is sent.
    ///
    /// # Errors
    /// A lock was not granted in time.
    async fn obtain<A: Access>(_: &A, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether the transaction has read a record that it has to lock before it validates the read.
    #[inline(always)]
    fn has_to_cover(_: &Txn) -> bool {
        false
    }

    /// Locks such records: see [`Locks::has_to_cover`].
    ///
    /// # Errors
    /// A lock was not granted in time.
    async fn cover<A: Access>(_: &A, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Prepares the transaction for readers' locks before a fetch.
    async fn open(_: &Context, _: &mut Txn) {}

    /// Cleans up after a failed fetch, so that no lock request of this transaction blocks other transactions. Returns
    /// `failure`, or another failure that happened during the cleanup.
    #[inline(always)]
    async fn leave<A: Access>(_: &A, _: &Context, _: &mut Txn, failure: Failure) -> Failure {
        failure
    }
}

/// The simplest kind of locks, which transactions take by CAS; see [`Locks`].
pub struct ByCas;

impl Locks for ByCas {}
