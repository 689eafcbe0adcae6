//! Records as transactions get at them: found by key, locked if they will be written, read; for every protocol
//! whose locks stand in its records' heads.
//!
//! Map: `fetch` is what a block's rounds send, `absorb` takes in what came, `home` is the commonest case of both,
//! made short; `validate` looks again at what was not locked; `near` is what needs no round of it where memory is near, and `batch_read` a whole
//! transaction of that kind.
//!
//! Invariant: all answers of a round are taken in before any of them aborts the transaction. What a record's bytes
//! say is the layout's ([`tarn_store::layout::Slot`]), and read here; what a LOCK word means, which lock is
//! asked for and what goes along in a round is the protocol's: [`Access`]. What a transaction commits by is not here at
//! all.

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

/// What a LOCK word is to who found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// Nobody's, or his own.
    Free,
    /// Another's, which lets him pass if he looks at the record again.
    Marked,
    /// Another's: he aborts.
    InTheWay,
    /// Likewise, and the word does not say whose.
    Taken,
}

/// What became of a lock that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// It is held, and what was read behind it counts.
    Held,
    /// Not yet: it is asked for again in the next round.
    NotYet,
    /// Another has it.
    Refused,
}

/// What of all this is the system's: who grants locks, what protects reads, and what goes along in a round.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Access: Structure {
    /// The locks on its records.
    type Locks: Locks;

    /// What a commit looks at again of what it has read.
    const VALIDATES: Which = Which::All;

    /// What the LOCK word of a record is to `me`, who found it and wants the record in this mode. A word of 0 is nobody's, and not always
    /// asked about.
    #[inline(always)]
    fn judge(&self, lock: u64, me: OwnerTag, mode: Mode) -> LockState {
        Self::Locks::judge(self, lock, me, mode)
    }

    /// The same of what is looked at again: of a record, or of a directory, whose lock is its holder's tag under every protocol.
    #[inline(always)]
    fn judge_again(&self, kind: LockKind, lock: u64, me: OwnerTag, mode: Mode) -> LockState {
        Self::Locks::judge_again(self, kind, (lock, me, mode))
    }

    /// Asks for the lock on a record, which the transaction does not hold; the lock's index. What it protects is
    /// read behind it.
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

    /// Adds what goes along in a round of a fetch that is about to be planned, if anything does; where what it
    /// brings will lie.
    #[inline(always)]
    fn plan_piggyback(&self, _: &Context, _: &mut Txn) -> Option<BufferOffset> {
        None
    }

    /// Takes in what went along.
    ///
    /// # Errors
    /// It says that the transaction cannot commit.
    fn absorb_piggyback(
        &self,
        _: &Context,
        _: &mut Txn,
        _: BufferOffset,
    ) -> Result<(), AbortReason> {
        Ok(())
    }
}
