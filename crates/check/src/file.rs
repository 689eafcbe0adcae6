//! Reads and writes history files, one transaction at a time. The module `format` defines the format.
//!
//! Invariant: a history file appears under its own name only when it is complete, including the
//! footer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::error::{HistoryError, Problem};
use crate::format::{self, FORMAT, FieldProblem, Footer, Header};
use crate::history::{History, Transaction};
use crate::whole_file::WholeFile;

/// Writes a history to a file while the run continues.
///
/// ```
/// # use tarn_check::{History, HistoryWriter, Transaction};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("history.jsonl");
/// let mut writer = HistoryWriter::create(&path, &Default::default(), &["savings".into()])?;
/// writer.write(&Transaction::committed(1, 0, 5, 9))?;
/// writer.finish()?;
/// assert_eq!(History::read_from(&path)?.transactions.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HistoryWriter {
    name: String,
    out: WholeFile,
    transactions: u64,
}

impl HistoryWriter {
    /// Creates the file `NAME.partial` beside `path` and writes the header to it.
    pub fn create(
        path: &Path,
        meta: &BTreeMap<String, String>,
        tables: &[String],
    ) -> Result<Self, HistoryError> {
        let name = path.display().to_string();
        let out = WholeFile::create(path);
        let out = out.map_err(|error| HistoryError::io(&name, "create", error))?;
        let mut writer = Self { name, out, transactions: 0 };
        let header = Header { tarn_history: FORMAT, meta: meta.clone(), tables: tables.to_vec() };
        writer.line(&header)?;
        Ok(writer)
    }

    /// Appends one transaction to the file.
    pub fn write(&mut self, txn: &Transaction) -> Result<(), HistoryError> {
        self.line(txn)?;
        self.transactions += 1;
        Ok(())
    }

    /// Writes the footer and renames the file to its final name.
    pub fn finish(mut self) -> Result<(), HistoryError> {
        self.line(&Footer { end: true, transactions: self.transactions })?;
        self.out.finish().map_err(|error| HistoryError::io(&self.name, "finish", error))
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), HistoryError> {
        serde_json::to_writer(&mut self.out, line)
            .map_err(std::io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(|error| HistoryError::io(&self.name, "write", error))
    }
}

impl History {
    /// Reads and validates a history file.
    pub fn read_from(path: impl AsRef<Path>) -> Result<Self, HistoryError> {
        let name = path.as_ref().display().to_string();
        let file = File::open(&path).map_err(|error| HistoryError::io(&name, "open", error))?;
        Self::parse(&name, BufReader::with_capacity(1 << 18, file))
    }

    /// Reads and validates a history from any reader; `name` appears in errors.
    pub fn parse(name: &str, input: impl BufRead) -> Result<Self, HistoryError> {
        let mut lines = Lines { input, buffer: Vec::new(), number: 0 };
        Self::parse_lines(&mut lines).map_err(|problem| HistoryError::new(name, problem))
    }

    /// Writes the whole history to a file.
    pub fn write_to(&self, path: impl AsRef<Path>) -> Result<(), HistoryError> {
        let mut writer = HistoryWriter::create(path.as_ref(), &self.meta, &self.tables)?;
        self.transactions.iter().try_for_each(|txn| writer.write(txn))?;
        writer.finish()
    }

    fn parse_lines(lines: &mut Lines<impl BufRead>) -> Result<Self, Problem> {
        let mut history = match lines.next()? {
            None => return Err(Problem::Empty),
            Some(line) => parse_header(line)?,
        };
        loop {
            let read = history.transactions.len() as u64;
            let cut_short = |broken_line| Problem::CutShort { transactions: read, broken_line };
            let Some(line) = lines.next()? else {
                return Err(cut_short(None));
            };
            let whole = line.ends_with(b"\n");
            match parse_line(line, history.tables.len()) {
                Ok(Line::Transaction(txn)) => history.transactions.push(txn),
                Ok(Line::Footer(footer)) if footer.transactions != read => {
                    return Err(Problem::CountMismatch { footer: footer.transactions, read });
                }
                Ok(Line::Footer(_)) => break,
                Err(LineProblem::Syntax(_)) if !whole => return Err(cut_short(Some(lines.number))),
                Err(LineProblem::Syntax(message)) => {
                    return Err(Problem::Syntax { line: lines.number, message });
                }
                Err(LineProblem::Field(field)) => {
                    return Err(Problem::Field { line: lines.number, field });
                }
            }
        }
        match lines.next()? {
            Some(_) => Err(Problem::AfterFooter { line: lines.number }),
            None => history.refuse_duplicate_ids().map(|()| history),
        }
    }

    fn refuse_duplicate_ids(&self) -> Result<(), Problem> {
        let mut ids: Vec<u64> = self.transactions.iter().map(|txn| txn.id.0).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Problem::DuplicateId { id: pair[0] }),
            None => Ok(()),
        }
    }
}

/// Reads the lines of a file into one buffer, and counts the lines.
struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// The number of the line that was returned last, counted from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Returns the next line that is not blank, with its line end if it has a line end.
    fn next(&mut self) -> Result<Option<&[u8]>, Problem> {
        loop {
            self.buffer.clear();
            let length = self
                .input
                .read_until(b'\n', &mut self.buffer)
                .map_err(|source| Problem::Io { doing: "read", source })?;
            if length == 0 {
                return Ok(None);
            }
            self.number += 1;
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(Some(&self.buffer));
            }
        }
    }
}

enum Line {
    Transaction(Transaction),
    Footer(Footer),
}

enum LineProblem {
    Syntax(String),
    Field(FieldProblem),
}

fn parse_header(line: &[u8]) -> Result<History, Problem> {
    let text = String::from_utf8_lossy(line);
    let not_a_history = || Problem::NotAHistory { found: format::shorten(text.trim()) };
    let value: Value = serde_json::from_slice(line).map_err(|_| not_a_history())?;
    match value.get("tarn_history").map(Value::as_u64) {
        Some(Some(FORMAT)) => {}
        Some(Some(found)) => return Err(Problem::OtherFormat { found }),
        Some(None) | None => return Err(not_a_history()),
    }
    let header: Header = serde_json::from_value(value).map_err(|_| not_a_history())?;
    Ok(History { meta: header.meta, tables: header.tables, transactions: Vec::new() })
}

fn parse_line(line: &[u8], tables: usize) -> Result<Line, LineProblem> {
    match serde_json::from_slice::<Transaction>(line) {
        Ok(txn) => match format::validate(&txn, tables) {
            Ok(()) => Ok(Line::Transaction(txn)),
            Err(problem) => Err(LineProblem::Field(problem)),
        },
        Err(error) => parse_other_line(line, &error),
    }
}

/// Parses a line that is not a transaction. The line is the footer, or it has an error that the
/// function explains.
fn parse_other_line(line: &[u8], error: &serde_json::Error) -> Result<Line, LineProblem> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| LineProblem::Syntax(error.to_string()))?;
    if value.get("end").is_some() {
        return match serde_json::from_value::<Footer>(value.clone()) {
            Ok(footer) if footer.end => Ok(Line::Footer(footer)),
            _ => {
                let allowed = r#"{"end":true,"transactions":N}"#;
                Err(LineProblem::Field(FieldProblem::new("end", &value, allowed)))
            }
        };
    }
    match format::explain(&value) {
        Some(problem) => Err(LineProblem::Field(problem)),
        None => Err(LineProblem::Syntax(error.to_string())),
    }
}
