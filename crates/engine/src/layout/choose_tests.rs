//! One record's writers, drawn at random, and readers whose lines are of different moments, against the true
//! snapshots: what [`super::choose`] answers is held against all versions that there ever were.
//!
//! Invariant: writers do what the rules ask of them and nothing else decides when: T_lb is anything allowed, writers
//! abort, and die and leave what they wrote; a reader's lines are read in any order, whatever happens between them.

use super::*;
use crate::layout::{Cell, CellAddress, LayoutKind, Records, Slot};
use crate::schema::{ColumnType, TableSchema};
use rand::RngExt;
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::rng::Rng;

/// A version that was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    at: Timestamp,
    deleted: bool,
}

/// A version on its way.
struct Writer {
    tag: u64,
    overwrite: Overwrite,
    former: Vec<u8>,
    deleted: bool,
    commit: Option<Timestamp>,
}

/// The slot, and what nobody sees.
struct World {
    slot: Slot,
    rules: Rules,
    image: Vec<u8>,
    /// The last timestamp that was given.
    clock: u64,
    last_tag: u64,
    writer: Option<Writer>,
    /// Transactions that died and never will be committed.
    stray: Vec<u64>,
    /// Versions that were overwritten by who aborted, and so came back.
    returned: Vec<Timestamp>,
    history: Vec<Version>,
    /// How much may happen between two lines' reading.
    pace: usize,
}

/// What is wrong with an answer.
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
            returned: Vec::new(),
            history: Vec::new(),
            pace,
        }
    }

    /// One thing happens to the record.
    fn step(&mut self, rng: &mut Rng) {
        if rng.random_bool(0.5) {
            // Elsewhere.
            self.clock += rng.random_range(1..4u64);
        }
        let Some(mut writer) = self.writer.take() else {
            self.begin(rng);
            return;
        };
        match (writer.commit, rng.random_range(0..10)) {
            // What is held is written back.
            (None, 0) => {
                self.returned.extend(writer.overwrite.discarded.map(|it| it.version));
                self.image = writer.former;
            }
            // It died, and its log was nowhere, or said so.
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

    fn begin(&mut self, rng: &mut Rng) {
        let stray = self.stray.clone();
        let overwrite =
            self.slot.cell_to_overwrite(&self.image, self.rules, |it| stray.contains(&it));
        let overwrite = overwrite.expect("nobody is undecided");
        let floor = self.history.last().map_or(0, |last| last.at.0);
        let lower_bound = Timestamp(rng.random_range(floor..=self.clock));
        self.last_tag += 1;
        let (tag, former) = (self.last_tag, self.image.clone());
        let deleted = !self.history.is_empty() && rng.random_bool(0.2);
        let writer = Writer { tag, overwrite, former, deleted, commit: None };
        self.put(&writer, VersionWord::invisible(lower_bound));
        self.writer = Some(writer);
    }

    fn show(&mut self, writer: &Writer, at: Timestamp) {
        self.put(writer, VersionWord::committed(at));
        self.history.push(Version { at, deleted: writer.deleted });
    }

    /// A recovery clears what the dead left.
    fn vacate(&mut self, writer: &Writer) {
        let cell = writer.overwrite.cell;
        match self.slot.record {
            RecordLayout::InPlace => unreachable!("one version"),
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
            RecordLayout::InPlace => unreachable!("one version"),
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

    /// A reader starts, and reads each line after some steps, in any order: its T_start and what it has read.
    fn read(&mut self, rng: &mut Rng) -> (Timestamp, Vec<u8>) {
        let t_start = Timestamp(self.clock);
        let mut read = vec![0; self.image.len()];
        let mut lines: Vec<usize> = (0..self.image.len() / LINE_BYTES).collect();
        while !lines.is_empty() {
            for _ in 0..rng.random_range(0..self.pace) {
                self.step(rng);
            }
            let line = lines.swap_remove(rng.random_range(0..lines.len())) * LINE_BYTES;
            read[line..line + LINE_BYTES].copy_from_slice(&self.image[line..line + LINE_BYTES]);
        }
        // Whoever took its T_commit before is committed, if not seen to be.
        while self.writer.as_ref().is_some_and(|it| it.commit.is_some_and(|at| at <= t_start)) {
            self.step(rng);
        }
        (t_start, read)
    }

    fn judge(&self, t_start: Timestamp, read: &[u8]) -> Result<Choice, Wrong> {
        let choice = self.slot.choose(read, t_start, self.rules, |it| self.stray.contains(&it));
        let truth = self.history.iter().rfind(|version| version.at <= t_start);
        let shown = |at| {
            self.slot
                .seen(&self.image)
                .any(|it| it.word.is_committed() && it.word.timestamp() == at)
        };
        let is_right = match choice {
            Choice::Version(found) => truth == Some(&Version { at: found.version, deleted: false }),
            Choice::NotFound => truth.is_none_or(|truth| truth.deleted),
            // Unless what was overwritten came back, or may: it is gone for good.
            Choice::TooOld => {
                truth.is_none_or(|it| !shown(it.at) || self.returned.contains(&it.at))
            }
            Choice::Undecided { cell } => {
                let seen = self.slot.seen(read).nth(cell).expect("a cell");
                seen.word.is_invisible() && seen.word.timestamp() < t_start
            }
        };
        let wrong = || format!("{choice:?} as of {t_start:?}; {truth:?} of {:?}", self.history);
        if is_right { Ok(choice) } else { Err(wrong()) }
    }
}

/// How often each answer was given.
#[derive(Default, Debug)]
struct Tally {
    versions: u32,
    absent: u32,
    too_old: u32,
    undecided: u32,
}

/// Runs `seeds` worlds of this slot: the first wrong answer, or what was answered.
fn run(slot: Slot, rules: Rules, seeds: u64) -> Result<Tally, Wrong> {
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let rng = &mut tarn_fabric::rng::seeded(seed, 0);
        let pace = rng.random_range(1..=12 * slot.cells());
        let mut world = World::new(slot, rules, pace);
        for _ in 0..12 {
            for _ in 0..rng.random_range(0..8) {
                world.step(rng);
            }
            let (t_start, read) = world.read(rng);
            let choice =
                world.judge(t_start, &read).map_err(|wrong| format!("seed {seed}: {wrong}"))?;
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
            run(slot, Rules::ALL, 2_000).unwrap_or_else(|wrong| panic!("{slot:?}: {wrong}"));
        let Tally { versions, absent, too_old, undecided } = tally;
        assert!(versions > 500 && absent > 100 && too_old > 100 && undecided > 100, "{tally:?}");
    }
}

#[test]
fn each_rule_that_is_left_out_is_noticed() {
    let wrong = [
        ("a lower bound", Rules { lower_bound: false, ..Rules::ALL }, 1),
        ("what is gone", Rules { discards: Discards::Forgotten, ..Rules::ALL }, 1),
        ("the newest", Rules { keep_newest: false, ..Rules::ALL }, 2),
        // Between the reading of two lines.
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
                let found = run(slot, rules, 20_000);
                assert!(found.is_err(), "{what} is missed by nobody in {slot:?}: {found:?}");
            }
        }
    }
}
