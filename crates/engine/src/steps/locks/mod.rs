//! Locks on records as systems choose them: which node grants a lock, what its word means, and whether a transaction waits for it.
//!
//! Invariant: an answer is chosen by type, and is the same for all transactions of a system. Words of locks that memory nodes keep, and how they
//! are given back, are in `steps::node_locks`.

pub(crate) mod lease;
pub(crate) mod ticket;

use super::access::{Access, LockOutcome, LockState};
use super::node_locks;
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::transaction::working_set::{Leases, LockKind, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::{Failure, Mode, OwnerTag};

/// A kind of locks. By default it is the plainest: a word of 0 or the holder's tag, taken by CAS, for writers alone; a transaction
/// that is refused aborts.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Locks {
    /// Whether readers' locks are released at the end.
    const GIVES_SHARES_BACK: bool = false;

    /// What the LOCK word of a record is to `me`, who found it and wants the record in this mode.
    #[inline(always)]
    fn judge<A: Access>(access: &A, lock: u64, me: OwnerTag, _: Mode) -> LockState {
        match lock != 0 && lock != me.word() && access.keeps(Rule::RefuseLocked) {
            true => LockState::InTheWay,
            false => LockState::Free,
        }
    }

    /// The same of what is looked at again: of a record, or of a directory, whose lock is its holder's tag always.
    #[inline(always)]
    fn judge_again<A: Access>(
        access: &A,
        _: LockKind,
        (lock, me, mode): (u64, OwnerTag, Mode),
    ) -> LockState {
        access.judge(lock, me, mode)
    }

    /// Asks for the lock on a record, which the transaction does not hold; the lock's index.
    #[inline(always)]
    fn lock_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        node_locks::ask(cx, txn, address, LockKind::Record)
    }

    /// Whether this transaction locks what it only reads: the same as long as it runs, once it has read.
    #[inline(always)]
    fn locks_reads(_: &Leases) -> bool {
        false
    }

    /// Whether a round asks for the locks on all records that it can; if not, for one.
    #[inline(always)]
    fn locks_together<A: Access>(_: &A) -> bool {
        true
    }

    /// Asks for the readers' lock on a record; as [`Locks::lock_record`].
    fn share_record(_: &Context, _: &mut Txn, _: Address) -> u32 {
        unreachable!("records that are only read are not locked");
    }

    /// A record is to be read whose lock was asked for before, perhaps in another mode than it is wanted in now: asks
    /// once more for what is not held.
    #[inline(always)]
    fn lock_again(_: &Context, _: &mut Txn, _: u32, _: Mode) {}

    /// What became of the lock on a record that is wanted in this mode, in the round that is over or before.
    #[inline(always)]
    fn taken<A: Access>(_: &A, cx: &Context, txn: &mut Txn, (lock, _): (u32, Mode)) -> LockOutcome {
        if node_locks::granted(cx, txn, lock) { LockOutcome::Held } else { LockOutcome::Refused }
    }

    /// Whether there is something to wait for before locks are asked for again.
    #[inline(always)]
    fn has_to_wait(_: &Txn) -> bool {
        false
    }

    /// Waits for that.
    ///
    /// # Errors
    /// It waits for what may never come, or the fabric failed.
    async fn wait<A: Access>(_: &A, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Before a fetch: what readers' locks need.
    async fn open(_: &Context, _: &mut Txn) {}

    /// A fetch has failed: what it may still fail with, when nothing of this transaction is in the way of others.
    #[inline(always)]
    async fn leave<A: Access>(_: &A, _: &Context, _: &mut Txn, failure: Failure) -> Failure {
        failure
    }
}

/// The plainest kind: see [`Locks`].
pub struct ByCas;

impl Locks for ByCas {}
