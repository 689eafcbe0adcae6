//! Reads log areas: finds the transactions that have left a valid entry.
//!
//! Invariant: an entry that is found whole at any live node is the transaction's. An entry that is found nowhere had
//! no data anywhere (docs/design/0004-fused-undo-log.md), unless an area's last copy is lost. An area may hold
//! entries of several transactions, in different groups. All but the last of them are over, and resolving them again
//! changes nothing.

use super::{Answer, Bulk, Wish};
use crate::site::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tarn_fabric::address::{GroupId, NodeSlot, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;
use tarn_store::ids::{Failure, OwnerTag, Resolution};
use tarn_store::log::{Entry, LOG_HEADER_BYTES, SETTLING, announced_bytes, blocks, is_chained};

/// A transaction that left an entry, as its protocol's hooks receive it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsettled<E> {
    /// The entry, with the facts that its protocol has found out since.
    pub entry: E,
    /// The coordinator whose log area has the entry.
    pub coordinator: u32,
    /// Whether a resolver has begun to undo it (with entries of new bytes: to finish it).
    pub undoing: bool,
    /// How the transaction ends, once that is decided. `None` as well if only its coordinator knew, and nothing else
    /// can tell.
    pub decision: Option<Resolution>,
}

impl<E> Unsettled<E> {
    /// Returns how the transaction ends.
    ///
    /// # Panics
    /// If it was not decided yet: our bug.
    pub fn resolution(&self) -> Resolution {
        self.decision.expect("the entry was decided before")
    }
}

/// The head of one copy of a log area.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The coordinator whose area it is.
    pub coordinator: u32,
    /// Where the copy lies.
    pub target: Target,
    /// The tag that stands there; its entry may be torn.
    pub tag: OwnerTag,
    /// Whether the head carries the mark of [`Unsettled::undoing`].
    pub undoing: bool,
    group: GroupId,
    /// The entry's length, as its head says.
    bytes: usize,
    /// Whether the head says that the entry goes on outside the area.
    is_chained: bool,
}

/// Returns where the copies of a coordinator's log area lie, in all groups.
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

/// The heads of some coordinators' log areas.
#[derive(Debug)]
pub struct Heads {
    /// The heads of the areas in which a tag stands, at every live node.
    pub found: Vec<Head>,
    /// A node that took the last copy of one of these areas with it. An entry that is not among those found may have
    /// stood there.
    pub lost: Option<NodeSlot>,
}

impl Heads {
    /// Makes sure that all areas were read: then a transaction that was not found left nothing.
    ///
    /// # Errors
    /// `NodeDown`, if an entry may be gone with the last copy of its area. Then it is not known how its transaction
    /// ended.
    pub fn whole(&self, cx: &Context) -> Result<(), Failure> {
        match self.lost {
            Some(node) => Err(cx.port.note_failure(FabricError::NodeDown(node)).into()),
            None => Ok(()),
        }
    }
}

/// Reads the heads of these coordinators' areas.
///
/// # Errors
/// The fabric's.
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

/// Reads the whole entries under these heads, one of each transaction.
///
/// # Errors
/// The fabric's.
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

/// Reads an entry that goes on outside its area, as far as it is there. An entry of which a part is missing is no
/// entry.
async fn gather(cx: &Context, head: &Head, area: &[u8]) -> Result<Vec<u8>, Failure> {
    let catalog = &cx.database().catalog;
    let (first, mut link) = blocks::split_area(catalog, area);
    let mut bytes = first.to_vec();
    if head.bytes as u64 > catalog.options().log_bytes_max {
        return Ok(bytes); // no transaction wrote that
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
