//! Chooses the version of a record that a reader takes, and the version that a writer may discard.
//!
//! All writers of one record, under its lock, must obey these rules:
//! 1. A writer first writes a version as INVISIBLE, with a T_lb that is at least every earlier T_commit of the
//!    record. Only then does the writer take its T_commit, which is above T_lb. So the versions of a record are
//!    written in the order of their T_commit.
//! 2. A writer takes its T_commit before any reader gets an equal or greater T_start.
//! 3. The version that a writer overwrites is the oldest visible version. The T_commit of the overwritten version
//!    becomes the PREV_TS of the version that takes its place. If a place has no version, a new version in this place
//!    keeps the place's PREV_TS.
//! 4. A writer that aborts writes the former bytes back, or leaves a place without a version but with the place's
//!    PREV_TS.
//! 5. A slot passes to another record only after all its places were emptied. The PREV_TS of each emptied place is
//!    then the timestamp of the version that was in the place ([`Slot::empty_cells`]). The place keeps this PREV_TS
//!    after another record has taken the slot. Without this PREV_TS, a reader could miss a deletion, if it reads the
//!    slot's first line before the deletion and the next line after the deletion. A reader that no longer finds its
//!    key in any slot checks when the bucket was emptied last. A record that is inserted into a bucket gets the time
//!    when the bucket was emptied last as its PREV_TS. This PREV_TS is necessary, because a record with the same key
//!    may have been in the bucket before (`structure` of the engine).
//! 6. A version that says "deleted" releases the memory of all earlier versions ([`Slot::is_given_up`]), so that no
//!    slot of a deleted record keeps such memory.
//!
//! Invariant: the answer of [`choose`] is true of the moment T_start. A reader may read each cell at any time after
//! it got its T_start, and at any copy. The proof follows. Let v be the newest version with T_commit <= T_start. Let
//! c be the newest version that the reader has seen and that is not above T_start. By rules 1 and 2, v was in its
//! place before T_start was given. A later READ of that place returns one of three results: v; or v INVISIBLE, with
//! T_lb below T_start; or a later version. If the READ returns a later version, the place's PREV_TS is at least the
//! T_commit of v. So if v is not c, some version is INVISIBLE with T_lb < T_start, or some PREV_TS is above c. If
//! some PREV_TS is above c, then by rule 3 all versions up to c were discarded before the version with that
//! timestamp. A second READ would help only if the transaction that discarded the version aborts. Therefore the
//! answer is "too old" immediately. [`choose`] must not compare a PREV_TS with T_start. Between the reads of two
//! cells, both cells may have been overwritten twice, and then PREV_TS is above T_start.
//!
//! The rules are Tarn's own. These rules extend the version tables of LOTUS (Hu, Zuo, Hu, Chen, Wang, Yang: "LOTUS:
//! Optimizing Disaggregated Transactions with Disaggregated Locks") and Motor (Zhang, Hua, Yang, OSDI 2024).
//! Neither LOTUS nor Motor keeps T_lb or PREV_TS.

use super::{RecordLayout, Slot, VersionWord};
use crate::ids::Timestamp;

/// The place of one version, as a reader has read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The commit time of the version, or a mark that the version is not committed.
    pub word: VersionWord,
    /// Whether the version says "deleted".
    pub deleted: bool,
    /// The tag of the transaction that wrote the version. If the version is INVISIBLE, the tag is always correct.
    pub txn: u64,
    /// The timestamp of the newest version that was discarded from this place. For packed records this timestamp is
    /// 1 if any version may have been discarded.
    pub prev_ts: Timestamp,
}

/// How a reader treats discarded versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discards {
    /// If a discarded version is newer than the version that the reader found, the version for T_start may be
    /// missing. In this case [`choose`] answers "too old".
    Above,
    /// As `Above`, but the answer is "too old" only if the discarded version is also not above T_start. `Between` is
    /// a planted bug, and the tests must detect this bug.
    Between,
    /// Discarded versions are ignored, as in the published systems.
    Forgotten,
}

/// The rules that a reader and a writer follow when they choose versions. Switches of a protocol can turn each rule
/// off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// An INVISIBLE version is ignored only if its T_lb is not below T_start. If `lower_bound` is off, an INVISIBLE
    /// version is always ignored, as in the published systems.
    pub lower_bound: bool,
    /// How a reader treats discarded versions.
    pub discards: Discards,
    /// A writer overwrites the newest committed version only if the record has no other place. If `keep_newest` is
    /// off, a writer may always overwrite the newest committed version.
    pub keep_newest: bool,
}

impl Rules {
    /// The rules with every rule turned on.
    pub const ALL: Rules =
        Rules { lower_bound: true, discards: Discards::Above, keep_newest: true };
}

/// A committed version of a record, and the cell in which it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The number of the cell in which the version lies.
    pub cell: usize,
    /// The commit time of the version.
    pub version: Timestamp,
    /// Whether the version says "deleted".
    pub deleted: bool,
}

/// The answer of [`choose`] to a reader with a given T_start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The reader takes the version in the field. A reader never takes a version that says "deleted".
    Version(Committed),
    /// The record does not exist at T_start.
    NotFound,
    /// The version for T_start may have existed, but has been discarded.
    TooOld,
    /// The writer of this cell may be committed at or before T_start. The reader must read again, or read the
    /// writer's log.
    Undecided {
        /// The number of the cell whose version is undecided.
        cell: usize,
    },
}

/// The place into which a writer writes its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overwrite {
    /// The number of the cell that the writer overwrites.
    pub cell: usize,
    /// The cell's PREV_TS after the cell is overwritten.
    pub prev_ts: Timestamp,
    /// The version that the writer discards, if any. The memory of this version may be reused once no reader can need
    /// the version.
    pub discarded: Option<Committed>,
}

/// Returns the answer to a reader that started at `t_start`. `is_stray` gets the tag of the transaction that wrote an
/// INVISIBLE version. `is_stray` returns whether that transaction belongs to a recovered incarnation of a node, so
/// that the version will never be committed.
#[inline]
pub fn choose(
    cells: impl Iterator<Item = Seen>,
    t_start: Timestamp,
    rules: Rules,
    is_stray: impl Fn(u64) -> bool,
) -> Choice {
    let (mut best, mut undecided): (Option<Committed>, _) = (None, None);
    let (mut gone, mut gone_before) = (Timestamp(0), Timestamp(0));
    for (cell, seen) in cells.enumerate() {
        let Seen { word, deleted, txn, prev_ts } = seen;
        gone = gone.max(prev_ts);
        if prev_ts <= t_start {
            gone_before = gone_before.max(prev_ts);
        }
        let version = word.timestamp();
        if word.is_invisible() {
            if rules.lower_bound && version < t_start && !is_stray(txn) {
                undecided = Some(cell);
            }
        } else if version.0 != 0
            && version <= t_start
            && best.is_none_or(|best| best.version < version)
        {
            best = Some(Committed { cell, version, deleted });
        }
    }
    if let Some(cell) = undecided {
        return Choice::Undecided { cell };
    }
    let found = best.map_or(Timestamp(0), |best| best.version);
    let is_missing = match rules.discards {
        Discards::Above => gone > found,
        Discards::Between => gone_before > found,
        Discards::Forgotten => false,
    };
    match best {
        _ if is_missing => Choice::TooOld,
        Some(best) if !best.deleted => Choice::Version(best),
        _ => Choice::NotFound,
    }
}

/// The newest committed version, even if it says "deleted". The caller must have read all cells at one moment, or
/// under the record's lock. If the cells were read at different moments, the returned version may never have been the
/// newest.
#[inline]
pub fn newest_committed(cells: impl Iterator<Item = Seen>) -> Option<Committed> {
    let committed = cells.enumerate().filter(|(_, seen)| seen.word.is_committed());
    let named = committed.map(|(cell, seen)| Committed {
        cell,
        version: seen.word.timestamp(),
        deleted: seen.deleted,
    });
    named.max_by_key(|one| one.version)
}

/// The place into which the holder of the record's lock writes its version. The first choice is a place whose version
/// a recovered incarnation of a node left behind. The next choices are a place without a version, and the place of
/// the oldest version. The newest committed version is chosen only if the record has only one place. Returns `None`
/// if a version is undecided, because recovery must first decide the outcome of that version's transaction.
#[inline]
pub fn cell_to_overwrite(
    cells: impl Iterator<Item = Seen> + Clone,
    rules: Rules,
    is_stray: impl Fn(u64) -> bool,
) -> Option<Overwrite> {
    let (mut vacant, mut oldest): (Option<Overwrite>, Option<Overwrite>) = (None, None);
    for (cell, seen) in cells.enumerate() {
        if !seen.word.is_committed() {
            let stray = seen.word.is_invisible();
            if stray && !is_stray(seen.txn) {
                return None;
            }
            // A version that a dead node left behind is overwritten first, so that a record never has more than one
            // such version.
            if stray || vacant.is_none() {
                vacant = Some(Overwrite { cell, prev_ts: seen.prev_ts, discarded: None });
            }
            continue;
        }
        let version = seen.word.timestamp();
        let is_older = oldest.is_none_or(|oldest| version < oldest.prev_ts);
        if is_older == rules.keep_newest || oldest.is_none() {
            let discarded = Some(Committed { cell, version, deleted: seen.deleted });
            oldest = Some(Overwrite { cell, prev_ts: version, discarded });
        }
    }
    vacant.or(oldest)
}

impl Slot {
    /// Turns the image of a slot whose record was deleted into an image for another record, but does not change STATE
    /// and KEY. The new image has no versions, but keeps the times of discarded versions.
    pub fn empty_cells(&self, image: &mut [u8]) {
        match self.record {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => {}
            // A packed slot's image is always a snapshot of one moment, so no reader sees parts of both records.
            RecordLayout::Packed(packed) => {
                image[packed.version_at(0)..packed.payload_at(0)].fill(0);
            }
            RecordLayout::Cells(cells) => {
                for index in 0..cells.count() {
                    let empty = cells.cell(image, index).discarded();
                    empty.encode(&mut image[cells.cell_at(index)..]);
                }
            }
        }
    }

    /// Turns the image of a slot whose record was deleted into the image of an empty slot.
    pub fn vacate(&self, image: &mut [u8]) {
        match self.record {
            RecordLayout::Cells(cells) => {
                self.empty_cells(image);
                image[..cells.cell_at(0)].fill(0);
            }
            _ => image.fill(0),
        }
    }

    /// Whether the slot with this image has a deleted record of several versions, and all these versions are
    /// decided.
    pub fn is_tombstone(&self, image: &[u8]) -> bool {
        if !matches!(self.record, RecordLayout::Packed(_) | RecordLayout::Cells(_)) {
            return false;
        }
        !self.is_free(image)
            && !self.is_undecided(image, |_| false)
            && self.newest_committed(image).is_some_and(|newest| newest.deleted)
    }

    /// The timestamp of the newest version that was discarded from a cell, as far as the slot's layout stores this
    /// timestamp.
    pub fn discarded_from(&self, image: &[u8], cell: usize) -> Timestamp {
        match self.record {
            RecordLayout::Cells(cells) => cells.cell(image, cell).prev_ts,
            _ => Timestamp::ZERO,
        }
    }

    /// Whether the memory of a version was released, because a later version says "deleted".
    pub fn is_given_up(&self, image: &[u8], version: Timestamp) -> bool {
        let is_end =
            |it: Seen| it.word.is_committed() && it.deleted && it.word.timestamp() > version;
        self.seen(image).any(is_end)
    }

    /// Returns the places of versions in a slot's image. In layouts with one version, the iterator is empty.
    #[inline]
    pub fn seen<'a>(&self, image: &'a [u8]) -> impl Iterator<Item = Seen> + Clone + use<'a> {
        let (layout, cells) = (self.record, self.cells());
        (0..cells).filter_map(move |cell| match layout {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => None,
            RecordLayout::Packed(packed) => Some(packed.seen(image, cell)),
            RecordLayout::Cells(cells) => Some(cells.seen(image, cell)),
        })
    }

    /// Calls [`choose`] for a slot's image.
    #[inline]
    pub fn choose(
        &self,
        image: &[u8],
        t_start: Timestamp,
        rules: Rules,
        is_stray: impl Fn(u64) -> bool,
    ) -> Choice {
        match self.record {
            RecordLayout::Packed(packed) => choose(packed.all(image), t_start, rules, is_stray),
            _ => choose(self.seen(image), t_start, rules, is_stray),
        }
    }

    /// Calls [`newest_committed`] for a slot's image.
    #[inline]
    pub fn newest_committed(&self, image: &[u8]) -> Option<Committed> {
        match self.record {
            RecordLayout::Packed(packed) => newest_committed(packed.all(image)),
            _ => newest_committed(self.seen(image)),
        }
    }

    /// Calls [`cell_to_overwrite`] for a slot's image.
    #[inline]
    pub fn cell_to_overwrite(
        &self,
        image: &[u8],
        rules: Rules,
        is_stray: impl Fn(u64) -> bool,
    ) -> Option<Overwrite> {
        match self.record {
            RecordLayout::Packed(packed) => cell_to_overwrite(packed.all(image), rules, is_stray),
            _ => cell_to_overwrite(self.seen(image), rules, is_stray),
        }
    }

    /// Whether any version in a slot's image is undecided. A version is undecided if it is INVISIBLE and `is_stray`
    /// returns false for its transaction.
    #[inline]
    pub fn is_undecided(&self, image: &[u8], is_stray: impl Fn(u64) -> bool) -> bool {
        let is_open = |it: Seen| it.word.is_invisible() && !is_stray(it.txn);
        match self.record {
            RecordLayout::Packed(packed) => packed.all(image).any(is_open),
            _ => self.seen(image).any(is_open),
        }
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
