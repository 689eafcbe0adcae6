//! Records as transactions get at them: found by key, locked if they will be written, read; for every protocol
//! whose locks stand in its records' heads.
//!
//! Map: [`fetch`] is what a block's rounds send, `absorb` takes in what came, `home` is the commonest case of both,
//! made short; `validate` looks again at what was not locked; [`near`] is what needs no round of it where memory is near, and [`together`] a whole
//! transaction of that kind.
//!
//! Invariant: all answers of a round are taken in before any of them aborts the transaction. What a record's bytes
//! say is the layout's ([`tarn_store::layout::Slot`]), and read here; what a LOCK word means, which lock is
//! asked for and what goes along in a round is the protocol's: [`Access`]. What a transaction commits by is not here at
//! all.

mod absorb;
mod fetch;
mod home;
pub(crate) mod near;
pub(crate) mod together;
mod validate;

pub(crate) use fetch::fetch;
pub(crate) use home::{add, wish_again};
pub(crate) use validate::{
    Which, absorb_early, absorb_validation, add_validation, is_needless, is_of_one_read,
    plan_early, validate, validate_those,
};

use crate::site::Context;
use crate::steps::node_locks;
use crate::steps::structure::Structure;
use crate::transaction::working_set::{Leases, LockKind, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};

/// What is being done: phases of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// A record is looked for.
    Locate,
    /// A record is read where it was seen last.
    ReadDirect,
    /// The lock on a record is asked for.
    Lock,
    /// The lock on a record is asked for where it was seen last.
    LockDirect,
    /// The lock on a directory record is asked for.
    LockDirectory,
    /// A payload is read that lies apart.
    ReadBody,
    /// What was read is looked at again.
    Validate,
}

/// A rule that a variant may be without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// What the caller was shown is compared with what is found later.
    ValidateReads,
    /// Who found nothing protects that.
    ProtectAbsent,
    /// Locks are asked for.
    LockCas,
    /// The versions of a record's lines are compared.
    CheckLines,
}

/// What a LOCK word is to who found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
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
pub(crate) enum Taken {
    /// It is held, and what was read behind it counts.
    Held,
    /// Not yet: it is asked for again in the next round.
    NotYet,
    /// Another has it.
    Refused,
}

/// What of all this is the protocol's.
pub(crate) trait Access: Structure {
    /// A phase begins.
    fn look(&self, cx: &Context, look: Look);

    /// Whether this variant keeps a rule.
    fn minds(&self, guard: Guard) -> bool;

    /// What the LOCK word of a record is to `me`, who found it and wants the record in this mode. A word of 0 is nobody's, and not always
    /// asked about.
    fn judge(&self, lock: u64, me: OwnerTag, mode: Mode) -> Judged;

    /// The same of what is looked at again: of a record, or of a directory, whose lock is its holder's tag under every protocol.
    #[inline(always)]
    fn judge_again(&self, _: LockKind, lock: u64, me: OwnerTag, mode: Mode) -> Judged {
        self.judge(lock, me, mode)
    }

    /// Asks for the lock on a record, which the transaction does not hold; the lock's index. What it protects is
    /// read behind it.
    #[inline(always)]
    fn lock_record(&self, cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        node_locks::ask(cx, txn, address, LockKind::Record)
    }

    /// Whether this transaction locks what it only reads: the same as long as it runs, once it has read.
    #[inline(always)]
    fn locks_reads(&self, _: &Leases) -> bool {
        false
    }

    /// Whether a round asks for the locks on all records that it can; if not, for one.
    #[inline(always)]
    fn locks_together(&self) -> bool {
        true
    }

    /// Asks for the readers' lock on a record; as [`Access::lock_record`].
    fn share_record(&self, _: &Context, _: &mut Txn, _: Address) -> u32 {
        unreachable!("this protocol locks nothing that it only reads");
    }

    /// A record is to be read whose lock was asked for before, perhaps in another mode than it is wanted in now: asks
    /// once more for what is not held.
    #[inline(always)]
    fn lock_again(&self, _: &Context, _: &mut Txn, _: u32, _: Mode) {}

    /// What became of the lock on a record that is wanted in this mode, in the round that is over or before.
    #[inline(always)]
    fn taken(&self, cx: &Context, txn: &mut Txn, (lock, _): (u32, Mode)) -> Taken {
        if node_locks::granted(cx, txn, lock) { Taken::Held } else { Taken::Refused }
    }

    /// Whether there is something to wait for before locks are asked for again.
    #[inline(always)]
    fn has_to_wait(&self, _: &Txn) -> bool {
        false
    }

    /// Waits for that.
    ///
    /// # Errors
    /// It waits for what may never come, or the fabric failed.
    async fn wait(&self, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Adds what goes along in a round of a fetch that is about to be planned, if anything does; where what it
    /// brings will lie.
    #[inline(always)]
    fn ride(&self, _: &Context, _: &mut Txn) -> Option<BufferOffset> {
        None
    }

    /// Takes in what went along.
    ///
    /// # Errors
    /// It says that the transaction cannot commit.
    fn arrive(&self, _: &Context, _: &mut Txn, _: BufferOffset) -> Result<(), AbortReason> {
        Ok(())
    }
}
