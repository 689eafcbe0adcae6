//! FORD's reads of ordered indexes: the scans of a block, beside its records.
//!
//! Invariant: every leaf that a scan has shown is validated like a directory record that an absence was
//! read from, at the version that was shown. A leaf that a transaction meets twice has one version.

use super::{Ford, On, Phase, enter};
use crate::context::Context;
use crate::index::btree::scan::{Answer, Near, Own};
use crate::index_schema::IndexId;
use crate::ordered::{Ordered, effects};
use crate::outcome::{AbortReason, Failure};
use crate::working_set::{Check, Mode, Txn};
use tarn_fabric::round::BufferOffset;

/// What scans need from their thread.
fn near<'a>(ford: &Ford, cx: &'a Context) -> Near<'a> {
    let checks_fences = ford.on(On::CheckFences);
    Near { groups: &cx.groups, works: &cx.tree_works, checks_fences }
}

/// Adds the next READs of every scan that is not at its end.
#[inline(never)]
pub(super) fn plan(ford: &Ford, cx: &Context, txn: &mut Txn) {
    if !txn.ordered.has_own {
        gather_own(cx, txn);
    }
    let (catalog, mut cache) = (&cx.database().catalog, cx.trees.borrow_mut());
    let Txn { ordered, round, .. } = txn;
    for scan in ordered.scans[..ordered.live].iter_mut().filter(|scan| !scan.is_done) {
        enter(cx, Phase::Scan);
        scan.plan(near(ford, cx), catalog.ordered(IndexId(scan.index)), &mut cache, round);
    }
}

/// Takes in what they brought.
#[inline(never)]
pub(super) fn absorb(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let mut verdict = Ok(());
    let catalog = &cx.database().catalog;
    for at in 0..txn.ordered.live {
        let Txn { ordered, round, tag, .. } = &mut *txn;
        let Ordered { scans, own, visits, .. } = ordered;
        let scan = &mut scans[at];
        if scan.is_done {
            continue;
        }
        let index = catalog.ordered(IndexId(scan.index));
        visits.clear();
        let mut cache = cx.trees.borrow_mut();
        let (cache, me) = ((&mut *cache, &own[..]), (&*round, tag.word()));
        let answer = scan.absorb(near(ford, cx), index, cache, me, visits);
        let settled = match answer {
            Answer::More | Answer::Done => Ok(()),
            Answer::Unstable(met) => {
                if let Some((address, word)) = met {
                    cx.meet(address, word);
                }
                Err(AbortReason::ReadLocked)
            }
            Answer::Lost => Err(AbortReason::StaleAddress),
        };
        verdict = verdict.and(settled).and(protect(ford, txn, index.id));
    }
    let ordered = &mut txn.ordered;
    ordered.pending = ordered.scans[..ordered.live].iter().any(|scan| !scan.is_done);
    Ok(verdict?)
}

/// Leaves that a scan came to in this round are to be validated.
fn protect(ford: &Ford, txn: &mut Txn, index: IndexId) -> Result<(), AbortReason> {
    let Txn { ordered, checks, .. } = txn;
    for at in 0..ordered.visits.len() {
        let visit = ordered.visits[at];
        if let Some(known) = ordered.leaf_at(visit.address) {
            if ordered.leaves[known].version != visit.version && ford.on(On::ProtectRanges) {
                return Err(AbortReason::VersionChanged);
            }
            continue;
        }
        ordered.note(index, visit, true);
        if ford.on(On::ProtectRanges) {
            checks.push(Check { address: visit.address, version: visit.version, covered: false });
        }
    }
    Ok(())
}

/// What the transaction had changed before this fetch in the indexes that it scans. What the fetch itself
/// brings is done after more or fewer rounds: scans would show it or not by how warm the way is.
fn gather_own(cx: &Context, txn: &mut Txn) {
    txn.ordered.has_own = true;
    txn.ordered.own.clear();
    if txn.locks.is_empty() {
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
                // Where the slot of an entry that comes lies is filled in below.
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
