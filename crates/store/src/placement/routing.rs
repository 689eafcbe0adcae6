//! Routing chooses the compute node on which a transaction runs.
//!
//! Invariant: routing affects only speed. On whichever node a transaction runs, it gets its locks from the owners of
//! its shards. A router with an old shard map may choose a node that must request the locks from another node.
//!
//! LOTUS (§4.3) runs a read-only transaction on any node, because a read-only transaction takes no lock. A
//! transaction that writes runs on the node that owns the shard of its first record. That node is the best one,
//! because the transaction's other records are likely to be in the same shard.

use crate::placement::catalog::Catalog;
use crate::placement::shard_map::{ShardId, ShardMap};
use crate::schema::TableId;
use rand::RngExt as _;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::rng::Rng;

/// Chooses nodes for transactions by one node's view of the shard map.
pub struct Router<'a> {
    catalog: &'a Catalog,
    map: &'a ShardMap,
    /// The nodes on which transactions may run.
    nodes: Vec<NodeSlot>,
}

impl<'a> Router<'a> {
    /// Creates a router that chooses among `nodes`.
    ///
    /// # Panics
    /// If `nodes` is empty.
    pub fn new(catalog: &'a Catalog, map: &'a ShardMap, nodes: Vec<NodeSlot>) -> Router<'a> {
        assert!(!nodes.is_empty(), "somewhere to run");
        Router { catalog, map, nodes }
    }

    /// The shard of a key word in a table.
    pub fn shard_of(&self, (table, key): (TableId, u64)) -> ShardId {
        self.catalog.table(table).shard_of(key)
    }

    /// The node for a transaction whose first record is in the shard of the first record's key word. Any node may be
    /// chosen in three cases: the transaction only reads, its first record is not known, or no node of the router
    /// owns the shard.
    #[inline]
    pub fn place(
        &self,
        read_only: bool,
        first_key: Option<(TableId, u64)>,
        rng: &mut Rng,
    ) -> NodeSlot {
        let owner = first_key.filter(|_| !read_only).and_then(|(table, key)| {
            let entry = self.map.entry(self.catalog.table(table).shard_of(key))?;
            self.nodes.contains(&entry.owner.slot).then_some(entry.owner.slot)
        });
        owner.unwrap_or_else(|| self.nodes[rng.random_range(0..self.nodes.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::catalog::Options;
    use crate::placement::shard_map::{ShardEntry, ShardState};
    use crate::schema::{ColumnType, TableSchema};
    use tarn_fabric::address::{Incarnation, NodeId};
    use tarn_fabric::rng::seeded;

    const TABLE: TableId = TableId(0);

    #[test]
    fn writers_run_at_the_owner_and_readers_anywhere() {
        let schema = TableSchema::new("t", 100).critical_bits(0xff0).column("a", ColumnType::U64);
        let catalog = Catalog::plan(&[schema], &Options::default(), 1).expect("a plan");
        let map = ShardMap::default();
        let slots = [0, 1, 2].map(NodeSlot);
        let router = Router::new(&catalog, &map, slots.to_vec());
        let mut rng = seeded(1, 1);
        let anywhere = |place: &mut dyn FnMut() -> NodeSlot| {
            let found: std::collections::BTreeSet<NodeSlot> = (0..60).map(|_| place()).collect();
            assert_eq!(found.len(), 3, "all of them");
        };
        anywhere(&mut || router.place(false, Some((TABLE, 0x40)), &mut rng));
        for shard in ShardId::all() {
            let owner =
                NodeId { slot: slots[usize::from(shard.0) % 3], incarnation: Incarnation(1) };
            map.learn(shard, ShardEntry { owner, state: ShardState::Open, epoch: 1 });
        }
        for key in 0..200u64 {
            let shard = ShardId((key >> 4 & 0xff) as u16);
            let owner = map.entry(shard).expect("an owner").owner.slot;
            assert_eq!(router.place(false, Some((TABLE, key)), &mut rng), owner);
        }
        anywhere(&mut || router.place(true, Some((TABLE, 0x40)), &mut rng));
        anywhere(&mut || router.place(false, None, &mut rng));
        let owner = map.entry(ShardId(4)).expect("an owner").owner.slot;
        let others: Vec<NodeSlot> = slots.into_iter().filter(|&slot| slot != owner).collect();
        let router = Router::new(&catalog, &map, others.clone());
        assert!(others.contains(&router.place(false, Some((TABLE, 0x40)), &mut rng)));
    }
}
