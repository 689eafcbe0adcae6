//! LOTUS where memory is near: the fetch of [`super::short`], by loads instead of rounds. The commit is [`super::near_commit`].
//!
//! Invariant: each visit stands where a round would, with its checks and its fence, and reads whole lines as that would. A record is found by
//! the same words: its key in a slot of its home, or of its bucket, that is in use. What is neither there, nor as usual, goes on
//! as anywhere.

use super::execute::{advance, take_versions};
use super::short::LINE_WORDS;
use super::{Lotus, on, phase, enter, short, snapshot};
use tarn_store::placement::catalog::Table;
use crate::site::Context;
use tarn_store::layout::{DIRECTORY_BYTES, Geometry, KEY_AT, VERSION_AT, Version};
use tarn_store::index::hash_of;
use crate::services::lock::name::LockName;
use tarn_store::ids::{Failure, Timestamp};
use crate::services::Transport;
use crate::steps::index::begin_lookup;
use crate::transaction::working_set::{Entry, Intent, Progress, Txn};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::error::FabricError;
use tarn_fabric::local::{DirectMemory, Visit};
use tarn_fabric::round::BufferOffset;

const HOME_SLOTS: usize = Geometry::SLOTS_PER_BIN;

/// Begins a fetch under locks that are all this node's, so that nobody need be waited for but the lines.
#[inline]
pub(super) fn begin<'a>(lotus: &Lotus, cx: &'a Context, txn: &mut Txn) -> Option<DirectMemory<'a>> {
    let is_plain = txn.intent == Intent::ReadWrite && txn.notes.is_plain() && txn.failed.is_none();
    let is_short = !lotus.starts_writers() && lotus.switches.is_on(on::LOCKS_APART);
    if !is_plain || !is_short || matches!(cx.node_services().transport(), Transport::Rpc | Transport::Direct) {
        return None;
    }
    let near = cx.port.near()?;
    if !short::fetches(cx, txn) {
        return None;
    }
    // What holds should the fetch be dropped.
    txn.failed = Some(Failure::Usage);
    ask(cx, txn, near);
    Some(near)
}

/// E1 to E3 of what [`begin`] has asked for. `None`: not all of it was shown at once, and [`fetch_others`] goes on.
#[inline]
pub(super) fn end(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Option<Result<(), Failure>> {
    short::lock(cx, txn);
    let shown = match txn.held.collect_at_once(cx, txn.tag) {
        Ok(()) => read_locked(lotus, cx, txn, near),
        Err(refused) => Err(refused),
    };
    txn.failed = shown.err();
    match shown {
        Ok(false) => {
            txn.read_near = true;
            None
        }
        ended => Some(ended.map(|_| ())),
    }
}

/// E1 to E3, as [`short::fetch`].
#[inline]
pub(super) async fn fetch(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Result<(), Failure> {
    ask(cx, txn, near);
    near.travel().await;
    short::lock(cx, txn);
    if !txn.held.is_settled() {
        txn.held.collect(cx, txn.tag).await?;
    }
    match read_locked(lotus, cx, txn, near)? {
        true => Ok(()),
        false => fetch_others(lotus, cx, txn, near).await,
    }
}

/// E2 and E3, under the locks; whether everything was shown.
#[inline(always)]
fn read_locked(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Result<bool, Failure> {
    let shown = Shown { lotus, cx, start: None };
    read(cx, txn, near, shown).map_err(|error| failed(cx, *error))
}

/// Takes in what was read and not shown at once, and reads what is not at home, when its lines have had time to come.
pub(super) async fn fetch_others(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Result<(), Failure> {
    if ask_buckets(cx, txn, near) {
        near.travel().await;
    }
    take_others(lotus, cx, txn, near)
}

/// As [`short::fetch_as_of`].
#[inline]
pub(super) async fn fetch_as_of(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Result<Vec<(usize, usize)>, Failure> {
    ask(cx, txn, near);
    near.travel().await;
    txn.stamps.view = cx.database().membership.view();
    match read(cx, txn, near, Shown { lotus, cx, start: Some(txn.stamps.start) }) {
        Ok(true) => Ok(Vec::new()),
        Ok(false) => {
            if ask_buckets(cx, txn, near) {
                near.travel().await;
            }
            take_others_as_of(lotus, cx, txn, near)
        }
        Err(error) => Err(failed(cx, *error)),
    }
}

/// Asks for the lines of all homes, and for those of their locks in this node's table.
#[inline(never)]
fn ask(cx: &Context, txn: &Txn, near: DirectMemory<'_>) {
    if txn.intent == Intent::ReadWrite {
        ask_locks(cx, txn, near);
    }
    let homes = txn.entries[txn.fetched..].iter().map(|entry| cx.groups.primary(entry.address));
    near.ask::<HOME_SLOTS>(homes);
}

/// Asks for the lines of the locks, in the tables of those who grant them.
#[inline(always)]
fn ask_locks(cx: &Context, txn: &Txn, near: DirectMemory<'_>) {
    let services = cx.node_services();
    let hash = |entry: &Entry| LockName::row(entry.table.0, entry.key).hash();
    let wanted = txn.entries[txn.fetched..].iter();
    if services.transport() == Transport::Own {
        return near.ask_own(wanted.map(|entry| services.locks.line(hash(entry))));
    }
    let thread = cx.thread_services();
    let shard = |entry: &Entry| cx.table(entry.table).shard_of(entry.key);
    near.ask_own(wanted.map(|entry| thread.lock_line(shard(entry), hash(entry))));
}

/// What of a slot is shown at once: under its lock, or as of a T_start.
#[derive(Clone, Copy)]
struct Shown<'a> {
    lotus: &'a Lotus,
    cx: &'a Context,
    start: Option<Timestamp>,
}

impl Shown<'_> {
    /// Whether the line's newest version was it; `next` is room for the slot's next image.
    #[inline(always)]
    fn show(
        self,
        entry: &mut Entry,
        line: &[u64; LINE_WORDS],
        next: (BufferOffset, &mut [u64; LINE_WORDS]),
    ) -> bool {
        let packed = short::packed(self.cx.table(entry.table));
        if let Some(start) = self.start {
            return short::show_as_of(start, entry, packed, line);
        }
        match short::show_newest(self.lotus, self.cx, entry, packed, line) {
            Some((newest, true)) => short::make_next(entry, (packed, newest), line, next),
            Some((_, false)) => {}
            None => return false,
        }
        true
    }
}

/// Reads the slots of what is to be fetched, at home, and shows what they have; whether that was all. What is not at home is left
/// as [`Progress::Home`], what was read and not shown as it was.
#[inline(never)]
fn read(
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
    shown: Shown<'_>,
) -> Result<bool, Box<FabricError>> {
    let Txn { entries, round, fetched, .. } = txn;
    let wanted = &mut entries[*fetched..];
    // Each has a line, and one behind it for the slot's next image.
    let images = round.reserve_lines(wanted.len() * 2 * LINE_BYTES);
    let mut room = round.words_mut(images, wanted.len() * 2 * LINE_WORDS);
    let first = cx.groups.primary(wanted[0].address);
    let count = wanted.len();
    let (mut done, mut image) = (0, images);
    near.visit(first, |visit| {
        for entry in wanted {
            enter(cx, phase::LOCATE);
            let (line, rest) = room.split_first_chunk_mut().expect("room for it");
            let (next, rest) = rest.split_first_chunk_mut().expect("room for it");
            room = rest;
            entry.image = image;
            if read_slot(visit, (cx, (entry.address, HOME_SLOTS)), entry, line)? {
                done += usize::from(shown.show(entry, line, (image.plus(LINE_BYTES), next)));
            } else {
                entry.progress = Progress::Home;
            }
            image = image.plus(2 * LINE_BYTES);
        }
        Ok::<_, Box<FabricError>>(())
    })?;
    if done == count {
        *fetched += count;
    }
    Ok(done == count)
}

/// Takes in what was not shown at once, under its locks.
#[inline(never)]
fn take_others(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Result<(), Failure> {
    read_buckets(cx, txn, near).map_err(|error| failed(cx, *error))?;
    for index in txn.fetched..txn.entries.len() {
        // Of what is known by now, or has to be looked for in the index, nothing is left to take in.
        if txn.entries[index].progress == Progress::Lock {
            take_versions(lotus, cx, txn, index)?;
        }
    }
    advance(txn);
    Ok(())
}

/// As [`take_others`], on a snapshot; which entries are undecided, with the cell in question.
#[inline(never)]
fn take_others_as_of(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Result<Vec<(usize, usize)>, Failure> {
    read_buckets(cx, txn, near).map_err(|error| failed(cx, *error))?;
    let mut undecided = Vec::new();
    for index in txn.fetched..txn.entries.len() {
        if txn.entries[index].progress == Progress::Lock {
            let cell = snapshot::choose(lotus, cx, txn, index)?;
            undecided.extend(cell.map(|cell| (index, cell)));
        }
    }
    Ok(undecided)
}

/// Asks for the buckets of what is not at home; whether there is any.
#[inline(never)]
fn ask_buckets(cx: &Context, txn: &Txn, near: DirectMemory<'_>) -> bool {
    let strays =
        || txn.entries[txn.fetched..].iter().filter(|entry| entry.progress == Progress::Home);
    let slots = |entry: &Entry| bucket(cx, cx.table(entry.table), entry.key).0;
    near.ask::<{ Geometry::BIN_SLOTS }>(strays().map(|entry| cx.groups.primary(slots(entry))));
    strays().next().is_some()
}

/// Reads the slots of the bucket that a record belongs to, where it is not at home: as in a table without homes, any slot that
/// has the key is the record's. What is not there either has the index to ask.
fn read_buckets(cx: &Context, txn: &mut Txn, near: DirectMemory<'_>) -> Result<(), Box<FabricError>> {
    let Txn { entries, round, fetched, lookups, .. } = txn;
    let strays = || entries[*fetched..].iter().filter(|entry| entry.progress == Progress::Home);
    let Some(first) = strays().next().map(|stray| cx.groups.primary(stray.address)) else {
        return Ok(());
    };
    near.visit(first, |visit| {
        for entry in &mut entries[*fetched..] {
            if entry.progress != Progress::Home {
                continue;
            }
            enter(cx, phase::LOCATE);
            let bucket = bucket(cx, cx.table(entry.table), entry.key);
            let line = round.array_mut(entry.image);
            match read_slot(visit, (cx, bucket), entry, line)? {
                true => entry.progress = Progress::Lock,
                false => begin_lookup(cx, entry, lookups, true),
            }
        }
        Ok(())
    })
}

/// The slots of the bucket that a key belongs to.
fn bucket(cx: &Context, table: &Table, key: u64) -> (Address, usize) {
    let near = cx.lookup_context();
    let place = near.view.place(near.catalog, table, hash_of(table, key));
    (place.bucket.plus(DIRECTORY_BYTES), table.geometry.slots)
}

/// Reads the slot of the entry's key, if it is one of these: then the entry's address is the slot's.
#[inline(always)]
fn read_slot(
    visit: &mut Visit<'_>,
    (cx, (slots, count)): (&Context, (Address, usize)),
    entry: &mut Entry,
    line: &mut [u64; LINE_WORDS],
) -> Result<bool, Box<FabricError>> {
    let slots_at = (cx.groups.primary(slots), count);
    let found = visit.find_line(slots_at, (KEY_AT / 8, entry.key), line)?;
    let is_present = Version::from_word(line[VERSION_AT / 8]).is_present();
    let Some(slot) = found.filter(|_| is_present) else { return Ok(false) };
    entry.address = slots.plus(slot * LINE_BYTES);
    Ok(true)
}

#[cold]
fn failed(cx: &Context, error: FabricError) -> Failure {
    cx.port.note_failure(error).into()
}
