//! KVS: one table with 8-byte keys and 40-byte values. Each transaction uses one record.
//!
//! The micro-benchmark of LOTUS (the paper's evaluation of disaggregated locks on disaggregated
//! memory): the transactions UpdateOne and ReadOne on 20 M records. Keys are uniform or Zipf .99, and
//! the two transactions may have any ratio.
//!
//! Invariant checked: a record's version is one more than the number of its committed updates. The
//! record's value contains this number of updates, and every byte of the value agrees with the
//! number.

mod read_one;
mod update_one;

use crate::distribution::Keys;
use crate::untold::{Slack, Untold};
use crate::workload::{Invariant, Profile, Settings, Workload, procedure, profiles_of};
use tarn_engine::site::Context;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::admin::inspect::scan;
use tarn_engine::admin::load::Loader;
use tarn_store::ids::{Failure, Mode, UsageError};
use tarn_store::schema::procedure::Procedure;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};
use tarn_fabric::rng::Rng;

const TABLE: TableId = TableId(0);
const VALUE: ColumnId = ColumnId(0);
const VALUE_BYTES: usize = 40;

/// The benchmark KVS with the user's choices.
pub struct Kvs {
    keys: Keys,
    zipf: f64,
    update_percent: u32,
    profile: &'static Variant,
}

impl Kvs {
    /// Sets the share of updates among transactions to `update_percent`. This share replaces the
    /// profile's share.
    ///
    /// # Errors
    /// The share is more than 100 percent.
    pub fn updating(self, update_percent: u32) -> Result<Kvs, UsageError> {
        if update_percent > 100 {
            let (value, allowed) = (update_percent.to_string(), "0 to 100, in percent".to_owned());
            return Err(UsageError { field: "update-percent".into(), value, allowed });
        }
        Ok(Kvs { update_percent, ..self })
    }
}

struct Variant {
    profile: Profile,
    records: u64,
    zipf: f64,
    update_percent: u32,
}

const VARIANTS: &[Variant] = &[
    variant("ro", "read-only, uniform, 10 M records", 10_000_000, 0.0, 0),
    variant("wo", "updates only, uniform, 10 M records", 10_000_000, 0.0, 100),
    variant("mixed", "half updates, uniform, 10 M records", 10_000_000, 0.0, 50),
    variant("lotus-uniform", "LOTUS Fig. 12: 20 M × (8 + 40 B), uniform; half updates", 20_000_000, 0.0, 50),
    variant("lotus-zipf", "LOTUS Fig. 12: 20 M × (8 + 40 B), Zipf .99; half updates", 20_000_000, 0.99, 50),
];

const fn variant(
    name: &'static str,
    note: &'static str,
    records: u64,
    zipf: f64,
    update_percent: u32,
) -> Variant {
    Variant { profile: Profile { name, note }, records, zipf, update_percent }
}

/// The input of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Reads the record with this key.
    ReadOne(u64),
    /// Updates the record with this key.
    UpdateOne(u64),
}

/// The counts of a coordinator's committed transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The number of updates.
    pub updates: u64,
    /// The number of values that were read and whose bytes did not agree.
    pub torn: u64,
    /// The number of updates that may have committed without being counted.
    pub untold: Slack,
    /// The number of uncounted updates that may have been undone. After such an update the version
    /// has advanced, and the value has not.
    pub undone: u64,
}

/// Returns the value of a record after `updates` updates. The value begins with this number, and its
/// other bytes agree with the number.
fn value(updates: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for (index, word) in value.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&updates.wrapping_add(index as u64).to_le_bytes());
    }
    value
}

/// Returns the number of updates that a value contains. Returns `None` if the value's bytes do not
/// agree, because then the read was torn.
fn updates_told(bytes: &[u8]) -> Option<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    let first = u64::from_le_bytes(words[0]);
    let mut differing = 0;
    for (index, word) in words.iter().enumerate() {
        differing |= u64::from_le_bytes(*word) ^ first.wrapping_add(index as u64);
    }
    (differing == 0).then_some(first)
}

impl Workload for Kvs {
    const NAME: &'static str = "kvs";
    const PROFILES: &'static [Profile] = profiles_of!(VARIANTS);
    const TRANSACTIONS: &'static [&'static str] = &["read_one", "update_one"];
    type Input = Input;
    type Tally = Tally;

    fn new(settings: &Settings) -> Result<Kvs, UsageError> {
        let profile = crate::workload::choose(VARIANTS, |v| v.profile.name, settings)?;
        let zipf = settings.zipf.unwrap_or(profile.zipf);
        let keys = Keys::new(settings.records.unwrap_or(profile.records), zipf)?;
        Ok(Kvs { keys, zipf, update_percent: profile.update_percent, profile })
    }

    fn profile(&self) -> Profile {
        self.profile.profile
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        vec![
            ("records", self.keys.records().to_string()),
            ("zipf", self.zipf.to_string()),
            ("update_percent", self.update_percent.to_string()),
        ]
    }

    fn schemas(&self) -> Vec<TableSchema> {
        let value = ColumnType::Bytes(VALUE_BYTES as u16);
        vec![TableSchema::new("kvs", self.keys.records()).column("value", value)]
    }

    fn procedures(&self) -> Vec<Procedure> {
        vec![
            procedure("read_one", &[(TABLE, Mode::Read, Cells::ALL)]),
            procedure("update_one", &[(TABLE, Mode::Update, Cells::ALL)]),
        ]
    }

    fn lines_per_transaction(&self) -> usize {
        2
    }

    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let initial = value(0);
        for key in 0..self.keys.records() {
            loader.insert(TABLE, key, |row| row.set(VALUE, &initial)).await?;
        }
        Ok(())
    }

    fn records(&self) -> u64 {
        self.keys.records()
    }

    #[inline]
    fn draw(&self, rng: &mut Rng) -> Input {
        let (key, mut dice) = self.keys.draw_with_dice(rng);
        let update = dice.roll(100) < u64::from(self.update_percent);
        if update { Input::UpdateOne(key) } else { Input::ReadOne(key) }
    }

    fn kind(input: &Input) -> usize {
        match input {
            Input::ReadOne(_) => 0,
            Input::UpdateOne(_) => 1,
        }
    }

    #[inline]
    fn first_key(input: &Input) -> Option<u64> {
        let (Input::ReadOne(key) | Input::UpdateOne(key)) = *input;
        Some(key)
    }

    #[inline]
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Input,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        match *input {
            Input::ReadOne(key) => read_one::run(coordinator, key, tally).await,
            Input::UpdateOne(key) => update_one::run(coordinator, key, tally).await,
        }
    }

    fn untold(&self, input: &Input, ended: Untold, tally: &mut Tally) {
        let updates = Self::kind(input) as i64;
        tally.untold.note(ended, updates, updates);
        tally.undone += u64::from(ended != Untold::Committed && updates > 0);
    }

    fn merge(into: &mut Tally, other: Tally) {
        into.updates += other.updates;
        into.torn += other.torn;
        into.untold.add(other.untold);
        into.undone += other.undone;
    }

    async fn check(&self, cx: &Context, tally: &Tally) -> Result<Vec<Invariant>, Failure> {
        let (mut records, mut updates, mut wrong, mut ahead) = (0u64, 0u64, 0u64, 0u64);
        scan(cx, TABLE, |stored| {
            records += 1;
            let told = updates_told(stored.row.bytes(VALUE));
            updates += told.unwrap_or(0);
            let changes = stored.changes;
            let is_behind = |told| changes.is_some_and(|changes| changes < told);
            wrong += u64::from(told.is_none_or(is_behind));
            ahead += u64::from(changes.zip(told).is_some_and(|(changes, told)| changes > told));
        })
        .await?;
        let Tally { updates: committed, torn, untold, undone } = *tally;
        let is_all = untold.admits(updates as i64, committed as i64);
        Ok(vec![
            Invariant {
                name: "no update lost",
                ok: is_all && records == self.keys.records(),
                detail: format!("{updates} found, {committed} committed{untold}, {records} records"),
                of_memory: false,
            },
            Invariant {
                name: "values are whole, and none is ahead of its version",
                ok: wrong == 0 && torn == 0,
                detail: format!("{wrong} wrong records, {torn} torn reads"),
                of_memory: true,
            },
            Invariant {
                name: "version = 1 + updates, values whole",
                ok: wrong == 0 && torn == 0 && ahead <= undone,
                detail: format!(
                    "{wrong} wrong records, {torn} torn reads, {ahead} versions ahead, {undone} \
                     updates that may have been undone"
                ),
                of_memory: false,
            },
        ])
    }
}
