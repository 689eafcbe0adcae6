//! A hotspot that moves, and the effect of resharding on it.
//!
//! Map: [`Hotspot`] says which shards are hot and when; `trail` keeps the events; [`run`] measures three cases on clusters
//! of their own; [`report`] compares them.
//!
//! Invariant: a function of plan and seed, in virtual time. Hot shards are as many in every case, and so is their share of
//! the transactions: cases differ in whose the hot shards are at the start, and in whether shards move.

pub mod report;
pub mod run;
pub(crate) mod trail;

use tarn_fabric::clock::Nanos;
use tarn_store::ids::UsageError;
use tarn_store::placement::shard_map::{SHARDS, ShardId};

/// Some shards that are asked for more than others, and others after a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hotspot {
    /// Share of the writing transactions that have their first record there, in percent; besides those that have it
    /// there by chance.
    pub share_percent: u32,
    /// How many shards.
    pub shards: u32,
    /// Each is so far from the one before. Shards are dealt out in turn: as far as there are compute nodes, and all
    /// of them are one node's; 1, and each is another's.
    pub stride: u32,
    /// How far the first is from the first of the time before, beyond those.
    pub nodes: u32,
    /// How long they stay.
    pub every: Nanos,
}

impl Hotspot {
    /// Refuses a hotspot that cannot be.
    ///
    /// # Errors
    /// Names the field, its value, and the allowed ones.
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

    /// The first of the hot shards after so much time: each time another node's, of shards that were not hot before.
    fn first(&self, passed: Nanos) -> u64 {
        let turn = passed.0 / self.every.0;
        let (wide, nodes) = (u64::from(self.shards) * u64::from(self.nodes), u64::from(self.nodes));
        turn * wide + turn % nodes
    }

    /// Whether a shard is hot after so much time.
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
        // Round the end.
        assert_eq!(hot(&hotspot, Nanos(100 * 341)).len(), 4);
        assert!(hotspot.validate().is_ok());
        assert!(Hotspot { shards: 683, ..hotspot }.validate().is_err());
        assert!(Hotspot { share_percent: 0, ..hotspot }.validate().is_err());
    }
}
