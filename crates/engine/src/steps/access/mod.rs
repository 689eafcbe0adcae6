//! How transactions reach their records: find them by key, lock those that they will write, read them. It serves every protocol
//! whose locks stand in its records' heads.
//!
//! Map: `fetch` sends a block's rounds, `absorb` takes in the answers, `home` is the commonest case of both,
//! made short. `validate` looks again at records that were not locked. Where memory is near, `sought` finds records by loads, `near` reads
//! and validates those of a transaction without a round, and `batch_read` those of a whole transaction that is one call.
//!
//! Invariant: all answers of a round are taken in before any of them aborts the transaction. The layout says the meaning of a record's
//! bytes ([`tarn_store::layout::Slot`]), which are read here. The protocol ([`Access`]) says the meaning of a LOCK word, which lock is
//! asked for, and which verbs go along in a round. How a transaction commits is not here at all.

mod absorb;
pub(crate) mod batch_read;
mod fetch;
mod home;
pub(crate) mod near;
pub(crate) mod records;
pub(crate) mod sought;
mod validate;

pub(crate) use fetch::fetch;
pub use records::{AtOnce, Locked, RecordAccess, Validated};
pub(crate) use validate::{
    Which, absorb_early, absorb_validation, add_validation, is_needless, is_of_one_read,
    plan_early, validate, validate_those,
};

use crate::site::Context;
use crate::steps::locks::Locks;
use crate::steps::structure::Structure;
use crate::transaction::working_set::{Leases, LockKind, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};

/// The meaning of a LOCK word to the transaction that found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// The lock is free, or this transaction's own.
    Free,
    /// Another transaction has it, and lets this one pass if it looks at the record again.
    Marked,
    /// Another transaction has it: this one aborts.
    InTheWay,
    /// The same, and the word does not say which transaction.
    Taken,
}

/// The outcome of asking for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// It is held, and the READ that followed it counts.
    Held,
    /// Not yet: it is asked for again in the next round.
    NotYet,
    /// Another transaction has it.
    Refused,
}

/// The parts of access that a system decides: how locks are granted, how reads are protected, and which verbs go along in a round.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Access: Structure {
    /// The locks on its records.
    type Locks: Locks;

    /// The records and absences that a commit looks at again.
    const VALIDATES: Which = Which::All;

    /// Judges the LOCK word of a record that `me` has found and wants in this mode. A word of 0 is a free lock, for which this is not always
    /// called.
    #[inline(always)]
    fn judge(&self, lock: u64, me: OwnerTag, mode: Mode) -> LockState {
        Self::Locks::judge(self, lock, me, mode)
    }

    /// Judges a LOCK word that is looked at again: of a record, or of a directory, whose lock is its holder's tag under every protocol.
    #[inline(always)]
    fn judge_again(&self, kind: LockKind, lock: u64, me: OwnerTag, mode: Mode) -> LockState {
        Self::Locks::judge_again(self, kind, (lock, me, mode))
    }

    /// Asks for the lock on a record, which the transaction does not hold; returns the lock's index. The record is
    /// read after it.
    #[inline(always)]
    fn lock_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        Self::Locks::lock_record(cx, txn, address)
    }

    /// See [`Locks::locks_reads`].
    #[inline(always)]
    fn locks_reads(&self, leases: &Leases) -> bool {
        Self::Locks::locks_reads(leases)
    }

    /// See [`Locks::locks_together`].
    #[inline(always)]
    fn locks_together(&self) -> bool {
        Self::Locks::locks_together(self)
    }

    /// See [`Locks::share_record`].
    fn share_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        Self::Locks::share_record(cx, txn, address)
    }

    /// See [`Locks::lock_again`].
    #[inline(always)]
    fn lock_again(&self, cx: &Context, txn: &mut Txn, lock: u32, mode: Mode) {
        Self::Locks::lock_again(cx, txn, lock, mode);
    }

    /// See [`Locks::taken`].
    #[inline(always)]
    fn taken(&self, cx: &Context, txn: &mut Txn, lock: (u32, Mode)) -> LockOutcome {
        Self::Locks::taken(self, cx, txn, lock)
    }

    /// See [`Locks::has_to_wait`].
    #[inline(always)]
    fn has_to_wait(&self, txn: &Txn) -> bool {
        Self::Locks::has_to_wait(txn)
    }

    /// See [`Locks::wait`].
    ///
    /// # Errors
    /// As there.
    async fn wait(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        Self::Locks::wait(self, cx, txn).await
    }

    /// Adds the verbs that go along in a round of a fetch that is about to be planned, if there are any. Returns where their answers
    /// will lie.
    #[inline(always)]
    fn plan_piggyback(&self, _: &Context, _: &mut Txn) -> Option<BufferOffset> {
        None
    }

    /// Takes in the answers of the verbs that went along.
    ///
    /// # Errors
    /// They say that the transaction cannot commit.
    fn absorb_piggyback(
        &self,
        _: &Context,
        _: &mut Txn,
        _: BufferOffset,
    ) -> Result<(), AbortReason> {
        Ok(())
    }
}
