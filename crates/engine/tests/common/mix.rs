//! Random transactions over few records, which meet each other in every way there is.
//!
//! Invariant: a transaction is planned before it runs, so that every try of it asks for the same.

#![allow(dead_code, reason = "each test file uses its part")]

use super::{A, Shape, apart, double, half, narrow};
use rand::RngExt as _;
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::Failure;
use tarn_engine::schema::{Cells, ColumnId, TableId};
use tarn_engine::transaction::Transaction;
use tarn_engine::working_set::{Handle, Mode};
use tarn_fabric::rng::Rng;

/// What transactions are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// The first of its tables.
    pub first: u16,
    /// Tables from there on.
    pub tables: u16,
    /// Keys of each.
    pub keys: u64,
    /// Most wishes of one transaction.
    pub wishes: usize,
    /// Chances of read, update, insert, delete.
    pub modes: [u32; 4],
    /// One transaction in so many only reads.
    pub read_only_in: u32,
    /// One transaction in so many gives up; 0: none.
    pub user_abort_in: u32,
}

/// Everything, on few records.
pub const ANYTHING: Mix = Mix {
    first: 0,
    tables: 4,
    keys: 5,
    wishes: 4,
    modes: [3, 3, 2, 1],
    read_only_in: 4,
    user_abort_in: 40,
};

/// Records come and go.
pub const COMING_AND_GOING: Mix = Mix {
    first: 0,
    tables: 2,
    keys: 8,
    wishes: 3,
    modes: [3, 0, 3, 2],
    read_only_in: 3,
    user_abort_in: 0,
};

/// Read some, write one: write skew.
pub const SKEW: Mix = Mix {
    first: 0,
    tables: 1,
    keys: 4,
    wishes: 3,
    modes: [4, 3, 1, 0],
    read_only_in: 3,
    user_abort_in: 0,
};

/// More keys than their buckets have room for: chains, and splits.
pub const CROWDED: Mix = Mix {
    first: 0,
    tables: 1,
    keys: 90,
    wishes: 5,
    modes: [2, 1, 8, 2],
    read_only_in: 5,
    user_abort_in: 30,
};

/// Little but writes of the same records.
pub const OVERWRITING: Mix = Mix {
    first: 0,
    tables: 2,
    keys: 3,
    wishes: 3,
    modes: [0, 4, 1, 0],
    read_only_in: 50,
    user_abort_in: 0,
};

/// Everything, on records that share their lines with others.
pub const HALVES: Mix = Mix {
    first: 3,
    tables: 1,
    keys: 6,
    wishes: 4,
    modes: [3, 3, 2, 2],
    read_only_in: 4,
    user_abort_in: 40,
};

/// More of those than their buckets have room for.
pub const CROWDED_HALVES: Mix = Mix {
    first: 3,
    tables: 1,
    keys: 90,
    wishes: 5,
    modes: [2, 1, 8, 2],
    read_only_in: 5,
    user_abort_in: 30,
};

const MODES: [Mode; 4] = [Mode::Read, Mode::Update, Mode::Insert, Mode::Delete];

/// Four tables, one of each layout, in four buckets each.
pub fn shape(memory_nodes: usize, replicas: usize, variant: &str) -> Shape {
    let schemas = [narrow("narrow", 1), double("double", 1), apart("apart", 1), half("half", 1)];
    let mut shape = Shape::of(&schemas).nodes(memory_nodes, replicas).variant(variant);
    shape.options.coordinators_max = 16;
    shape.options.log_bytes = 8 << 10;
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 512 << 10);
    shape
}

/// One wish for one record.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub table: TableId,
    pub key: u64,
    pub mode: Mode,
    /// Whether the rows asked for so far are fetched before the next wish.
    pub fetch: bool,
}

/// A transaction before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub wishes: Vec<Wish>,
    pub gives_up: bool,
}

impl Mix {
    /// Draws a transaction.
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
                continue; // needs a fetch between, or is not offered for rows away from their slot
            }
            let fetch = rng.random_range(0..2) == 0;
            wishes.push(Wish { table, key, mode, fetch });
            if fetch {
                unfetched = wishes.len();
            }
        }
        Plan { wishes, gives_up }
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
    /// Runs it once; every row that it writes says `value` in all its columns.
    pub async fn run(&self, tx: &mut Transaction<'_>, value: u64) -> Result<(), Failure> {
        let mut asked: Vec<(Wish, Handle)> = Vec::new();
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
        if matches!(wish.mode, Mode::Read | Mode::Delete) {
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

/// Runs `count` transactions of a mix, one after the other; ends early at a failure that is no
/// abort.
pub async fn run(by: &mut Coordinator, mix: Mix, count: u64) -> Result<(), Failure> {
    for number in 0..count {
        let plan = mix.plan(by.rng());
        let value = by.rng().random::<u64>() ^ number;
        let result = by.transact(async |tx| plan.run(tx, value).await).await;
        if let Err(failure) = result
            && failure != Failure::user_abort()
        {
            return Err(failure);
        }
    }
    Ok(())
}
