//! Locks on records, of which each system chooses a kind: which node grants a lock, the meaning of its word, and
//! whether a transaction waits for it.
//!
//! Invariant: the kind is chosen by type, and is the same for all transactions of a system. Words of locks in memory
//! nodes, and their release, are in `steps::node_locks`.

pub(crate) mod lease;
pub(crate) mod ticket;

use super::access::{Access, LockOutcome, LockState};
use super::node_locks;
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::transaction::working_set::{Leases, LockKind, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::{Failure, Mode, OwnerTag};

/// A kind of locks. The default is the plainest: a word of 0 or the holder's tag, taken by CAS, for writers alone. A
/// transaction that is refused aborts.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Locks {
    /// Whether readers' locks are released at the end.
    const GIVES_SHARES_BACK: bool = false;

    /// Returns the meaning of a record's LOCK word to `me`, a transaction that found it and wants the record in this
    /// mode.
    #[inline(always)]
    fn judge<A: Access>(access: &A, lock: u64, me: OwnerTag, _: Mode) -> LockState {
        match lock != 0 && lock != me.word() && access.keeps(Rule::RefuseLocked) {
            true => LockState::InTheWay,
            false => LockState::Free,
        }
    }

    /// Returns the meaning of a LOCK word that validation reads again: of a record, or of a directory, whose lock is
    /// always its holder's tag.
    #[inline(always)]
    fn judge_again<A: Access>(
        access: &A,
        _: LockKind,
        (lock, me, mode): (u64, OwnerTag, Mode),
    ) -> LockState {
        access.judge(lock, me, mode)
    }

    /// Asks for the lock on a record, which the transaction does not hold. Returns the lock's index.
    #[inline(always)]
    fn lock_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        node_locks::ask(cx, txn, address, LockKind::Record)
    }

    /// Returns whether this transaction locks records that it only reads. The answer stays the same once the
    /// transaction has read.
    #[inline(always)]
    fn locks_reads(_: &Leases) -> bool {
        false
    }

    /// Returns whether a round asks for all locks on records that it can. If not, it asks for one.
    #[inline(always)]
    fn locks_together<A: Access>(_: &A) -> bool {
        true
    }

    /// Asks for the readers' lock on a record, like [`Locks::lock_record`].
    fn share_record(_: &Context, _: &mut Txn, _: Address) -> u32 {
        unreachable!("this protocol does not lock records that are only read");
    }

    /// Asks again for the lock on a record that is to be read, if it is not held in the mode that is wanted now. The
    /// lock was asked for before, perhaps in another mode.
    #[inline(always)]
    fn lock_again(_: &Context, _: &mut Txn, _: u32, _: Mode) {}

    /// Returns the outcome of the lock on a record that is wanted in this mode, from the last round or an earlier
    /// one.
    #[inline(always)]
    fn taken<A: Access>(_: &A, cx: &Context, txn: &mut Txn, (lock, _): (u32, Mode)) -> LockOutcome {
        if node_locks::granted(cx, txn, lock) { LockOutcome::Held } else { LockOutcome::Refused }
    }

    /// Returns whether the transaction must wait before it asks for locks again.
    #[inline(always)]
    fn has_to_wait(_: &Txn) -> bool {
        false
    }

    /// Waits until locks can be asked for again.
    ///
    /// # Errors
    /// The wait might never end, or the fabric failed.
    async fn wait<A: Access>(_: &A, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Prepares readers' locks before a fetch.
    async fn open(_: &Context, _: &mut Txn) {}

    /// Ends a fetch that has failed, so that nothing of this transaction is in the way of others. Returns the
    /// failure, which may be another by then.
    #[inline(always)]
    async fn leave<A: Access>(_: &A, _: &Context, _: &mut Txn, failure: Failure) -> Failure {
        failure
    }
}

/// The plainest kind: see [`Locks`].
pub struct ByCas;

impl Locks for ByCas {}
