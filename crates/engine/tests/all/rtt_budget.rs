//! The RTT budgets: the tables of round trips at the head of each `protocol/*/mod.rs`, which these tests check by
//! counting.
//!
//! Invariant checked: every line of a system's table belongs to a row of these tests, and the rounds of a row's lines
//! add up to the counted rounds. A row defines the transaction, the rounds until the reply, the detached rounds
//! (posted before the reply and not awaited), and the verbs of both kinds of rounds. One coroutine runs at a time.
//! Threads of these tests do not access memory by loads and stores. Such accesses would need no rounds, and one more
//! read for a record outside of its bucket.

mod bench;
mod drtm;
mod dslr;
mod ford;
mod growth;
mod lotus;
mod motor;
mod occ;
mod oocc;
mod ordered;
mod serviced;
mod table;
mod two_phase;

use crate::common::budget::{Cost, cost};
use bench::{Bench, Scene};
use std::fmt::Debug;
use table::Table;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::AbortReason;
use tarn_store::schema::{Cells, TableId};

const NARROW: TableId = TableId(0);
const DOUBLE: TableId = TableId(1);
/// The table that a scene adds to its two standard tables.
const ADDED: TableId = TableId(2);
const COPIES: [usize; 2] = [1, 3];
/// A value for a count that the row does not assert.
const ANY: u64 = u64::MAX;
/// The empty list of lines, for a row that no system's table has.
const VARIANT: [&str; 0] = [];

/// The coordinator that runs a row.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A coordinator without an address cache, which has filled the tables.
    Cold,
    /// A coordinator that caches addresses.
    Warm,
    /// A coordinator that has no address cache and has not filled the tables.
    Other,
}

/// A part of a transaction.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// Reads existing records, in one fetch.
    Read(TableId, &'a [u64]),
    /// Reads these cells of record 1.
    Part(TableId, Cells),
    /// Requests existing records. A later step fetches them.
    Ask(&'a [u64]),
    /// Reads absent records, in one fetch.
    Absent(&'a [u64]),
    /// Reads a record, and expects this value in its column A.
    Sees(u64, u64),
    /// Adds one to column A of each record, and requests all cells.
    Add(TableId, &'a [u64]),
    /// Adds one to column A of each record, and requests only column A.
    AddPart(TableId, &'a [u64]),
    /// Requests records for update and does not change them.
    Lock(&'a [u64]),
    /// Inserts a record. The flag tells whether the record must be new.
    Insert(TableId, u64, bool),
    /// Deletes a record. The flag tells whether the record must exist.
    Delete(TableId, u64, bool),
    /// Reads every second key in a range along the index.
    Scan(u64, u64),
    Fetch,
    FetchValidated,
    /// Another coordinator commits an update between two steps of the row's transaction.
    OtherAdds(TableId, &'a [u64]),
    Abort,
}

/// One transaction and its expected cost.
#[derive(Debug)]
struct Row<'a> {
    /// The lines of the system's table whose numbers add up to this transaction's cost. A variant has no lines.
    lines: Vec<&'static str>,
    by: By,
    declared: bool,
    steps: Vec<Step<'a>>,
    /// The record whose lock another coordinator holds while the row runs.
    held: Option<u64>,
    /// How long the test waits before the row begins.
    pause: Nanos,
    /// The expected cost. `None`: the test runs the row and does not measure it.
    cost: Option<Cost>,
    bytes: Option<u64>,
    /// The phases that the transaction must enter, each with the number of times.
    phases: Vec<(&'static str, u64)>,
    /// The reason for which the transaction must abort.
    aborts: Option<AbortReason>,
    /// The transaction must take longer than this time, because it must wait.
    waits: Nanos,
}

/// Creates a row that the test measures.
fn row<'a>(
    lines: impl Into<Vec<&'static str>>,
    by: By,
    steps: impl Into<Vec<Step<'a>>>,
    cost: Cost,
) -> Row<'a> {
    Row { lines: lines.into(), cost: Some(cost), ..unmeasured(by, steps) }
}

/// Creates a row that the test runs without a measurement, to prepare the next row.
fn unmeasured<'a>(by: By, steps: impl Into<Vec<Step<'a>>>) -> Row<'a> {
    Row {
        lines: Vec::new(),
        by,
        declared: false,
        steps: steps.into(),
        held: None,
        pause: Nanos(0),
        cost: None,
        bytes: None,
        phases: Vec::new(),
        aborts: None,
        waits: Nanos(0),
    }
}

impl Row<'_> {
    /// Adds one more line of the system's table to the row if there is only one copy.
    fn if_alone(mut self, copies: usize, line: &'static str) -> Self {
        self.lines.extend((copies == 1).then_some(line));
        self
    }

    /// Declares the row's transaction read-only.
    fn declared(self) -> Self {
        Row { declared: true, ..self }
    }

    fn holding(self, key: u64) -> Self {
        Row { held: Some(key), ..self }
    }

    fn after(self, pause: Nanos) -> Self {
        Row { pause, ..self }
    }

    fn bytes(self, bytes: u64) -> Self {
        Row { bytes: Some(bytes), ..self }
    }

    fn phase(mut self, name: &'static str, count: u64) -> Self {
        self.phases.push((name, count));
        self
    }

    fn aborts(self, reason: AbortReason) -> Self {
        Row { aborts: Some(reason), ..self }
    }

    fn waits(self, time: Nanos) -> Self {
        Row { waits: time, ..self }
    }
}

/// A system's table of round trips, and the rows whose measured cost differs from it.
struct Budget {
    table: Table,
    wrong: Vec<String>,
}

impl Budget {
    /// Reads the table of round trips in the source of a system.
    fn of(source: &str) -> Budget {
        Budget { table: Table::of(source), wrong: Vec::new() }
    }

    /// Runs rows one after another in a new cluster.
    fn run(&mut self, scene: &Scene, rows: Vec<Row<'_>>) {
        self.run_in(&mut Bench::new(scene), rows);
    }

    fn run_in(&mut self, bench: &mut Bench, rows: Vec<Row<'_>>) {
        for row in rows {
            let at = format!("{}: {row:?}", bench.name);
            let measured = bench.run(&row);
            self.table.note(&row, &mut self.wrong);
            let mut differ = |what: &str, is: &dyn Debug, should: &dyn Debug| {
                self.wrong.push(format!("{at}\n    {what}: {is:?}, and should be {should:?}"));
            };
            if row.cost.is_some_and(|expected| !equal(&measured.cost, &expected)) {
                differ("cost", &measured.cost, &row.cost);
            }
            if row.bytes.is_some_and(|bytes| bytes != measured.bytes) {
                differ("bytes", &measured.bytes, &row.bytes);
            }
            if measured.phases != row.phases {
                differ("phases", &measured.phases, &row.phases);
            }
            if measured.aborts != row.aborts {
                differ("abort", &measured.aborts, &row.aborts);
            }
            if measured.took < row.waits {
                differ("time", &measured.took, &row.waits);
            }
        }
        bench.world.assert_clean();
    }

    /// Marks lines of the table that no row counts, but a separate test.
    fn covers(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.table.cover(line));
    }

    /// Fails if the cost of a row differed or if a line of the table belongs to no row.
    #[track_caller]
    fn end(mut self) {
        self.wrong.extend(self.table.left());
        assert!(self.wrong.is_empty(), "\n{}", self.wrong.join("\n"));
    }
}

fn equal(is: &Cost, should: &Cost) -> bool {
    let counts = |cost: &Cost| {
        let Cost { rounds, detached, reads, writes, cas, faa, messages } = *cost;
        [rounds, detached, reads, writes, cas, faa, messages]
    };
    counts(is).iter().zip(counts(should)).all(|(is, should)| should == ANY || *is == should)
}
