//! Export of a history for Elle, so that a second, independent checker can judge it.
//!
//! The output is a Jepsen history in EDN, one operation map a line, in time order. Every
//! transaction is an `:invoke` and an `:ok`, `:fail` (aborted) or `:info` (unknown) of function
//! `:txn`. Keys are strings `"table:key"`. A value is the version number that a write installed,
//! which is unique for its key in a correct history. Elle does not know the version order, so the
//! form decides how much of the order it can infer:
//!
//! - [`ElleModel::ListAppend`]: a write of version v is `[:append K v]`, a read is `[:r K [...]]`
//!   with all versions up to the one read. Every read tells Elle the whole order before it, so it
//!   infers the most. The lists grow with the versions: a key with n versions and as many reads
//!   takes space quadratic in n. For hot keys or long runs use the other form.
//! - [`ElleModel::RwRegister`]: `[:w K v]` and `[:r K v]`, linear in size. Elle infers the order
//!   only from reads followed by writes and from the assumptions of its options
//!   `:linearizable-keys?`, `:sequential-keys?` and `:wfr-keys?`.
//!
//! The export loses some facts. The initial version is the empty list, or `nil`. A delete is a
//! write like any other (its version is the tombstone), and an absent read is a read of everything
//! up to its floor. So Elle does not notice a record that is present and should be absent, or the
//! other way round, nor two initial versions, nor a wrong value.
//!
//! A Jepsen process runs one operation at a time and is gone after an `:info`, while one
//! coordinator may run many: processes are numbered afresh. An unknown transaction is settled as
//! `check` settles it first; those of its versions that were not observed are in no list.
//!
//! The export is the same for every level. Elle's option `:consistency-models` gives the level:
//! `:strict-serializable`, `:serializable`, or `:strong-snapshot-isolation`.
//!
//! Invariant: events at one instant put invocations before completions, so that Elle sees B after A
//! exactly if A completed before B was invoked.
//!
//! Source: Kingsbury and Alvaro, *Elle: Inferring Isolation Anomalies from Experimental
//! Observations*, VLDB 2020.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::history::{History, NEVER_NS, Outcome, Read, RecordId, Transaction};
use crate::index::Index;
use crate::unknown::Resolution;

/// The form in which Elle gets reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElleModel {
    /// Values are lists of all versions so far: most is inferred, quadratic size for each key.
    ListAppend,
    /// Values are version numbers: less is inferred, linear size.
    RwRegister,
}

/// Writes the history as EDN, one operation a line.
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

/// The beginning or the end of a transaction; the derived order is the order of the output.
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

/// Gives each transaction a process: the lowest one that is free.
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
    /// Writes a transaction's operations, reads first: they are of others' versions, never of its
    /// own.
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

    /// Writes the value of a read: a list, or the last element of that list.
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

    /// Returns the versions that make up the value of a read; none for the initial version. A
    /// version without a writer, or whose writer aborted, is the last in the lists of its readers.
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

/// EDN's plain integers are signed 64-bit; larger ones need a suffix.
fn integer(number: u64, out: &mut impl Write) -> io::Result<()> {
    let suffix = if i64::try_from(number).is_ok() { "" } else { "N" };
    write!(out, "{number}{suffix}")
}
