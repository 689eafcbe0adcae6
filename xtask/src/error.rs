//! The two kinds of failure of this tool, which have different exit codes.
//!
//! Invariant: every error text names the fault, and the file, package or command with the fault, so
//! that the reader can act.

use std::fmt;
use std::process::ExitCode;

/// The reason why a command ended without doing its work.
#[derive(Debug)]
pub(crate) enum Error {
    /// The caller gave a wrong command line. The exit code is 2.
    Usage(String),
    /// A check found a violation, or a program that the check needs failed. The exit code is 1.
    Failed(String),
}

impl Error {
    /// Creates the error of a failed check, with a text.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// Creates the error of a wrong command line, with a text.
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
