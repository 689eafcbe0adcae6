//! Random transactions on few records, which conflict with each other in all possible ways.
//!
//! Invariant: a test draws the plan of a transaction before the transaction runs, so all its tries make the same
//! accesses.

use super::{A, Shape, apart, double, half, narrow};
use rand::RngExt as _;
use std::rc::Rc;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{IndexKey, Scan, ScanEntry, Transaction};
use tarn_engine::site::Context;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::rng::Rng;
use tarn_store::ids::{Failure, Mode};
use tarn_store::schema::{Cells, ColumnId, IndexId, IndexPart, Key, TableId};

/// A distribution of transactions. Tests draw random transactions from it.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// The number of the first table.
    pub first: u16,
    /// The number of tables, from the first table on.
    pub tables: u16,
    /// The number of keys in each table.
    pub keys: u64,
    /// The largest number of accesses of one transaction.
    pub wishes: usize,
    /// The weights of the operations read, update, insert and delete.
    pub modes: [u32; 4],
    /// One of `read_only_in` transactions only reads, on average.
    pub read_only_in: u32,
    /// One of `user_abort_in` transactions aborts itself, on average. 0: no transaction aborts itself.
    pub user_abort_in: u32,
    /// One of `scans_in` transactions scans an ordered index, on average. 0: no transaction scans.
    pub scans_in: u32,
}

/// The mix with all kinds of accesses, on few records.
pub const ANYTHING: Mix = Mix {
    first: 0,
    tables: 4,
    keys: 5,
    wishes: 4,
    modes: [3, 3, 2, 1],
    read_only_in: 4,
    user_abort_in: 40,
    scans_in: 0,
};

/// The mix `ANYTHING` on records that share their cache lines with other records.
pub const HALVES: Mix = Mix { first: 3, tables: 1, keys: 6, modes: [3, 3, 2, 2], ..ANYTHING };

/// A mix that accesses only the first table, and in which no transaction aborts itself.
const ONE_TABLE: Mix = Mix { tables: 1, wishes: 3, read_only_in: 3, user_abort_in: 0, ..ANYTHING };

/// The mix in which records are inserted and deleted often.
pub const COMING_AND_GOING: Mix = Mix { tables: 2, keys: 8, modes: [3, 0, 3, 2], ..ONE_TABLE };

/// The mix for write skew: transactions read some records and write one of them.
pub const SKEW: Mix = Mix { keys: 4, modes: [4, 3, 1, 0], ..ONE_TABLE };

/// The mix with almost only writes of the same records.
pub const OVERWRITING: Mix =
    Mix { tables: 2, keys: 3, modes: [0, 4, 1, 0], read_only_in: 50, ..ONE_TABLE };

/// The mix for phantoms: every transaction reads a range of a table with ordered indexes, and few records.
pub const PHANTOMS: Mix =
    Mix { keys: 24, wishes: 2, modes: [1, 1, 6, 3], scans_in: 1, ..ONE_TABLE };

/// The mix with more keys than their buckets have slots, so that chains and splits arise.
pub const CROWDED: Mix = Mix {
    keys: 90,
    wishes: 5,
    modes: [2, 1, 8, 2],
    read_only_in: 5,
    user_abort_in: 30,
    ..ONE_TABLE
};

/// The mix `CROWDED` on records that share their cache lines with other records.
pub const CROWDED_HALVES: Mix = Mix { first: 3, ..CROWDED };

/// The mix on a table with ordered indexes, which reads and deletes ranges of records.
pub const RANGES: Mix =
    Mix { keys: 160, wishes: 8, modes: [1, 1, 7, 1], read_only_in: 6, scans_in: 2, ..CROWDED };

const MODES: [Mode; 4] = [Mode::Read, Mode::Update, Mode::Insert, Mode::Delete];

/// The shape with four tables, one of each layout, with four buckets each.
pub fn shape(memory_nodes: usize, replicas: usize, variant: &str) -> Shape {
    let schemas = [narrow("narrow", 1), double("double", 1), apart("apart", 1), half("half", 1)];
    let mut shape = Shape::of(&schemas).nodes(memory_nodes, replicas).variant(variant);
    shape.options.coordinators_max = 16;
    shape.options.log_bytes = 8 << 10;
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 512 << 10);
    shape
}

/// The shape with one table that has two ordered indexes: one by key, in wide nodes of few slots, and one by column
/// A.
pub fn ordered_shape(memory_nodes: usize, replicas: usize, variant: &str) -> Shape {
    let schema = narrow("ordered", 1).index("by_key", &[IndexPart::Key; 7], true).index(
        "by_a",
        &[IndexPart::Column(A)],
        false,
    );
    let mut shape = Shape::of(&[schema]).nodes(memory_nodes, replicas).variant(variant);
    shape.options.coordinators_max = 16;
    // LOTUS logs whole index nodes, so its log areas must be large.
    shape.options.log_bytes = 64 << 10;
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (8192, 1 << 20);
    shape
}

/// A range that a transaction reads, and perhaps deletes.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub index: IndexId,
    pub scan: Scan,
    pub deletes: bool,
}

impl Range {
    fn draw(keys: u64, read_only: bool, rng: &mut Rng) -> Range {
        let (index, from) = (IndexId(rng.random_range(0..2)), rng.random_range(0..keys));
        let by_key = index == IndexId(0);
        // The values of column A are spread over all words, so the range is a fraction of all possible values.
        let part = |at: u64| if by_key { at } else { at.saturating_mul(u64::MAX / keys) };
        let to = from + rng.random_range(0..keys / 3);
        let key = |at| IndexKey::new().u64(part(at));
        let mut scan = Scan::range(key(from), key(to)).limit(rng.random_range(1..60));
        if rng.random_range(0..2) == 0 {
            scan = scan.backward();
        }
        Range { index, scan, deletes: !read_only && rng.random_range(0..3) == 0 }
    }

    async fn run(&self, tx: &mut Transaction<'_>) -> Result<(), Failure> {
        let handle = tx.scan(self.index, self.scan);
        tx.fetch().await?;
        if !self.deletes {
            return Ok(());
        }
        let word = |entry: ScanEntry<'_>| match entry.record {
            Key::Word(word) => word,
            Key::Bytes(_) => panic!("keys are words"),
        };
        let found: Vec<u64> = tx.scanned(handle).map(word).collect();
        for key in found {
            tx.delete(TableId(0), key);
        }
        tx.fetch().await
    }
}

/// One access of a transaction to one record.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub table: TableId,
    pub key: u64,
    pub mode: Mode,
    /// Whether the transaction fetches the rows requested so far before its next access.
    pub fetch: bool,
}

/// The plan of a transaction, drawn before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub range: Option<Range>,
    pub wishes: Vec<Wish>,
    pub gives_up: bool,
}

impl Mix {
    /// Draws the plan of a transaction.
    pub fn plan(&self, rng: &mut Rng) -> Plan {
        let read_only = rng.random_range(0..self.read_only_in) == 0;
        let gives_up = self.user_abort_in > 0 && rng.random_range(0..self.user_abort_in) == 0;
        let mut wishes: Vec<Wish> = Vec::new();
        let mut unfetched = 0;
        for _ in 0..rng.random_range(1..=self.wishes) {
            let mode = if read_only { Mode::Read } else { self.mode(rng) };
            let table = TableId(self.first + rng.random_range(0..self.tables));
            let key = rng.random_range(0..self.keys);
            let same = |wish: &Wish| wish.table == table && wish.key == key;
            let asked_already = wishes[unfetched..].iter().any(same);
            let deleted = wishes.iter().any(|wish| same(wish) && wish.mode == Mode::Delete);
            if asked_already || (deleted && mode == Mode::Insert) {
                continue; // this access needs a fetch before it, or is not offered for rows stored apart
            }
            let fetch = rng.random_range(0..2) == 0;
            wishes.push(Wish { table, key, mode, fetch });
            if fetch {
                unfetched = wishes.len();
            }
        }
        let ranged = self.scans_in > 0 && rng.random_range(0..self.scans_in) == 0;
        let range = ranged.then(|| Range::draw(self.keys, read_only, rng));
        Plan { range, wishes, gives_up }
    }

    fn mode(&self, rng: &mut Rng) -> Mode {
        let mut draw = rng.random_range(0..self.modes.iter().sum());
        for (mode, &chance) in MODES.into_iter().zip(&self.modes) {
            if draw < chance {
                return mode;
            }
            draw -= chance;
        }
        unreachable!("the draw is below the sum")
    }
}

impl Plan {
    /// Runs the transaction once. The transaction writes `value` to all columns of every row that it changes.
    pub async fn run(&self, tx: &mut Transaction<'_>, value: u64) -> Result<(), Failure> {
        let mut asked: Vec<(Wish, Handle)> = Vec::new();
        if let Some(range) = self.range {
            range.run(tx).await?;
        }
        for wish in &self.wishes {
            let handle = match wish.mode {
                Mode::Read => tx.read(wish.table, wish.key, Cells::ALL),
                Mode::Update => tx.update(wish.table, wish.key, Cells::ALL),
                Mode::Insert => tx.insert(wish.table, wish.key),
                Mode::Delete => tx.delete(wish.table, wish.key),
            };
            asked.push((*wish, handle));
            if wish.fetch {
                tx.fetch().await?;
                write(tx, &mut asked, value);
            }
        }
        tx.fetch().await?;
        write(tx, &mut asked, value);
        if self.gives_up { tx.abort() } else { Ok(()) }
    }
}

fn write(tx: &mut Transaction<'_>, asked: &mut Vec<(Wish, Handle)>, value: u64) {
    for (wish, row) in asked.drain(..) {
        let is_there = tx.existed(row);
        let changes = match wish.mode {
            Mode::Read | Mode::Delete => false,
            Mode::Update => is_there,
            Mode::Insert => !is_there,
        };
        if !changes || tx.get(row).is_none() {
            continue;
        }
        tx.set(row, A, value);
        let text = [value as u8; 248];
        match wish.table.0 {
            0 => tx.set(row, ColumnId(1), value),
            1 => tx.set(row, ColumnId(1), &text[..80]),
            2 => {
                tx.set(row, ColumnId(1), &text);
                tx.set(row, ColumnId(2), value);
            }
            _ => {}
        }
    }
}

/// Creates a coordinator whose transactions depend on the seed.
pub fn coordinator(cx: &Rc<Context>, number: u32, retry: Retry, seed: u64) -> Coordinator {
    let mut by = Coordinator::new(Rc::clone(cx), number, retry);
    (0..seed).for_each(|_| _ = by.rng().random::<u64>());
    by
}

/// Runs `count` transactions of a mix, one after another. Returns early at a failure that is not an abort.
pub async fn run(by: &mut Coordinator, mix: Mix, count: u64) -> Result<(), Failure> {
    for number in 0..count {
        let plan = mix.plan(by.rng());
        let value = by.rng().random::<u64>() ^ number;
        // Half of the transactions that only read are declared as read-only. A few transactions that write are also
        // declared as read-only, which is wrong. The coordinator runs those transactions again.
        let reads = plan.range.is_none() && plan.wishes.iter().all(|it| it.mode == Mode::Read);
        let body = async |tx: &mut Transaction<'_>| plan.run(tx, value).await;
        let result = match (reads && value % 2 == 0) || value % 32 == 1 {
            true => by.transact_read_only(body).await,
            false => by.transact(body).await,
        };
        if let Err(failure) = result
            && failure != Failure::user_abort()
        {
            return Err(failure);
        }
    }
    Ok(())
}
