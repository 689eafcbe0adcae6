//! A lock of one transaction, as data: what it protects, how the transaction holds it, and what the transaction will
//! write under it.
//!
//! Invariant: a lock that may have been granted stays in the working set until its release is posted. A new kind of
//! holding has to be placed in every `match` on [`HeldAs`]: no kind counts as a CAS by default.

use tarn_fabric::address::Address;
use tarn_fabric::round::VerbIndex;
use tarn_store::index::prints::Prints;
use tarn_store::layout::{Ticket, Version};

/// The kind of object that a lock protects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// The lock protects the record of an [`Entry`](crate::transaction::working_set::Entry).
    Record,
    /// It protects a bucket's directory record, an index header, or an index node. VERSION is written separately.
    Directory,
}

/// The value by which this transaction holds a LOCK word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeldAs {
    /// The word contains the transaction's tag, so no other transaction can use the record.
    #[default]
    Exclusive,
    /// The word contains the tag and a mark that lets readers pass: see [`tarn_store::layout::LockMode::Intent`].
    Intent,
    /// The word contains the value of `Intent` or of `Exclusive`: the transaction is raising the lock to `Exclusive`.
    Either,
    /// The word contains a lease of this or of another transaction. A lease ends at its end time, without a verb.
    Lease,
    /// The transaction holds its own ticket in a word of tickets.
    Ticket(Ticket),
    /// A lock service's lock beside readers. If [`Lock::met`] is 0, the request for another lock counts for this one too.
    ServiceShared,
    /// A lock service's lock, alone.
    ServiceExclusive,
}

impl HeldAs {
    /// Whether other transactions may read the object while this transaction holds the lock.
    #[inline]
    pub fn is_shared(self) -> bool {
        match self {
            HeldAs::Lease | HeldAs::Ticket(Ticket::Reader) | HeldAs::ServiceShared => true,
            HeldAs::Exclusive | HeldAs::Intent | HeldAs::Either => false,
            HeldAs::Ticket(Ticket::Writer) | HeldAs::ServiceExclusive => false,
        }
    }

    /// Whether the transaction requests the lock by a CAS.
    #[inline]
    pub fn is_by_cas(self) -> bool {
        match self {
            HeldAs::Exclusive | HeldAs::Intent | HeldAs::Either | HeldAs::Lease => true,
            HeldAs::Ticket(_) | HeldAs::ServiceShared | HeldAs::ServiceExclusive => false,
        }
    }

    /// Whether a lock service has the request.
    #[inline]
    pub fn is_by_service(self) -> bool {
        matches!(self, HeldAs::ServiceShared | HeldAs::ServiceExclusive)
    }
}

/// A lock that the transaction requested.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// The address of the LOCK word of this lock.
    pub address: Address,
    /// The value by which the transaction holds the LOCK word, if the lock was granted.
    pub held_as: HeldAs,
    /// The kind of object that the lock protects.
    pub kind: LockKind,
    /// Whether the lock was granted to the transaction.
    pub granted: bool,
    /// Whether the transaction will write VERSION of the locked object.
    pub writes: bool,
    /// Whether the transaction may write bytes that contain their VERSION but not the tag of the transaction.
    pub nameless: bool,
    /// The VERSION that the transaction read under the lock.
    pub old_version: Version,
    /// The VERSION that the transaction will write.
    pub new_version: Version,
    /// For the lock of a bucket: the fingerprints that the transaction writes together with VERSION.
    pub prints: Prints,
    /// The position, in its round, of the CAS or FAA that requested this lock.
    pub verb: VerbIndex,
    /// A value that the transaction read from the LOCK word. In protocols that repeat a request, this field is the
    /// value that blocked the request and may be replaced. With tickets, this field is the value that the transaction
    /// found when it took the ticket. With a lock service, it is the name of the request. In all other cases, it is 0.
    pub met: u64,
    /// Whether the request for this lock was refused, so that the transaction must repeat the request or wait.
    pub is_due: bool,
    /// The number of times that the transaction repeated the request for this lock.
    pub asked_again: u8,
}

impl Lock {
    /// Whether the writes under this lock do not contain the tag of the transaction that writes. If the transaction
    /// logs writes without its tag and then does not make these writes, it removes its log entry.
    #[inline]
    pub fn writes_nameless(&self) -> bool {
        self.writes && self.nameless
    }

    /// Creates a lock that the transaction has not requested yet.
    #[inline(always)]
    pub fn unasked(address: Address, kind: LockKind, held_as: HeldAs) -> Lock {
        Lock {
            address,
            held_as,
            kind,
            granted: false,
            writes: false,
            nameless: false,
            old_version: Version::NEVER,
            new_version: Version::NEVER,
            prints: Prints::UNKNOWN,
            verb: VerbIndex(u32::MAX),
            met: 0,
            is_due: false,
            asked_again: 0,
        }
    }
}
