//! The faults that a history file can have, in words that say the place and the remedy.
//!
//! Invariant: every message starts with the file's name, and names the line when there is one.

use std::error::Error;
use std::fmt;
use std::io;

use crate::format::{FORMAT, FieldProblem};

/// The reason why a history file could not be read or written.
#[derive(Debug)]
pub struct HistoryError {
    /// The file, as the caller named it.
    pub file: String,
    /// The fault.
    pub problem: Problem,
}

/// A fault of a history file.
#[derive(Debug)]
pub enum Problem {
    /// The operating system refused.
    Io {
        /// The operation: `open`, `read`, `write`, ...
        doing: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// The file has no byte in it.
    Empty,
    /// The first line is not a header.
    NotAHistory {
        /// The line, or its beginning.
        found: String,
    },
    /// A history, but of another version of the format.
    OtherFormat {
        /// The format's number in the header.
        found: u64,
    },
    /// A line is not JSON.
    Syntax {
        /// Counted from 1.
        line: u64,
        /// The parser's message.
        message: String,
    },
    /// A field holds a wrong value.
    Field {
        /// Counted from 1.
        line: u64,
        /// The field, and the values that it may hold.
        field: FieldProblem,
    },
    /// The file ends without its footer.
    CutShort {
        /// Whole transactions before the end.
        transactions: u64,
        /// The line that breaks off, if one does.
        broken_line: Option<u64>,
    },
    /// The footer's count differs from the number of lines.
    CountMismatch {
        /// The footer's count.
        footer: u64,
        /// The number of transactions read.
        read: u64,
    },
    /// There is something behind the footer.
    AfterFooter {
        /// Counted from 1.
        line: u64,
    },
    /// Two transactions have one id.
    DuplicateId {
        /// The id.
        id: u64,
    },
}

impl HistoryError {
    pub(crate) fn new(file: &str, problem: Problem) -> Self {
        Self { file: file.to_owned(), problem }
    }

    pub(crate) fn io(file: &str, doing: &'static str, source: io::Error) -> Self {
        Self::new(file, Problem::Io { doing, source })
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, source } => write!(f, "cannot {doing}: {source}"),
            Self::Empty => write!(f, "empty file, not a history"),
            Self::NotAHistory { found } => write!(
                f,
                "not a history: line 1 must be an object with tarn_history, meta and tables, \
                 found {found}"
            ),
            Self::OtherFormat { found } => {
                write!(f, "history format = {found}; allowed: {FORMAT}")
            }
            Self::Syntax { line, message } => write!(f, "line {line}: cannot be parsed: {message}"),
            Self::Field { line, field } => write!(
                f,
                "line {line}: field `{}`: found {}, allowed: {}",
                field.field, field.found, field.allowed
            ),
            Self::CutShort { transactions, broken_line } => {
                write!(f, "cut short: no footer line after {transactions} transactions")?;
                match broken_line {
                    Some(line) => write!(f, "; line {line} breaks off"),
                    None => Ok(()),
                }
            }
            Self::CountMismatch { footer, read } => {
                write!(f, "the footer counts {footer} transactions, the file holds {read}")
            }
            Self::AfterFooter { line } => write!(
                f,
                "line {line}: text after the footer; were two histories written into one file?"
            ),
            Self::DuplicateId { id } => {
                write!(f, "two transactions have the id {id}; ids must be unique in a history")
            }
        }
    }
}

impl Error for HistoryError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            Problem::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
