//! How a transaction ends. Three kinds, never mixed.
//!
//! Invariant: an [`AbortReason`] is the protocol's or the caller's verdict: nothing of the
//! transaction remains. [`Failure::CommitUnknown`] means that it may or may not have committed
//! until somebody resolves it. [`Failure::Fabric`] is the environment, and nothing was committed.
//! A panic is our bug.

use crate::owner::OwnerTag;
use std::fmt;
use tarn_fabric::error::FabricError;

/// A transaction's name, unique across restarts: the tag it locks with.
pub type TxnId = OwnerTag;

/// Why a transaction was aborted. All but [`AbortReason::User`] are retried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum AbortReason {
    /// A lock was refused: another transaction holds it.
    LockRefused,
    /// A record to be read was locked by another transaction.
    ReadLocked,
    /// At validation a record that was read had another version.
    VersionChanged,
    /// At validation a record that was read was locked by another transaction.
    ValidationLocked,
    /// A bucket or node of an index changed under an insert, delete or absent read.
    IndexChanged,
    /// A cached address no longer leads to the record.
    StaleAddress,
    /// The caller asked for it.
    User,
}

impl AbortReason {
    /// Every reason, in order.
    pub const ALL: [AbortReason; 7] = [
        AbortReason::LockRefused,
        AbortReason::ReadLocked,
        AbortReason::VersionChanged,
        AbortReason::ValidationLocked,
        AbortReason::IndexChanged,
        AbortReason::StaleAddress,
        AbortReason::User,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            AbortReason::LockRefused => "lock_refused",
            AbortReason::ReadLocked => "read_locked",
            AbortReason::VersionChanged => "version_changed",
            AbortReason::ValidationLocked => "validation_locked",
            AbortReason::IndexChanged => "index_changed",
            AbortReason::StaleAddress => "stale_address",
            AbortReason::User => "user",
        }
    }
}

/// A value that the caller gave and that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageError {
    /// What was set.
    pub field: String,
    /// To which value.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}; allowed: {}", self.field, self.value, self.allowed)
    }
}

impl std::error::Error for UsageError {}

/// Why a transaction did not commit, or may not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Aborted; nothing of it remains.
    Abort(AbortReason),
    /// It may have committed; `resolve` tells.
    CommitUnknown(TxnId),
    /// The fabric failed before anything was committed.
    Fabric(FabricError),
    /// The memory pool is full.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The deadline passed before a try succeeded.
    DeadlineExceeded {
        /// How often it was tried.
        tries: u32,
    },
    /// The caller asked for something that cannot be.
    Usage(Box<UsageError>),
}

impl Failure {
    /// A usage error.
    #[cold]
    pub fn usage(field: &str, value: impl fmt::Display, allowed: &str) -> Failure {
        let (field, value, allowed) = (field.to_owned(), value.to_string(), allowed.to_owned());
        Failure::Usage(Box::new(UsageError { field, value, allowed }))
    }

    /// The caller's own abort: rolled back, not retried.
    pub const fn user_abort() -> Failure {
        Failure::Abort(AbortReason::User)
    }

    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Failure::Abort(reason) if *reason != AbortReason::User)
    }
}

impl From<FabricError> for Failure {
    fn from(error: FabricError) -> Failure {
        Failure::Fabric(error)
    }
}

impl From<AbortReason> for Failure {
    fn from(reason: AbortReason) -> Failure {
        Failure::Abort(reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Abort(reason) => write!(f, "aborted: {}", reason.name()),
            Failure::CommitUnknown(txn) => write!(f, "outcome of {txn} unknown; resolve it"),
            Failure::Fabric(error) => write!(f, "fabric: {error}"),
            Failure::OutOfMemory { bytes } => write!(f, "memory pool full ({bytes} bytes wanted)"),
            Failure::DeadlineExceeded { tries } => {
                write!(f, "deadline passed after {tries} tries")
            }
            Failure::Usage(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Failure {}

/// What resolving a [`Failure::CommitUnknown`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// It committed, and is finished now.
    Committed,
    /// It did not, and nothing of it remains.
    Aborted,
}
