//! Tests with random writers of one record, and readers that read their lines at different moments. The tests compare
//! the answers of [`super::choose`] with the true snapshots. The test world stores all versions that ever existed,
//! and computes the true snapshots from them.
//!
//! Invariant: writers obey the rules of [`super::choose`], and the order of all other events is random. Each writer
//! chooses any allowed value as its T_lb. Some writers abort, and others die and leave their bytes behind. Records
//! are deleted, and other records take their slot, line by line. A reader reads its lines in any order, with any
//! events between these reads.

use super::*;
use crate::layout::{
    Cell, CellAddress, KEY_AT, LayoutKind, Records, Slot, VERSION_AT, Version as State,
};
use crate::schema::{ColumnType, TableSchema};
use rand::RngExt;
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::rng::Rng;

/// A committed version of a key's record, in the list of all versions that ever existed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    at: Timestamp,
    deleted: bool,
}

/// A writer, and the version that it is writing.
struct Writer {
    tag: u64,
    overwrite: Overwrite,
    former: Vec<u8>,
    deleted: bool,
    /// Whether the writer inserts the record into the slot. If the insert is undone, the record is removed again.
    comes: bool,
    /// The lines that are still to be written. The first element is the line that the writer writes last.
    lines: Vec<(usize, [u8; LINE_BYTES])>,
    commit: Option<Timestamp>,
}

/// The slot, and the state that no reader can see.
struct World {
    slot: Slot,
    rules: Rules,
    image: Vec<u8>,
    /// The greatest timestamp that any transaction has received so far.
    clock: u64,
    last_tag: u64,
    writer: Option<Writer>,
    /// The tags of transactions that died and will never be committed.
    stray: Vec<u64>,
    /// The key of the slot's record.
    key: u64,
    /// The T_start of the only reader, while that reader reads its lines.
    reading: Option<Timestamp>,
    /// Whether a record that takes over the slot keeps the times of discarded versions.
    keeps_discards: bool,
    /// The versions that became visible again because the transaction that overwrote them aborted.
    returned: Vec<Timestamp>,
    /// The committed versions of each key.
    histories: [Vec<Version>; KEYS],
    /// The maximum number of events between a reader's reads of two lines.
    pace: usize,
}

/// The number of keys whose records the writers insert and delete.
const KEYS: usize = 2;

/// The description of a wrong answer.
type Wrong = String;

impl World {
    fn new(slot: Slot, rules: Rules, pace: usize) -> World {
        World {
            slot,
            rules,
            image: vec![0; slot.slot_bytes],
            clock: 1,
            last_tag: 0,
            writer: None,
            stray: Vec::new(),
            key: 0,
            reading: None,
            keeps_discards: true,
            returned: Vec::new(),
            histories: Default::default(),
            pace,
        }
    }

    /// Makes one event happen to the record.
    fn step(&mut self, rng: &mut Rng) {
        if rng.random_bool(0.5) {
            // The clock advances because of other transactions.
            self.clock += rng.random_range(1..4u64);
        }
        let Some(mut writer) = self.writer.take() else {
            match self.may_be_freed() && rng.random_bool(0.5) {
                true => self.set(VERSION_AT, State::LOADED.absent_after().word()),
                false => self.begin(rng),
            }
            return;
        };
        if let Some((at, line)) = writer.lines.pop() {
            self.image[at..at + LINE_BYTES].copy_from_slice(&line);
            self.writer = Some(writer);
            return;
        }
        match (writer.commit, rng.random_range(0..10)) {
            (None, 1 | 2) if writer.comes => self.undo(&writer),
            // The writer aborts and writes back the former bytes that it had kept.
            (None, 0) => self.undo(&writer),
            // The writer died while it wrote its version. Its log was lost, or stated that the writer aborted.
            (None, 1) => self.stray.push(writer.tag),
            (None, 2) => self.vacate(&writer),
            (None, _) => {
                self.clock += 1;
                writer.commit = Some(Timestamp(self.clock));
                self.writer = Some(writer);
            }
            (Some(at), _) => self.show(&writer, at),
        }
    }

    /// Whether the slot's record is deleted, and no reader that started before the deletion is still running.
    fn may_be_freed(&self) -> bool {
        let newest = self.slot.newest_committed(&self.image).filter(|it| it.deleted);
        let is_over = |at| self.reading.is_none_or(|start| start >= at);
        self.is_present() && newest.is_some_and(|newest| is_over(newest.version))
    }

    fn is_present(&self) -> bool {
        !self.slot.is_free(&self.image)
    }

    fn set(&mut self, at: usize, word: u64) {
        self.image[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn begin(&mut self, rng: &mut Rng) {
        let former = self.image.clone();
        let comes = !self.is_present();
        if comes {
            self.come(rng);
        }
        let stray = &self.stray;
        let is_stray = |it| stray.contains(&it);
        let overwrite = self.slot.cell_to_overwrite(&self.image, self.rules, is_stray);
        let overwrite = overwrite.expect("nobody is undecided");
        let last = self.histories.iter().filter_map(|versions| versions.last());
        let floor = last.map(|last| last.at.0).max().unwrap_or(0);
        let lower_bound = Timestamp(rng.random_range(floor..=self.clock));
        self.last_tag += 1;
        let (tag, lines, commit) = (self.last_tag, Vec::new(), None);
        let deleted = !comes && rng.random_bool(0.2);
        let mut writer = Writer { tag, overwrite, former, deleted, comes, lines, commit };
        self.put(&writer, VersionWord::invisible(lower_bound));
        if comes {
            // The first line, with STATE and KEY, of a new record is written last.
            let written = std::mem::replace(&mut self.image, writer.former.clone());
            writer.lines = written
                .as_chunks::<LINE_BYTES>()
                .0
                .iter()
                .enumerate()
                .map(|(index, line)| (index * LINE_BYTES, *line))
                .collect();
        }
        self.writer = Some(writer);
    }

    /// Another record takes over the slot.
    fn come(&mut self, rng: &mut Rng) {
        match self.keeps_discards {
            true => self.slot.empty_cells(&mut self.image),
            false => self.image[24..].fill(0),
        }
        self.key = rng.random_range(0..KEYS as u64);
        self.set(KEY_AT, self.key);
        self.set(VERSION_AT, State::LOADED.word());
    }

    fn show(&mut self, writer: &Writer, at: Timestamp) {
        self.put(writer, VersionWord::committed(at));
        self.histories[self.key as usize].push(Version { at, deleted: writer.deleted });
    }

    /// Restores the former bytes, so that readers see the versions that the writer had overwritten.
    fn undo(&mut self, writer: &Writer) {
        self.image.copy_from_slice(&writer.former);
        let shown = self.slot.seen(&self.image).filter(|it| it.word.is_committed());
        self.returned.extend(shown.map(|it| it.word.timestamp()));
    }

    /// A recovery clears the version that a dead writer left.
    fn vacate(&mut self, writer: &Writer) {
        let cell = writer.overwrite.cell;
        match self.slot.record {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => {
                unreachable!("none of these")
            }
            RecordLayout::Packed(packed) => {
                let at = packed.version_at(cell);
                let word = match writer.overwrite.discarded {
                    None if writer.former[at..at + 8] == [0; 8] => VersionWord::FRESH,
                    _ => VersionWord::VACATED,
                };
                self.image[at..at + 8].copy_from_slice(&word.word().to_le_bytes());
            }
            RecordLayout::Cells(cells) => {
                let left = cells.cell(&self.image, cell).vacated();
                left.encode(&mut self.image[cells.cell_at(cell)..]);
            }
        }
    }

    fn put(&mut self, writer: &Writer, version: VersionWord) {
        let Overwrite { cell, prev_ts, .. } = writer.overwrite;
        match self.slot.record {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => {
                unreachable!("none of these")
            }
            RecordLayout::Packed(packed) => {
                let word = if writer.deleted { version.deleted() } else { version };
                let at = packed.version_at(cell);
                self.image[at..at + 8].copy_from_slice(&word.word().to_le_bytes());
                self.image[56..64].copy_from_slice(&writer.tag.to_le_bytes());
            }
            RecordLayout::Cells(cells) => {
                let to = if writer.deleted { CellAddress::deleted() } else { CellAddress::NULL };
                let cell_at = cells.cell_at(cell);
                Cell { version, txn: writer.tag, to, prev_ts }.encode(&mut self.image[cell_at..]);
            }
        }
    }

    /// Starts a reader, which reads the lines in any order, with random events before each line. Returns the reader's
    /// T_start and the lines that it read.
    fn read(&mut self, rng: &mut Rng) -> (Timestamp, Vec<u8>) {
        let t_start = Timestamp(self.clock);
        self.reading = Some(t_start);
        let mut read = vec![0; self.image.len()];
        let mut lines: Vec<usize> = (0..self.image.len() / LINE_BYTES).collect();
        while !lines.is_empty() {
            for _ in 0..rng.random_range(0..self.pace) {
                self.step(rng);
            }
            let line = lines.swap_remove(rng.random_range(0..lines.len())) * LINE_BYTES;
            read[line..line + LINE_BYTES].copy_from_slice(&self.image[line..line + LINE_BYTES]);
        }
        // A writer that took its T_commit at or before T_start is committed now, even if the reader did not see it
        // as committed.
        while self.writer.as_ref().is_some_and(|it| it.commit.is_some_and(|at| at <= t_start)) {
            self.step(rng);
        }
        self.reading = None;
        (t_start, read)
    }

    /// Checks the answer of [`super::choose`] to a reader of `key` that has read the lines `read`.
    fn judge(&self, key: u64, t_start: Timestamp, read: &[u8]) -> Result<Choice, Wrong> {
        let is_here = !self.slot.is_free(read) && read[KEY_AT..KEY_AT + 8] == key.to_le_bytes();
        let choice = match is_here {
            true => self.slot.choose(read, t_start, self.rules, |it| self.stray.contains(&it)),
            false => Choice::NotFound,
        };
        let history = &self.histories[key as usize];
        let truth = history.iter().rfind(|version| version.at <= t_start);
        let now: Vec<Seen> = self.slot.seen(&self.image).collect();
        let is_shown =
            |at| now.iter().any(|it| it.word.is_committed() && it.word.timestamp() == at);
        let is_right = match choice {
            Choice::Version(found) => truth == Some(&Version { at: found.version, deleted: false }),
            Choice::NotFound => truth.is_none_or(|truth| truth.deleted),
            // The version is lost for ever. The only exception is an overwritten version that became visible again,
            // or that may still become visible again.
            Choice::TooOld => {
                truth.is_none_or(|it| !is_shown(it.at) || self.returned.contains(&it.at))
            }
            Choice::Undecided { cell } => {
                let seen = self.slot.seen(read).nth(cell).expect("a cell");
                seen.word.is_invisible() && seen.word.timestamp() < t_start
            }
        };
        let wrong = || format!("{choice:?} for {key} as of {t_start:?}; {truth:?} of {history:?}");
        if is_right { Ok(choice) } else { Err(wrong()) }
    }
}

/// The number of times that each answer was given.
#[derive(Default, Debug)]
struct Tally {
    versions: u32,
    absent: u32,
    too_old: u32,
    undecided: u32,
}

/// Runs `seeds` random worlds whose records have this slot's layout. Returns the first wrong answer, or the number of
/// times that each answer was given.
fn run(slot: Slot, rules: Rules, keeps_discards: bool, seeds: u64) -> Result<Tally, Wrong> {
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let rng = &mut tarn_fabric::rng::seeded(seed, 0);
        let pace = rng.random_range(1..=12 * slot.cells());
        let mut world = World { keeps_discards, ..World::new(slot, rules, pace) };
        for _ in 0..12 {
            for _ in 0..rng.random_range(0..8) {
                world.step(rng);
            }
            let (t_start, read) = world.read(rng);
            let key = rng.random_range(0..KEYS as u64);
            let choice = world
                .judge(key, t_start, &read)
                .map_err(|wrong| format!("seed {seed}: {wrong}"))?;
            match choice {
                Choice::Version(_) => tally.versions += 1,
                Choice::NotFound => tally.absent += 1,
                Choice::TooOld => tally.too_old += 1,
                Choice::Undecided { .. } => tally.undecided += 1,
            }
        }
    }
    Ok(tally)
}

fn apart(cells: u8) -> Slot {
    let schema = TableSchema::new("t", 1).column("a", ColumnType::U64);
    LayoutKind::MultiVersion { cells, records: Records::Apart }.slot(&schema)
}

fn packed(cells: u8, payload: u16) -> Slot {
    let schema = TableSchema::new("t", 1).column("a", ColumnType::Bytes(payload));
    let slot = LayoutKind::MultiVersion { cells, records: Records::Auto }.slot(&schema);
    assert!(matches!(slot.record, RecordLayout::Packed(_)));
    slot
}

fn every_slot() -> Vec<Slot> {
    let all = [packed(1, 24), packed(2, 8)];
    all.into_iter().chain((1..=8).map(apart)).collect()
}

#[test]
fn cells_of_different_moments_never_show_a_wrong_version() {
    for slot in every_slot() {
        let tally =
            run(slot, Rules::ALL, true, 2_000).unwrap_or_else(|wrong| panic!("{slot:?}: {wrong}"));
        let Tally { versions, absent, too_old, undecided } = tally;
        assert!(versions > 500 && absent > 100 && too_old > 100 && undecided > 100, "{tally:?}");
    }
}

#[test]
fn each_omitted_rule_is_noticed() {
    let wrong = [
        ("a lower bound", Rules { lower_bound: false, ..Rules::ALL }, 1),
        ("what is gone", Rules { discards: Discards::Forgotten, ..Rules::ALL }, 1),
        ("the newest", Rules { keep_newest: false, ..Rules::ALL }, 2),
        // Turning this rule off gives wrong answers only if the slot changes between the reads of two lines.
        (
            "what was discarded above T_start",
            Rules { discards: Discards::Between, ..Rules::ALL },
            2,
        ),
    ];
    for (what, rules, cells_min) in wrong {
        for slot in every_slot() {
            let lines = slot.slot_bytes / LINE_BYTES;
            let is_between = rules.discards == Discards::Between;
            if slot.cells() >= cells_min && (lines > 1 || !is_between) {
                let found = run(slot, rules, true, 20_000);
                assert!(found.is_err(), "{what} is missed by nobody in {slot:?}: {found:?}");
            }
        }
    }
}

#[test]
fn a_reused_slot_that_forgets_its_discarded_version_is_noticed() {
    for slot in every_slot().into_iter().filter(|slot| slot.slot_bytes > LINE_BYTES) {
        let found = run(slot, Rules::ALL, false, 20_000);
        assert!(found.is_err(), "missed in {slot:?}: {found:?}");
    }
}
