//! The reasons for which a run can fail to give a report.
//!
//! Invariant: the error keeps two cases apart: an unusable value, and a step of the run that failed. The program's
//! exit code depends on this distinction.

use super::explained;
use std::fmt;
use tarn::cluster::OpenError;
use tarn_engine::site::Context;
use tarn_store::ids::{Failure, UsageError};

/// The reason for which a run gives no report.
#[derive(Debug)]
pub enum RunError {
    /// The caller gave a value that cannot be used.
    Usage(UsageError),
    /// A step of the run failed, for the reason in this text.
    Failed(String),
}

impl RunError {
    /// Explains the failure of a transaction of this thread.
    pub(crate) fn explained(cx: &Context, failure: Failure) -> RunError {
        RunError::Failed(explained(cx, failure))
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Usage(error) => error.fmt(f),
            RunError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for RunError {}

impl From<UsageError> for RunError {
    fn from(error: UsageError) -> RunError {
        RunError::Usage(error)
    }
}

impl From<OpenError> for RunError {
    fn from(error: OpenError) -> RunError {
        match error {
            OpenError::Usage(error) => RunError::Usage(error),
            error => RunError::Failed(error.to_string()),
        }
    }
}
