//! The faults that a history file can have. The text of a fault names its place and its remedy.
//!
//! Invariant: every message starts with the file's name, and names the line if the fault lies in one
//! line.

use std::error::Error;
use std::fmt;
use std::io;

use crate::format::{FORMAT, FieldProblem};

/// The reason why a history file could not be read or written.
#[derive(Debug)]
pub struct HistoryError {
    /// The file, as the caller named it.
    pub file: String,
    /// The fault of the file.
    pub problem: Problem,
}

/// A fault of a history file.
#[derive(Debug)]
pub enum Problem {
    /// The operating system refused an operation on the file.
    Io {
        /// The refused operation: `open`, `read`, `write`, ...
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is empty.
    Empty,
    /// The first line is not a header.
    NotAHistory {
        /// The file's first line, or its beginning.
        found: String,
    },
    /// The file is a history in another version of the format.
    OtherFormat {
        /// The format's number in the header.
        found: u64,
    },
    /// A line is not JSON.
    Syntax {
        /// The number of the line, counted from 1.
        line: u64,
        /// The parser's message.
        message: String,
    },
    /// A field holds a wrong value.
    Field {
        /// The number of the line, counted from 1.
        line: u64,
        /// The field with the wrong value, and the values that this field may hold.
        field: FieldProblem,
    },
    /// The file ends without a footer.
    CutShort {
        /// The number of whole transactions before the end of the file.
        transactions: u64,
        /// The number of the incomplete line at the end, if the file has one.
        broken_line: Option<u64>,
    },
    /// The number of transactions in the footer differs from the number of transactions in the file.
    CountMismatch {
        /// The number of transactions that the footer states.
        footer: u64,
        /// The number of transactions that were read from the file.
        read: u64,
    },
    /// The file has further content after the footer.
    AfterFooter {
        /// The number of the line after the footer, counted from 1.
        line: u64,
    },
    /// Two transactions of the file have the same id.
    DuplicateId {
        /// The id that two transactions have.
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
