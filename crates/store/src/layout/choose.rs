//! Which version of a record a reader takes, and which one a writer may discard.
//!
//! What is asked of writers, all of one record under its lock:
//! 1. A version goes into a place as INVISIBLE, with a T_lb that is at least every T_commit that the record has had;
//!    only then is T_commit taken, above T_lb. Versions of a record come in the order of their T_commit.
//! 2. T_commit is taken before any T_start that is not below it is given.
//! 3. The version that is overwritten is the oldest of those shown, and PREV_TS of what takes its place is its
//!    T_commit; what goes into a place without a version takes PREV_TS over.
//! 4. Who aborts writes the former bytes back, or leaves a place without a version but with its PREV_TS.
//! 5. A slot becomes another record's only after it was emptied: then each of its places without a version has as PREV_TS
//!    what it had shown ([`Slot::empty_cells`]), also once another record is there. A reader whose
//!    first line is of before, and the next of after, would otherwise miss the deletion. Whoever finds its key in no
//!    slot any more asks when the bucket was emptied last; and a record that comes to a bucket has as PREV_TS when that was,
//!    since it may be one that was there before (`structure` of the engine).
//! 6. A version that says "deleted" gives up the memory of all that it comes after ([`Slot::is_given_up`]), so that
//!    no slot of a deleted record keeps any.
//!
//! Invariant: what [`choose`] answers is true of the moment T_start, wherever and whenever each cell was read, as
//! long as that was after T_start was given. For let v be the newest version with T_commit <= T_start, and c the
//! newest one that was seen not above T_start. By 1 and 2, v was in its place before T_start was given. Read
//! later, the place shows v; or v INVISIBLE, T_lb being below T_start; or what came after v, and then its PREV_TS
//! is at least v's. So if v is not c, somebody is INVISIBLE with T_lb < T_start, or some PREV_TS is above c. And
//! if some PREV_TS is above c, by 3 all up to c had been discarded when that one was: to read again would not help,
//! unless who discarded it aborts. That is why this is "too old" at once. A PREV_TS is not to be compared with
//! T_start: between two cells' reading, both may have been overwritten twice, and then it is above T_start.
//!
//! Our own, after the tables of versions of LOTUS (Hu, Zuo, Hu, Chen, Wang, Yang: "LOTUS: Optimizing Disaggregated
//! Transactions with Disaggregated Locks") and Motor (Zhang, Hua, Yang, OSDI 2024); neither keeps T_lb or PREV_TS.

use super::{RecordLayout, Slot, VersionWord};
use crate::ids::Timestamp;

/// One version's place, as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// When its version was committed, or that it was not.
    pub word: VersionWord,
    /// Whether the version says "deleted".
    pub deleted: bool,
    /// Tag of the transaction that wrote it, of an INVISIBLE one at least.
    pub txn: u64,
    /// The newest version that was discarded from here; of packed records 1 if any may have been.
    pub prev_ts: Timestamp,
}

/// What a reader makes of discarded versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discards {
    /// What was discarded above the version that was found is missing.
    Above,
    /// Only if it is not above T_start either: wrong, and held against the tests.
    Between,
    /// They are forgotten: what is gone has never been. As published.
    Forgotten,
}

/// Which rules are in force: a protocol's switches turn them off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// An INVISIBLE version is passed over only if its T_lb is not below T_start; off: always, as published.
    pub lower_bound: bool,
    /// What a reader makes of discarded versions.
    pub discards: Discards,
    /// The newest committed version is never overwritten while there is room for another; off: it may be.
    pub keep_newest: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: Rules =
        Rules { lower_bound: true, discards: Discards::Above, keep_newest: true };
}

/// A committed version, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Its cell.
    pub cell: usize,
    /// Its T_commit.
    pub version: Timestamp,
    /// Whether it says "deleted".
    pub deleted: bool,
}

/// What a reader finds as of its T_start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// This version: never one that says "deleted".
    Version(Committed),
    /// There is no record.
    NotFound,
    /// The version, if there was one, has been discarded.
    TooOld,
    /// Whoever writes this cell may be committed at or before T_start: read again, or ask its log.
    Undecided {
        /// Which cell.
        cell: usize,
    },
}

/// Where a writer puts its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overwrite {
    /// Which cell.
    pub cell: usize,
    /// Its PREV_TS once it is overwritten.
    pub prev_ts: Timestamp,
    /// What is discarded, if anything: its memory may be used again once nobody can ask for it.
    pub discarded: Option<Committed>,
}

/// What a reader that started at `t_start` takes. `is_stray` says of an INVISIBLE version's transaction whether it
/// was left by a life that is recovered, and so never will be committed.
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

/// The newest committed version, one that says "deleted" too. Of cells read at one moment, or under the record's
/// lock: otherwise it was the newest at none.
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

/// Where the holder of the record's lock puts its version: over what a recovered life left, or where there is
/// none, or over the oldest. Over the newest committed only if there is but one place. `None` if somebody's
/// version is undecided, who must be settled first.
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
            // What a dead life left goes first, so that there is never more than one.
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
    /// Makes of an image of a slot whose record was deleted that of one for another record, STATE and KEY aside: no
    /// versions, but what was discarded.
    pub fn empty_cells(&self, image: &mut [u8]) {
        match self.record {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => {}
            // Of one moment: nobody sees a part of each.
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

    /// Makes of an image of a slot whose record was deleted that of an empty one.
    pub fn vacate(&self, image: &mut [u8]) {
        match self.record {
            RecordLayout::Cells(cells) => {
                self.empty_cells(image);
                image[..cells.cell_at(0)].fill(0);
            }
            _ => image.fill(0),
        }
    }

    /// Whether a slot of this image has a deleted record of several versions, all of which are decided.
    pub fn is_tombstone(&self, image: &[u8]) -> bool {
        if !matches!(self.record, RecordLayout::Packed(_) | RecordLayout::Cells(_)) {
            return false;
        }
        !self.is_free(image)
            && !self.is_undecided(image, |_| false)
            && self.newest_committed(image).is_some_and(|newest| newest.deleted)
    }

    /// The newest version that was discarded from a cell, as far as its slot says.
    pub fn discarded_from(&self, image: &[u8], cell: usize) -> Timestamp {
        match self.record {
            RecordLayout::Cells(cells) => cells.cell(image, cell).prev_ts,
            _ => Timestamp::ZERO,
        }
    }

    /// Whether a version's memory was given up: a later version says "deleted".
    pub fn is_given_up(&self, image: &[u8], version: Timestamp) -> bool {
        let is_end =
            |it: Seen| it.word.is_committed() && it.deleted && it.word.timestamp() > version;
        self.seen(image).any(is_end)
    }

    /// The places of versions in an image of a slot; none in the layout of one version.
    #[inline]
    pub fn seen<'a>(&self, image: &'a [u8]) -> impl Iterator<Item = Seen> + Clone + use<'a> {
        let (layout, cells) = (self.record, self.cells());
        (0..cells).filter_map(move |cell| match layout {
            RecordLayout::InPlace | RecordLayout::Deltas(_) | RecordLayout::Lined(_) => None,
            RecordLayout::Packed(packed) => Some(packed.seen(image, cell)),
            RecordLayout::Cells(cells) => Some(cells.seen(image, cell)),
        })
    }

    /// [`choose`] of a slot's image.
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

    /// [`newest_committed`] of a slot's image.
    #[inline]
    pub fn newest_committed(&self, image: &[u8]) -> Option<Committed> {
        match self.record {
            RecordLayout::Packed(packed) => newest_committed(packed.all(image)),
            _ => newest_committed(self.seen(image)),
        }
    }

    /// [`cell_to_overwrite`] of a slot's image.
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

    /// Whether any version is undecided: INVISIBLE, and not what `is_stray` says a recovered life has left.
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
