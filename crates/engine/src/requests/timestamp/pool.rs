//! Timestamps from a counter word in the memory pool, to which every node adds.
//!
//! Invariant: one memory node executes all atomics on the word in one order, and a READ of the word comes before or
//! after each atomic. Only the primary of the word's group has the current value, so the value at a later primary is
//! older. Therefore the upper bits of a timestamp contain the configuration's number, and the lower bits contain the
//! count. No two configurations run at the same time. So a later configuration gives later timestamps, whatever value
//! the word has at its primary (docs/timestamps.md). The explorer uses this source, because the source consists of
//! two ordinary verbs; simulated clusters use it too. Each commit costs one atomic of a memory node.

use crate::site::Context;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::{ConfigurationNumber, Failure, Timestamp};

/// The number of bits of a timestamp that count the timestamps of one configuration.
const COUNT_BITS: u32 = 40;

/// The timestamp for a value of the counter. The counter is zero in fresh memory, so the function adds the timestamp
/// of loaded records.
fn timestamp(cx: &Context, count: u64) -> Timestamp {
    let ConfigurationNumber(number) = cx.configuration();
    let changes = number - ConfigurationNumber::FIRST.0;
    Timestamp(Timestamp::LOADED.0 + (changes << COUNT_BITS) + count)
}

/// The greatest timestamp that the counter has given.
pub(super) async fn read(cx: &Context, word: Address) -> Result<Timestamp, Failure> {
    let mut round = Round::new();
    let at = round.read(cx.groups.primary(word), 8);
    cx.port.execute(&mut round).await?;
    Ok(timestamp(cx, round.word(at)))
}

/// Increments the counter, and returns its next timestamp.
pub(super) async fn add(cx: &Context, word: Address) -> Result<Timestamp, Failure> {
    let mut round = Round::new();
    let added = round.faa(cx.groups.primary(word), 1);
    cx.port.execute(&mut round).await?;
    Ok(timestamp(cx, round.found(added) + 1))
}
