//! Describes in words why a transaction did not commit, or why a database could not be opened.
//!
//! Invariant: an error contains the engine's reason, which is one byte, and also the engine's explanation. So a
//! program can keep, send and print an error long after its transaction.

use crate::cluster::OpenError;
use std::fmt;
use tarn_store::ids::{Explanation, Failure, TxnId, UsageError};

/// The reason why an operation failed; see the module's documentation.
#[derive(Debug)]
pub enum Error {
    /// The database could not be opened, saved or loaded, or no further compute node can join it.
    Open(OpenError),
    /// A transaction did not commit, or its outcome is unknown.
    Transaction {
        /// The reason, in one byte.
        failure: Failure,
        /// The details of the failure beyond its reason.
        explanation: Option<Explanation>,
    },
}

impl Error {
    /// Whether the transaction's own body aborted the transaction.
    pub fn is_own_abort(&self) -> bool {
        matches!(self, Error::Transaction { failure, .. } if *failure == Failure::user_abort())
    }

    /// Returns the transaction to pass to [`Session::resolve`](crate::Session::resolve), if its outcome is unknown.
    pub fn unknown(&self) -> Option<TxnId> {
        match self {
            Error::Transaction { explanation: Some(Explanation::Unknown(txn)), .. } => Some(*txn),
            _ => None,
        }
    }

    /// Whether [`Session::resolve`](crate::Session::resolve) was called for a transaction that is not known. Either
    /// its outcome was never unknown, or too many transactions were settled since.
    pub fn is_no_longer_known(&self) -> bool {
        let explanation = match self {
            Error::Transaction { explanation, .. } => explanation,
            Error::Open(_) => return false,
        };
        matches!(explanation, Some(Explanation::NoLongerKnown(_)))
    }

    /// Returns the engine's verdict on the transaction. `None` if the engine reached no verdict.
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
