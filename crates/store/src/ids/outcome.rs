//! How a transaction ends: with one of three kinds of outcomes.
//!
//! Invariant: an [`AbortReason`] is a decision of the protocol or of the caller, and no effect of the aborted
//! transaction remains. After [`Failure::CommitUnknown`] the transaction may or may not have committed, until the
//! caller resolves the transaction. [`Failure::Fabric`] comes from the environment, and nothing was committed. A
//! panic is a bug of Tarn.

use super::OwnerTag;
use std::fmt;
use tarn_fabric::error::FabricError;

/// The number of outcomes of transactions in doubt that the database keeps. The database keeps the outcomes that were
/// decided most recently.
pub const VERDICTS_MAX: usize = 1 << 16;

/// A transaction's name, unique across restarts. The name is the tag that the transaction's locks contain.
pub type TxnId = OwnerTag;

/// The reason why a transaction was aborted. Transactions are retried after all reasons except
/// [`AbortReason::User`] and [`AbortReason::UniqueViolation`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum AbortReason {
    /// A lock was refused because another transaction holds it.
    LockRefused,
    /// A record that the transaction wanted to read was locked by another transaction.
    ReadLocked,
    /// At validation, a record that was read had another version.
    VersionChanged,
    /// At validation, a record that was read was locked by another transaction.
    ValidationLocked,
    /// A bucket or node of an index was changed by another transaction during an insert, a delete, or a read of an
    /// absent key.
    IndexChanged,
    /// A cached address no longer leads to the record.
    StaleAddress,
    /// A leaf of an ordered index was full. The leaf is split, and the transaction is tried again.
    LeafFull,
    /// Another record has the key that the transaction wanted to enter in a unique index. The transaction is not
    /// retried. The caller decides whether to try again.
    UniqueViolation,
    /// A version that the snapshot needs was discarded to make room for newer versions.
    TooOld,
    /// A reader did not learn in time whether a version belongs to its snapshot, because the version's writer was
    /// undecided.
    Undecided,
    /// A lock was requested from a compute node that does not own the lock's shard, or does not own the shard yet.
    WrongOwner,
    /// A compute node that had granted a lock is no longer a member.
    OwnerLost,
    /// Under snapshot isolation: a record to be written has a version newer than the snapshot.
    WriteConflict,
    /// A transaction that was declared read-only does something that needs locks. The next try of the transaction
    /// takes these locks.
    NeedsLocks,
    /// The caller requested the abort.
    User,
}

impl AbortReason {
    /// All abort reasons, in the order of their numbers.
    pub const ALL: [AbortReason; 15] = [
        AbortReason::LockRefused,
        AbortReason::ReadLocked,
        AbortReason::VersionChanged,
        AbortReason::ValidationLocked,
        AbortReason::IndexChanged,
        AbortReason::StaleAddress,
        AbortReason::LeafFull,
        AbortReason::UniqueViolation,
        AbortReason::TooOld,
        AbortReason::Undecided,
        AbortReason::WrongOwner,
        AbortReason::OwnerLost,
        AbortReason::WriteConflict,
        AbortReason::NeedsLocks,
        AbortReason::User,
    ];

    /// Whether this reason occurs only if a transaction changes an ordered index.
    pub fn needs_ordered_indexes(self) -> bool {
        matches!(self, AbortReason::LeafFull | AbortReason::UniqueViolation)
    }

    /// The reason's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            AbortReason::LockRefused => "lock_refused",
            AbortReason::ReadLocked => "read_locked",
            AbortReason::VersionChanged => "version_changed",
            AbortReason::ValidationLocked => "validation_locked",
            AbortReason::IndexChanged => "index_changed",
            AbortReason::StaleAddress => "stale_address",
            AbortReason::LeafFull => "leaf_full",
            AbortReason::UniqueViolation => "unique_violation",
            AbortReason::TooOld => "too_old",
            AbortReason::Undecided => "undecided",
            AbortReason::WrongOwner => "wrong_owner",
            AbortReason::OwnerLost => "owner_lost",
            AbortReason::WriteConflict => "write_conflict",
            AbortReason::NeedsLocks => "needs_locks",
            AbortReason::User => "user",
        }
    }
}

/// The error for a value that the caller gave and that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageError {
    /// The name of the field or argument.
    pub field: String,
    /// The value that the caller gave for the field.
    pub value: String,
    /// The values that are allowed.
    pub allowed: String,
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}; allowed: {}", self.field, self.value, self.allowed)
    }
}

impl std::error::Error for UsageError {}

/// The reason why a transaction did not commit, or may not have committed. A `Failure` takes one byte, so that
/// nested futures return it in a register. The engine's `Context::explanation` has further details.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The transaction was aborted, and no effect of the transaction remains.
    Abort(AbortReason),
    /// The transaction may have committed; the method `resolve` returns the outcome.
    CommitUnknown,
    /// The fabric failed before anything was committed.
    Fabric,
    /// The memory pool is full.
    OutOfMemory,
    /// The deadline passed before a try succeeded.
    DeadlineExceeded,
    /// The caller requested an operation that is not possible.
    Usage,
}

impl Failure {
    /// Creates the failure that a transaction's body returns to abort the transaction. The transaction is rolled back
    /// and not retried.
    pub const fn user_abort() -> Failure {
        Failure::Abort(AbortReason::User)
    }

    /// Whether another try may succeed.
    #[inline]
    pub fn is_retryable(self) -> bool {
        use AbortReason::{UniqueViolation, User};
        matches!(self, Failure::Abort(reason) if !matches!(reason, User | UniqueViolation))
    }

    /// Whether this failure is final and depends on the records that the transaction has read. A final failure that
    /// depends on reads is returned only if all records that the transaction has read existed together at one moment.
    #[inline]
    pub fn rests_on_reads(self) -> bool {
        !self.is_retryable() && !matches!(self, Failure::Fabric | Failure::CommitUnknown)
    }
}

const _: () = assert!(size_of::<Result<(), Failure>>() == 1);

impl From<Box<FabricError>> for Failure {
    #[inline]
    fn from(_: Box<FabricError>) -> Failure {
        Failure::Fabric
    }
}

impl From<AbortReason> for Failure {
    #[inline]
    fn from(reason: AbortReason) -> Failure {
        Failure::Abort(reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Abort(reason) => write!(f, "aborted: {}", reason.name()),
            Failure::CommitUnknown => write!(f, "outcome unknown; resolve it"),
            Failure::Fabric => write!(f, "the fabric failed"),
            Failure::OutOfMemory => write!(f, "the memory pool is full"),
            Failure::DeadlineExceeded => write!(f, "the deadline passed"),
            Failure::Usage => write!(f, "the caller asked for something that is not possible"),
        }
    }
}

impl std::error::Error for Failure {}

/// The details of a [`Failure`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Explanation {
    /// The transaction whose outcome is unknown.
    Unknown(TxnId),
    /// The transaction whose outcome is no longer stored.
    NoLongerKnown(TxnId),
    /// The error that the fabric returned.
    Fabric(FabricError),
    /// The memory pool had no room for a request.
    OutOfMemory {
        /// The size of the request in bytes.
        bytes: u64,
        /// The size of the memory of all nodes in bytes.
        pool_bytes: u64,
    },
    /// The deadline passed before a try succeeded.
    DeadlineExceeded {
        /// The number of tries before the deadline.
        tries: u32,
        /// The work during which the deadline passed, and the reason of the last abort.
        waited: String,
    },
    /// Two rows have the same fields in a unique index.
    Duplicate {
        /// The name of the table.
        table: String,
        /// The name of the table's index.
        index: String,
    },
    /// The caller gave a value that cannot be used.
    Usage(UsageError),
}

impl Explanation {
    /// Explains that a value cannot be used.
    #[cold]
    pub fn usage(field: &str, value: impl fmt::Display, allowed: &str) -> Explanation {
        let (field, value, allowed) = (field.to_owned(), value.to_string(), allowed.to_owned());
        Explanation::Usage(UsageError { field, value, allowed })
    }

    /// Returns the failure that this explanation describes.
    pub fn failure(&self) -> Failure {
        match self {
            Explanation::Unknown(_) => Failure::CommitUnknown,
            Explanation::Fabric(_) => Failure::Fabric,
            Explanation::OutOfMemory { .. } => Failure::OutOfMemory,
            Explanation::DeadlineExceeded { .. } => Failure::DeadlineExceeded,
            Explanation::Duplicate { .. } => Failure::Abort(AbortReason::UniqueViolation),
            Explanation::Usage(_) | Explanation::NoLongerKnown(_) => Failure::Usage,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Explanation::Unknown(txn) => write!(f, "outcome of {txn} unknown; resolve it"),
            Explanation::NoLongerKnown(txn) => write!(
                f,
                "resolve = {txn}; allowed: one of the last {VERDICTS_MAX} settled transactions \
                 whose outcome was unknown"
            ),
            Explanation::Fabric(error) => write!(f, "fabric: {error}"),
            Explanation::OutOfMemory { bytes, pool_bytes } => {
                write!(f, "the memory pool of {pool_bytes} bytes is full ({bytes} bytes wanted)")
            }
            Explanation::DeadlineExceeded { tries, waited } => {
                write!(f, "the deadline passed after {tries} tries, {waited}")
            }
            Explanation::Duplicate { table, index } => write!(
                f,
                "two rows of {table} have the same fields in the unique index {index}; a write \
                 that would make them was rolled back"
            ),
            Explanation::Usage(error) => write!(f, "{error}"),
        }
    }
}

/// The result of resolving a [`Failure::CommitUnknown`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The transaction committed, and its writes are complete now.
    Committed,
    /// The transaction did not commit, and no effect of it remains.
    Aborted,
}
