//! Sweeps once over every record's version order. The sweep finds the anomalies that need no graph.
//! The sweep also finds the ww, wr and rw edges of the direct serialization graph.
//!
//! Invariant: the edges are those of Adya, and connect only neighbours in the version order. A ww
//! edge leads to the next version, and an rw edge leads from a version's readers to the next version.
//! Edges between versions further apart follow by transitivity. So the graph has at most three edges
//! per operation. An operation that is an anomaly by itself and has no place in the version order
//! gives no edge.
//!
//! Source: Adya, Liskov and O'Neil, *Generalized Isolation Level Definitions*, ICDE 2000.

use std::ops::Range;

use crate::anomaly::{Anomaly, AnomalyKind, Seen};
use crate::findings::{Findings, Names};
use crate::history::{History, Outcome};
use crate::index::{Index, Op, Role};

/// The kinds of edges as bits, so that a mask is a set of kinds.
pub(crate) mod kind {
    pub const WW: u8 = 1;
    pub const WR: u8 = 2;
    pub const RW: u8 = 4;
    /// Edges to, between and from time nodes, which are the auxiliary nodes of real time.
    pub const TIME: u8 = 8;
    /// An edge from a transaction's snapshot to its commit.
    pub const INNER: u8 = 16;
}

/// An edge between the transactions of two operations on one record.
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    /// The operation at which the edge begins, as an index into `Index::ops`.
    pub from: u32,
    /// The operation at which the edge ends, as an index into `Index::ops`.
    pub to: u32,
    pub kind: u8,
}

/// Sweeps over the version order of all records.
pub(crate) fn sweep(
    history: &History,
    index: &Index,
    included: &[bool],
    findings: &mut Findings,
) -> Vec<Edge> {
    let mut sweep = Sweep {
        history,
        index,
        ops: &index.ops,
        included,
        findings,
        edges: Vec::with_capacity(index.ops.len()),
        writes: Vec::new(),
        writers: Vec::new(),
    };
    for record in 0..index.records() {
        sweep.record(index.range(record));
    }
    sweep.edges
}

struct Sweep<'a> {
    history: &'a History,
    index: &'a Index,
    ops: &'a [Op],
    included: &'a [bool],
    findings: &'a mut Findings,
    edges: Vec<Edge>,
    /// The version order of the present record, with one included write for each version.
    writes: Vec<u32>,
    /// The writers of the present record: pairs (transaction, position in `writes`), sorted.
    writers: Vec<(u32, u32)>,
}

/// The state that the sweep of a record carries from read to read.
#[derive(Default)]
struct Place {
    /// The number of elements of `writes` before the present operation.
    next: usize,
    /// The first read of the initial version, which is the version before all writes.
    initial: Option<usize>,
    /// The last write by an aborted transaction before the present operation.
    aborted_write: Option<usize>,
    /// The last delete by an aborted transaction before the present operation.
    aborted_delete: Option<usize>,
    /// The first operation that recorded the value of the present version.
    value: Option<usize>,
}

impl Sweep<'_> {
    fn record(&mut self, range: Range<usize>) {
        self.version_order(range.clone());
        let initial = self.index.initial_read(range.clone(), self.included);
        let mut place = Place { initial, ..Place::default() };
        for at in range {
            let op = &self.ops[at];
            while self.writes.get(place.next).is_some_and(|&write| write as usize <= at) {
                place.next += 1;
            }
            match op.role {
                _ if !self.included[op.txn as usize] => self.pass_excluded(at, &mut place),
                Role::Write(_) => {
                    let representative =
                        place.next > 0 && self.writes[place.next - 1] as usize == at;
                    if representative && op.fingerprint != 0 && !op.is_delete() {
                        place.value = Some(at);
                    }
                }
                Role::Present => self.present(at, &mut place),
                Role::Absent => self.absent(at, &place),
            }
        }
    }

    /// Remembers a write of an aborted transaction, because a later read may have seen it.
    fn pass_excluded(&self, at: usize, place: &mut Place) {
        let op = &self.ops[at];
        if op.is_write() && self.history.transactions[op.txn as usize].outcome == Outcome::Aborted {
            place.aborted_write = Some(at);
            if op.is_delete() {
                place.aborted_delete = Some(at);
            }
        }
    }

    /// Collects the versions of a record, reports duplicate versions, and adds the ww edges.
    fn version_order(&mut self, range: Range<usize>) {
        self.writes.clear();
        self.writers.clear();
        for at in range {
            let op = &self.ops[at];
            if !op.is_write() || !self.included[op.txn as usize] {
                continue;
            }
            match self.writes.last().map(|&last| &self.ops[last as usize]) {
                Some(last) if last.version == op.version => {
                    let (names, first) = (Names(self.history), last.txn);
                    self.findings.add(AnomalyKind::DuplicateVersion, || {
                        Anomaly::DuplicateVersion {
                            first: names.txn(first),
                            second: names.txn(op.txn),
                            record: names.record(op.record),
                            version: op.version,
                        }
                    });
                }
                _ => self.writes.push(at as u32),
            }
        }
        for place in 1..self.writes.len() {
            self.edge(self.writes[place - 1], self.writes[place], kind::WW);
        }
        let writers = self.writes.iter().zip(0u32..);
        self.writers.extend(writers.map(|(&write, place)| (self.ops[write as usize].txn, place)));
        self.writers.sort_unstable();
    }

    fn edge(&mut self, from: u32, to: u32, kind: u8) {
        if self.ops[from as usize].txn != self.ops[to as usize].txn {
            self.edges.push(Edge { from, to, kind });
        }
    }

    /// Handles a read that found the record.
    fn present(&mut self, at: usize, place: &mut Place) {
        let ops = self.ops;
        let op = &ops[at];
        let source = place.next.checked_sub(1).map(|before| self.writes[before]);
        match source.filter(|&write| ops[write as usize].version == op.version) {
            Some(write) if ops[write as usize].txn == op.txn => return self.report_own(at, write),
            Some(write) => {
                self.judge_source(at, write, place.next);
                self.edge(write, at as u32, kind::WR);
            }
            None => {
                let aborted = place.aborted_write.map(|write| &ops[write]);
                let aborted = aborted.filter(|write| write.version == op.version);
                let initial = place.initial.map(|first| &ops[first]);
                let initial = initial.filter(|_| place.next == 0 && aborted.is_none());
                if initial.is_none_or(|first| first.version != op.version) {
                    return self.report_unwritten(op, aborted, initial);
                }
            }
        }
        self.compare_value(at, place);
        self.before_next(at, place.next);
    }

    /// Handles a read that did not find the record.
    fn absent(&mut self, at: usize, place: &Place) {
        let ops = self.ops;
        let op = &ops[at];
        let before = place.next.checked_sub(1).map(|before| self.writes[before]);
        let present = match before.map(|write| &ops[write as usize]) {
            Some(write) if write.is_delete() && write.txn == op.txn => {
                return self.report_own(at, self.writes[place.next - 1]);
            }
            Some(write) => (!write.is_delete()).then_some(Some(write)),
            None => place.initial.map(|_| None),
        };
        if let Some(there) = present {
            let since = there.map(|write| write.version);
            let aborted = place.aborted_delete.map(|delete| &ops[delete]);
            let aborted = aborted.filter(|delete| since.is_none_or(|v| delete.version > v));
            self.report_absent(op, there, aborted);
        }
        if let Some(write) = before {
            self.edge(write, at as u32, kind::WR);
        }
        self.before_next(at, place.next);
    }

    /// Adds the rw edge from a read to the next version, and reports a reader that overwrote this
    /// next version without having read it.
    fn before_next(&mut self, at: usize, next: usize) {
        let Some(&write) = self.writes.get(next) else {
            return;
        };
        self.edge(at as u32, write, kind::RW);
        let op = &self.ops[at];
        let own = self.writers.partition_point(|&writer| writer < (op.txn, next as u32));
        match self.writers.get(own) {
            Some(&(txn, place)) if txn == op.txn && place as usize > next => {
                let names = Names(self.history);
                let missed = &self.ops[write as usize];
                let own = &self.ops[self.writes[place as usize] as usize];
                self.findings.add(AnomalyKind::LostUpdate, || Anomaly::LostUpdate {
                    txn: names.txn(op.txn),
                    record: names.record(op.record),
                    seen: seen(op),
                    written: own.version,
                    missed: names.txn(missed.txn),
                    missed_version: missed.version,
                });
            }
            _ => {}
        }
    }

    /// Reports a read of a version that no transaction may read: a delete, or a version that its own
    /// writer overwrote.
    fn judge_source(&mut self, at: usize, write: u32, next: usize) {
        let names = Names(self.history);
        let (op, source) = (&self.ops[at], &self.ops[write as usize]);
        let (reader, writer) = (names.txn(op.txn), names.txn(source.txn));
        let version = op.version;
        if source.is_delete() {
            let record = names.record(op.record);
            self.findings.add(AnomalyKind::PresentReadOfDelete, || Anomaly::PresentReadOfDelete {
                reader,
                writer,
                record,
                version,
            });
        }
        let following = self.writes.get(next).map(|&write| &self.ops[write as usize]);
        if let Some(following) = following.filter(|following| following.txn == source.txn) {
            self.findings.add(AnomalyKind::IntermediateRead, || Anomaly::IntermediateRead {
                reader,
                writer,
                record: names.record(op.record),
                version,
                overwritten_by: following.version,
            });
        }
    }

    /// Compares the value that was read with the known value of the same version.
    fn compare_value(&mut self, at: usize, place: &mut Place) {
        let op = &self.ops[at];
        if op.fingerprint == 0 {
            return;
        }
        match place.value.map(|first| &self.ops[first]) {
            Some(first) if first.version == op.version => {
                if first.fingerprint != op.fingerprint {
                    let names = Names(self.history);
                    self.findings.add(AnomalyKind::ValueMismatch, || Anomaly::ValueMismatch {
                        record: names.record(op.record),
                        version: op.version,
                        first: names.txn(first.txn),
                        first_wrote: first.is_write(),
                        first_fingerprint: first.fingerprint,
                        second: names.txn(op.txn),
                        second_fingerprint: op.fingerprint,
                    });
                }
            }
            _ => place.value = Some(at),
        }
    }

    /// Reports a read at or after a version that the read's own transaction wrote. Reads show the
    /// record as it was before their transaction wrote, so such a read is impossible.
    fn report_own(&mut self, at: usize, write: u32) {
        let names = Names(self.history);
        let (op, own) = (&self.ops[at], &self.ops[write as usize]);
        self.findings.add(AnomalyKind::OwnWriteRead, || Anomaly::OwnWriteRead {
            txn: names.txn(op.txn),
            record: names.record(op.record),
            seen: seen(op),
            written: own.version,
        });
    }

    fn report_unwritten(&mut self, op: &Op, aborted: Option<&Op>, initial: Option<&Op>) {
        let names = Names(self.history);
        match aborted {
            Some(writer) => {
                self.findings.add(AnomalyKind::AbortedRead, || aborted_read(names, op, writer))
            }
            None => {
                self.findings.add(AnomalyKind::UnwrittenVersion, || Anomaly::UnwrittenVersion {
                    reader: names.txn(op.txn),
                    record: names.record(op.record),
                    version: op.version,
                    other_initial: initial.map(|other| (other.version, names.txn(other.txn))),
                })
            }
        }
    }

    fn report_absent(&mut self, op: &Op, there: Option<&Op>, aborted: Option<&Op>) {
        let names = Names(self.history);
        match aborted {
            Some(writer) => {
                self.findings.add(AnomalyKind::AbortedRead, || aborted_read(names, op, writer))
            }
            None => self.findings.add(AnomalyKind::AbsentReadOfPresent, || {
                Anomaly::AbsentReadOfPresent {
                    reader: names.txn(op.txn),
                    record: names.record(op.record),
                    floor: op.version,
                    present: there.map(|write| (write.version, names.txn(write.txn))),
                }
            }),
        }
    }
}

fn aborted_read(names: Names<'_>, op: &Op, writer: &Op) -> Anomaly {
    Anomaly::AbortedRead {
        reader: names.txn(op.txn),
        writer: names.txn(writer.txn),
        record: names.record(op.record),
        seen: seen(op),
        written: writer.version,
    }
}

/// Returns the place of a read, for a report.
pub(crate) fn seen(op: &Op) -> Seen {
    if op.role == Role::Absent { Seen::Absent(op.version) } else { Seen::Present(op.version) }
}
