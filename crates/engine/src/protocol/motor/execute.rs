//! Motor's execute phase: finds, locks and reads the records of a block of a transaction. This file sends the rounds
//! of the execute phase; [`super::absorb`] handles the answers.
//!
//! Invariant: if the transaction will write a record, it locks the record and reads the record's head again after the
//! lock, in one batch. The transaction reads the record's value after the lock in the same batch, or in a later
//! round. A transaction that reads a snapshot takes T_start before it reads anything. A transaction that reads a
//! snapshot reads each head before the value to which the head leads.

use super::absorb::{Look, absorb};
use super::switches::{on, phase};
use super::{Motor, enter, value};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::index::ask_index;
use crate::steps::index::room::{provide_blocks, wants_blocks};
use crate::steps::node_locks::{ask, suspect_all_locks};
use crate::steps::structure::scans;
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{
    Added, Entry, Handle, Intent, Progress, Stamps, Txn, Upgrade,
};
use tarn_store::ids::{AbortReason, Explanation, Failure, Mode};
use tarn_store::layout::DIRECTORY_BYTES;
use tarn_store::placement::catalog::Table;
use tarn_store::schema::Cells;

/// The number of times that one fetch of a snapshot reads locked records again before the transaction aborts.
const LOOKS_AGAIN: u32 = 3;

/// The number of bytes of a head that Motor compares: LOCK and VERSION.
pub(super) const HEAD_BYTES: usize = 16;

/// Adds an entry for a record that the next fetch reads at its cached address or searches in the index.
pub(super) fn add(cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
    let Added { key, full_key, mode, cells, .. } = added;
    let comes_or_goes = matches!(mode, Mode::Insert | Mode::Delete);
    let seen = match comes_or_goes || !cx.remembers {
        true => None,
        false => cx.cache.borrow().get(table.id, key),
    };
    let mut entry = Entry::new(table.id, key, mode, cells, Progress::Locate);
    entry.full_key = full_key;
    if let Some(place) = seen {
        (entry.address, entry.body) = place;
        entry.progress = Progress::Direct;
        return txn.push(entry);
    }
    let handle = txn.push(entry);
    ask_index(cx, txn, txn.place_of(handle), comes_or_goes);
    handle
}

/// Prepares a fetched record for a further operation: a read of more cells at their place, the lock of the record, or
/// a read of its bucket.
pub(super) fn upgrade(cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
    match further {
        Upgrade::Cells => txn.entries[index].progress = Progress::Direct,
        Upgrade::Lock => txn.entries[index].progress = Progress::Lock,
        Upgrade::Index => ask_index(cx, txn, index, true),
    }
}

/// Fetches every entry of the transaction that was not fetched before.
pub(super) async fn fetch(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if txn.notes.is_mistaken() {
        return Err(Failure::Usage);
    }
    if let Some(failure) = txn.failed {
        return Err(again_after(cx, txn, failure));
    }
    txn.assumes_locks = !motor.keeps(Rule::LockCas);
    txn.ordered.has_own = false;
    if txn.stamps.of != Some(txn.tag) {
        txn.stamps = Stamps { of: Some(txn.tag), ..Stamps::NONE };
    }
    // If the caller drops the future, the transaction keeps this failure.
    txn.failed = Some(Failure::Usage);
    let outcome = fetch_all(motor, cx, txn).await;
    txn.failed = outcome.err();
    outcome
}

async fn fetch_all(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let (mut looks, mut look) = (LOOKS_AGAIN, Look::Fine);
    if motor.reads_snapshot(txn) {
        let asks = |entry: &Entry| entry.mode != Mode::Read;
        if txn.intent == Intent::ReadOnly && txn.entries[txn.fetched..].iter().any(asks) {
            return Err(AbortReason::NeedsLocks.into());
        }
        if txn.stamps.start == Stamps::NONE.start {
            txn.stamps.start = cx.timestamps.start(cx).await?;
        }
    }
    while txn.fetched < txn.entries.len() || txn.ordered.pending {
        plan(motor, cx, txn);
        if txn.ordered.pending {
            scans::plan(motor, cx, txn);
        }
        if look != Look::Fine {
            enter(cx, phase::LOOK_AGAIN);
        }
        if let Err(error) = cx.port.execute(&mut txn.round).await {
            suspect_all_locks(txn);
            return Err(error.into());
        }
        let taken = absorb(motor, cx, txn);
        let scanned = match txn.ordered.pending {
            true => scans::absorb(motor, cx, txn),
            false => Ok(()),
        };
        look = taken?;
        scanned?;
        match look {
            Look::Fine => {}
            Look::Again(why) if looks == 0 => return Err(why.into()),
            Look::Again(_) => looks -= 1,
        }
        if wants_blocks(txn) {
            provide_blocks(cx, txn).await?;
        }
        // Verbs that are added after this point belong to the next round.
        txn.round.begin();
    }
    Ok(())
}

/// Handles a fetch that follows a fetch which failed or was dropped. After a failed or dropped fetch, the transaction
/// can only end. Returns the failure of the earlier fetch, or a usage error.
#[cold]
fn again_after(cx: &Context, txn: &mut Txn, failure: Failure) -> Failure {
    suspect_all_locks(txn);
    if failure != Failure::Usage {
        return failure;
    }
    let allowed = "after a fetch that was dropped a transaction can only end";
    cx.explain(Explanation::usage("fetch", "one more", allowed))
}

/// Adds the next verbs of every entry that was not fetched yet to the round.
fn plan(motor: &Motor, cx: &Context, txn: &mut Txn) {
    for index in txn.fetched..txn.entries.len() {
        let mut entry = txn.entries[index];
        let table = cx.table(entry.table);
        match entry.progress {
            Progress::Done => {}
            Progress::Home => unreachable!("no record of this layout has its value at home"),
            Progress::Locate => {
                enter(cx, phase::LOCATE);
                let Txn { lookups, round, .. } = &mut *txn;
                let near = cx.lookup_context().proving(motor.keeps(Rule::ProveAbsent));
                lookups[entry.lookup as usize].plan(near, table, round);
            }
            Progress::Direct if entry.only_reads() => {
                plan_head(motor, cx, txn, &mut entry, table);
            }
            Progress::Direct => plan_lock(motor, cx, txn, &mut entry, table),
            Progress::Lock => {
                let asks = entry.mode != Mode::Update && plan_directory(cx, txn, &mut entry);
                plan_lock(motor, cx, txn, &mut entry, table);
                if asks {
                    enter(cx, phase::LOCK_DIRECTORY);
                }
            }
            Progress::Body => {
                enter(cx, phase::READ_VALUE);
                value::plan(motor, cx, txn, &mut entry, table);
            }
        }
        txn.entries[index] = entry;
    }
}

/// Adds the READ of a head at its cached address. If the head has several cache lines, the round reads the head's
/// first words once before the head and once after it. If the address of the record's value is cached, the same batch
/// also reads the value.
fn plan_head(motor: &Motor, cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    enter(cx, phase::READ_HEAD);
    let target = cx.groups.primary(entry.address);
    let slot_bytes = table.slot.slot_bytes;
    entry.image = txn.round.reserve_lines(slot_bytes + 2 * HEAD_BYTES);
    if !table.slot.is_one_line() {
        txn.round.read_into(target, entry.image.plus(slot_bytes + HEAD_BYTES), HEAD_BYTES);
    }
    txn.round.read_into(target, entry.image, slot_bytes);
    let together = comes_along(motor, entry);
    if together {
        value::plan_newest(cx, txn, entry, table);
    }
    if !table.slot.is_one_line() || (together && value::needs_head(motor, table)) {
        txn.round.read_into(target, entry.image.plus(slot_bytes), HEAD_BYTES);
    }
}

/// Returns whether the transaction reads a value in the same batch as its head. If every version is stored whole, one
/// batch cannot read value and head, because only the head shows the newest version's place.
#[inline]
pub(super) fn comes_along(motor: &Motor, entry: &Entry) -> bool {
    motor.switches.is_on(on::READ_TOGETHER)
        && motor.switches.is_on(on::DELTAS)
        && !entry.body.is_null()
        && entry.cells != Cells::NONE
        && entry.mode != Mode::Insert
}

/// Adds the request for the lock and the READ of the head in one batch, so that the READ happens under the lock. If
/// the same batch can read the value, adds the READ of the value after the READ of the head.
fn plan_lock(motor: &Motor, cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    enter(cx, phase::LOCK);
    let target = cx.groups.primary(entry.address);
    entry.lock = match txn.lock_on(entry.address) {
        Some(held) => held,
        None => ask(cx, txn, entry.address, LockKind::Record),
    };
    entry.writable = true;
    entry.image = txn.round.read(target, table.slot.slot_bytes);
    if comes_along(motor, entry) {
        value::plan_newest(cx, txn, entry, table);
    }
}

/// Adds the request for the lock on the bucket's directory record, and the READ of this directory record. Returns
/// whether this is the transaction's first request for the lock of the directory record.
fn plan_directory(cx: &Context, txn: &mut Txn, entry: &mut Entry) -> bool {
    let directory = txn.lookup(entry).directory;
    let held = txn.lock_on(directory);
    entry.directory_lock = held.unwrap_or_else(|| ask(cx, txn, directory, LockKind::Directory));
    let target = cx.groups.primary(directory);
    txn.lookups[entry.lookup as usize].directory_image = txn.round.read(target, DIRECTORY_BYTES);
    held.is_none()
}
