//! Chooses the version of a record that a reader takes, and the version that a writer may discard.
//!
//! All writers of one record, under its lock, must obey these rules:
//! 1. A writer first writes a version as INVISIBLE, with a T_lb that is at least every T_commit that the record has
//!    had. Only then is T_commit taken, above T_lb. So the versions of a record are written in the order of their
//!    T_commit.
//! 2. A T_commit is taken before any T_start that is equal or greater is given to a reader.
//! 3. The overwritten version is the oldest visible version. Its T_commit becomes the PREV_TS of the version that
//!    takes its place. A version that is written into a place without a version keeps the place's PREV_TS.
//! 4. A writer that aborts writes the former bytes back, or leaves a place without a version but with its PREV_TS.
//! 5. A slot passes to another record only after it was emptied. Then each place without a version has as its
//!    PREV_TS the version that it had shown ([`Slot::empty_cells`]), even after another record has taken the slot.
//!    Otherwise a reader could miss the deletion, if its first line is from before the deletion and the next line
//!    from after it. A reader that no longer finds its key in any slot checks when the bucket was emptied last. A
//!    record that is inserted into a bucket gets that time as its PREV_TS, since the same record may have been in
//!    the bucket before (`structure` of the engine).
//! 6. A version that says "deleted" releases the memory of all earlier versions ([`Slot::is_given_up`]), so that no
//!    slot of a deleted record keeps such memory.
//!
//! Invariant: the answer of [`choose`] is true of the moment T_start. Each cell may be read at any time and on any
//! node, as long as it was read after T_start was given. The proof: let v be the newest version with T_commit <=
//! T_start. Let c be the newest version seen that is not above T_start. By rules 1 and 2, v was in its place before
//! T_start was given. If the place is read later, it shows one of three things: v; or v INVISIBLE, with T_lb below
//! T_start; or a later version. If it shows a later version, the place's PREV_TS is at least the T_commit of v. So
//! if v is not c, some version is INVISIBLE with T_lb < T_start, or some PREV_TS is above c. If some PREV_TS is
//! above c, by rule 3 all versions up to c had been discarded when that later version was discarded. Reading again
//! would help only if the transaction that discarded it aborts. Therefore the answer is "too old" immediately. A
//! PREV_TS must not be compared with T_start. Between the reads of two cells, both cells may have been overwritten
//! twice, and then PREV_TS is above T_start.
//!
//! The rules are Tarn's own. These rules extend the version tables of LOTUS (Hu, Zuo, Hu, Chen, Wang, Yang: "LOTUS:
//! Optimizing Disaggregated Transactions with Disaggregated Locks") and Motor (Zhang, Hua, Yang, OSDI 2024).
//! Neither LOTUS nor Motor keeps T_lb or PREV_TS.

use super::{RecordLayout, Slot, VersionWord};
use crate::ids::Timestamp;

/// The place of one version, as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The commit time of the version, or a mark that the version is not committed.
    pub word: VersionWord,
    /// Whether the version says "deleted".
    pub deleted: bool,
    /// The tag of the transaction that wrote the version. The tag is correct at least if the version is INVISIBLE.
    pub txn: u64,
    /// The timestamp of the newest version that was discarded from this place. For packed records this timestamp is
    /// 1 if any version may have been discarded.
    pub prev_ts: Timestamp,
}

/// How a reader treats discarded versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discards {
    /// If a discarded version is newer than the version that was found, the reader's version is missing: the answer
    /// is "too old".
    Above,
    /// The same as `Above`, but only if the discarded version is not above T_start. This variant is a planted bug,
    /// and the tests must notice it.
    Between,
    /// Discarded versions are ignored, as in the published systems.
    Forgotten,
}

/// The rules that are in force. Switches of a protocol turn single rules off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// An INVISIBLE version is ignored only if its T_lb is not below T_start. If this rule is off, an INVISIBLE
    /// version is always ignored, as in the published systems.
    pub lower_bound: bool,
    /// How a reader treats discarded versions.
    pub discards: Discards,
    /// The newest committed version is not overwritten as long as there is another place. If this rule is off, it
    /// may be overwritten.
    pub keep_newest: bool,
}

impl Rules {
    /// All rules are in force.
    pub const ALL: Rules =
        Rules { lower_bound: true, discards: Discards::Above, keep_newest: true };
}

/// A committed version with its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The version's cell.
    pub cell: usize,
    /// The version's T_commit.
    pub version: Timestamp,
    /// Whether the version says "deleted".
    pub deleted: bool,
}

/// The answer to a reader for its T_start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The reader takes this version. A reader never takes a version that says "deleted".
    Version(Committed),
    /// The record does not exist at T_start.
    NotFound,
    /// The version for T_start, if there was one, has been discarded.
    TooOld,
    /// The writer of this cell may be committed at or before T_start. The reader must read again, or read the
    /// writer's log.
    Undecided {
        /// The cell.
        cell: usize,
    },
}

/// The place into which a writer writes its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overwrite {
    /// The cell.
    pub cell: usize,
    /// The cell's PREV_TS after the cell is overwritten.
    pub prev_ts: Timestamp,
    /// The version that the writer discards, if any. Its memory may be reused once no reader can need it.
    pub discarded: Option<Committed>,
}

/// The answer to a reader that started at `t_start`. `is_stray` gets the tag of the transaction that wrote an
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

/// The newest committed version, even if it says "deleted". The cells must be read at one moment, or under the
/// record's lock. Otherwise the returned version may never have been the newest.
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

/// The place into which the holder of the record's lock writes its version. The first choice is a version that a
/// recovered incarnation of a node left behind, then a place without a version, then the oldest version. The newest
/// committed version is overwritten only if the record has only one place. Returns `None` if a version is
/// undecided, because its transaction must be settled first.
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
    /// Turns the image of a slot whose record was deleted into an image for another record, except for STATE and
    /// KEY. The new image has no versions, but keeps the times of discarded versions.
    pub fn empty_cells(&self, image: &mut [u8]) {
        match self.record {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => {}
            // The image is a snapshot of one moment, so no reader sees parts of both records.
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

    /// Turns the image of a slot whose record was deleted into that of an empty slot.
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

    /// The timestamp of the newest version that was discarded from a cell, as far as the slot records it.
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

    /// The places of versions in a slot's image. The iterator is empty in layouts with one version.
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

    /// Whether any version is undecided. A version is undecided if it is INVISIBLE and `is_stray` returns false for
    /// its transaction.
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
