//! Reads log areas: which transactions have left a valid entry.
//!
//! Invariant: an entry that is found whole at any live node is the transaction's; one that is found
//! nowhere had no data anywhere (docs/design/0004-fused-undo-log.md). An area may hold entries of several
//! transactions, in different groups: all but the last of them are over, and resolving them again
//! changes nothing.

use super::{Answer, Bulk, Wish};
use crate::context::Context;
use crate::log::{Entry, LOG_HEADER_BYTES, UNDOING, announced_bytes};
use crate::outcome::{Failure, Resolution};
use crate::owner::OwnerTag;
use std::ops::Range;
use tarn_fabric::address::{GroupId, Target};
use tarn_fabric::round::Round;

/// A transaction that left an entry, on its way through its protocol's hooks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsettled<E> {
    /// What it wrote down, and what its protocol has found out about it since.
    pub entry: E,
    /// Whose log area it is.
    pub coordinator: u32,
    /// Somebody has begun to undo it.
    pub undoing: bool,
    /// How it ends, once it was decided.
    pub decision: Option<Resolution>,
}

impl<E> Unsettled<E> {
    /// How it ends.
    ///
    /// # Panics
    /// If nobody has decided yet: our bug.
    pub fn resolution(&self) -> Resolution {
        self.decision.expect("it was decided")
    }
}

/// The head of one copy of a log area.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Whose area.
    pub coordinator: u32,
    /// Where the copy lies.
    pub target: Target,
    /// The tag that stands there; its entry may be torn.
    pub tag: OwnerTag,
    /// Whether it says that the transaction is being undone.
    pub undoing: bool,
    /// How long the entry says it is.
    bytes: usize,
}

/// Where the copies of a coordinator's log area lie, of all groups.
pub fn copies(cx: &Context, coordinator: u32) -> Vec<Target> {
    let (catalog, groups) = (&cx.database().catalog, cx.groups.whole());
    (0..groups.count())
        .flat_map(|group| {
            let area = catalog.log(GroupId(group as u16), coordinator);
            groups.all(area).collect::<Vec<Target>>()
        })
        .collect()
}

/// The heads of those areas in which a tag stands, at every live node.
///
/// # Errors
/// The fabric's.
pub async fn heads(cx: &Context, coordinators: Range<u32>) -> Result<Vec<Head>, Failure> {
    let places: Vec<(u32, Target)> = coordinators
        .flat_map(|number| copies(cx, number).into_iter().map(move |target| (number, target)))
        .collect();
    let wishes: Vec<Wish> =
        places.iter().map(|(_, target)| Wish::Read(*target, LOG_HEADER_BYTES)).collect();
    let answers = Bulk::new(cx).run(&wishes).await?;
    let mut heads = Vec::new();
    for ((coordinator, target), answer) in places.into_iter().zip(answers) {
        let Answer::Done(bytes) = answer else { continue };
        let mut round = Round::new();
        let at = round.reserve(LOG_HEADER_BYTES);
        round.bytes_mut(at, LOG_HEADER_BYTES).copy_from_slice(&bytes);
        let (word, bytes) = (round.word(at), announced_bytes(&round, at));
        if let Some(tag) = OwnerTag::from_word(word & !UNDOING) {
            let undoing = word & UNDOING != 0;
            heads.push(Head { coordinator, target, tag, undoing, bytes });
        }
    }
    Ok(heads)
}

/// The whole entries under these heads, one of each transaction.
///
/// # Errors
/// The fabric's.
pub async fn entries<E: Entry>(cx: &Context, heads: &[Head]) -> Result<Vec<Unsettled<E>>, Failure> {
    let area_bytes = cx.database().catalog.options().log_bytes as usize;
    let mut found: Vec<Unsettled<E>> = Vec::new();
    let len_bytes = |head: &Head| head.bytes.clamp(LOG_HEADER_BYTES, area_bytes);
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
        let mut round = Round::new();
        let at = round.reserve_lines(bytes.len());
        round.bytes_mut(at, bytes.len()).copy_from_slice(&bytes);
        let word = round.word(at);
        round.set_word(at, word & !UNDOING);
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
