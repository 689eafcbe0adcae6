//! Timestamps of the pool: a word that every node adds to.
//!
//! Invariant: atomics at one memory node are in one order, and a READ of the word comes before or after
//! each of them. The word is at its group's primary alone: a memory node that dies takes it along. So this
//! source is for the explorer, to which it is two verbs like any others, and for clusters whose memory nodes
//! live; a service keeps its bound on all copies.

use super::Timestamp;
use crate::context::Context;
use crate::outcome::Failure;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;

/// The word counts what was given beyond those of loaded records: it is zero in fresh memory.
fn timestamp(count: u64) -> Timestamp {
    Timestamp(Timestamp::LOADED.0 + count)
}

/// The greatest that was given.
pub(super) async fn read(cx: &Context, word: Address) -> Result<Timestamp, Failure> {
    let mut round = Round::new();
    let at = round.read(cx.groups.primary(word), 8);
    cx.port.execute(&mut round).await?;
    Ok(timestamp(round.word(at)))
}

/// The next.
pub(super) async fn add(cx: &Context, word: Address) -> Result<Timestamp, Failure> {
    let mut round = Round::new();
    let added = round.faa(cx.groups.primary(word), 1);
    cx.port.execute(&mut round).await?;
    Ok(timestamp(round.found(added) + 1))
}
