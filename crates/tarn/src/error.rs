//! Describes in words why a transaction did not commit, or why a database could not be opened.
//!
//! Invariant: an error contains the engine's reason, which is one byte, and also the engine's explanation. So a
//! program can keep, send and print an error long after its transaction.

use crate::cluster::OpenError;
use crate::memory::machine_bytes;
use std::fmt;
use tarn_engine::site::Context;
use tarn_store::ids::{AbortReason, Explanation, Failure, TxnId, UsageError};

/// The reason why an operation failed.
///
/// A program's own error type has a variant for it:
///
/// ```
/// enum OrderError {
///     SoldOut,
///     Store(tarn::Error),
/// }
///
/// impl From<tarn::Error> for OrderError {
///     fn from(error: tarn::Error) -> OrderError {
///         OrderError::Store(error)
///     }
/// }
/// ```
#[derive(Debug)]
pub enum Error {
    /// The program gave a value that cannot be used.
    Usage(Box<UsageError>),
    /// The database could not be opened, saved or loaded, or no further compute node can join it.
    Open(Box<OpenError>),
    /// The database has used up its memory. The value names `memory_max` of the builder, the memory of the database, and
    /// the memory that is allowed.
    OutOfMemory(Box<UsageError>),
    /// A transaction did not commit, or its outcome is unknown.
    Transaction {
        /// The reason, in one byte.
        failure: Failure,
        /// The details of the failure beyond its reason.
        explanation: Option<Box<Explanation>>,
    },
}

// A body returns this type from every call.
const _: () = assert!(size_of::<Result<(), Error>>() == 16);

impl Error {
    /// Returns the error of a failure that this thread has just seen.
    #[cold]
    pub(crate) fn of(cx: &Context, failure: Failure) -> Error {
        Error::explained(failure, || cx.explanation(failure))
    }

    /// Returns the error of a failure with its explanation. An abort has none, except for a violated unique index.
    #[cold]
    pub(crate) fn explained(
        failure: Failure,
        explanation: impl FnOnce() -> Option<Explanation>,
    ) -> Error {
        let explanation = match failure {
            Failure::Abort(reason) if reason != AbortReason::UniqueViolation => None,
            _ => explanation(),
        };
        if failure == Failure::OutOfMemory {
            return Error::OutOfMemory(Box::new(out_of_memory(explanation)));
        }
        Error::Transaction { failure, explanation: explanation.map(Box::new) }
    }

    /// Returns the error of a transaction that its own body aborts.
    pub(crate) fn own_abort() -> Error {
        Error::Transaction { failure: Failure::user_abort(), explanation: None }
    }

    /// Whether the transaction's own body aborted the transaction, by
    /// [`Transaction::abort`](crate::Transaction::abort).
    pub fn is_own_abort(&self) -> bool {
        self.failure() == Some(Failure::user_abort())
    }

    /// Whether the call did not end before its deadline.
    pub fn is_deadline(&self) -> bool {
        self.failure() == Some(Failure::DeadlineExceeded)
    }

    /// Returns the names of the table and of its unique index, if a row would have had the same fields there as another
    /// row. Unique indexes are checked at the commit, after the body: match this on the error of
    /// [`Session::run`](crate::Session::run).
    ///
    /// ```
    /// # #[derive(tarn::Row)]
    /// # #[row(table = "users", key(id), unique(by_mail(mail)))]
    /// # struct User { id: u64, mail: tarn::Text<40> }
    /// # use tarn::{Tarn, Text};
    /// let tarn = Tarn::embedded().table::<User>(100).open()?;
    /// let users = tarn.table::<User>()?;
    /// let mail = Text::new("ada@example.org")?;
    /// let both = [1, 2].map(|id| User { id, mail });
    /// let ended = tarn.session()?.run(async |tx| users.put_many(tx, &both).await);
    /// let error = ended.expect_err("the mail is taken");
    /// assert_eq!(error.violated_index(), Some(("users", "by_mail")));
    /// # Ok::<(), tarn::Error>(())
    /// ```
    pub fn violated_index(&self) -> Option<(&str, &str)> {
        match self.explanation() {
            Some(Explanation::Duplicate { table, index }) => Some((table, index)),
            _ => None,
        }
    }

    /// Returns the transaction to pass to [`Session::resolve`](crate::Session::resolve), if its outcome is unknown.
    pub fn unknown(&self) -> Option<TxnId> {
        match self.explanation() {
            Some(Explanation::Unknown(txn)) => Some(*txn),
            _ => None,
        }
    }

    /// Whether [`Session::resolve`](crate::Session::resolve) was called for a transaction that is not known. Either
    /// its outcome was never unknown, or too many transactions were settled since.
    pub fn is_no_longer_known(&self) -> bool {
        matches!(self.explanation(), Some(Explanation::NoLongerKnown(_)))
    }

    /// Returns the engine's verdict on the transaction. `None` if the engine reached no verdict.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Error::OutOfMemory(_) => Some(Failure::OutOfMemory),
            Error::Transaction { failure, .. } => Some(*failure),
            Error::Usage(_) | Error::Open(_) => None,
        }
    }

    fn explanation(&self) -> Option<&Explanation> {
        match self {
            Error::Transaction { explanation, .. } => explanation.as_deref(),
            Error::Usage(_) | Error::Open(_) | Error::OutOfMemory(_) => None,
        }
    }
}

/// Names the option that gives a database more memory.
fn out_of_memory(explanation: Option<Explanation>) -> UsageError {
    let (wanted, value) = match explanation {
        Some(Explanation::OutOfMemory { bytes, pool_bytes }) => {
            (format!(" ({bytes} more were wanted)"), format!("{pool_bytes} bytes"))
        }
        _ => (String::new(), "all of it".to_owned()),
    };
    let machine = machine_bytes()
        .map_or(String::new(), |bytes| format!(", of at most {bytes} that this machine has"));
    let allowed = format!("more bytes{wanted}{machine}");
    UsageError { field: "memory_max".into(), value, allowed }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(error) | Error::OutOfMemory(error) => error.fmt(f),
            Error::Open(error) => error.fmt(f),
            Error::Transaction { failure, .. } => match self.explanation() {
                Some(explanation) => explanation.fmt(f),
                None => failure.fmt(f),
            },
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Usage(error) | Error::OutOfMemory(error) => Some(error),
            Error::Open(error) => Some(error),
            Error::Transaction { failure, .. } => Some(failure),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        match error {
            OpenError::Usage(error) => error.into(),
            error => Error::Open(Box::new(error)),
        }
    }
}

impl From<UsageError> for Error {
    fn from(error: UsageError) -> Error {
        Error::Usage(Box::new(error))
    }
}
