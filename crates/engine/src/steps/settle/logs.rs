//! Reads log areas to find the transactions that have left a valid log entry.
//!
//! Invariant: if a log entry is found complete at any live node, it is the transaction's log entry. If no node has a
//! transaction's log entry, the transaction has written no data (docs/design/0004-fused-undo-log.md), unless the last
//! copy of its log area is lost. A coordinator's log area may contain log entries of several transactions, in
//! different groups. All transactions with entries in one log area have ended, except the newest. So recovery may
//! resolve the ended transactions again without any change.

use super::{Answer, Bulk, Wish};
use crate::site::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tarn_fabric::address::{GroupId, NodeSlot, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;
use tarn_store::ids::{Failure, OwnerTag, Resolution};
use tarn_store::log::{Entry, LOG_HEADER_BYTES, SETTLING, announced_bytes, blocks, is_chained};

/// A transaction that has left a log entry, in the form in which the functions of its protocol receive the
/// transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsettled<E> {
    /// The log entry, with the facts that its protocol has found out about the transaction.
    pub entry: E,
    /// The number of the coordinator whose log area contains the entry.
    pub coordinator: u32,
    /// Whether a resolver has begun to undo the transaction, or, if the log entry has new bytes, to complete it.
    pub undoing: bool,
    /// The transaction's outcome, after recovery has decided it. The field `decision` is also `None` if only the
    /// transaction's coordinator knew the outcome, and memory does not show the outcome.
    pub decision: Option<Resolution>,
}

impl<E> Unsettled<E> {
    /// Returns the transaction's outcome.
    ///
    /// # Panics
    /// The outcome of the transaction is not decided yet. A call before the outcome is decided is a bug in this
    /// program.
    pub fn resolution(&self) -> Resolution {
        self.decision.expect("the entry was decided before")
    }
}

/// The first words of one copy of a log area.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The number of the coordinator to which the log area belongs.
    pub coordinator: u32,
    /// The place of this copy of the log area.
    pub target: Target,
    /// The tag in the first word of the log area. The log entry after this tag may be incomplete.
    pub tag: OwnerTag,
    /// Whether the head contains the mark for [`Unsettled::undoing`].
    pub undoing: bool,
    group: GroupId,
    /// The number of bytes of the log entry, according to its head.
    bytes: usize,
    /// Whether the log entry continues outside the log area, according to its head.
    is_chained: bool,
}

/// Returns the places of all copies of a coordinator's log area, in all groups.
pub fn copies(cx: &Context, coordinator: u32) -> Vec<Target> {
    copies_by_group(cx, coordinator).map(|(_, target)| target).collect()
}

fn copies_by_group(cx: &Context, coordinator: u32) -> impl Iterator<Item = (GroupId, Target)> {
    let groups = cx.groups.whole();
    let mut copies = Vec::new();
    for group in (0..groups.count()).map(|group| GroupId(group as u16)) {
        let area = cx.database().catalog.log(group, coordinator);
        copies.extend(groups.all(area).map(|target| (group, target)));
    }
    copies.into_iter()
}

/// The heads of the log areas of some coordinators.
#[derive(Debug)]
pub struct Heads {
    /// The heads of all log areas that contain a tag, at every live node.
    pub found: Vec<Head>,
    /// A node that failed and had the last copy of one of these log areas. The lost copy may have contained a log
    /// entry that is not in `found`.
    pub lost: Option<NodeSlot>,
}

impl Heads {
    /// Checks that all log areas of these coordinators were read. If all log areas were read, a transaction whose log
    /// entry was not found has left no log entry.
    ///
    /// # Errors
    /// `NodeDown`, if a log entry may be lost with the last copy of its log area. In that case, the outcome of the
    /// transaction with the lost log entry is not known.
    pub fn whole(&self, cx: &Context) -> Result<(), Failure> {
        match self.lost {
            Some(node) => Err(cx.port.note_failure(FabricError::NodeDown(node)).into()),
            None => Ok(()),
        }
    }
}

/// Reads the heads of the log areas of these coordinators.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn heads(cx: &Context, coordinators: Range<u32>) -> Result<Heads, Failure> {
    let places: Vec<(u32, GroupId, Target)> = coordinators
        .flat_map(|number| {
            copies_by_group(cx, number).map(move |(group, target)| (number, group, target))
        })
        .collect();
    let wishes: Vec<Wish> =
        places.iter().map(|(_, _, target)| Wish::Read(*target, LOG_HEADER_BYTES)).collect();
    let answers = Bulk::new(cx).run(&wishes).await?;
    let (mut found, mut read, mut unread) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    for ((coordinator, group, target), answer) in places.into_iter().zip(answers) {
        let Answer::Done(bytes) = answer else {
            unread.insert((coordinator, group), target.node());
            continue;
        };
        read.insert((coordinator, group));
        let mut round = Round::new();
        let at = round.reserve(LOG_HEADER_BYTES);
        round.bytes_mut(at, LOG_HEADER_BYTES).copy_from_slice(&bytes);
        let (word, bytes) = (round.word(at), announced_bytes(&round, at));
        let is_chained = is_chained(&round, at);
        if let Some(tag) = OwnerTag::from_word(word & !SETTLING) {
            let undoing = word & SETTLING != 0;
            found.push(Head { coordinator, target, tag, undoing, group, bytes, is_chained });
        }
    }
    let lost = unread.into_iter().find(|(area, _)| !read.contains(area)).map(|(_, node)| node);
    Ok(Heads { found, lost })
}

/// Reads the complete log entries that belong to these heads, one entry of each transaction.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn entries<E: Entry>(cx: &Context, heads: &[Head]) -> Result<Vec<Unsettled<E>>, Failure> {
    let area_bytes = cx.database().catalog.options().log_bytes as usize;
    let mut found: Vec<Unsettled<E>> = Vec::new();
    let len_bytes = |head: &Head| match head.is_chained {
        true => area_bytes,
        false => head.bytes.clamp(LOG_HEADER_BYTES, area_bytes),
    };
    let wishes: Vec<Wish> =
        heads.iter().map(|head| Wish::Read(head.target, len_bytes(head))).collect();
    let answers = Bulk::new(cx).run(&wishes).await?;
    for (head, answer) in heads.iter().zip(answers) {
        let is_known = |each: &Unsettled<E>| {
            (each.coordinator, each.entry.tag()) == (head.coordinator, head.tag)
        };
        let Answer::Done(bytes) = answer else { continue };
        if found.iter().any(is_known) {
            continue;
        }
        let bytes = if head.is_chained { gather(cx, head, &bytes).await? } else { bytes };
        let mut round = Round::new();
        let at = round.reserve_lines(bytes.len());
        round.bytes_mut(at, bytes.len()).copy_from_slice(&bytes);
        let word = round.word(at);
        round.set_word(at, word & !SETTLING);
        let entry = E::decode(&round, at, bytes.len()).filter(|entry| entry.tag() == head.tag);
        if let Some(entry) = entry {
            let coordinator = head.coordinator;
            let same = |it: &&Head| (it.coordinator, it.tag) == (coordinator, head.tag);
            let undoing = heads.iter().filter(same).any(|it| it.undoing);
            found.push(Unsettled { entry, coordinator, undoing, decision: None });
        }
    }
    Ok(found)
}

/// Reads a log entry that continues outside its log area, up to the first part that is missing. A log entry with a
/// missing part is not valid.
async fn gather(cx: &Context, head: &Head, area: &[u8]) -> Result<Vec<u8>, Failure> {
    let catalog = &cx.database().catalog;
    let (first, mut link) = blocks::split_area(catalog, area);
    let mut bytes = first.to_vec();
    if head.bytes as u64 > catalog.options().log_bytes_max {
        return Ok(bytes); // no transaction writes a log entry of this length
    }
    while bytes.len() < head.bytes {
        let Some(block) = blocks::next_block(catalog, head.group, link) else { break };
        let part = blocks::block_bytes(catalog, head.bytes - bytes.len());
        let wish = Wish::Read(block.at(head.target.node()), part);
        let [Answer::Done(read)] = &Bulk::new(cx).run(&[wish]).await?[..] else { break };
        let (next, rest) = blocks::split_block(read);
        bytes.extend_from_slice(rest);
        link = next;
    }
    Ok(bytes)
}
