//! Timestamps of the pool: a word that every node adds to.
//!
//! Invariant: atomics at one memory node are in one order, and a READ of the word comes before or after each of them.
//! Only its group's primary has the current word, so the word of another primary lags behind. Therefore the
//! configuration's number stands above the count. No two configurations run at once. So a later configuration gives
//! later timestamps, whatever the word is there (docs/timestamps.md). This source is for the explorer, to which it is
//! two verbs like any others, and for simulated clusters. It costs one atomic of a memory node for each commit.

use crate::site::Context;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::{ConfigurationNumber, Failure, Timestamp};

/// The bits for timestamps of one configuration.
const COUNT_BITS: u32 = 40;

/// The timestamp of a count. The word counts from the timestamp of loaded records, since it is zero in fresh memory.
fn timestamp(cx: &Context, count: u64) -> Timestamp {
    let ConfigurationNumber(number) = cx.configuration();
    let changes = number - ConfigurationNumber::FIRST.0;
    Timestamp(Timestamp::LOADED.0 + (changes << COUNT_BITS) + count)
}

/// The greatest timestamp that was given.
pub(super) async fn read(cx: &Context, word: Address) -> Result<Timestamp, Failure> {
    let mut round = Round::new();
    let at = round.read(cx.groups.primary(word), 8);
    cx.port.execute(&mut round).await?;
    Ok(timestamp(cx, round.word(at)))
}

/// The next timestamp.
pub(super) async fn add(cx: &Context, word: Address) -> Result<Timestamp, Failure> {
    let mut round = Round::new();
    let added = round.faa(cx.groups.primary(word), 1);
    cx.port.execute(&mut round).await?;
    Ok(timestamp(cx, round.found(added) + 1))
}
