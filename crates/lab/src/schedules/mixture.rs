//! The mixture: a workload whose transactions make every kind of request. Its tables have few records and use every
//! layout.
//!
//! Invariant: a transaction is planned before it runs, so every try of the transaction makes the same requests. A try
//! writes its own number in every word of the payload of each row that it writes. So if a transaction or the final
//! check reads a row with two different numbers, this row is torn.

use super::ordered::{self, Ordered, Range, Shown};
pub use crate::harness::layout::Layout;
use crate::harness::layout::fill;
use rand::RngExt as _;
use std::cell::Cell;
use tarn_engine::admin::inspect::scan;
use tarn_engine::admin::load::Loader;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::rng::{Rng, mix};
use tarn_store::ids::{AbortReason, Failure, Mode, UsageError};
use tarn_store::schema::procedure::Procedure;
use tarn_store::schema::row::Row;
use tarn_store::schema::{Cells, ColumnId, TableId, TableSchema};
use tarn_workloads::distribution::Keys;
use tarn_workloads::{Invariant, Profile, Settings, Untold, Workload};

/// The name of the workload.
pub const NAME: &str = "mixture";
/// The name of the mix whose ordered indexes have several leaves.
pub const RANGES: &str = "ranges";
const A: ColumnId = ColumnId(0);
const MODES: [Mode; 4] = [Mode::Read, Mode::Update, Mode::Insert, Mode::Delete];

/// A mix: the distribution from which transactions are drawn, and the tables on which they run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    /// The name of the mix, which tells its purpose.
    pub name: &'static str,
    /// The layouts of the tables, one for each table.
    pub layouts: Vec<Layout>,
    /// The number of keys of each table.
    pub keys: u64,
    /// The largest number of wishes (accesses to records) of one transaction.
    wishes: usize,
    /// The relative frequencies of reads, updates, inserts and deletes.
    modes: [u32; 4],
    /// Out of this number of transactions, one only reads.
    read_only_in: u32,
    /// Out of this number of transactions, one aborts itself. If the number is 0, no transaction aborts itself.
    user_abort_in: u32,
    /// Out of this number of reads, one reads only one cell. If the number is 0, all reads are of whole rows, so that
    /// a history has every value.
    partly_in: u32,
    /// The ordered indexes of the tables, if the tables have any.
    pub ordered: Option<Ordered>,
}

impl Mix {
    fn of(name: &'static str, keys: u64, wishes: usize, modes: [u32; 4]) -> Mix {
        let (read_only_in, user_abort_in, partly_in) = (4, 40, 4);
        let layouts = Vec::new();
        let ordered = None;
        Mix { name, layouts, keys, wishes, modes, read_only_in, user_abort_in, partly_in, ordered }
    }

    /// Returns whether the values in a history distinguish the versions of a record. The values distinguish the
    /// versions if every read is of a whole row and no record is deleted. If records were deleted, a history could
    /// not distinguish two absences of the same record.
    pub fn tells_by_value(&self) -> bool {
        self.partly_in == 0 && self.modes[3] == 0 && self.ordered.is_none()
    }

    /// Returns the mix with ordered indexes. In two of three cases the mix has more records, so that
    /// the indexes have several leaves.
    pub(super) fn with_indexes(self, rng: &mut Rng) -> Mix {
        let mut mix = self;
        if rng.random_range(0..3) > 0 {
            // Half of the records are loaded. The numbers of keys suit wide leaves, which have 29 slots each. Loading
            // fills three quarters of a leaf, which is 21 records.
            let keys = [rng.random_range(20..=90), 42, 84, 126][rng.random_range(0..4)];
            let modes = [[2, 4, 6, 3], [1, 2, 8, 1], [2, 5, 1, 4]][rng.random_range(0..3)];
            let (layouts, partly_in) = (mix.layouts, mix.partly_in);
            mix = Mix { layouts, partly_in, ..Mix::of(RANGES, keys, 6, modes) };
        }
        mix.layouts.truncate(2);
        mix.ordered = Some(Ordered::draw(rng, &mix.layouts, mix.keys));
        mix
    }

    /// Draws one mix for a seed.
    pub fn draw(rng: &mut Rng) -> Mix {
        let mut mix = match rng.random_range(0..6) {
            0 | 1 => Mix::of("anything", rng.random_range(2..=6), 4, [3, 3, 2, 1]),
            // This mix has as many deletes as inserts, so that about half of the keys are absent.
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

/// Draws the layouts of a mixture. In some seeds the mixture has all layouts.
fn layouts(rng: &mut Rng) -> Vec<Layout> {
    let wanted = rng.random_range(1..16u32);
    let all = Layout::ALL.into_iter().enumerate();
    all.filter(|(bit, _)| wanted & (1 << bit) != 0).map(|(_, layout)| layout).collect()
}

/// A wish: one access to one record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) table: TableId,
    pub(super) key: u64,
    pub(super) mode: Mode,
    /// Whether the wish reads only the first column.
    partly: bool,
    /// Whether the transaction fetches the rows that it has requested so far before its next wish.
    fetch: bool,
}

/// The plan of a transaction: all requests that the transaction will make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A range of an index that the transaction reads before its wishes.
    range: Option<Range>,
    wishes: Vec<Wish>,
    gives_up: bool,
    /// The value that the transaction writes in every word, combined with the number of the try. So no two tries
    /// write the same value. So a history shows whether a reader saw the value of an aborted try or the value of the
    /// next try.
    value: u64,
    tries: Cell<u64>,
    /// The number of transactions of all coordinators that were drawn before this one.
    count: u64,
}

/// The workload of one mix.
pub struct Mixture {
    mix: Mix,
    keys: Keys,
    drawn: Cell<u64>,
}

/// The counts of wrong results of committed transactions. All these counts must be 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Odd {
    /// The number of torn rows.
    pub torn: u64,
    /// The number of contradictions between an index and the rows: an entry that does not fit its row, or a missing
    /// entry.
    pub entries: u64,
}

impl Odd {
    fn add(&mut self, other: Odd) {
        self.torn += other.torn;
        self.entries += other.entries;
    }
}

impl Mixture {
    /// Creates a workload of this mix. The keys of the workload are drawn by Zipf's law with exponent
    /// `zipf`.
    ///
    /// # Errors
    /// Fails if the Zipf exponent is impossible.
    pub fn of(mix: &Mix, zipf: f64) -> Result<Mixture, UsageError> {
        Ok(Mixture { mix: mix.clone(), keys: Keys::new(mix.keys, zipf)?, drawn: Cell::new(0) })
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
            // An update must name all cells when it first requests the row. So only reads can request a part of a
            // row.
            let partly =
                mode == Mode::Read && *partly_in > 0 && rng.random_range(0..*partly_in) == 0;
            let read_partly = wishes.iter().any(|wish| same(wish) && wish.partly);
            if asked_already || (deleted && mode == Mode::Insert) || read_partly {
                continue; // needs a fetch in between, or is not offered
            }
            let fetch = rng.random_range(0..2) == 0;
            wishes.push(Wish { table, key, mode, partly, fetch });
            if fetch {
                unfetched = wishes.len();
            }
        }
        let value = rng.random_range(1..u64::MAX);
        // The range is drawn last, so a seed without indexes draws the same other values as before.
        let range = self.mix.ordered.as_ref().and_then(|it| it.plan(rng, read_only));
        if range.is_some_and(|range| !range.leaves_wishes()) {
            wishes.clear();
        }
        let count = self.drawn.replace(self.drawn.get() + 1);
        Plan { range, wishes, gives_up, value, tries: Cell::new(0), count }
    }
}

/// Returns whether every word of a row that was read as a whole has the same number.
fn is_whole(row: &Row<'_>) -> bool {
    let (words, _) = row.payload().as_chunks::<8>();
    words.iter().all(|word| *word == words[0])
}

impl Plan {
    /// Returns whether the transaction is declared as read-only. Half of the transactions that only read are declared
    /// as read-only.
    fn is_declared(&self) -> bool {
        let changes_a_range = self.range.as_ref().is_some_and(|range| range.changes());
        let reads = self.wishes.iter().all(|wish| wish.mode == Mode::Read);
        // A few transactions that change records are wrongly declared as read-only. The engine runs
        // such transactions again as normal transactions.
        (self.value.is_multiple_of(2) && reads && !changes_a_range) || self.value % 32 == 1
    }

    /// Runs one try of the transaction. Returns the counts of wrong results of this try.
    async fn run(&self, tx: &mut Transaction<'_>, mix: &Mix) -> Result<Odd, Failure> {
        let mut asked: Vec<(Wish, Handle)> = Vec::new();
        let (mut odd, mut shown) = (Odd::default(), Shown::new());
        self.tries.set(self.tries.get() + 1);
        if let Some(range) = &self.range {
            (shown, odd.entries) = range.run(tx).await?;
        }
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
                odd.add(self.use_rows(tx, mix, (&mut asked, &shown)));
            }
        }
        tx.fetch().await?;
        odd.add(self.use_rows(tx, mix, (&mut asked, &shown)));
        if self.gives_up { tx.abort() } else { Ok(odd) }
    }

    /// Checks the fetched rows, and writes the rows that the transaction changes.
    fn use_rows(
        &self,
        tx: &mut Transaction<'_>,
        mix: &Mix,
        (asked, shown): (&mut Vec<(Wish, Handle)>, &Shown),
    ) -> Odd {
        let mut odd = Odd::default();
        for (wish, row) in asked.drain(..) {
            if wish.mode == Mode::Delete {
                continue;
            }
            if wish.mode != Mode::Insert && !wish.partly {
                odd.torn += u64::from(tx.get(row).is_some_and(|row| !is_whole(&row)));
            }
            if let Some(range) = &self.range
                && ordered::is_unchanged(&wish, &self.wishes)
            {
                let says = tx.get(row).map(|row| ordered::first_word(row.payload()));
                let of = (wish.table, wish.key);
                odd.entries += u64::from(range.contradicts(shown, of, says));
            }
            // An insert that finds an existing row does not change the row.
            if wish.mode != Mode::Read && !(wish.mode == Mode::Insert && tx.existed(row)) {
                self.write(tx, mix, (&wish, row));
            }
        }
        odd
    }

    fn write(&self, tx: &mut Transaction<'_>, mix_of: &Mix, (wish, row): (&Wish, Handle)) {
        let Some(there) = tx.get(row) else { return };
        let bytes = there.payload().len();
        let value = mix(self.value.wrapping_add(self.tries.get()));
        let value = match &mix_of.ordered {
            None => value,
            Some(ordered) => ordered.value(value, (wish.table, wish.key), self.count),
        };
        fill(tx, row, bytes, value);
    }
}

impl Workload for Mixture {
    const NAME: &'static str = NAME;
    const PROFILES: &'static [Profile] =
        &[Profile { name: "drawn", note: "tables, keys and modes are drawn from the seed" }];
    const TRANSACTIONS: &'static [&'static str] = &["mixture"];
    type Input = Plan;
    type Tally = Odd;

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
        let schema = |(table, layout): (usize, &Layout)| match &self.mix.ordered {
            None => layout.schema(),
            Some(ordered) => ordered.schema(table, layout.schema()),
        };
        self.mix.layouts.iter().enumerate().map(schema).collect()
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

    fn first_key(_: &Plan) -> Option<u64> {
        None
    }

    async fn run(
        &self,
        coordinator: &mut Coordinator,
        plan: &Plan,
        odd: &mut Odd,
    ) -> Result<(), Failure> {
        let body = async |tx: &mut Transaction<'_>| plan.run(tx, &self.mix).await;
        let ended = match plan.is_declared() {
            true => coordinator.transact_read_only(body).await,
            false => coordinator.transact(body).await,
        };
        match ended {
            Ok(seen) => {
                odd.add(seen);
                Ok(())
            }
            Err(failure) if failure == Failure::user_abort() => Ok(()),
            // The unique index already has a row with the same value. So the transaction aborts, and its caller
            // decides the next step.
            Err(Failure::Abort(AbortReason::UniqueViolation)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The rules of the mixture count no commits, so an unknown outcome changes nothing.
    fn untold(&self, _: &Plan, _: Untold, _: &mut Odd) {}

    fn merge(into: &mut Odd, other: Odd) {
        into.add(other);
    }

    async fn check(&self, cx: &Context, odd: &Odd) -> Result<Vec<Invariant>, Failure> {
        let mut torn_left = 0u64;
        for table in 0..self.mix.layouts.len() as u16 {
            let look = |row: &Row<'_>| u64::from(!is_whole(row));
            scan(cx, TableId(table), |stored| torn_left += look(&stored.row)).await?;
        }
        let Odd { torn, entries } = *odd;
        let detail = format!("{torn} torn rows read, {torn_left} left");
        // Each coordinator counts its own wrong results, so the counts of living coordinators are enough to show a
        // broken rule.
        let of_memory = true;
        let ok = torn == 0 && torn_left == 0;
        let rows = Invariant { name: "rows are whole", ok, detail, of_memory };
        let detail = format!("{entries} entries that were scanned, or missing, contradict rows");
        let ok = entries == 0;
        let scans = Invariant { name: "scans show what rows say", ok, detail, of_memory };
        Ok(vec![rows, scans])
    }
}
