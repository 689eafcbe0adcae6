//! FORD's recovery of one transaction: finish it or undo it from its undo log.
//!
//! The rule: take any valid log entry of the transaction. If its owner still holds the locks, and
//! every live replica of every record in it carries the new VERSION, the transaction has committed;
//! otherwise its old bytes are written back to every live replica, under a VERSION beyond the new
//! one: VERSION never falls, or a reader could take the undone bytes for the record's before and
//! after. Then the log entry of an undone transaction is made invalid everywhere, and last the
//! locks that carry its tag are released. A record whose LOCK does not carry the tag has been
//! released and belongs to others.
//!
//! Invariant: idempotent, with one resolver at a time. It rests on: at every node
//! the log before the data; no unlock before all replicas of all records have acknowledged, or have
//! executed the data earlier in the same batch.

use super::{Phase, enter};
use crate::context::Context;
use crate::layout::{LOCK_AT, VERSION_AT};
use crate::log::{LOG_HEADER_BYTES, LogEntry, LoggedRecord, announced_bytes, decode};
use crate::outcome::{Explanation, Failure, Resolution, TxnId};
use crate::owner::OwnerTag;
use tarn_fabric::address::{GroupId, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;

/// Finds out how `id` ended, whose log is the area of `coordinator`, and makes it final.
pub(super) async fn resolve(
    cx: &Context,
    id: TxnId,
    coordinator: u32,
) -> Result<Resolution, Failure> {
    enter(cx, Phase::Resolve);
    let Some(entry) = find_entry(cx, id, coordinator).await? else {
        // No node has the log, so no node has data of it; locks without data may remain, and are
        // released by whoever sweeps their owner's locks.
        return Ok(Resolution::Aborted);
    };
    let held = still_held(cx, &entry).await?;
    if held.len() < entry.records.len() {
        // Unlocking has begun, and it begins only after the commit.
        release(cx, id, &held).await?;
        return Ok(Resolution::Committed);
    }
    let committed = all_new(cx, &entry).await?;
    if !committed {
        write_back(cx, &entry).await?;
        clear_log(cx, id, coordinator).await?;
    }
    release(cx, id, &held).await?;
    Ok(if committed { Resolution::Committed } else { Resolution::Aborted })
}

/// Runs a round; a node that is down is no error here, its copies are gone.
async fn attempt(cx: &Context, round: &mut Round) -> Result<bool, Failure> {
    match cx.port.execute(round).await {
        Ok(()) => Ok(true),
        Err(error) if matches!(*error, FabricError::NodeDown(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn log_copies(cx: &Context, coordinator: u32) -> Vec<Target> {
    let database = cx.database();
    (0..cx.groups.count())
        .flat_map(|group| {
            let area = database.catalog.log(GroupId(group as u16), coordinator);
            cx.groups.whole().all(area).collect::<Vec<Target>>()
        })
        .collect()
}

async fn find_entry(
    cx: &Context,
    id: TxnId,
    coordinator: u32,
) -> Result<Option<LogEntry>, Failure> {
    let area_bytes = cx.database().catalog.options().log_bytes as usize;
    let mut round = Round::new();
    let mut used_again = false;
    for target in log_copies(cx, coordinator) {
        round.clear();
        let head = round.read(target, LOG_HEADER_BYTES);
        if !attempt(cx, &mut round).await? {
            continue;
        }
        if round.word(head) != id.word() {
            used_again |= OwnerTag::from_word(round.word(head)).is_some_and(|tag| is_later(tag, id));
            continue;
        }
        let len = announced_bytes(&round, head).clamp(LOG_HEADER_BYTES, area_bytes);
        round.clear();
        let at = round.reserve_lines(len);
        let step = tarn_fabric::round::VERB_BYTES_MAX;
        for from in (0..len).step_by(step) {
            round.read_into(target.plus(from), at.plus(from), step.min(len - from));
        }
        if attempt(cx, &mut round).await?
            && let Some(entry) = decode(&round, at, len).filter(|entry| entry.tag == id)
        {
            return Ok(Some(entry));
        }
    }
    if used_again {
        let allowed = "a transaction whose coordinator has not written since";
        return Err(cx.explain(Explanation::usage("resolve", id, allowed)));
    }
    Ok(None)
}

/// Whether `tag` came after `id` from the same coordinator: then `id` was settled before, and its
/// log is gone.
fn is_later(tag: OwnerTag, id: TxnId) -> bool {
    let age = |tag: OwnerTag| (tag.node().incarnation, tag.count());
    tag.node().slot == id.node().slot && age(tag) > age(id)
}

/// The records of the entry whose LOCK still carries its tag.
async fn still_held(cx: &Context, entry: &LogEntry) -> Result<Vec<LoggedRecord>, Failure> {
    let mut round = Round::new();
    let mut held = Vec::new();
    for record in &entry.records {
        round.clear();
        let word = round.read(cx.groups.primary(record.address.plus(LOCK_AT)), 8);
        cx.port.execute(&mut round).await?;
        if round.word(word) == entry.tag.word() {
            held.push(*record);
        }
    }
    Ok(held)
}

/// Whether every live replica of every record has the new version.
async fn all_new(cx: &Context, entry: &LogEntry) -> Result<bool, Failure> {
    let mut round = Round::new();
    for record in &entry.records {
        for target in cx.groups.whole().all(record.address.plus(VERSION_AT)) {
            round.clear();
            let word = round.read(target, 8);
            if attempt(cx, &mut round).await? && round.word(word) != record.new_version.word() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

async fn write_back(cx: &Context, entry: &LogEntry) -> Result<(), Failure> {
    let mut round = Round::new();
    for piece in &entry.pieces {
        let versioned = |record: &&LoggedRecord| record.address.plus(VERSION_AT) == piece.address;
        let restored = entry.records.iter().find(versioned).map(LoggedRecord::restored_version);
        for target in cx.groups.whole().all(piece.address) {
            round.clear();
            let at = round.reserve(piece.old.len());
            round.bytes_mut(at, piece.old.len()).copy_from_slice(&piece.old);
            if let Some(version) = restored {
                round.set_word(at, version.word());
            }
            round.write(target, at, piece.old.len());
            attempt(cx, &mut round).await?;
        }
    }
    Ok(())
}

async fn clear_log(cx: &Context, id: TxnId, coordinator: u32) -> Result<(), Failure> {
    let mut round = Round::new();
    for target in log_copies(cx, coordinator) {
        round.clear();
        round.cas(target, id.word(), 0);
        attempt(cx, &mut round).await?;
    }
    Ok(())
}

async fn release(cx: &Context, id: TxnId, records: &[LoggedRecord]) -> Result<(), Failure> {
    let mut round = Round::new();
    for record in records {
        round.clear();
        let target = cx.groups.primary(record.address.plus(LOCK_AT));
        round.cas(target, id.word(), 0);
        attempt(cx, &mut round).await?;
    }
    Ok(())
}
