//! Prepares the writes of OOCC's commit: whole records, with the new version in every line, and after them directory
//! records.
//!
//! Invariant: the commit writes a record whole, except for LOCK, even if only some columns have changed. The commit
//! writes the first line of a record before its other lines. The first line names the transaction that has written
//! the record. So a first line in memory shows recovery that this transaction was decided to commit. A record of half
//! a line names no writer, so its VERSION shows instead that the transaction was decided to commit. After the
//! records, the commit writes the bytes that do not show its decision: links of chains, then directory records.

use super::commit::Decided;
use super::{Oocc, on};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::index::changes::{finish, give_back_body, raise_directory, set_new_version};
use crate::steps::log::encode::redo_bytes;
use crate::transaction::working_set::{Entry, NO_LOCK, PendingWrite, Txn};
use std::ops::Range;
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{Failure, Mode};
use tarn_store::layout::{KEY_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// Decides the new versions of the records and gathers the bytes that the commit writes.
pub(super) fn prepare(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    // The number of links to new overflow blocks, which the transaction's inserts have added to the chains of their
    // buckets.
    let chains = txn.pieces.len();
    // The function takes the entries out of the transaction, so that the loop can read an entry while it changes the
    // rest of the transaction.
    let mut entries = std::mem::take(&mut txn.entries);
    for entry in entries.iter_mut().filter(|entry| entry.lock != NO_LOCK) {
        let table = cx.table(entry.table);
        match entry.mode {
            Mode::Update if entry.dirty.0 != 0 => {
                let version = entry.version.present_after(Version::NEVER);
                write_record(oocc, txn, entry, (table, version));
            }
            Mode::Insert if !entry.void => insert(oocc, txn, entry, table),
            Mode::Delete => {
                let version = entry.version.absent_after();
                write_record(oocc, txn, entry, (table, version));
                raise_directory(txn, entry.directory_lock, version);
            }
            Mode::Insert | Mode::Update | Mode::Read => {}
        }
        entry.new_version = txn.locks[entry.lock as usize].new_version;
    }
    txn.entries = entries;
    match txn.pieces.len() > chains {
        true => lengthen_for_void(txn),
        false => shorten_chains(cx, txn),
    }
    let chains = chains.min(txn.pieces.len());
    txn.pieces.rotate_left(chains);
    finish(cx, txn, redo_bytes)
}

/// Completes the writes of an index's growth. The header of a hash index names the transaction that wrote it, so the
/// transaction writes the header first. A record that moves still names the transaction that wrote it earlier, and a
/// directory record names no writer. Nodes of an ordered index name no writer, either. Returns the evidence by which
/// recovery knows that the growth was decided to commit.
pub(super) fn prepare_growth(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<Decided, Failure> {
    let header = txn.locks[0].address.plus(VERSION_AT);
    let first = txn.pieces.iter().position(|piece| piece.address == header);
    if oocc.switches.is_on(on::HEADER_FIRST) {
        txn.pieces.rotate_left(first.unwrap_or(0));
    }
    finish(cx, txn, redo_bytes)?;
    Ok(if first.is_some() { Decided::ByFirstLine } else { Decided::ByMarks })
}

/// Raises the versions of buckets whose chains may have become longer because of an insert that the transaction took
/// back.
fn lengthen_for_void(txn: &mut Txn) {
    for index in 0..txn.entries.len() {
        let Entry { void, directory_lock, .. } = txn.entries[index];
        if void && directory_lock != NO_LOCK {
            raise_directory(txn, directory_lock, Version::NEVER);
        }
    }
}

/// Removes the new links of chains from the transaction's writes, and frees the overflow blocks to which they lead.
/// The transaction writes no record, so nothing in memory would name the writer of these links.
fn shorten_chains(cx: &Context, txn: &mut Txn) {
    while let Some(next) = txn.pieces.pop() {
        let block = Address::from_word(txn.round.word(next.new));
        give_back_body(cx, txn, block);
    }
}

/// Adds the writes of a record that the transaction inserts.
fn insert(oocc: &Oocc, txn: &mut Txn, entry: &Entry, table: &Table) {
    let directory = txn.locks[entry.directory_lock as usize];
    let former = txn.locks[entry.lock as usize].old_version;
    let version = match oocc.keeps(Rule::KeepVersion) {
        true => former.present_after(directory.old_version),
        false => Version::NEVER.present_after(Version::NEVER),
    };
    write_record(oocc, txn, entry, (table, version));
    raise_directory(txn, entry.directory_lock, Version::NEVER);
}

/// Adds the writes of a whole record with its new contents.
fn write_record(oocc: &Oocc, txn: &mut Txn, entry: &Entry, (table, version): (&Table, Version)) {
    let slot = &table.slot;
    let Some(lined) = slot.lined() else { unreachable!("every table of this layout is lined") };
    set_new_version(txn, entry.lock, version);
    txn.locks[entry.lock as usize].nameless = lined.is_half();
    let Txn { round, pieces, tag, .. } = txn;
    let image = match lined.lines() {
        // The payload of the record already lies in a copy of the slot.
        1 => BufferOffset(entry.payload.0 - slot.payload_at as u32),
        _ => {
            let image = round.reserve_lines(slot.slot_bytes);
            round.copy_within(entry.image, image, slot.slot_bytes);
            for part in lined.parts(lined.payload_at(), slot.payload_bytes) {
                let (from, to) = (entry.payload.plus(part.at), image.plus(part.record_at));
                round.copy_within(from, to, part.len_bytes);
            }
            image
        }
    };
    if entry.mode == Mode::Insert {
        round.set_word(image.plus(KEY_AT), entry.key);
        round.copy_within(entry.full_key, image.plus(slot.full_key_at), slot.full_key_bytes);
    }
    lined.stamp(round.bytes_mut(image, slot.slot_bytes), version, tag.word());
    let mut push = |range: Range<usize>| {
        pieces.push(PendingWrite {
            address: entry.address.plus(range.start),
            new: image.plus(range.start),
            old: entry.image.plus(range.start),
            len_bytes: range.len() as u32,
            logged: true,
        });
    };
    match oocc.switches.is_on(on::FIRST_LINE_FIRST) {
        true => lined.writes().for_each(push),
        false => push(VERSION_AT..lined.writes().last().map_or(VERSION_AT, |last| last.end)),
    }
}
