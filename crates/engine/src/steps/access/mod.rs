//! Access of transactions to their records: a transaction finds records by key, locks the records that it will write,
//! and reads them. The module serves every protocol whose locks are words in the heads of its records.
//!
//! Map: `fetch` sends the rounds of a block, `absorb` handles the answers, and `home` has a short code path for the
//! most common case. `validate` reads again the LOCK and VERSION of records that were not locked. Three modules use
//! loads instead of rounds if the processor can load memory directly (near memory). `sought` finds records; `near`
//! reads and validates a transaction's records; `batch_read` reads and validates a batch of records that is a whole
//! transaction.
//!
//! Invariant: a fetch handles all answers of a round before any answer aborts the transaction. The layout decides the
//! meaning of the bytes of a record that a transaction reads ([`tarn_store::layout::Slot`]). The protocol
//! ([`Access`]) decides the meaning of a LOCK word, which lock a transaction requests, and which additional verbs a
//! round contains. This module does not contain the commit of a transaction.

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
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{Leases, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};

/// The meaning of a LOCK word for the transaction that has read the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// The lock is free, or this transaction holds it.
    Free,
    /// Another transaction holds the lock. The other transaction lets this transaction read the record, if this
    /// transaction validates the read.
    Marked,
    /// Another transaction holds the lock, so this transaction aborts.
    InTheWay,
    /// Another transaction holds the lock, but the LOCK word does not name that transaction. The transaction that has
    /// read this LOCK word aborts.
    Taken,
}

/// The outcome of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// The transaction holds the lock, and the READ that followed the lock request is valid.
    Held,
    /// The lock is not granted to the transaction yet. The next round requests the lock again.
    NotYet,
    /// Another transaction holds the lock.
    Refused,
}

/// The decisions of a system about access to records: how locks are granted, how reads are protected, and which
/// additional verbs a round contains.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Access: Structure {
    /// The kind of locks on the system's records.
    type Locks: Locks;

    /// The records and absences that a commit validates.
    const VALIDATES: Which = Which::All;

    /// Returns the meaning of a LOCK word for `me`, a transaction that has found the record and wants it in this
    /// mode. A word of 0 always means a free lock, so callers may skip this function for the word 0.
    #[inline(always)]
    fn judge(&self, lock: u64, me: OwnerTag, mode: Mode) -> LockState {
        Self::Locks::judge(self, lock, me, mode)
    }

    /// Returns the meaning of a LOCK word that validation reads again. The LOCK word belongs to a record or to a
    /// directory record. A directory record's LOCK word contains its holder's tag under every protocol.
    #[inline(always)]
    fn judge_again(&self, kind: LockKind, lock: u64, me: OwnerTag, mode: Mode) -> LockState {
        Self::Locks::judge_again(self, kind, (lock, me, mode))
    }

    /// Requests the lock on a record that the transaction has not locked, and returns the index of the lock in the
    /// transaction's list. The READ of the record follows this request for the lock.
    #[inline(always)]
    fn lock_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        Self::Locks::lock_record(cx, txn, address)
    }

    /// Calls [`Locks::locks_reads`] of this system's kind of locks.
    #[inline(always)]
    fn locks_reads(&self, leases: &Leases) -> bool {
        Self::Locks::locks_reads(leases)
    }

    /// Calls [`Locks::locks_together`] of this system's kind of locks.
    #[inline(always)]
    fn locks_together(&self) -> bool {
        Self::Locks::locks_together(self)
    }

    /// Calls [`Locks::share_record`] of this system's kind of locks.
    fn share_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        Self::Locks::share_record(cx, txn, address)
    }

    /// Calls [`Locks::lock_again`] of this system's kind of locks.
    #[inline(always)]
    fn lock_again(&self, cx: &Context, txn: &mut Txn, lock: u32, mode: Mode) {
        Self::Locks::lock_again(cx, txn, lock, mode);
    }

    /// Calls [`Locks::taken`] of this system's kind of locks.
    #[inline(always)]
    fn taken(&self, cx: &Context, txn: &mut Txn, lock: (u32, Mode)) -> LockOutcome {
        Self::Locks::taken(self, cx, txn, lock)
    }

    /// Calls [`Locks::has_to_wait`] of this system's kind of locks.
    #[inline(always)]
    fn has_to_wait(&self, txn: &Txn) -> bool {
        Self::Locks::has_to_wait(txn)
    }

    /// Calls [`Locks::wait`] of this system's kind of locks.
    ///
    /// # Errors
    /// Returns the same errors as [`Locks::wait`].
    async fn wait(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        Self::Locks::wait(self, cx, txn).await
    }

    /// Adds this system's additional verbs, if any, to the next round of a fetch, before the fetch adds its own
    /// verbs. Returns the place in the buffer for the answers to the additional verbs.
    #[inline(always)]
    fn plan_piggyback(&self, _: &Context, _: &mut Txn) -> Option<BufferOffset> {
        None
    }

    /// Handles the answers to the additional verbs that [`Access::plan_piggyback`] added.
    ///
    /// # Errors
    /// The answers to the additional verbs show that the transaction cannot commit.
    fn absorb_piggyback(
        &self,
        _: &Context,
        _: &mut Txn,
        _: BufferOffset,
    ) -> Result<(), AbortReason> {
        Ok(())
    }
}
