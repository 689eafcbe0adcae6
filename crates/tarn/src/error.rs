//! The reason why a transaction did not commit, or a database could not be opened, in words.
//!
//! Invariant: the engine's reason, kept in one byte, and the note beside it are together here. So
//! an error can be kept, sent and printed long after its transaction.

use crate::cluster::OpenError;
use std::fmt;
use tarn_store::ids::{Explanation, Failure, TxnId, UsageError};

/// The reason why an operation failed; see the module's documentation.
#[derive(Debug)]
pub enum Error {
    /// The database could not be opened, or no further compute node can join it.
    Open(OpenError),
    /// A transaction did not commit, or may not have.
    Transaction {
        /// The reason, in one byte.
        failure: Failure,
        /// The details beyond it.
        explanation: Option<Explanation>,
    },
}

impl Error {
    /// Whether the transaction's own body rolled it back.
    pub fn is_own_abort(&self) -> bool {
        matches!(self, Error::Transaction { failure, .. } if *failure == Failure::user_abort())
    }

    /// Returns the transaction to ask [`Session::resolve`](crate::Session::resolve) about, if its
    /// outcome is unknown.
    pub fn unknown(&self) -> Option<TxnId> {
        match self {
            Error::Transaction { explanation: Some(Explanation::Unknown(txn)), .. } => Some(*txn),
            _ => None,
        }
    }

    /// Whether [`Session::resolve`](crate::Session::resolve) was asked about a transaction that is
    /// not known: its outcome was never unknown, or too many transactions were settled since.
    pub fn is_no_longer_known(&self) -> bool {
        let explanation = match self {
            Error::Transaction { explanation, .. } => explanation,
            Error::Open(_) => return false,
        };
        matches!(explanation, Some(Explanation::NoLongerKnown(_)))
    }

    /// The engine's verdict on the transaction; `None` if there was none.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Error::Transaction { failure, .. } => Some(*failure),
            Error::Open(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Open(error) => error.fmt(f),
            Error::Transaction { explanation: Some(explanation), .. } => explanation.fmt(f),
            Error::Transaction { failure, .. } => failure.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Open(error) => Some(error),
            Error::Transaction { failure, .. } => Some(failure),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        Error::Open(error)
    }
}

impl From<UsageError> for Error {
    fn from(error: UsageError) -> Error {
        Error::Open(OpenError::Usage(error))
    }
}
