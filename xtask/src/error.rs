//! The two kinds of failure, kept apart because their exit codes differ.
//!
//! Invariant: every text says the fault and the file, package or command that has it, so that the
//! reader can act on it.

use std::fmt;
use std::process::ExitCode;

/// The reason why a command ended without doing its work.
#[derive(Debug)]
pub(crate) enum Error {
    /// The caller asked for something that makes no sense: exit code 2.
    Usage(String),
    /// A check found something, or a program that it needs failed: exit code 1.
    Failed(String),
}

impl Error {
    /// A failure with a text.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// A wrong command line with a text.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => out.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_differ() {
        assert_eq!(Error::usage("x").exit_code(), ExitCode::from(2));
        assert_eq!(Error::failed("x").exit_code(), ExitCode::from(1));
    }
}
