//! LOTUS's short code path for the most common transactions. The records of these common transactions have their
//! versions in their slots, and are found in their home bins. The transactions read or update these records, under
//! locks or on a snapshot. [`super::short_commit`] has the commit of these transactions.
//!
//! Invariant: this file requests and sends exactly the same bytes as [`super::execute`] and [`super::snapshot`]
//! would, in the same order: first all locks, then the READs. The short path saves time because it goes over the
//! entries only once per round. The transaction makes the slot's next image when it fetches the record, so the
//! caller's payload already lies in the bytes that the commit writes. `execute` and `snapshot` handle records in any
//! other state. If the processor can load memory directly (near memory), visits to memory take the place of rounds
//! ([`crate::steps::access::sought`]). If a record is not in its home bin, the transaction then searches the record
//! in its bucket before it uses the index.

use super::execute::{advance, take_versions};
use super::snapshot;
use super::switches::{Lotus, enter, on, phase};
use crate::services::Transport;
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::steps::access::near::{ask_index_for_strays, failed};
use crate::steps::access::sought::{
    Found, LINE_WORDS, Outcome, Take, ask_strays, read_blocks, read_homes, strays,
};
use crate::steps::index::take_home;
use crate::transaction::working_set::{Added, Entry, Intent, Progress, Txn};
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::local::DirectMemory;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{Failure, Mode, Timestamp};
use tarn_store::index::hash::home;
use tarn_store::layout::{Geometry, Packed, RecordLayout, Version};
use tarn_store::placement::catalog::Table;

/// The entries whose versions are undecided, each with its undecided cell.
type Undecided = Vec<(usize, usize)>;

/// Notes a requested record for the short path, if the transaction searches the record in its home bin and the record
/// has its versions there. Returns whether the record was noted.
#[inline(always)]
pub(super) fn note(
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    added: Added,
    entry: &mut Entry,
) -> bool {
    let is_common = matches!(added.mode, Mode::Read | Mode::Update) && !cx.remembers;
    // In a table without home bins, the first READ of a snapshot brings the whole bucket.
    let has_home = txn.intent == Intent::ReadWrite || !table.slot.by_bucket;
    let is_noted = is_common && has_home && matches!(table.slot.record, RecordLayout::Packed(_));
    if is_noted {
        entry.address = home(cx.lookup_context(), table, added.hash);
        txn.at_home += 1;
    }
    is_noted
}

/// Returns whether all records of this fetch were noted.
#[inline]
pub(super) fn fetches(cx: &Context, txn: &mut Txn) -> bool {
    let noted = std::mem::take(&mut txn.at_home);
    noted > 0 && txn.fetched + noted == txn.entries.len() && !cx.has_ordered
}

/// Begins a fetch whose locks need no message, so that the fetch waits only for its cache lines.
#[inline]
pub(super) fn begin<'a>(lotus: &Lotus, cx: &'a Context, txn: &mut Txn) -> Option<DirectMemory<'a>> {
    let is_plain = txn.intent == Intent::ReadWrite && txn.notes.is_plain() && txn.failed.is_none();
    let is_short = !lotus.starts_writers() && lotus.switches.is_on(on::LOCKS_APART);
    if !is_plain
        || !is_short
        || lotus.by_service
        || matches!(cx.node_services().transport(), Transport::Rpc | Transport::Direct)
    {
        return None;
    }
    let near = cx.port.near()?;
    if !fetches(cx, txn) {
        return None;
    }
    // If the caller drops the fetch, the transaction keeps this failure.
    txn.failed = Some(Failure::Usage);
    ask(cx, txn, near);
    Some(near)
}

/// Performs the phases E1 to E3 of the fetch that [`begin`] has begun. Returns `None` if the transaction could not
/// show some records immediately. If [`end`] returns `None`, [`fetch_others`] continues the fetch.
#[inline]
pub(super) fn end(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Option<Result<(), Failure>> {
    lock(cx, txn);
    let shown = match txn.held.collect_at_once(cx, txn.tag) {
        Ok(()) => show_homes(txn, near, Shown { lotus, cx, start: None }),
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

/// Locks and reads the records of this fetch. Records that are not in their home bins, or are in an unusual state
/// there, are searched later. The transaction takes the locks immediately before the READs, when all prefetched
/// lines, including the lines of the locks, have had time to arrive.
#[inline]
pub(super) async fn fetch(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let near = cx.port.near();
    ask_homes(cx, txn, near);
    match near {
        Some(near) => near.travel().await,
        None => cx.port.warm(&txn.round).await,
    }
    lock(cx, txn);
    if !txn.held.is_settled() {
        txn.held.collect(cx, txn.tag).await?;
    }
    look(txn, near, Shown { lotus, cx, start: None }).await?;
    advance(txn);
    Ok(())
}

/// Reads the records of this fetch on a snapshot. Returns the entries whose versions are undecided. Records that are
/// not in their home bins are searched later.
#[inline]
pub(super) async fn fetch_as_of(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
) -> Result<Undecided, Failure> {
    let near = cx.port.near();
    ask_homes(cx, txn, near);
    if let Some(near) = near {
        near.travel().await;
    }
    txn.stamps.view = cx.database().membership.view();
    let start = Some(txn.stamps.start);
    look(txn, near, Shown { lotus, cx, start }).await
}

/// If the memory is near, prefetches the cache lines of the home bins and of their locks. If the memory is not near,
/// plans READs of the home bins in a round that is not sent yet.
#[inline(always)]
fn ask_homes(cx: &Context, txn: &mut Txn, near: Option<DirectMemory<'_>>) {
    let Some(near) = near else {
        let Txn { entries, round, fetched, .. } = txn;
        for entry in &mut entries[*fetched..] {
            let target = cx.groups.primary(entry.address);
            entry.image = round.read(target, cx.table(entry.table).geometry.bin_bytes);
        }
        return;
    };
    ask(cx, txn, near);
}

/// Phases E2 and E3: reads the home bins of the records of this fetch. If the memory is near, also reads the buckets
/// of the records that are not in their home bins.
#[inline(always)]
async fn look(
    txn: &mut Txn,
    near: Option<DirectMemory<'_>>,
    shown: Shown<'_>,
) -> Result<Undecided, Failure> {
    let Some(near) = near else { return send(txn, shown).await };
    match show_homes(txn, near, shown)? {
        true => Ok(Undecided::new()),
        false => look_elsewhere(txn, near, shown).await,
    }
}

/// Handles the records that the transaction could not show immediately. The function also reads the buckets of
/// records that are not in their home bins, after the buckets' lines have had time to arrive.
pub(super) async fn fetch_others(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Result<(), Failure> {
    look_elsewhere(txn, near, Shown { lotus, cx, start: None }).await?;
    advance(txn);
    Ok(())
}

/// Does the same as [`fetch_others`], both under locks and on a snapshot.
async fn look_elsewhere(
    txn: &mut Txn,
    near: DirectMemory<'_>,
    shown: Shown<'_>,
) -> Result<Undecided, Failure> {
    let wanted = &txn.entries[txn.fetched..];
    let memory = (near, shown.cx.table(wanted[0].table));
    if strays(wanted).next().is_some() {
        ask_strays(shown.cx, memory, wanted, false);
        near.travel().await;
        read_buckets(txn, memory, shown).map_err(|error| failed(shown.cx, *error))?;
    }
    let mut undecided = Vec::new();
    for index in txn.fetched..txn.entries.len() {
        // Entries that are already fetched, or that use the index, need no further step in this loop.
        if txn.entries[index].progress == Progress::Lock {
            shown.weigh(txn, index, &mut undecided)?;
        }
    }
    Ok(undecided)
}

/// Sends the round that reads the home bins, and handles its answers.
async fn send(txn: &mut Txn, shown: Shown<'_>) -> Result<Undecided, Failure> {
    let cx = shown.cx;
    for _ in txn.fetched..txn.entries.len() {
        enter(cx, phase::LOCATE);
    }
    if shown.start.is_none() {
        txn.round.hot();
    }
    cx.port.execute(&mut txn.round).await?;
    let mut undecided = Vec::new();
    for index in txn.fetched..txn.entries.len() {
        let Txn { entries, round, lookups, .. } = &mut *txn;
        let entry = &mut entries[index];
        if take_home(cx, entry, (round, lookups)) && !shown.show_image(entry, round) {
            shown.weigh(txn, index, &mut undecided)?;
        }
    }
    txn.round.begin();
    Ok(undecided)
}

/// The rule by which a transaction shows versions: under a lock, the newest version; on a snapshot, the version as of
/// T_start.
#[derive(Clone, Copy)]
struct Shown<'a> {
    lotus: &'a Lotus,
    cx: &'a Context,
    start: Option<Timestamp>,
}

impl Shown<'_> {
    /// Shows the version of a record whose line was read, if no other version is being written in the line. Returns
    /// whether the function has shown a version; if it has not, nothing has changed. `next` is the room in the buffer
    /// for the slot's next image.
    #[inline(always)]
    fn show(
        self,
        entry: &mut Entry,
        line: &[u64; LINE_WORDS],
        next: (BufferOffset, &mut [u64; LINE_WORDS]),
    ) -> bool {
        let packed = packed(self.cx.table(entry.table));
        if let Some(start) = self.start {
            return show_as_of(start, entry, packed, line);
        }
        match show_newest(self.lotus, self.cx, entry, packed, line) {
            Some((newest, true)) => make_next(entry, (packed, newest), line, next),
            Some((_, false)) => {}
            None => return false,
        }
        true
    }

    /// Does the same as [`Shown::show`] for an image in the buffer, and reserves the room for the slot's next image
    /// itself.
    #[inline(always)]
    fn show_image(self, entry: &mut Entry, round: &mut Round) -> bool {
        let packed = packed(self.cx.table(entry.table));
        match self.start {
            Some(start) => show_as_of(start, entry, packed, round.array(entry.image)),
            None => take_newest(self.lotus, self.cx, (entry, round), packed),
        }
    }

    /// Handles a record that could not be shown immediately, by the code for all kinds of records.
    fn weigh(self, txn: &mut Txn, index: usize, undecided: &mut Undecided) -> Result<(), Failure> {
        if self.start.is_none() {
            return take_versions(self.lotus, self.cx, txn, index);
        }
        let cell = snapshot::choose(self.lotus, self.cx, txn, index)?;
        undecided.extend(cell.map(|cell| (index, cell)));
        Ok(())
    }
}

/// Reads the home bins of the records of this fetch, and shows their versions. Returns whether all records of this
/// fetch were shown. A record that is not in its home bin stays in the state [`Progress::Home`]. A record that was
/// read but not shown keeps its state.
#[inline(never)]
fn show_homes(txn: &mut Txn, near: DirectMemory<'_>, shown: Shown<'_>) -> Result<bool, Failure> {
    let cx = shown.cx;
    let Txn { entries, round, fetched, .. } = txn;
    let wanted = &mut entries[*fetched..];
    (0..wanted.len()).for_each(|_| enter(cx, phase::LOCATE));
    let (count, table) = (wanted.len(), cx.table(wanted[0].table));
    // Each record gets one line of the buffer, followed by a line for the slot's next image.
    let images = round.reserve_lines(count * 2 * LINE_BYTES);
    let mut showing = Showing { shown, left: 0 };
    let to = (wanted, round, images);
    let read = read_homes::<_, { 2 * LINE_WORDS }>(cx, (near, table), to, &mut showing);
    let left = showing.left + read.map_err(|error| failed(cx, *error))?.sought;
    if left == 0 {
        *fetched += count;
    }
    Ok(left == 0)
}

/// Shows records that were found, and counts the records that it could not show immediately.
struct Showing<'a> {
    shown: Shown<'a>,
    left: usize,
}

/// Handles a record that was found in its home bin. The line after the record's own line is for the slot's next
/// image.
impl Take<Entry, { 2 * LINE_WORDS }> for Showing<'_> {
    #[inline(always)]
    fn take(&mut self, entry: &mut Entry, room: &mut [u64; 2 * LINE_WORDS], found: Found) {
        (entry.address, entry.image) = (found.slot.address(), found.image);
        let (line, next) = room.split_first_chunk_mut().expect("two lines");
        let next = (found.image.plus(LINE_BYTES), next.first_chunk_mut().expect("two lines"));
        self.left += usize::from(!self.shown.show(entry, line, next));
    }
}

/// Handles a record that was found in its bucket; the record is shown later.
impl Take<Entry, LINE_WORDS> for Showing<'_> {
    fn take(&mut self, entry: &mut Entry, _: &mut [u64; LINE_WORDS], found: Found) {
        (entry.address, entry.image) = (found.slot.address(), found.image);
        entry.progress = Progress::Lock;
    }
}

/// Reads the buckets of the records that are not in their home bins. As in a table without home bins, any slot with
/// the record's key belongs to the record. If a record is not in its bucket either, a lookup in the index begins.
fn read_buckets(
    txn: &mut Txn,
    memory: (DirectMemory<'_>, &Table),
    shown: Shown<'_>,
) -> Outcome<()> {
    let Txn { entries, round, fetched, .. } = &mut *txn;
    let wanted = &mut entries[*fetched..];
    strays(wanted).for_each(|_| enter(shown.cx, phase::LOCATE));
    read_blocks(shown.cx, memory, (wanted, round), &mut Showing { shown, left: 0 })?;
    ask_index_for_strays(shown.cx, txn);
    Ok(())
}

/// Prefetches the cache lines of all home bins, and the cache lines of their locks.
#[inline(never)]
fn ask(cx: &Context, txn: &Txn, near: DirectMemory<'_>) {
    if txn.intent == Intent::ReadWrite {
        ask_locks(cx, txn, near);
    }
    let homes = txn.entries[txn.fetched..].iter().map(|entry| cx.groups.primary(entry.address));
    near.ask::<{ Geometry::SLOTS_PER_BIN }>(homes);
}

/// Prefetches the cache lines of the locks, in the lock tables of the nodes that grant these locks.
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

#[inline(never)]
fn lock(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::LOCK);
    // Some transactions may have ended without this thread having noticed their end. This call first releases the
    // locks of transactions whose end was not noticed yet.
    cx.advance_closing();
    let Txn { entries, held, fetched, .. } = txn;
    let asked = |entry: &Entry| {
        let mode = if entry.mode == Mode::Read { LockMode::Read } else { LockMode::Write };
        (LockName::row(entry.table.0, entry.key), mode)
    };
    let wanted = entries[*fetched..].iter();
    let services = cx.node_services();
    let shard = |entry: &Entry| cx.table(entry.table).shard_of(entry.key);
    match services.transport() {
        Transport::Own => held.ask_each(cx, services, wanted.map(asked)),
        Transport::Near => {
            let asked = |entry: &Entry| {
                let (name, mode) = asked(entry);
                (name, mode, shard(entry))
            };
            held.ask_owners(cx, services, wanted.map(asked));
        }
        Transport::Rpc | Transport::Direct => {
            for entry in wanted {
                let (name, mode) = asked(entry);
                held.ask(cx, name, shard(entry), mode);
            }
        }
    }
}

/// Handles the newest version of a record whose slot was read under its lock, if no other version is being written in
/// the slot. If the transaction updates the record, makes the slot's next image, which contains the caller's payload.
/// Returns whether the function has shown the version; if it has not, nothing has changed.
#[inline(always)]
pub(super) fn take_newest(
    lotus: &Lotus,
    cx: &Context,
    (entry, round): (&mut Entry, &mut Round),
    packed: Packed,
) -> bool {
    let line = *round.array::<LINE_WORDS>(entry.image);
    let Some((newest, changes)) = show_newest(lotus, cx, entry, packed, &line) else {
        return false;
    };
    if changes {
        let next = round.reserve_lines(LINE_BYTES);
        make_next(entry, (packed, newest), &line, (next, round.array_mut(next)));
    }
    true
}

/// Shows the newest version in a cache line that was read under its lock, if no other version is being written in the
/// line. Returns the index of this version, and whether [`make_next`] must make the slot's next image.
#[inline(always)]
fn show_newest(
    lotus: &Lotus,
    cx: &Context,
    entry: &mut Entry,
    packed: Packed,
    line: &[u64; LINE_WORDS],
) -> Option<(usize, bool)> {
    let (newest, word) = packed.newest_of_two(line)?;
    let changes = match entry.mode {
        Mode::Read => false,
        Mode::Update if lotus.switches.is_on(on::KEEP_NEWEST) => true,
        _ => return None,
    };
    // The writer of this version may have died before it told the timestamp to the lock's owner, so this node notes
    // the timestamp now.
    cx.timestamps.observe(cx, word.timestamp());
    (entry.found, entry.progress) = (true, Progress::Done);
    entry.version = Version::from_word(word.word());
    entry.payload = entry.image.plus(packed.payload_at(newest));
    Some((newest, changes))
}

/// Makes a slot's next image from the slot's line. The caller's payload lies in this image, so the commit writes the
/// payload without a copy.
#[inline(always)]
fn make_next(
    entry: &mut Entry,
    (packed, newest): (Packed, usize),
    line: &[u64; LINE_WORDS],
    (next, words): (BufferOffset, &mut [u64; LINE_WORDS]),
) {
    let place = 1 - newest;
    let (from, to) = (packed.payload_at(newest) / 8, packed.payload_at(place) / 8);
    *words = *line;
    // If two versions are in one line, each payload is one word.
    words[to] = line[from];
    entry.old_payload = entry.payload;
    entry.payload = next.plus(to * 8);
    (entry.place, entry.writable) = (place as u8, true);
}

/// Shows the newest version in a line that was read without a lock, if it belongs to the snapshot and no other
/// version is being written there. Returns whether the function has shown the version; if it has not, nothing has
/// changed.
#[inline(always)]
fn show_as_of(
    start: Timestamp,
    entry: &mut Entry,
    packed: Packed,
    line: &[u64; LINE_WORDS],
) -> bool {
    match packed.newest_of_two(line) {
        Some((newest, word)) if word.timestamp() <= start => {
            (entry.found, entry.progress) = (true, Progress::Done);
            entry.version = Version::from_word(word.word());
            entry.payload = entry.image.plus(packed.payload_at(newest));
            true
        }
        _ => false,
    }
}

/// Returns the layout of the records of a table whose records were noted for the short path.
#[inline(always)]
pub(super) fn packed(table: &Table) -> Packed {
    match table.slot.record {
        RecordLayout::Packed(packed) => packed,
        _ => unreachable!("noted as packed"),
    }
}
