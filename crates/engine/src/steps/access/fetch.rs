//! The execute phase: finds, locks and reads the records of a block of a transaction. This file sends the rounds of a
//! fetch; [`super::absorb`] handles the answers.
//!
//! Invariant: a fetch handles all answers of a round before any answer aborts the transaction, so that the
//! transaction knows which locks were granted. If the transaction will write a record, it locks the record and reads
//! it again in the same batch after the lock. A READ before the lock only shows the place of the record.

use super::absorb::absorb;
use super::{Access, home, near};
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::index::room::{provide_blocks, wants_blocks};
use crate::steps::locks::Locks as _;
use crate::steps::node_locks::{ask, suspect_all_locks};
use crate::steps::structure::scans;
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{Entry, Leases, Progress, Txn};
use tarn_fabric::address::LINE_BYTES;
use tarn_store::ids::{Explanation, Failure, Mode};
use tarn_store::layout::DIRECTORY_BYTES;
use tarn_store::placement::catalog::Table;

/// Fetches every entry of the transaction that was not fetched before.
pub(crate) async fn fetch<A: Access>(
    access: &A,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    if txn.notes.is_mistaken() {
        return Err(Failure::Usage);
    }
    if let Some(failure) = txn.failed {
        return Err(again_after(cx, txn, failure));
    }
    txn.assumes_locks = !access.keeps(Rule::LockCas);
    txn.ordered.has_own = false;
    let mut is_warm = std::mem::take(&mut txn.read_near);
    if is_warm {
        near::fetch_strays(access, cx, txn).await?;
    }
    // If the caller drops this future, the transaction keeps this failure.
    txn.failed = Some(Failure::Usage);
    let outcome = loop {
        if txn.fetched == txn.entries.len() && !txn.ordered.pending {
            break Ok(());
        }
        let riding = access.plan_piggyback(cx, txn);
        plan(access, cx, txn);
        if std::mem::take(&mut is_warm) {
            // The only verbs in this round read buckets that other requests read a moment ago.
            txn.round.hot();
        }
        if txn.ordered.pending {
            scans::plan(access, cx, txn);
        }
        if A::Locks::ARE_APART
            && let Err(failure) = A::Locks::obtain(access, cx, txn).await
        {
            break Err(failure);
        }
        if let Err(error) = cx.port.execute(&mut txn.round).await {
            suspect_all_locks(txn);
            break Err(error.into());
        }
        let arrived = riding.map_or(Ok(()), |first| access.absorb_piggyback(cx, txn, first));
        let mut absorbed = absorb(access, cx, txn).and(arrived.map_err(Failure::from));
        if txn.ordered.pending {
            absorbed = absorbed.and(scans::absorb(access, cx, txn));
        }
        if let Err(failure) = absorbed {
            break Err(failure);
        }
        if wants_blocks(txn)
            && let Err(failure) = provide_blocks(cx, txn).await
        {
            break Err(failure);
        }
        if access.has_to_wait(txn)
            && let Err(failure) = access.wait(cx, txn).await
        {
            break Err(failure);
        }
        // Entries that are added after this point belong to the next round.
        txn.round.begin();
    };
    txn.failed = outcome.err();
    outcome
}

/// Refuses a fetch after an earlier fetch that failed or that the caller dropped. After such a failed or dropped
/// fetch, the transaction can only end.
#[cold]
fn again_after(cx: &Context, txn: &mut Txn, failure: Failure) -> Failure {
    suspect_all_locks(txn);
    if failure != Failure::Usage {
        return failure;
    }
    let allowed = "after a fetch that was dropped a transaction can only end";
    cx.explain(Explanation::usage("fetch", "one more", allowed))
}

/// Adds the next verbs of every entry that was not fetched yet to the round. The READ of a home bin was already
/// planned when the entry of the record was added.
#[inline(always)]
fn plan(access: &impl Access, cx: &Context, txn: &mut Txn) {
    if txn.noted > 0 {
        near::plan_noted(cx, txn);
    }
    if txn.fetched + txn.at_home != txn.entries.len() {
        plan_others(access, cx, txn);
    }
    txn.at_home = 0;
}

fn plan_others(access: &impl Access, cx: &Context, txn: &mut Txn) {
    let mut warm = txn.at_home == 0;
    txn.in_turn = if access.locks_together() { None } else { whose_turn(access, txn) };
    for index in txn.fetched..txn.entries.len() {
        let progress = txn.entries[index].progress;
        match progress {
            Progress::Home | Progress::Done => {}
            _ if waits_for_turn(access, txn, index) => {}
            Progress::Lock if home::plan_lock(access, cx, txn, index) => {}
            _ => warm &= plan_rarer(access, cx, txn, index),
        }
    }
    if warm {
        // The transaction read all these records a moment ago, so it sends the round immediately, before other
        // transactions run.
        txn.round.hot();
    }
}

/// Returns whether an entry's next verbs request a lock.
fn asks_for_lock(access: &impl Access, txn: &Txn, index: usize) -> bool {
    let entry = &txn.entries[index];
    match entry.progress {
        Progress::Lock => true,
        Progress::Direct => !entry.only_reads() || shares(access, &txn.leases, entry),
        Progress::Home | Progress::Done | Progress::Locate | Progress::Body => false,
    }
}

/// Returns the entry whose lock is requested next, for systems that request one lock per round. The function returns
/// the same entry until the lock of that entry is granted.
fn whose_turn(access: &impl Access, txn: &Txn) -> Option<usize> {
    let mut waiting = txn.fetched..txn.entries.len();
    let asks = |index: &usize| asks_for_lock(access, txn, *index);
    let same = txn.in_turn.filter(|index| waiting.contains(index)).filter(asks);
    same.or_else(|| waiting.find(asks))
}

/// Returns whether an entry has to wait for a later round to request its lock. If the entry has to wait for a later
/// round, this round contains no verbs for the entry.
#[inline(always)]
pub(super) fn waits_for_turn(access: &impl Access, txn: &Txn, index: usize) -> bool {
    !access.locks_together() && txn.in_turn != Some(index) && asks_for_lock(access, txn, index)
}

/// Adds the next verbs of an entry to the round. Returns whether the transaction read the same lines a moment ago.
#[inline(never)]
fn plan_rarer(access: &impl Access, cx: &Context, txn: &mut Txn, index: usize) -> bool {
    let mut entry = txn.entries[index];
    let table = cx.table(entry.table);
    let mut warm = false;
    match entry.progress {
        Progress::Home | Progress::Done => unreachable!("planned by its caller"),
        Progress::Locate => {
            access.enter(cx, Phase::Locate);
            let Txn { lookups, round, .. } = txn;
            let near = cx.lookup_context().proving(access.keeps(Rule::ProveAbsent));
            lookups[entry.lookup as usize].plan(near, table, round);
        }
        Progress::Direct => plan_direct(access, cx, txn, &mut entry, table),
        Progress::Lock => {
            warm = !table.slot.is_out_of_line();
            plan_lock(access, cx, txn, &mut entry, table);
        }
        Progress::Body => {
            access.enter(cx, Phase::ReadBody);
            plan_body(cx, txn, &mut entry, table);
            let head = cx.groups.primary(entry.address);
            entry.image = txn.round.read(head, 16);
        }
    }
    txn.entries[index] = entry;
    warm
}

/// Adds the READ of a record at a cached address to the round. If the transaction will write the record, also adds
/// the request for the record's lock.
fn plan_direct(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) {
    let target = cx.groups.primary(entry.address);
    if entry.only_reads() && !shares(access, &txn.leases, entry) {
        access.enter(cx, Phase::ReadDirect);
        let slot_bytes = table.slot.slot_bytes;
        entry.image = txn.round.reserve_lines(slot_bytes + 32);
        if !table.slot.is_read_at_once() {
            // The lines of one READ arrive in any order, so a separate READ reads the record's head first.
            txn.round.read_into(target, entry.image.plus(slot_bytes + 16), 16);
        }
        txn.round.read_into(target, entry.image, slot_bytes);
        if !entry.body.is_null() {
            plan_body(cx, txn, entry, table);
        }
        if !table.slot.is_read_at_once() || !entry.body.is_null() {
            txn.round.read_into(target, entry.image.plus(slot_bytes), 16);
        }
    } else {
        access.enter(cx, Phase::LockDirect);
        plan_record_lock(access, cx, txn, entry, table);
    }
}

/// Returns whether the transaction reads an entry's record under a readers' lock.
pub(super) fn shares(access: &impl Access, leases: &Leases, entry: &Entry) -> bool {
    entry.mode == Mode::Read && access.locks_reads(leases)
}

/// Adds the request for a record's lock and then the READ of the record in one batch, so that the READ happens under
/// the lock.
fn plan_record_lock(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    entry: &mut Entry,
    table: &Table,
) {
    let target = cx.groups.primary(entry.address);
    let reads = entry.mode == Mode::Read;
    entry.lock = match txn.lock_on(entry.address) {
        Some(held) => {
            access.lock_again(cx, txn, held, entry.mode);
            held
        }
        None if reads => access.share_record(cx, txn, entry.address),
        None => access.lock_record(cx, txn, entry.address),
    };
    entry.writable = !reads;
    let slot_bytes = table.slot.slot_bytes;
    if reads && !table.slot.is_read_at_once() {
        // The lease may end while the record's lines are read in any order, so a separate READ reads the record's
        // head first.
        entry.image = txn.round.reserve_lines(slot_bytes + 16);
        txn.round.read_into(target, entry.image.plus(slot_bytes), 16);
        txn.round.read_into(target, entry.image, slot_bytes);
    } else {
        entry.image = txn.round.read(target, slot_bytes);
    }
    if !entry.body.is_null() && entry.mode != Mode::Insert {
        plan_body(cx, txn, entry, table);
    }
}

fn plan_lock(access: &impl Access, cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    access.enter(cx, Phase::Lock);
    if matches!(entry.mode, Mode::Insert | Mode::Delete) {
        let directory = txn.lookup(entry).directory;
        if let Some(held) = txn.lock_on(directory) {
            entry.directory_lock = held;
        } else {
            access.enter(cx, Phase::LockDirectory);
            entry.directory_lock = ask(cx, txn, directory, LockKind::Directory);
        }
        let target = cx.groups.primary(directory);
        txn.lookups[entry.lookup as usize].directory_image =
            txn.round.read(target, DIRECTORY_BYTES);
    }
    plan_record_lock(access, cx, txn, entry, table);
}

/// Adds READs of the cache lines that contain the wanted cells of a payload that is stored outside its slot.
fn plan_body(cx: &Context, txn: &mut Txn, entry: &mut Entry, table: &Table) {
    let target = cx.groups.primary(entry.body);
    let body_bytes = table.slot.body_bytes();
    entry.payload = txn.round.reserve_lines(body_bytes);
    table.for_each_run(entry.cells, LINE_BYTES, |from, to| {
        let to = to.min(body_bytes);
        txn.round.read_into(target.plus(from), entry.payload.plus(from), to - from);
    });
}
