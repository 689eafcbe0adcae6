//! The search from a key to its slot, and so to its version table, for transactions with and without locks.
//!
//! Invariant: a slot keeps its key unless a split moves the key or a sweep empties the slot. An insert fills a slot
//! under the bucket's lock before any version in the slot is visible. A transaction moves or empties a slot only
//! under the lock of the slot's key, and while the directory record of its bucket is marked. So a transaction that
//! holds the key's lock finds the key's slot, if the key is in a slot. For a transaction without the key's lock, a
//! key is absent under two conditions. The first condition is that the key is in no line of its bucket. The second
//! condition is that the directory record did not change and was unmarked, from before the bucket's first line was
//! read until after its last line was read. Under these two conditions the key is absent at every moment from the
//! directory record's VERSION on. Before the VERSION of the directory record, the key may have been present.

use super::switches::{Lotus, enter, on, phase};
use crate::site::Context;
use crate::steps::index::recheck::{is_still_there, relocate};
use crate::steps::index::{begin_lookup, take_home};
use crate::transaction::working_set::{Entry, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::Mode;
use tarn_store::index::hash::{Answer, Wanted, home};
use tarn_store::index::hash_of;
use tarn_store::placement::catalog::Table;

/// The result, after one round's answers, of the search for an entry's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The search has found the slot: the entry's address and image are now those of the slot.
    There,
    /// No slot contains the key of the entry.
    Absent,
    /// The search for the slot needs another round.
    More,
    /// A split is moving records of the key's bucket.
    Changing,
}

/// Returns whether the table's buckets can be split. Only slots of one cache line can move, because each READ of such
/// a slot is consistent.
pub(super) fn may_grow(table: &Table) -> bool {
    table.slot.is_one_line()
}

/// Returns whether a key's home bin shows whether the key is in that bin. A home bin shows whether it contains a key,
/// if the key is a word and the table has home bins.
fn has_home(table: &Table) -> bool {
    table.slot.full_key_bytes == 0 && !table.slot.by_bucket
}

/// Begins the search for an entry's slot: at the record's cached address, in its home bin, or in the index. An insert
/// whose key is absent needs its whole bucket, so its search begins at the bucket.
pub(super) fn begin(cx: &Context, txn: &mut Txn, index: usize) {
    let Txn { entries, lookups, .. } = txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    if entry.mode == Mode::Insert {
        return begin_lookup(cx, entry, lookups, true);
    }
    if cx.remembers
        && let Some((address, _)) = cx.cache.borrow().get(entry.table, entry.key)
    {
        (entry.address, entry.progress) = (address, Progress::Direct);
    } else if has_home(table) {
        entry.address = home(cx.lookup_context(), table, hash_of(table, entry.key));
        entry.progress = Progress::Home;
    } else {
        begin_lookup(cx, entry, lookups, false);
    }
}

/// Adds the next READs of the search for an entry's slot.
pub(super) fn plan(cx: &Context, txn: &mut Txn, index: usize) {
    let Txn { entries, lookups, round, .. } = txn;
    let entry = &mut entries[index];
    let table = cx.table(entry.table);
    match entry.progress {
        Progress::Home => {
            enter(cx, phase::LOCATE);
            let target = cx.groups.primary(entry.address);
            entry.image = round.read(target, table.geometry.bin_bytes);
        }
        Progress::Direct => {
            enter(cx, phase::READ_DIRECT);
            let target = cx.groups.primary(entry.address);
            entry.image = round.reserve_lines(table.slot.slot_bytes);
            round.read_into(target, entry.image, table.slot.slot_bytes);
        }
        Progress::Locate => {
            enter(cx, phase::LOCATE);
            lookups[entry.lookup as usize].plan(cx.lookup_context(), table, round);
        }
        Progress::Lock | Progress::Body | Progress::Done => unreachable!("not on its way"),
    }
}

/// Handles the answers to the READs of the search for an entry's slot. `by_lock` is true if the transaction holds the
/// key's lock, so that the key's slot does not move.
pub(super) fn absorb(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    (index, by_lock): (usize, bool),
) -> Place {
    let mut entry = txn.entries[index];
    let table = cx.table(entry.table);
    let place = match entry.progress {
        Progress::Home => match take_home(cx, &mut entry, (&txn.round, &mut txn.lookups)) {
            true => Place::There,
            false => Place::More,
        },
        Progress::Direct if is_still_there(txn, &entry, table) => Place::There,
        Progress::Direct => {
            relocate(cx, txn, &mut entry, table);
            Place::More
        }
        _ => absorb_lookup(
            cx,
            txn,
            (&mut entry, table),
            by_lock || !lotus.switches.is_on(on::SECOND_LOOK),
        ),
    };
    if place == Place::There && cx.remembers {
        cx.cache.borrow_mut().put(entry.table, entry.key, entry.address, Address::NULL);
    }
    txn.entries[index] = entry;
    place
}

fn absorb_lookup(
    cx: &Context,
    txn: &mut Txn,
    (entry, table): (&mut Entry, &Table),
    by_lock: bool,
) -> Place {
    let full_key = (entry.full_key.0 != 0).then_some(entry.full_key);
    let wanted = Wanted { word: entry.key, full_key, me: txn.tag.word(), taken: None };
    let Txn { lookups, round, .. } = txn;
    let lookup = &mut lookups[entry.lookup as usize];
    match lookup.absorb(cx.lookup_context(), table, wanted, round) {
        Answer::More => Place::More,
        Answer::Unstable => Place::Changing,
        Answer::Absent if by_lock || lookup.stable => Place::Absent,
        Answer::Absent => {
            lookup.look_again();
            Place::More
        }
        Answer::Found { address, image, .. } => {
            (entry.address, entry.image) = (address, image);
            Place::There
        }
    }
}
