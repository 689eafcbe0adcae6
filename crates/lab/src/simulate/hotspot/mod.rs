//! Runs a workload with a moving hotspot, in which some shards get more requests than others. The move of hot shards
//! to other nodes reduces the loss of throughput.
//!
//! Map:
//! - [`Hotspot`]: the shards that are hot at each time. `trail`: records the events.
//! - [`run`]: measures three cases, each on a cluster of its own. [`report`]: compares the results of these cases.
//!
//! Invariant: the result depends only on the plan and the seed, and all times are virtual. The number of hot shards
//! and their share of the transactions are the same in every case. The cases differ only in the initial owners of the
//! hot shards, and in whether shards move.

pub mod report;
pub mod run;
pub(crate) mod trail;

use tarn_fabric::clock::Nanos;
use tarn_store::ids::UsageError;
use tarn_store::placement::shard_map::{SHARDS, ShardId};

/// A moving hotspot: some shards get more requests than others for some time, and then other shards
/// become hot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hotspot {
    /// The percentage of the writing transactions whose first record is placed in a hot shard on
    /// purpose. Other transactions may have their first record in a hot shard by chance.
    pub share_percent: u32,
    /// The number of hot shards.
    pub shards: u32,
    /// The difference between the numbers of one hot shard and the next hot shard. Consecutive shards belong to the
    /// compute nodes in turn. So if this difference is the number of compute nodes, all hot shards belong to one
    /// node. If the difference is 1, consecutive hot shards belong to different nodes.
    pub stride: u32,
    /// The number of compute nodes. Each time the hotspot moves, its first shard number grows by the number of hot
    /// shards times the number of compute nodes. In most moves the number of the first hot shard grows by one more,
    /// so that another node owns this shard.
    pub nodes: u32,
    /// The time for which the same shards stay hot.
    pub every: Nanos,
}

impl Hotspot {
    /// Returns an error if no run can have this hotspot.
    ///
    /// # Errors
    /// The error names the field, its value, and the allowed values.
    pub fn validate(&self) -> Result<(), UsageError> {
        let refuse = |field: &str, value: String, allowed: String| {
            Err(UsageError { field: field.into(), value, allowed })
        };
        if !(1..=100).contains(&self.share_percent) {
            let value = self.share_percent.to_string();
            return refuse("hot-share", value, "1 to 100, in percent".into());
        }
        let most = SHARDS as u32 / self.nodes.max(1) / 2;
        if !(1..=most).contains(&self.shards) {
            return refuse("hot-shards", self.shards.to_string(), format!("1 to {most}"));
        }
        if self.every == Nanos(0) {
            return refuse("hot-ms", "0".into(), "more than 0".into());
        }
        Ok(())
    }

    /// Returns the first of the hot shards after the time `passed`. Each move selects shards of
    /// another node that were not hot before.
    fn first(&self, passed: Nanos) -> u64 {
        let turn = passed.0 / self.every.0;
        let (wide, nodes) = (u64::from(self.shards) * u64::from(self.nodes), u64::from(self.nodes));
        turn * wide + turn % nodes
    }

    /// Returns whether a shard is hot after the time `passed`.
    pub fn is_hot(&self, ShardId(shard): ShardId, passed: Nanos) -> bool {
        let shards = SHARDS as u64;
        let behind = (u64::from(shard) + shards - self.first(passed) % shards) % shards;
        let stride = u64::from(self.stride);
        behind.is_multiple_of(stride) && behind / stride < u64::from(self.shards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(hotspot: &Hotspot, passed: Nanos) -> Vec<u16> {
        ShardId::all().filter(|it| hotspot.is_hot(*it, passed)).map(|it| it.0).collect()
    }

    #[test]
    fn hot_shards_are_one_nodes_then_anothers_and_in_the_balanced_case_everybodys() {
        let every = Nanos(100);
        let hotspot = Hotspot { share_percent: 50, shards: 4, stride: 3, nodes: 3, every };
        assert_eq!(hot(&hotspot, Nanos(99)), [0, 3, 6, 9]);
        assert_eq!(hot(&hotspot, Nanos(100)), [13, 16, 19, 22]);
        assert_eq!(hot(&hotspot, Nanos(399)), [36, 39, 42, 45]);
        let even = Hotspot { stride: 1, ..hotspot };
        assert_eq!(hot(&even, Nanos(0)), [0, 1, 2, 3]);
        // At this time, the numbers of the hot shards exceed the largest shard number and continue from 0.
        assert_eq!(hot(&hotspot, Nanos(100 * 341)).len(), 4);
        assert!(hotspot.validate().is_ok());
        assert!(Hotspot { shards: 683, ..hotspot }.validate().is_err());
        assert!(Hotspot { share_percent: 0, ..hotspot }.validate().is_err());
    }
}
