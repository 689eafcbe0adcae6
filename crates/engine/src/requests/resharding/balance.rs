//! Load balancing by each node: a node publishes its own load and reads the other nodes' loads. When the rule says
//! so, the node gives its hottest shard away.
//!
//! Invariants: in every interval a node writes its own load word in the memory pool and reads the load words of other
//! nodes, in one round. A load word is never torn, since it is a single word. A node ignores a load word that does
//! not change, or that belongs to an ended incarnation. One coroutine of each node runs the balancing, so a node
//! moves one shard at a time.
//!
//! ```text
//! group 0's superblock page, from byte 1,024 on, a word a compute node by its slot
//! 63    48 | 47     36 | 35             0
//!   count  | incarnation | latency in ns         zero: it has never published
//! ```

use super::moving::{Move, move_shard};
use crate::services::shard_load::Recent;
use crate::services::shard_rule::{Rule, Terms};
use crate::site::Context;
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::placement::catalog::SUPERBLOCK_BYTES;
use tarn_store::placement::shard_map::ShardId;

const WORDS_AT: u64 = 1_024;
/// The greatest number of compute nodes that can take part: the nodes of the first slots.
pub const NODES_MAX: usize = ((SUPERBLOCK_BYTES - WORDS_AT) / 8) as usize;

/// The longest time that the balancing coroutine sleeps in one step.
const STEP: Nanos = Nanos(1_000_000);

const LATENCY_BITS: u32 = 36;
const INCARNATION_BITS: u32 = 12;

fn word_at(slot: NodeSlot) -> Address {
    Address::new(GroupId(0), WORDS_AT + 8 * u64::from(slot.0))
}

/// The word that a node publishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Published {
    /// The number of times that the node has published its load.
    count: u16,
    incarnation: Incarnation,
    latency_ns: u64,
}

impl Published {
    fn word(self) -> u64 {
        let latency = self.latency_ns.min((1 << LATENCY_BITS) - 1);
        let incarnation = u64::from(self.incarnation.0) << LATENCY_BITS;
        u64::from(self.count) << (LATENCY_BITS + INCARNATION_BITS) | incarnation | latency
    }

    fn from_word(word: u64) -> Option<Published> {
        let incarnation = (word >> LATENCY_BITS) as u16 & ((1 << INCARNATION_BITS) - 1);
        (incarnation != 0).then_some(Published {
            count: (word >> (LATENCY_BITS + INCARNATION_BITS)) as u16,
            incarnation: Incarnation(incarnation),
            latency_ns: word & ((1 << LATENCY_BITS) - 1),
        })
    }
}

/// The state of one node's balancing.
struct Balancer {
    recent: Recent,
    rule: Rule,
    published: u16,
    /// For each slot, the load word at the last reading.
    words: Vec<u64>,
}

impl Balancer {
    /// Publishes this node's load word and reads all load words. Returns the nodes that have published since the last
    /// reading, and their latencies.
    async fn exchange(
        &mut self,
        cx: &Context,
        latency_ns: u64,
    ) -> Result<Vec<(NodeId, u64)>, Failure> {
        self.published = self.published.wrapping_add(1);
        let (own, incarnation) = (cx.node.id.slot, cx.node.id.incarnation);
        let published = Published { count: self.published, incarnation, latency_ns };
        let mut round = Round::new();
        let mine = round.reserve(8);
        round.set_word(mine, published.word());
        for copy in cx.groups.whole().all(word_at(own)) {
            round.write(copy, mine, 8);
        }
        let all = round.read(cx.groups.primary(word_at(NodeSlot(0))), 8 * self.words.len());
        cx.port.execute(&mut round).await?;
        let mut latencies = Vec::new();
        for (slot, &word) in round.words(all, self.words.len()).iter().enumerate() {
            let has_changed = std::mem::replace(&mut self.words[slot], word) != word;
            let Some(its) = Published::from_word(word).filter(|_| has_changed) else { continue };
            let node = NodeId { slot: NodeSlot(slot as u16), incarnation: its.incarnation };
            if cx.database().membership.is_member(node) {
                latencies.push((node, its.latency_ns));
            }
        }
        Ok(latencies)
    }

    /// Applies the rule after one interval. If the rule says that a shard should move, returns the shard and its
    /// receiver.
    async fn interval(
        &mut self,
        cx: &Context,
        terms: &Terms,
    ) -> Result<Option<(ShardId, NodeId)>, Failure> {
        let services = cx.node_services();
        let Some(load) = services.load() else { return Ok(None) };
        let mut hottest: Option<(u32, ShardId)> = None;
        let latency_ns = self.recent.look(load, cx.port.now(), |shard, count| {
            let is_own = services.shards.is_served_by(shard, services.id);
            if is_own && hottest.is_none_or(|(most, _)| count > most) {
                hottest = Some((count, shard));
            }
        });
        let latencies = self.exchange(cx, latency_ns).await?;
        let to = self.rule.look(terms, services.id, &latencies);
        Ok(hottest.map(|(_, shard)| shard).zip(to))
    }
}

/// Publishes this node's load every interval, and moves its hottest shard when the node is overloaded, until `stop`
/// returns true. One coroutine of each of the first `nodes` slots runs this function. The function calls `report` for
/// each move.
///
/// If there are not 1 to [`NODES_MAX`] nodes, if this node is not one of them, or if `terms` are invalid. Each of
/// these errors would be a bug of the caller.
pub async fn balance(
    cx: &Context,
    nodes: usize,
    terms: &Terms,
    stop: impl Fn() -> bool,
    mut report: impl AsyncFnMut(ShardId, NodeId, Move),
) {
    assert!((1..=NODES_MAX).contains(&nodes), "every node has a word");
    assert!(usize::from(cx.node.id.slot.0) < nodes, "this node is one of them");
    assert!(terms.validate().is_ok(), "valid terms");
    let (recent, rule) = (Recent::default(), Rule::default());
    let mut balancer = Balancer { recent, rule, published: 0, words: vec![0; nodes] };
    let membership = &cx.database().membership;
    let mut next = cx.port.now() + terms.interval;
    while !stop() && membership.is_member(cx.node.id) {
        let now = cx.port.now();
        if now < next {
            // The coroutine sleeps in short steps, so that the function ends soon after `stop` returns true.
            cx.port.sleep((next - now).min(STEP)).await;
            continue;
        }
        next = now + terms.interval;
        // If the round of verbs fails, the node skips this interval.
        let Ok(Some((shard, to))) = balancer.interval(cx, terms).await else { continue };
        let came = move_shard(cx, shard, to, terms.patience).await;
        report(shard, to, came).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_comes_apart_as_it_was_packed(
            count: u16, incarnation in 1u16..4096, latency_ns in 0u64..1 << LATENCY_BITS,
        ) {
            let incarnation = Incarnation(incarnation);
            let published = Published { count, incarnation, latency_ns };
            prop_assert_eq!(Published::from_word(published.word()), Some(published));
        }
    }

    #[test]
    fn an_unwritten_load_word_counts_for_no_node_and_the_slowest_is_not_fast() {
        assert_eq!(Published::from_word(0), None);
        let incarnation = Incarnation(1);
        let slow = Published { count: 1, incarnation, latency_ns: u64::MAX };
        let told = Published::from_word(slow.word()).expect("published");
        assert_eq!(told.latency_ns, (1 << LATENCY_BITS) - 1);
    }
}
