//! The rule that decides when a node gives a shard away, and to which node.
//!
//! Invariant: the rule depends only on published figures, and uses neither a clock nor randomness. After the rule has
//! moved a shard, the node must be overloaded for the full number of intervals again. So the rule sees the effect of
//! one move before it decides on the next move.
//!
//! The rule of LOTUS (§4.3): a node gives away the shard with the most recent requests, if its average latency
//! exceeds the cluster's mean by more than half for three intervals. The node with the lowest latency gets the shard.

use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::UsageError;

/// The parameters of the rule. The defaults are the paper's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The interval at which nodes publish their figures and apply the rule.
    pub interval: Nanos,
    /// A node is overloaded if its latency exceeds this many percent of the cluster's mean.
    pub overload_percent: u32,
    /// The number of successive intervals for which a node must be overloaded.
    pub intervals: u32,
    /// How long a move waits for transactions that hold locks of the shard.
    pub patience: Nanos,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            interval: Nanos(100_000_000),
            overload_percent: 150,
            intervals: 3,
            patience: Nanos(10_000_000),
        }
    }
}

impl Terms {
    /// Refuses parameters that are out of range.
    ///
    /// # Errors
    /// The error names the field, its value and the allowed values.
    pub fn validate(&self) -> Result<(), UsageError> {
        let refuse = |field: &str, value: String, allowed: &str| {
            Err(UsageError { field: field.into(), value, allowed: allowed.into() })
        };
        if self.interval == Nanos(0) {
            return refuse("interval", "0 ns".into(), "more than 0");
        }
        if self.overload_percent <= 100 {
            let value = self.overload_percent.to_string();
            return refuse("overload_percent", value, "more than 100, which is the mean");
        }
        if self.intervals == 0 {
            return refuse("intervals", "0".into(), "1 or more");
        }
        Ok(())
    }
}

/// The state of the rule between intervals.
#[derive(Default, Debug)]
pub struct Rule {
    over: u32,
}

impl Rule {
    /// Applies the rule after one interval. `latencies` are all nodes' average latencies in nanoseconds, in any
    /// order. If `own` should give a shard away, returns the node that should get it.
    pub fn look(
        &mut self,
        terms: &Terms,
        own: NodeId,
        latencies: &[(NodeId, u64)],
    ) -> Option<NodeId> {
        let mine = latencies.iter().find(|(node, _)| *node == own)?.1;
        let sum: u128 = latencies.iter().map(|(_, ns)| u128::from(*ns)).sum();
        let (is, may) = (u128::from(mine) * 100, sum * u128::from(terms.overload_percent));
        let is_over = is * latencies.len() as u128 > may;
        self.over = if is_over { self.over + 1 } else { 0 };
        if self.over < terms.intervals {
            return None;
        }
        self.over = 0;
        let others = latencies.iter().filter(|(node, _)| *node != own);
        others.min_by_key(|(node, ns)| (*ns, *node)).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Incarnation, NodeSlot};

    fn node(slot: u16) -> NodeId {
        NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
    }

    fn all(ns: [u64; 3]) -> Vec<(NodeId, u64)> {
        ns.into_iter().enumerate().map(|(slot, ns)| (node(slot as u16), ns)).collect()
    }

    #[test]
    fn a_node_overloaded_for_three_intervals_gives_shards_to_the_fastest() {
        let (mut rule, terms) = (Rule::default(), Terms::default());
        // In the first case the mean latency is 200, and 300 does not exceed it by more than half. In the second case
        // the mean latency is 201, and 301 does not exceed it by more than half.
        for ns in [[300, 150, 150], [301, 150, 152]] {
            assert!((0..9).all(|_| rule.look(&terms, node(0), &all(ns)).is_none()), "{ns:?}");
        }
        let over = all([400, 180, 120]);
        assert_eq!([(); 2].map(|()| rule.look(&terms, node(0), &over)), [None; 2]);
        assert_eq!(rule.look(&terms, node(0), &all([150; 3])), None, "begins anew");
        let told = [(); 6].map(|()| rule.look(&terms, node(0), &over));
        assert_eq!(told, [None, None, Some(node(2)), None, None, Some(node(2))]);
    }

    #[test]
    fn a_fast_or_lone_node_gives_no_shard_away() {
        let (mut rule, terms) = (Rule::default(), Terms { intervals: 1, ..Terms::default() });
        assert_eq!(rule.look(&terms, node(1), &all([400, 180, 120])), None);
        assert_eq!(rule.look(&terms, node(0), &[(node(0), 400)]), None);
        assert_eq!(rule.look(&terms, node(5), &all([400, 180, 120])), None, "it has not published");
        assert_eq!(rule.look(&terms, node(0), &all([0; 3])), None, "nobody runs anything");
    }

    #[test]
    fn impossible_terms_are_refused_by_field() {
        let good = Terms::default();
        assert!(good.validate().is_ok());
        let bad = [
            (Terms { interval: Nanos(0), ..good }, "interval"),
            (Terms { overload_percent: 100, ..good }, "overload_percent"),
            (Terms { intervals: 0, ..good }, "intervals"),
        ];
        for (terms, field) in bad {
            assert_eq!(terms.validate().expect_err("refused").field, field);
        }
    }
}
