//! Compares the bytes read at a record's supposed place with the record that the transaction expects there.
//!
//! Invariant: a transaction's belief about a record's place comes from an earlier READ, by this transaction or by an
//! earlier transaction. The transaction relies on its belief about the place only if a new read of the place confirms
//! it. This module is for protocols whose locks are words in memory nodes.

use super::changes::give_back_body;
use crate::site::Context;
use crate::transaction::working_set::{Entry, NO_LOCK, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::{AbortReason, Mode};
use tarn_store::index::hash::Lookup;
use tarn_store::index::prints::Prints;
use tarn_store::layout::{KEY_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// Returns whether the image that was read at a cached address is an image of the entry's record.
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

/// Removes the wrong address of a record from the cache, and begins a lookup of the record in the index.
pub(crate) fn relocate(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    cx.cache.borrow_mut().forget(entry.table, entry.key);
    (entry.progress, entry.lookup) = (Progress::Locate, txn.lookups.len() as u32);
    txn.lookups.push(Lookup::start(cx.lookup_context(), table, entry.key));
    (entry.lock, entry.writable) = (NO_LOCK, false);
    entry.body = Address::NULL;
}

/// If an earlier record has left memory for a body at the slot, uses this memory for the entry's body. In that case,
/// frees the body that was allocated for the entry, because the memory at the slot replaces it.
pub(crate) fn keep_attached(cx: &Context, txn: &mut Txn, entry: &mut Entry, attached: Address) {
    if attached.is_null() {
        return;
    }
    give_back_body(cx, txn, entry.body);
    entry.body = attached;
}

/// Handles the READ of the bucket's directory record, which follows the lock of that directory record. Returns the
/// VERSION of the directory record.
///
/// # Errors
/// The directory record has changed since the lookup, and the protocol protects reads of absent records.
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
