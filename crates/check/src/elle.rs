//! Exports a history for Elle, so that a second, independent checker can check the history.
//!
//! The output is a Jepsen history in EDN, in time order, with one operation map per line. Every
//! transaction gives an `:invoke` and an `:ok`, `:fail` (aborted) or `:info` (unknown) of function
//! `:txn`. Keys are strings `"table:key"`. A value is the version number that a write installed. In a
//! correct history each version number of a key is unique. Elle does not know the version order. So
//! the form of the export decides how much of this order Elle can infer:
//!
//! - [`ElleModel::ListAppend`]: a write of version v is `[:append K v]`, a read is `[:r K [...]]`
//!   with all versions up to the version that was read. Every read tells Elle the whole version order
//!   before the read, so Elle infers the most from this form. The lists grow with the number of
//!   versions. A key with n versions and n reads takes space quadratic in n. For hot keys or long
//!   runs use [`ElleModel::RwRegister`].
//! - [`ElleModel::RwRegister`]: a write is `[:w K v]` and a read is `[:r K v]`, so the size is
//!   linear. Elle infers the version order only from reads followed by writes and from the
//!   assumptions of its options `:linearizable-keys?`, `:sequential-keys?` and `:wfr-keys?`.
//!
//! The export loses some facts. The initial version becomes the empty list, or `nil`. A delete
//! becomes an ordinary write, whose version is the tombstone. An absent read becomes a read of all
//! versions up to its floor. So Elle does not notice a record that is present and should be absent,
//! or absent and should be present. Elle also does not notice two initial versions or a wrong value.
//!
//! A Jepsen process runs one operation at a time, and never runs again after an `:info`. One
//! coordinator may run many operations at a time, so the export numbers the processes anew. The
//! export settles an unknown transaction as `check` settles it in its first try. Versions of an
//! unknown transaction that were not observed are in no list.
//!
//! The export is the same for every isolation level. Elle's option `:consistency-models` sets the
//! level: `:strict-serializable`, `:serializable`, or `:strong-snapshot-isolation`.
//!
//! Invariant: if events have the same time, the export writes invocations before completions. So Elle
//! orders B after A exactly if A completed before B was invoked.
//!
//! Source: Kingsbury and Alvaro, *Elle: Inferring Isolation Anomalies from Experimental
//! Observations*, VLDB 2020.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::history::{History, NEVER_NS, Outcome, Read, RecordId, Transaction};
use crate::index::Index;
use crate::unknown::Resolution;

/// The form in which the export writes reads and writes for Elle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElleModel {
    /// A value is a list of all versions so far. Elle infers the most from this form, and its size is
    /// quadratic for each key.
    ListAppend,
    /// A value is a version number. Elle infers less from this form, and its size is linear.
    RwRegister,
}

/// Writes the history as EDN, one operation per line.
pub fn export(history: &History, model: ElleModel, out: &mut impl Write) -> io::Result<()> {
    let index = Index::build(history);
    let included = Resolution::settle(history, &index, &[]).included;
    let exporter = Exporter { history, index, included, model };
    let events = events(history);
    let processes = assign_processes(history, &events);
    let last_ns = events.iter().map(|event| event.at_ns).filter(|ns| *ns != NEVER_NS).max();
    for (number, event) in events.iter().enumerate() {
        let txn = &history.transactions[event.txn as usize];
        let kind = match (event.end, txn.outcome) {
            (false, _) => "invoke",
            (true, Outcome::Committed) => "ok",
            (true, Outcome::Aborted) => "fail",
            (true, Outcome::Unknown) => "info",
        };
        let time = event.at_ns.min(last_ns.unwrap_or(0));
        let process = processes[event.txn as usize];
        write!(
            out,
            "{{:index {number}, :type :{kind}, :process {process}, :f :txn, :time {time}, :value ["
        )?;
        exporter.operations(txn, kind == "ok", out)?;
        writeln!(out, "]}}")?;
    }
    Ok(())
}

/// The beginning or the end of a transaction. The derived order of these events is their order in the
/// output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_ns: u64,
    end: bool,
    txn: u32,
}

fn events(history: &History) -> Vec<Event> {
    let mut events = Vec::with_capacity(2 * history.transactions.len());
    for (txn, number) in history.transactions.iter().zip(0u32..) {
        events.push(Event { at_ns: txn.invoked_ns, end: false, txn: number });
        events.push(Event { at_ns: txn.real_time_end_ns(), end: true, txn: number });
    }
    events.sort_unstable();
    events
}

/// Assigns a process to each transaction. The assigned process is the free process with the lowest
/// number.
fn assign_processes(history: &History, events: &[Event]) -> Vec<u32> {
    let mut process = vec![0; history.transactions.len()];
    let mut free = BTreeSet::new();
    let mut next = 0;
    for event in events {
        let own = &mut process[event.txn as usize];
        if !event.end {
            *own = free.pop_first().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
        } else if history.transactions[event.txn as usize].outcome != Outcome::Unknown {
            free.insert(*own);
        }
    }
    process
}

struct Exporter<'a> {
    history: &'a History,
    index: Index,
    included: Vec<bool>,
    model: ElleModel,
}

impl Exporter<'_> {
    /// Writes a transaction's operations, reads first. The reads come first because a transaction
    /// never reads versions that it wrote itself.
    fn operations(&self, txn: &Transaction, ended: bool, out: &mut impl Write) -> io::Result<()> {
        let mut separator = "";
        for read in &txn.reads {
            write!(out, "{separator}[:r ")?;
            self.key(read.record, out)?;
            write!(out, " ")?;
            if ended {
                self.seen(read, out)?
            } else {
                write!(out, "nil")?
            }
            write!(out, "]")?;
            separator = " ";
        }
        let verb = match self.model {
            ElleModel::ListAppend => ":append",
            ElleModel::RwRegister => ":w",
        };
        for one in &txn.writes {
            write!(out, "{separator}[{verb} ")?;
            self.key(one.record, out)?;
            write!(out, " ")?;
            integer(one.version.0, out)?;
            write!(out, "]")?;
            separator = " ";
        }
        Ok(())
    }

    fn key(&self, record: RecordId, out: &mut impl Write) -> io::Result<()> {
        write!(out, "\"")?;
        match self.history.tables.get(usize::from(record.table)) {
            Some(table) => write!(out, "{}", table.replace('\\', "\\\\").replace('"', "\\\""))?,
            None => write!(out, "table {}", record.table)?,
        }
        write!(out, ":{}\"", record.key)
    }

    /// Writes the value of a read. The value is a list of versions, or only the last version of this
    /// list.
    fn seen(&self, read: &Read, out: &mut impl Write) -> io::Result<()> {
        let versions = self.versions_up_to(read);
        match self.model {
            ElleModel::RwRegister => match versions.last() {
                Some(last) => integer(*last, out),
                None => write!(out, "nil"),
            },
            ElleModel::ListAppend => {
                write!(out, "[")?;
                for (place, version) in versions.iter().enumerate() {
                    write!(out, "{}", if place == 0 { "" } else { " " })?;
                    integer(*version, out)?;
                }
                write!(out, "]")
            }
        }
    }

    /// Returns the versions that form the value of a read. The initial version gives no versions. If
    /// a version has no writer, or its writer aborted, this version is the last one in the lists of
    /// its readers.
    fn versions_up_to(&self, read: &Read) -> Vec<u64> {
        let ops = &self.index.ops[self.index.range_of(read.record)];
        let upto = &ops[..ops.partition_point(|op| op.version <= read.version)];
        let writes = upto.iter().filter(|op| op.is_write());
        let taken = writes.clone().filter(|op| self.included[op.txn as usize]);
        let mut versions: Vec<u64> = taken.map(|op| op.version.0).collect();
        versions.dedup();
        let written = writes.rev().any(|op| op.version == read.version);
        let initial = versions.is_empty() && !written;
        if read.present && !initial && versions.last() != Some(&read.version.0) {
            versions.push(read.version.0);
        }
        versions
    }
}

/// Writes an integer in EDN. EDN's plain integers have 64 bits with sign, and larger integers need a
/// suffix.
fn integer(number: u64, out: &mut impl Write) -> io::Result<()> {
    let suffix = if i64::try_from(number).is_ok() { "" } else { "N" };
    write!(out, "{number}{suffix}")
}
