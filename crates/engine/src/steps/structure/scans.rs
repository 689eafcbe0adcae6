//! Reads of ordered indexes: the scans and look-ups that one block of a transaction makes in addition to its reads of
//! records.
//!
//! Invariant: the commit validates every leaf that a scan or look-up has read, against the version that the scan or
//! look-up saw. The commit also validates each directory record that has shown a record to be absent. The commit does
//! not validate a leaf that the protocol knows to belong to the transaction's snapshot. If a transaction reads a leaf
//! twice, the leaf has the same version both times.

use super::Structure;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::transaction::ordered::{Ordered, effects};
use crate::transaction::working_set::{BUFFERED_MAX, Check, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Explanation, Failure, Mode};
use tarn_store::index::btree::scan::{Answer, Near, Own, Visit};
use tarn_store::index::btree::seek::Sought;
use tarn_store::schema::IndexId;

/// Returns the data of the current thread that scans need.
fn near<'a>(protocol: &impl Structure, cx: &'a Context) -> Near<'a> {
    let checks_fences = protocol.keeps(Rule::CheckFences);
    Near { groups: &cx.groups, works: &cx.tree_works, checks_fences }
}

/// Adds the next READs of every look-up and scan that has not ended.
#[inline(never)]
pub(crate) fn plan(protocol: &impl Structure, cx: &Context, txn: &mut Txn) {
    let near = near(protocol, cx);
    if txn.ordered.sought < txn.ordered.seeks.len() {
        plan_seeks(protocol, cx, txn);
    }
    if !txn.ordered.has_own {
        gather_own(cx, txn);
    }
    let (catalog, mut cache) = (&cx.database().catalog, cx.trees.borrow_mut());
    let Txn { ordered, round, .. } = txn;
    for scan in ordered.scans[..ordered.live].iter_mut().filter(|scan| !scan.is_done) {
        protocol.enter(cx, Phase::Scan);
        scan.plan(near, catalog.ordered(IndexId(scan.index)), &mut cache, round);
    }
    protocol.is_about_to_scan(cx, txn);
}

/// Adds the READs of every look-up of the transaction. If the cache does not contain the path to a look-up's leaf,
/// the look-up becomes a scan. If the transaction has changed anything, every look-up becomes a scan, because scans
/// also show the transaction's own changes.
fn plan_seeks(protocol: &impl Structure, cx: &Context, txn: &mut Txn) {
    let near = near(protocol, cx);
    let (catalog, mut cache) = (&cx.database().catalog, cx.trees.borrow_mut());
    let is_reading = !has_changed(txn);
    let Txn { ordered, round, .. } = txn;
    let (mut from, mut all) = (ordered.sought, true);
    while let Some(first) = ordered.seeks[from..].first() {
        let index = catalog.ordered(first.index);
        let run = ordered.seeks[from..].iter().take_while(|seek| seek.index == index.id).count();
        let seeks = &mut ordered.seeks[from..from + run];
        if is_reading {
            cache.locate_all(index, seeks);
        }
        for seek in seeks {
            match seek.address.is_null() {
                true => all = false,
                false => {
                    protocol.enter(cx, Phase::Scan);
                    seek.plan(&index.shape, near.groups, round);
                }
            }
        }
        from += run;
    }
    if all {
        return;
    }
    for at in ordered.sought..ordered.seeks.len() {
        if ordered.seeks[at].address.is_null() {
            ordered.seek_by_scan(at);
        }
    }
}

/// Handles the answers to the READs of look-ups and scans.
#[inline(never)]
pub(crate) fn absorb(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    if txn.round.buffered_bytes() > BUFFERED_MAX {
        return Err(too_much(cx, txn.round.buffered_bytes()));
    }
    let mut verdict = Ok(());
    // A look-up that becomes a scan in this step has no READs in this round.
    let planned = txn.ordered.live;
    if txn.ordered.sought < txn.ordered.seeks.len() {
        verdict = absorb_seeks(protocol, cx, txn);
    }
    for at in 0..planned {
        if !txn.ordered.scans[at].is_done {
            verdict = verdict.and(absorb_scan(protocol, cx, txn, at));
        }
    }
    let ordered = &mut txn.ordered;
    ordered.pending = ordered.scans[..ordered.live].iter().any(|scan| !scan.is_done);
    Ok(verdict?)
}

/// The failure of a transaction whose scans have read more bytes than its buffer may contain.
#[cold]
fn too_much(cx: &Context, bytes: usize) -> Failure {
    let allowed = format!("at most {BUFFERED_MAX}");
    cx.explain(Explanation::usage("bytes read by one transaction", bytes, &allowed))
}

fn absorb_scan(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    at: usize,
) -> Result<(), AbortReason> {
    let Txn { ordered, round, tag, .. } = &mut *txn;
    let Ordered { scans, own, visits, .. } = ordered;
    let scan = &mut scans[at];
    let index = cx.database().catalog.ordered(IndexId(scan.index));
    visits.clear();
    let mut cache = cx.trees.borrow_mut();
    let (cache, me) = ((&mut *cache, &own[..]), (&*round, tag.word()));
    let settled = match scan.absorb(near(protocol, cx), index, cache, me, visits) {
        Answer::More | Answer::Done => Ok(()),
        Answer::Unstable(met) => refused(cx, met),
        Answer::Lost => Err(AbortReason::StaleAddress),
    };
    for at in 0..txn.ordered.visits.len() {
        let visit = txn.ordered.visits[at];
        settled.and(protect(protocol, txn, index.id, visit))?;
    }
    settled
}

/// Handles the answers to the READs of look-ups.
fn absorb_seeks(protocol: &impl Structure, cx: &Context, txn: &mut Txn) -> Result<(), AbortReason> {
    let (catalog, near) = (&cx.database().catalog, near(protocol, cx));
    let mut verdict = Ok(());
    let me = txn.tag.word();
    for at in txn.ordered.sought..txn.ordered.seeks.len() {
        let Txn { ordered, round, .. } = &mut *txn;
        let seek = &mut ordered.seeks[at];
        if seek.scan.is_some() {
            continue;
        }
        let index = catalog.ordered(seek.index);
        let settled = match seek.absorb(near, index, round, me) {
            Sought::Known(visit) => protect(protocol, txn, index.id, visit),
            Sought::Unstable(met) => refused(cx, met),
            Sought::Elsewhere => {
                ordered.seek_by_scan(at);
                Ok(())
            }
        };
        verdict = verdict.and(settled);
    }
    txn.ordered.sought = txn.ordered.seeks.len();
    verdict
}

/// Notes the lock of a node that was locked when the transaction read it, or that changed during this read. Returns
/// the reason for which the transaction aborts.
#[cold]
fn refused(cx: &Context, met: Option<(Address, u64)>) -> Result<(), AbortReason> {
    if let Some((address, word)) = met {
        cx.note_blocking_lock(address, word);
    }
    Err(AbortReason::ReadLocked)
}

/// Adds a leaf, which a scan or look-up has read in this round, to the leaves that the commit protects.
///
/// # Errors
/// The transaction has already read another version of this leaf.
#[inline]
fn protect(
    protocol: &impl Structure,
    txn: &mut Txn,
    index: IndexId,
    visit: Visit,
) -> Result<(), AbortReason> {
    if let Some(known) = txn.ordered.leaf_at(visit.address) {
        if txn.ordered.leaves[known].version != visit.version && protocol.keeps(Rule::ProtectRanges)
        {
            return Err(AbortReason::VersionChanged);
        }
        return Ok(());
    }
    let is_validated = protocol.shows_leaf(txn, visit)?;
    txn.ordered.note(index, visit, true);
    if is_validated {
        let Visit { address, version } = visit;
        txn.checks.push(Check { address, version, covered: false });
    }
    Ok(())
}

/// Returns whether the transaction may have changed anything. The function also checks the entries, because a
/// protocol may keep its locks outside memory nodes.
#[inline]
fn has_changed(txn: &Txn) -> bool {
    !txn.locks.is_empty() || txn.entries.iter().any(|entry| entry.writable)
}

/// Gathers the changes that the transaction made before this fetch, in the indexes that it scans now. The function
/// leaves out the changes that the caller makes in this fetch itself. The number of rounds until the changes of this
/// fetch are known depends on the caches, so scans would show these changes only sometimes.
fn gather_own(cx: &Context, txn: &mut Txn) {
    txn.ordered.has_own = true;
    txn.ordered.own.clear();
    if !has_changed(txn) || txn.ordered.live == 0 {
        return;
    }
    let catalog = &cx.database().catalog;
    let Txn { ordered, round, entries, .. } = txn;
    let Ordered { scans, own, live, .. } = ordered;
    for (at, entry) in entries.iter().enumerate().filter(|(_, it)| it.mode != Mode::Read) {
        let table = cx.table(entry.table);
        effects(catalog, table, (round, entry), |index, key, adds| {
            let is_scanned = scans[..*live].iter().any(|it| it.index == index.id.0);
            if is_scanned {
                // Until the loop below sets the field `slot` of an added index entry, the field contains the entry's
                // number.
                let slot = adds.then_some(BufferOffset(at as u32));
                own.push(Own { index: index.id, key, slot });
            }
        });
    }
    for change in own {
        let Some(entry) = change.slot.map(|at| entries[at.0 as usize]) else { continue };
        let index = catalog.ordered(change.index);
        let bytes = index.shape.slot_bytes(0);
        let len = cx.table(entry.table).slot.full_key_bytes;
        let full_key = round.bytes(entry.full_key, len).to_vec();
        let at = round.reserve(bytes);
        index.fill_slot(&change.key, (entry.key, &full_key), round.bytes_mut(at, bytes));
        change.slot = Some(at);
    }
}
