//! The ordered indexes of the mixture: their shapes, the requests that transactions make to them, and
//! the rules that must hold.
//!
//! Invariant: an index orders rows by the number that the row repeats in its words. If a table has an index, its rows
//! have only a few different numbers. So unique indexes refuse some changes, and leaves fill, empty, split and merge.
//! In committed transactions, the entries of a scan must agree with the rows that the same transaction reads.

use super::mixture::Wish;
use crate::harness::layout::Layout;
use rand::RngExt as _;
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::rng::{Rng, mix};
use tarn_store::ids::{Failure, Mode};
use tarn_store::schema::range::{IndexKey, Scan, ScanHandle};
use tarn_store::schema::{Cells, ColumnId, IndexId, IndexPart, Key, TableId, TableSchema};

const A: ColumnId = ColumnId(0);
/// The number of 8-byte parts of a wide key. A key with this many parts makes tree nodes with the
/// smallest number of slots: 29.
const WIDE_PARTS: usize = 7;
/// The number of zones. At any time, the numbers in rows are concentrated in one zone of the possible
/// numbers.
const ZONES: u64 = 4;
/// The number of transactions after which the numbers concentrate in another zone.
const ZONE_TRANSACTIONS: u64 = 30;

/// One ordered index: the number of its table, whether it is unique, and the number of 8-byte parts of its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct One {
    table: usize,
    unique: bool,
    parts: usize,
}

/// The ordered indexes of a mixture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ordered {
    indexes: Vec<One>,
    /// The upper bound of the numbers in rows: each number is less than this value.
    values: u64,
    /// Out of this number of transactions, one scans an index.
    scans_in: u32,
}

/// A range of an index that a transaction reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    index: IndexId,
    table: TableId,
    from: u64,
    to: u64,
    limit: Option<u32>,
    backward: bool,
    /// Whether the transaction looks for one key of a unique index.
    seeks: bool,
    then: Then,
}

/// How a transaction uses the entries of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// The transaction ignores the entries, and executes the other operations that were drawn for it.
    Wishes,
    /// The transaction reads the record of each entry.
    Read,
    /// The transaction deletes the record of each entry.
    Delete,
}

/// The entries that a scan showed: for each entry, the number in the row and the key of the row.
pub(super) type Shown = Vec<(u64, u64)>;

impl Ordered {
    /// Draws indexes for tables of these layouts, with `keys` keys each.
    pub(super) fn draw(rng: &mut Rng, layouts: &[Layout], keys: u64) -> Ordered {
        let mut indexes = Vec::new();
        for table in 0..layouts.len() {
            let kinds = [&[false][..], &[true], &[false, true]][rng.random_range(0..3)];
            let parts = [1, WIDE_PARTS, WIDE_PARTS][rng.random_range(0..3)];
            indexes.extend(kinds.iter().map(|&unique| One { table, unique, parts }));
        }
        let values = keys * [2, 4, 4, 16][rng.random_range(0..4)] + 2;
        Ordered { indexes, values, scans_in: rng.random_range(1..=3) }
    }

    /// Returns a table's schema with its indexes.
    pub(super) fn schema(&self, table: usize, schema: TableSchema) -> TableSchema {
        self.indexes.iter().filter(|one| one.table == table).fold(schema, |schema, one| {
            let name = if one.unique { "by_value_unique" } else { "by_value" };
            schema.index(name, &vec![IndexPart::Column(A); one.parts], one.unique)
        })
    }

    /// Returns a readable description of the indexes.
    pub(super) fn name(&self) -> String {
        let one = |one: &One| {
            let width = if one.parts == 1 { "narrow" } else { "wide" };
            let unique = if one.unique { " unique" } else { "" };
            format!("{width}{unique} on table {}", one.table)
        };
        let all: Vec<String> = self.indexes.iter().map(one).collect();
        format!("indexes of {} values: {}", self.values, all.join(", "))
    }

    /// Returns the number that a try with the random value `chance` writes into the row of `key`. The argument
    /// `count` is the number of transactions that were drawn before this transaction.
    pub(super) fn value(&self, chance: u64, (table, key): (TableId, u64), count: u64) -> u64 {
        let draw = mix(chance ^ mix(u64::from(table.0) << 32 | key));
        let zone = count / ZONE_TRANSACTIONS % ZONES;
        match draw % 4 {
            0 => (draw >> 2) % self.values,
            _ => self.values * zone / ZONES + (draw >> 2) % self.values.div_ceil(ZONES),
        }
        .min(self.values - 1)
    }

    /// Draws the range that a transaction reads first, if the transaction reads one.
    pub(super) fn plan(&self, rng: &mut Rng, read_only: bool) -> Option<Range> {
        if rng.random_range(0..self.scans_in) > 0 {
            return None;
        }
        let at = rng.random_range(0..self.indexes.len());
        let one = self.indexes[at];
        let from = rng.random_range(0..self.values);
        let seeks = one.unique && rng.random_range(0..4) == 0;
        let most = [4, self.values / 8, self.values][rng.random_range(0..3)].max(1);
        let to = if seeks { from } else { from.saturating_add(rng.random_range(0..most)) };
        let limit = [None, None, Some(rng.random_range(1..=12))][rng.random_range(0..3)];
        let then = match rng.random_range(0..6) {
            0 if !read_only => Then::Delete,
            1 | 2 => Then::Read,
            _ => Then::Wishes,
        };
        let limit = if then == Then::Wishes { limit } else { Some(limit.unwrap_or(12)) };
        let (index, table) = (IndexId(at as u16), TableId(one.table as u16));
        let backward = rng.random_range(0..2) == 0;
        Some(Range { index, table, from, to, limit, backward, seeks, then })
    }
}

impl Range {
    /// Returns whether the transaction changes the rows to which the entries of the range lead.
    pub(super) fn changes(&self) -> bool {
        self.then == Then::Delete
    }

    /// Returns whether the transaction continues with its wishes after the scan.
    pub(super) fn leaves_wishes(&self) -> bool {
        self.then == Then::Wishes
    }

    fn ask(&self, tx: &mut Transaction<'_>) -> ScanHandle {
        let key = |value: u64| IndexKey::new().u64(value);
        if self.seeks {
            return tx.seek(self.index, key(self.from));
        }
        let scan = Scan::range(key(self.from), key(self.to));
        let scan = self.limit.map_or(scan, |limit| scan.limit(limit));
        tx.scan(self.index, if self.backward { scan.backward() } else { scan })
    }

    /// Reads the range and uses its entries. Returns the entries, and the number of wrong entries.
    pub(super) async fn run(&self, tx: &mut Transaction<'_>) -> Result<(Shown, u64), Failure> {
        let handle = self.ask(tx);
        tx.fetch().await?;
        let shown: Shown = tx.scanned(handle).map(|it| (said(it.key), word(it.record))).collect();
        let mut odd = self.out_of_place(&shown);
        match self.then {
            Then::Wishes => {}
            Then::Read => {
                let read = |tx: &mut Transaction<'_>, key| tx.read(self.table, key, Cells::one(A));
                let rows: Vec<_> = shown.iter().map(|&(_, key)| read(tx, key)).collect();
                tx.fetch().await?;
                for (row, &(value, _)) in rows.into_iter().zip(&shown) {
                    let says = tx.get(row).map(|row| first_word(row.payload()));
                    odd += u64::from(says != Some(value));
                }
            }
            Then::Delete => {
                shown.iter().for_each(|&(_, key)| {
                    tx.delete(self.table, key);
                });
                tx.fetch().await?;
            }
        }
        Ok((shown, odd))
    }

    /// Returns the number of wrong entries: entries out of order, entries outside of the range, or more
    /// entries than the request allowed.
    fn out_of_place(&self, shown: &Shown) -> u64 {
        let outside = shown.iter().filter(|(value, _)| !(self.from..=self.to).contains(value));
        let ordered = |pair: &&[(u64, u64)]| (pair[0] < pair[1]) != self.backward;
        let disordered = shown.windows(2).filter(|pair| !ordered(pair)).count();
        let most = if self.seeks { Some(1) } else { self.limit };
        let too_many = most.is_some_and(|most| shown.len() > most as usize);
        (outside.count() + disordered + usize::from(too_many)) as u64
    }

    /// Returns whether the entries of a scan contradict a row that the transaction has read and not changed. The
    /// row's number is `None` if the row does not exist.
    pub(super) fn contradicts(
        &self,
        shown: &Shown,
        (table, key): (TableId, u64),
        says: Option<u64>,
    ) -> bool {
        if table != self.table {
            return false;
        }
        let entries = || shown.iter().filter(|(_, of)| *of == key);
        if entries().any(|(value, _)| Some(*value) != says) || entries().count() > 1 {
            return true;
        }
        let is_inside = says.is_some_and(|value| (self.from..=self.to).contains(&value));
        let is_whole = self.limit.is_none() && !self.seeks;
        is_inside && is_whole && entries().next().is_none()
    }
}

/// Returns whether no wish of a plan changes the record of this wish.
pub(super) fn is_unchanged(wish: &Wish, wishes: &[Wish]) -> bool {
    let same = |other: &&Wish| (other.table, other.key) == (wish.table, wish.key);
    wishes.iter().filter(same).all(|other| other.mode == Mode::Read)
}

/// Returns the first word of a row.
pub(super) fn first_word(payload: &[u8]) -> u64 {
    u64::from_le_bytes(*payload.first_chunk().expect("a row has 8 bytes"))
}

/// Returns the number that the key of an index entry contains.
fn said(key: &[u8]) -> u64 {
    u64::from_be_bytes(*key.first_chunk().expect("a part"))
}

fn word(key: Key<'_>) -> u64 {
    match key {
        Key::Word(word) => word,
        Key::Bytes(_) => unreachable!("the mixture's keys are words"),
    }
}

#[cfg(test)]
#[path = "ordered_tests.rs"]
mod tests;
