//! FORD's commonest case, made short: a record of one line, at home, to be read or updated.
//!
//! Invariant: every function here either does exactly what `execute` would have done for the entry
//! and says so, or changes nothing and leaves it to `execute`. Most records of most transactions
//! pass through here; what is rare (chains, payloads of their own, long keys, locks of others) does
//! not.

use super::execute::{HELD, ask};
use super::{Phase, enter};
use crate::catalog::Table;
use crate::context::Context;
use crate::index::hash::Wanted;
use crate::layout::{KEY_AT, LOCK_AT, VERSION_AT, Version};
use crate::working_set::{Check, Entry, LockKind, Mode, NO_LOCK, Progress, Txn};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::BufferOffset;

#[inline(always)]
fn is_short(entry: &Entry, table: &Table) -> bool {
    entry.full_key.0 == 0 && table.slot.is_one_line() && !table.slot.is_out_of_line()
}

/// Takes in the home of a record that is to be read or updated. Whether that was it.
#[inline(always)]
pub(super) fn absorb_home(cx: &Context, txn: &mut Txn, index: usize) -> bool {
    let Txn { entries, round, checks, tag, .. } = txn;
    let entry = &mut entries[index];
    if !matches!(entry.mode, Mode::Read | Mode::Update) {
        return false;
    }
    let table = cx.table(entry.table);
    if !is_short(entry, table) {
        return false;
    }
    let wanted = Wanted { word: entry.key, full_key: None, me: tag.word() };
    let Some((address, image)) = entry.lookup.at_home(table, wanted, round) else { return false };
    let line = round.line(image);
    if line[LOCK_AT / 8] != 0 {
        return false;
    }
    entry.address = address;
    entry.image = image;
    entry.version = Version::from_word(line[VERSION_AT / 8]);
    entry.found = true;
    cx.cache.borrow_mut().put(entry.table, entry.key, address, Address::NULL);
    if entry.mode == Mode::Update {
        entry.progress = Progress::Lock;
        return true;
    }
    entry.payload = image.plus(table.slot.payload_at);
    entry.stable = true;
    entry.progress = Progress::Done;
    let again = BufferOffset::default();
    checks.push(Check { address, version: entry.version, again, covered: false });
    true
}

/// Adds the lock and the READ of a record that `absorb_home` found. Whether that was it.
#[inline(always)]
pub(super) fn plan_lock(cx: &Context, txn: &mut Txn, index: usize) -> bool {
    let entry = &txn.entries[index];
    let (mode, progress, address) = (entry.mode, entry.progress, entry.address);
    if mode != Mode::Update || progress != Progress::Lock || entry.lock != NO_LOCK {
        return false;
    }
    if !is_short(entry, cx.table(entry.table)) {
        return false;
    }
    enter(cx, Phase::Lock);
    let lock = ask(cx, txn, address, LockKind::Record);
    let image = txn.round.read(cx.database().groups.primary(address), LINE_BYTES);
    let entry = &mut txn.entries[index];
    (entry.lock, entry.image) = (lock, image);
    true
}

/// Takes in a record that was locked, if nothing about it is out of the way. Whether that was it.
#[inline(always)]
pub(super) fn absorb_locked(cx: &Context, txn: &mut Txn, index: usize) -> bool {
    let Txn { entries, round, checks, locks, .. } = txn;
    let entry = &mut entries[index];
    if entry.mode != Mode::Update || !checks.is_empty() {
        return false;
    }
    let table = cx.table(entry.table);
    let lock = &mut locks[entry.lock as usize];
    if !is_short(entry, table) || lock.verb == HELD || !round.swapped(lock.verb) {
        return false;
    }
    let line = round.line(entry.image);
    let version = Version::from_word(line[VERSION_AT / 8]);
    if line[KEY_AT / 8] != entry.key || !version.is_present() {
        return false;
    }
    lock.verb = HELD;
    lock.old_version = version;
    entry.version = version;
    entry.progress = Progress::Done;
    let copy = round.reserve_lines(LINE_BYTES);
    round.copy_line(entry.image, copy);
    entry.payload = copy.plus(table.slot.payload_at);
    true
}
