//! Compares a read of a record's place with the transaction's belief about it.
//!
//! Invariant: a transaction's belief about a place comes from an earlier READ, its own or an earlier transaction's.
//! The belief counts only if the place reads the same now. For protocols whose locks are words of memory nodes.

use super::changes::give_back_body;
use crate::site::Context;
use crate::transaction::working_set::{Entry, NO_LOCK, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::{AbortReason, Mode};
use tarn_store::index::hash::Lookup;
use tarn_store::index::prints::Prints;
use tarn_store::layout::{KEY_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// Returns whether the image read at a remembered address is that of the record.
#[inline]
pub(crate) fn is_still_there(txn: &Txn, entry: &Entry, table: &Table) -> bool {
    let version = Version::from_word(txn.round.word(entry.image.plus(VERSION_AT)));
    if txn.round.word(entry.image.plus(KEY_AT)) != entry.key || !version.is_present() {
        return false;
    }
    let len = table.slot.full_key_bytes;
    entry.full_key.0 == 0
        || txn.round.bytes(entry.image.plus(table.slot.full_key_at), len)
            == txn.round.bytes(entry.full_key, len)
}

/// Forgets a remembered address that was wrong, and asks the index.
pub(crate) fn relocate(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    cx.cache.borrow_mut().forget(entry.table, entry.key);
    (entry.progress, entry.lookup) = (Progress::Locate, txn.lookups.len() as u32);
    txn.lookups.push(Lookup::start(cx.lookup_context(), table, entry.key));
    (entry.lock, entry.writable) = (NO_LOCK, false);
    entry.body = Address::NULL;
}

/// Uses the memory that is still attached to a slot from an earlier record, if there is any. Then gives back the body
/// that was provided.
pub(crate) fn keep_attached(cx: &Context, txn: &mut Txn, entry: &mut Entry, attached: Address) {
    if attached.is_null() {
        return;
    }
    give_back_body(cx, txn, entry.body);
    entry.body = attached;
}

/// Absorbs the bucket's directory record, read under its lock. Returns its VERSION.
///
/// # Errors
/// The directory record has changed since the lookup, and absences are protected.
pub(crate) fn take_directory(
    txn: &mut Txn,
    entry: &Entry,
    table: &Table,
    protects_absent: bool,
) -> Result<Version, AbortReason> {
    let lookup = *txn.lookup(entry);
    let Lookup { directory, directory_image: image, directory_version: expected, .. } = lookup;
    let version = Version::from_word(txn.round.word(image.plus(VERSION_AT)));
    let lock = &mut txn.locks[entry.directory_lock as usize];
    lock.old_version = version;
    if Prints::apply(table) {
        let seen = lookup.bucket_image.filter(|_| version == expected);
        let seen = seen.map(|bucket| Prints::of_slots(table, &txn.round, bucket));
        lock.prints = Prints::read(&txn.round, image).or(seen).unwrap_or(Prints::UNKNOWN);
    }
    if entry.mode == Mode::Insert && version != expected && protects_absent {
        return Err(AbortReason::IndexChanged);
    }
    for check in txn.checks.iter().filter(|check| check.address == directory) {
        if check.version != version && protects_absent {
            return Err(AbortReason::IndexChanged);
        }
    }
    txn.cover(directory);
    Ok(version)
}
