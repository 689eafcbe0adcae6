//! A workload of everything that a transaction can ask for, over few records of every layout.
//!
//! Invariant: a transaction is planned before it runs, so that every try of it asks for the same. Each
//! row that a try writes says one number, that try's own, in every word of its payload: a row that says two is torn, while
//! it is read and when all is over.

use super::drawn::layouts;
use rand::RngExt as _;
use std::cell::Cell;
use tarn_engine::context::Context;
use tarn_engine::coordinator::Coordinator;
use tarn_engine::inspect::scan;
use tarn_engine::load::Loader;
use tarn_engine::outcome::{Failure, UsageError};
use tarn_engine::procedure::Procedure;
use tarn_engine::row::Row;
use tarn_engine::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};
use tarn_engine::transaction::Transaction;
use tarn_engine::working_set::{Handle, Mode};
use tarn_fabric::rng::{Rng, mix};
use tarn_workloads::distribution::Keys;
use tarn_workloads::{Invariant, Profile, Settings, Workload};

/// Its name.
pub const NAME: &str = "mixture";
const A: ColumnId = ColumnId(0);
const MODES: [Mode; 4] = [Mode::Read, Mode::Update, Mode::Insert, Mode::Delete];

/// How a table's records lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// 16 bytes: a slot of one line.
    Narrow,
    /// 88 bytes: a slot of two lines.
    Double,
    /// 264 bytes, away from the slot.
    Apart,
    /// 8 bytes: two slots share a line.
    Half,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Layout; 4] = [Layout::Narrow, Layout::Double, Layout::Apart, Layout::Half];

    /// Its name, and its table's.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Narrow => "narrow",
            Layout::Double => "double",
            Layout::Apart => "apart",
            Layout::Half => "half",
        }
    }

    /// The table, laid out for one record: four buckets, which overflow and grow.
    pub(crate) fn schema(self) -> TableSchema {
        let table = TableSchema::new(self.name(), 1).column("a", ColumnType::U64);
        match self {
            Layout::Narrow => table.column("b", ColumnType::U64),
            Layout::Double => table.column("b", ColumnType::Bytes(80)),
            Layout::Apart => table.column("b", ColumnType::Bytes(248)).column("c", ColumnType::U64),
            Layout::Half => table,
        }
    }
}

/// What transactions are drawn from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    /// What it is good for.
    pub name: &'static str,
    /// Its tables.
    pub layouts: Vec<Layout>,
    /// Keys of each.
    pub keys: u64,
    /// Most wishes of one transaction.
    wishes: usize,
    /// Chances of read, update, insert, delete.
    modes: [u32; 4],
    /// One transaction in so many only reads.
    read_only_in: u32,
    /// One transaction in so many gives up; 0: none.
    user_abort_in: u32,
    /// One read in so many asks for one cell only; 0: none, so that a history has every value.
    partly_in: u32,
}

impl Mix {
    fn of(name: &'static str, keys: u64, wishes: usize, modes: [u32; 4]) -> Mix {
        let (read_only_in, user_abort_in, partly_in) = (4, 40, 4);
        let layouts = Vec::new();
        Mix { name, layouts, keys, wishes, modes, read_only_in, user_abort_in, partly_in }
    }

    /// Whether the values of a history tell its records' versions apart: every read is of a whole row,
    /// and nothing is deleted, since two absences look alike.
    pub fn tells_by_value(&self) -> bool {
        self.partly_in == 0 && self.modes[3] == 0
    }

    /// One for a seed.
    pub fn draw(rng: &mut Rng) -> Mix {
        let mut mix = match rng.random_range(0..6) {
            0 | 1 => Mix::of("anything", rng.random_range(2..=6), 4, [3, 3, 2, 1]),
            // As many deletes as inserts, so that about half of the keys are absent.
            2 => Mix::of("coming and going", rng.random_range(2..=5), 3, [4, 0, 3, 3]),
            3 => Mix::of("write skew", rng.random_range(2..=4), 3, [4, 3, 0, 0]),
            4 => Mix::of("crowded", rng.random_range(20..=90), 5, [2, 1, 8, 2]),
            _ => Mix::of("overwriting", rng.random_range(1..=4), 3, [0, 4, 1, 0]),
        };
        mix.layouts = layouts(rng);
        mix.partly_in = [0, 4][rng.random_range(0..2)];
        if ["coming and going", "write skew", "overwriting"].contains(&mix.name) {
            mix.user_abort_in = 0;
            mix.layouts.truncate(2);
        }
        mix
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

/// One wish for one record.
#[derive(Clone, Copy, Debug)]
struct Wish {
    table: TableId,
    key: u64,
    mode: Mode,
    /// Only the first column is read.
    partly: bool,
    /// Whether the rows asked for so far are fetched before the next wish.
    fetch: bool,
}

/// A transaction before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    wishes: Vec<Wish>,
    gives_up: bool,
    /// What it writes everywhere, with the number of the try mixed in: no two tries write alike, so
    /// that who saw what an aborted one wrote cannot be taken for a reader of the next.
    value: u64,
    tries: Cell<u64>,
}

/// See the module's text.
pub struct Mixture {
    mix: Mix,
    keys: Keys,
}

impl Mixture {
    /// Of this mix, with its keys drawn by Zipf's law with exponent `zipf`.
    ///
    /// # Errors
    /// An exponent that cannot be.
    pub fn of(mix: &Mix, zipf: f64) -> Result<Mixture, UsageError> {
        Ok(Mixture { mix: mix.clone(), keys: Keys::new(mix.keys, zipf)? })
    }

    fn plan(&self, rng: &mut Rng) -> Plan {
        let Mix { layouts, wishes: most, read_only_in, user_abort_in, partly_in, .. } = &self.mix;
        let read_only = rng.random_range(0..*read_only_in) == 0;
        let gives_up = *user_abort_in > 0 && rng.random_range(0..*user_abort_in) == 0;
        let mut wishes: Vec<Wish> = Vec::new();
        let mut unfetched = 0;
        for _ in 0..rng.random_range(1..=*most) {
            let mode = if read_only { Mode::Read } else { self.mix.mode(rng) };
            let table = TableId(rng.random_range(0..layouts.len() as u16));
            let key = self.keys.draw(rng);
            let same = |wish: &Wish| wish.table == table && wish.key == key;
            let asked_already = wishes[unfetched..].iter().any(same);
            let deleted = wishes.iter().any(|wish| same(wish) && wish.mode == Mode::Delete);
            // An update must name all cells at first.
            let partly =
                mode == Mode::Read && *partly_in > 0 && rng.random_range(0..*partly_in) == 0;
            let read_partly = wishes.iter().any(|wish| same(wish) && wish.partly);
            if asked_already || (deleted && mode == Mode::Insert) || read_partly {
                continue; // needs a fetch between, or is not offered
            }
            let fetch = rng.random_range(0..2) == 0;
            wishes.push(Wish { table, key, mode, partly, fetch });
            if fetch {
                unfetched = wishes.len();
            }
        }
        Plan { wishes, gives_up, value: rng.random_range(1..u64::MAX), tries: Cell::new(0) }
    }
}

/// Whether every word of a row that has been read as a whole says the same.
fn is_whole(row: &Row<'_>) -> bool {
    let (words, _) = row.payload().as_chunks::<8>();
    words.iter().all(|word| *word == words[0])
}

impl Plan {
    /// Runs it once; how many torn rows it was shown.
    async fn run(&self, tx: &mut Transaction<'_>) -> Result<u64, Failure> {
        let mut asked: Vec<(Wish, Handle)> = Vec::new();
        let mut torn = 0;
        self.tries.set(self.tries.get() + 1);
        for wish in &self.wishes {
            let cells = if wish.partly { Cells::one(A) } else { Cells::ALL };
            let handle = match wish.mode {
                Mode::Read => tx.read(wish.table, wish.key, cells),
                Mode::Update => tx.update(wish.table, wish.key, cells),
                Mode::Insert => tx.insert(wish.table, wish.key),
                Mode::Delete => tx.delete(wish.table, wish.key),
            };
            asked.push((*wish, handle));
            if wish.fetch {
                tx.fetch().await?;
                torn += self.use_rows(tx, &mut asked);
            }
        }
        tx.fetch().await?;
        torn += self.use_rows(tx, &mut asked);
        if self.gives_up { tx.abort() } else { Ok(torn) }
    }

    /// Looks at what was fetched, and writes.
    fn use_rows(&self, tx: &mut Transaction<'_>, asked: &mut Vec<(Wish, Handle)>) -> u64 {
        let mut torn = 0;
        for (wish, row) in asked.drain(..) {
            if wish.mode == Mode::Delete {
                continue;
            }
            if wish.mode != Mode::Insert && !wish.partly {
                torn += u64::from(tx.get(row).is_some_and(|row| !is_whole(&row)));
            }
            if wish.mode != Mode::Read {
                self.write(tx, row);
            }
        }
        torn
    }

    fn write(&self, tx: &mut Transaction<'_>, row: Handle) {
        let Some(there) = tx.get(row) else { return };
        let bytes = there.payload().len();
        let value = mix(self.value.wrapping_add(self.tries.get()));
        fill(tx, row, bytes, value);
    }
}

/// Writes `value` to every word of a row of so many bytes: columns are as wide as the row's length
/// says, see [`Layout`].
pub(crate) fn fill(tx: &mut Transaction<'_>, row: Handle, row_bytes: usize, value: u64) {
    let bytes = value.to_le_bytes().repeat(row_bytes / 8);
    tx.set(row, A, value);
    match row_bytes {
        8 => {}
        16 => tx.set(row, ColumnId(1), value),
        88 => tx.set(row, ColumnId(1), &bytes[..80]),
        _ => {
            tx.set(row, ColumnId(1), &bytes[..248]);
            tx.set(row, ColumnId(2), value);
        }
    }
}

impl Workload for Mixture {
    const NAME: &'static str = NAME;
    const PROFILES: &'static [Profile] =
        &[Profile { name: "drawn", note: "tables, keys and modes are drawn from the seed" }];
    const TRANSACTIONS: &'static [&'static str] = &["mixture"];
    type Input = Plan;
    /// Torn rows that committed transactions were shown.
    type Tally = u64;

    fn new(settings: &Settings) -> Result<Mixture, UsageError> {
        let mut mix = Mix::of("anything", settings.records.unwrap_or(5), 4, [3, 3, 2, 1]);
        mix.layouts = Layout::ALL.to_vec();
        Mixture::of(&mix, settings.zipf.unwrap_or(0.0))
    }

    fn profile(&self) -> Profile {
        Self::PROFILES[0]
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        vec![("keys", self.mix.keys.to_string()), ("mix", self.mix.name.to_owned())]
    }

    fn schemas(&self) -> Vec<TableSchema> {
        self.mix.layouts.iter().map(|layout| layout.schema()).collect()
    }

    fn procedures(&self) -> Vec<Procedure> {
        Vec::new()
    }

    fn lines_per_transaction(&self) -> usize {
        self.mix.wishes * 3
    }

    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        for table in 0..self.mix.layouts.len() as u16 {
            for key in (0..self.mix.keys).step_by(2) {
                let fill = |bytes: &mut [u8]| {
                    bytes.as_chunks_mut::<8>().0.fill((key + 1).to_le_bytes());
                };
                loader.insert(TableId(table), key, |row| fill(row.payload())).await?;
            }
        }
        Ok(())
    }

    fn records(&self) -> u64 {
        self.mix.keys.div_ceil(2) * self.mix.layouts.len() as u64
    }

    fn draw(&self, rng: &mut Rng) -> Plan {
        self.plan(rng)
    }

    fn kind(_: &Plan) -> usize {
        0
    }

    async fn run(
        &self,
        coordinator: &mut Coordinator,
        plan: &Plan,
        torn: &mut u64,
    ) -> Result<(), Failure> {
        match coordinator.transact(async |tx| plan.run(tx).await).await {
            Ok(seen) => {
                *torn += seen;
                Ok(())
            }
            Err(failure) if failure == Failure::user_abort() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn merge(into: &mut u64, other: u64) {
        *into += other;
    }

    async fn check(&self, cx: &Context, torn: &u64) -> Result<Vec<Invariant>, Failure> {
        let mut torn_left = 0u64;
        for table in 0..self.mix.layouts.len() as u16 {
            let look = |row: &Row<'_>| u64::from(!is_whole(row));
            scan(cx, TableId(table), |stored| torn_left += look(&stored.row)).await?;
        }
        let detail = format!("{torn} torn rows read, {torn_left} left");
        Ok(vec![Invariant {
            name: "rows are whole",
            ok: *torn == 0 && torn_left == 0,
            detail,
            of_memory: false,
        }])
    }
}
