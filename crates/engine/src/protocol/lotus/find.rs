//! The way from a key to its slot, and so to its table of versions: for transactions with locks and without.
//!
//! Invariant: a slot keeps its key unless a split moves it or a sweep empties it, and an insert
//! makes a slot under the bucket's lock before any version in it is visible. A slot moves or is emptied under its key's lock,
//! and while its bucket's directory record is marked. So a transaction that holds the key's lock finds the slot, or it is not there. To
//! a transaction without the lock, a key is absent if it is in no line of its bucket, and the directory record was the same, unmarked,
//! before the first of the lines was read and after the last. It is then absent as of any moment from the directory's VERSION on. Before
//! that it may have been there.

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

/// A round's answer about an entry's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The entry's address and image are the slot's.
    There,
    /// There is no slot of this key.
    Absent,
    /// Another round is needed.
    More,
    /// Records of its bucket are being moved.
    Changing,
}

/// Whether the table's buckets are split: slots of one line move, and are whole wherever they are read.
pub(super) fn may_grow(table: &Table) -> bool {
    table.slot.is_one_line()
}

/// Whether a key's home says whether it is there: its key is a word, and it has a home.
fn has_home(table: &Table) -> bool {
    table.slot.full_key_bytes == 0 && !table.slot.by_bucket
}

/// Begins the way: where the record was last seen, at its home, or in the index. An insert that finds nothing
/// needs all of its bucket.
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

/// Adds the next READs of the way.
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

/// Takes in the answers of the READs. `by_lock`: the key's lock is held, so that its slot does not move.
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
    let wanted = Wanted { word: entry.key, full_key, me: txn.tag.word() };
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
