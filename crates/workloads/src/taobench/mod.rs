//! TAOBench: a social graph of objects and edges. Transactions read the graph far more often than
//! they write it.
//!
//! Cheng, Shi, Kabcenell, Lawande, Qadeer, Chan, Tin, Zhao, Bailis, Balakrishnan, Bronson, Crooks,
//! Stoica, "TAOBench: an end-to-end benchmark for social network workloads", VLDB 2022. The shares of
//! operations, sizes of transactions and types of edges are taken from TAOBench's public workload
//! files. The authors counted them in production.
//!
//! All profiles differ from the public code in the following points. Ids are integers and an edge's
//! key is a word. A timestamp counts its row's writes, and the row's value is computed from the
//! timestamp. So a check notices lost updates and torn reads. We write an edge of a type that goes
//! both ways together with its reverse edge. The public code writes one edge and leaves the reverse
//! edge to the database. The public code draws a shard by its weight and then one of the shard's
//! edges. The number of edges loaded into each shard is proportional to its weight. So drawing an
//! edge uniformly, as we do, gives the same distribution. The option `zipf` replaces the uniform
//! distribution by a skewed one. Neither the public code nor our code reads rows that transactions
//! have added.
//!
//! Invariant checked: rows are whole, and their number is the number of loaded and added rows. The
//! rows' timestamps add up to the number of committed updates. Each edge agrees with its reverse
//! edge. Reads were whole.

mod check;
mod graph;
mod operation;
mod profiles;
mod reads;
mod sizes;
mod writes;

use crate::distribution::Keys;
use crate::untold::{Slack, Untold};
use crate::workload::{Invariant, Profile, Settings, Workload, procedure, profiles_of};
use graph::{EDGES, Edge, IDS_MAX, OBJECTS, TIMESTAMP, VALUE, edge_rows, value};
use operation::{Source, What};
pub use operation::{Input, Kind};
use profiles::{VARIANTS, Variant};
pub use sizes::OPERATIONS_MAX;
use sizes::WRITES_MAX;
use tarn_engine::site::Context;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::admin::load::Loader;
use tarn_store::ids::{Failure, Mode, UsageError};
use tarn_store::schema::procedure::Procedure;
use tarn_store::schema::{Cells, TableId, TableSchema};
use tarn_fabric::rng::Rng;

/// The benchmark TAOBench with the user's choices.
pub struct TaoBench {
    source: Source,
    zipf: f64,
}

/// The numbers of written rows, for objects and for edges. A reverse edge counts as a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// The numbers of rows added.
    pub added: [u64; 2],
    /// The numbers of updates of rows.
    pub updated: [u64; 2],
}

/// The counts of a coordinator's committed transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The numbers of rows that the transactions wrote.
    pub written: Written,
    /// The number of rows that a transaction read and that were torn or missing.
    pub torn: u64,
    /// The numbers of rows that uncounted transactions may have added.
    pub untold_added: [Slack; 2],
    /// The numbers of updates that uncounted transactions may have made.
    pub untold_updated: [Slack; 2],
}

impl Written {
    #[inline]
    fn count(&mut self, is_edge: bool, is_new: bool) {
        let counts = if is_new { &mut self.added } else { &mut self.updated };
        counts[usize::from(is_edge)] += 1;
    }

    fn add(&mut self, other: &Written) {
        for table in 0..2 {
            self.added[table] += other.added[table];
            self.updated[table] += other.updated[table];
        }
    }
}

impl Workload for TaoBench {
    const NAME: &'static str = "taobench";
    const PROFILES: &'static [Profile] = profiles_of!(VARIANTS);
    const TRANSACTIONS: &'static [&'static str] = &[
        "read_object",
        "read_edge",
        "write_object",
        "write_edge",
        "read_transaction",
        "write_transaction",
    ];
    type Input = Input;
    type Tally = Tally;

    fn new(settings: &Settings) -> Result<TaoBench, UsageError> {
        let variant: &Variant = crate::workload::choose(VARIANTS, |v| v.profile.name, settings)?;
        let zipf = settings.zipf.unwrap_or(0.0);
        let edges = Keys::new(settings.records.unwrap_or(variant.edges), zipf)?;
        // Half of all ids are reserved for rows that transactions add.
        let most = IDS_MAX / 4;
        if edges.records() > most {
            let (field, value) = ("records".into(), edges.records().to_string());
            return Err(UsageError { field, value, allowed: format!("1 to {most} edges") });
        }
        Ok(TaoBench { source: Source { edges, variant }, zipf })
    }

    fn profile(&self) -> Profile {
        self.source.variant.profile
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let Source { edges, variant } = &self.source;
        vec![
            ("objects", (2 * edges.records()).to_string()),
            ("edges", edges.records().to_string()),
            ("edge_rows", edge_rows(edges.records()).to_string()),
            ("zipf", self.zipf.to_string()),
            ("operations", variant.operations.map(|weight| weight.to_string()).join("/")),
        ]
    }

    fn schemas(&self) -> Vec<TableSchema> {
        graph::schemas(self.source.edges.records())
    }

    fn procedures(&self) -> Vec<Procedure> {
        let (read, update, all) = (Mode::Read, Mode::Update, Cells::ALL);
        let written = |table| [(table, update, all), (table, Mode::Insert, all)];
        let [updated, added] = written(OBJECTS);
        let [linked, joined] = written(EDGES);
        vec![
            procedure("read_object", &[(OBJECTS, read, all)]),
            procedure("read_edge", &[(EDGES, read, all)]),
            procedure("write_object", &[updated, added]),
            procedure("write_edge", &[linked, joined]),
            procedure("read_transaction", &[(EDGES, read, all), (OBJECTS, read, all)]),
            procedure("write_transaction", &[linked, joined, updated, added]),
        ]
    }

    /// Each operation of the longest transaction may write two rows. The image of a row with its
    /// header takes less than 320 bytes.
    fn log_bytes(&self) -> u64 {
        (2 * WRITES_MAX as u64 * 320).next_multiple_of(4096)
    }

    fn lines_per_transaction(&self) -> usize {
        // One read takes two lines of a bin, three lines of the row, and the row's head once more. A
        // transaction of several reads has 19 reads on average.
        let [reads, writes, ..] = self.source.variant.operations;
        if reads + writes == 0 { 6 * 19 } else { 6 }
    }

    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let value = value(0);
        let mut insert = async |table: TableId, key: u64| {
            let filled = loader.insert(table, key, |row| {
                row.set(TIMESTAMP, 0u64);
                row.set(VALUE, &value);
            });
            filled.await
        };
        for from in (0..2 * self.source.edges.records()).step_by(2) {
            insert(OBJECTS, from).await?;
            insert(OBJECTS, from + 1).await?;
            let edge = Edge::from(from);
            insert(EDGES, edge.key()).await?;
            if let Some(reverse) = edge.reverse() {
                insert(EDGES, reverse).await?;
            }
        }
        Ok(())
    }

    fn records(&self) -> u64 {
        let edges = self.source.edges.records();
        2 * edges + edge_rows(edges)
    }

    #[inline]
    fn draw(&self, rng: &mut Rng) -> Input {
        self.source.draw(rng)
    }

    #[inline]
    fn kind(input: &Input) -> usize {
        input.kind() as usize
    }

    #[inline]
    fn first_key(input: &Input) -> Option<u64> {
        input.first_key()
    }

    #[inline]
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Input,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        if input.writes() {
            writes::run(self, coordinator, input, tally).await
        } else {
            reads::run(self, coordinator, input, tally).await
        }
    }

    fn untold(&self, input: &Input, ended: Untold, tally: &mut Tally) {
        let (mut surely, mut perhaps) = (Written::default(), Written::default());
        for operation in self.source.operations(input).filter(|it| it.what != What::Read) {
            let rows = 1 + usize::from(operation.keys().1.is_some());
            for _ in 0..rows {
                let is_new = operation.what == What::Add;
                perhaps.count(operation.table == EDGES, is_new);
                // A transaction does not add a row that already exists.
                if !is_new {
                    surely.count(operation.table == EDGES, is_new);
                }
            }
        }
        for table in 0..2 {
            let range = |from: u64, to: u64| (from as i64, to as i64);
            let (from, to) = range(surely.added[table], perhaps.added[table]);
            tally.untold_added[table].note(ended, from, to);
            let (from, to) = range(surely.updated[table], perhaps.updated[table]);
            tally.untold_updated[table].note(ended, from, to);
        }
    }

    fn merge(into: &mut Tally, other: Tally) {
        into.written.add(&other.written);
        into.torn += other.torn;
        for table in 0..2 {
            into.untold_added[table].add(other.untold_added[table]);
            into.untold_updated[table].add(other.untold_updated[table]);
        }
    }

    fn outcomes(&self, tally: &Tally) -> Vec<(&'static str, String)> {
        let Written { added, updated } = tally.written;
        let told = |of: [u64; 2]| format!("{} objects, {} edges with reverse edges", of[0], of[1]);
        vec![("added", told(added)), ("updated", told(updated))]
    }

    async fn check(&self, cx: &Context, tally: &Tally) -> Result<Vec<Invariant>, Failure> {
        check::check(self, cx, tally).await
    }
}
