//! The membership service of a litmus, which says who has claimed what.
//!
//! Invariant: answers as the engine's own service does, which it asks; notes claims, since what another
//! claim comes to depends on them, and the explorer has to tell such states apart. It does not say how often shards
//! have changed: [`super::beside`] looks at the litmus's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tarn_engine::cluster::lease::{LeasePolicy, LeaseWord};
use tarn_engine::cluster::membership::{
    Claim, EmbeddedMembership, Heirs, Management, Membership, ReadLeaseChange, Renewal, Reopening,
    ShardChange, Standing, Succession, Timestamper,
};
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::rng::mix;
use tarn_store::ids::{UsageError, ViewNumber};
use tarn_store::placement::shard_map::{ShardEntry, ShardId, ShardRecord};

/// See the module's text.
pub struct Service {
    inner: EmbeddedMembership,
    /// Of each dead life, a digest of whom its recovery was granted to, one after another.
    claims: Mutex<BTreeMap<NodeId, u64>>,
}

impl Service {
    /// For so many slots, whose members need not ask to stay; readers' leases are so long.
    ///
    /// # Panics
    /// If they are too long.
    pub fn new(compute_nodes: usize, read_lease_ns: u32) -> Arc<Service> {
        let inner = EmbeddedMembership::new(compute_nodes).leasing_reads(read_lease_ns);
        let inner = inner.expect("a short lease");
        Arc::new(Service { inner, claims: Mutex::default() })
    }

    /// A digest of who has claimed what.
    pub fn claims(&self) -> u64 {
        let claims = self.claims.lock().expect("no panic under this lock");
        claims.iter().fold(0, |digest, (dead, by)| mix(digest ^ u64::from(dead.slot.0)) ^ by)
    }
}

impl ShardRecord for Service {
    fn shard(&self, shard: ShardId) -> Option<ShardEntry> {
        self.inner.shard(shard)
    }

    /// Nothing that anybody must go through 4,096 shards for: those of the litmus are looked at in each poll.
    fn shard_changes(&self) -> u64 {
        0
    }
}

impl Membership for Service {
    fn view(&self) -> ViewNumber {
        self.inner.view()
    }

    fn join(&self, slot: NodeSlot) -> Result<NodeId, UsageError> {
        self.inner.join(slot)
    }

    fn standing(&self, node: NodeId) -> Standing {
        self.inner.standing(node)
    }

    fn renew(&self, node: NodeId) -> Renewal {
        self.inner.renew(node)
    }

    fn leave(&self, node: NodeId) {
        self.inner.leave(node);
    }

    fn expel(&self, node: NodeId) -> ViewNumber {
        self.inner.expel(node)
    }

    fn while_settled(&self, by: NodeId, view: ViewNumber, act: &mut dyn FnMut()) -> bool {
        self.inner.while_settled(by, view, act)
    }

    fn ended(&self) -> Vec<NodeId> {
        self.inner.ended()
    }

    fn unrecovered(&self) -> Vec<NodeId> {
        self.inner.unrecovered()
    }

    fn claim_recovery(&self, dead: NodeId, by: NodeId) -> Claim {
        let claim = self.inner.claim_recovery(dead, by);
        if let Claim::Granted { before } = &claim {
            let all = before.iter().chain([&by]);
            let digest = all.fold(1, |digest, node| mix(digest) ^ u64::from(node.slot.0));
            self.claims.lock().expect("no panic under this lock").insert(dead, digest);
        }
        claim
    }

    fn give_back(&self, dead: NodeId, by: NodeId) {
        self.inner.give_back(dead, by);
        let mut claims = self.claims.lock().expect("no panic under this lock");
        let digest = claims.entry(dead).or_default();
        *digest = mix(!*digest ^ u64::from(by.slot.0));
    }

    fn recovered(&self, dead: NodeId, by: NodeId) -> bool {
        self.inner.recovered(dead, by)
    }

    fn is_shared_out(&self) -> bool {
        self.inner.is_shared_out()
    }

    fn open_shards(&self, owners: &[NodeId]) {
        self.inner.open_shards(owners);
    }

    fn change_shard(
        &self,
        by: NodeId,
        shard: ShardId,
        from: ShardEntry,
        to: ShardEntry,
    ) -> ShardChange {
        self.inner.change_shard(by, shard, from, to)
    }

    fn ack_lost(&self, dead: NodeId, by: NodeId) {
        self.inner.ack_lost(dead, by);
    }

    fn lost_acks(&self, dead: NodeId) -> Vec<NodeId> {
        self.inner.lost_acks(dead)
    }

    fn retire(&self, by: NodeId) {
        self.inner.retire(by);
    }

    fn bereaved(&self) -> Vec<NodeId> {
        self.inner.bereaved()
    }

    fn reopen_shards(&self, dead: NodeId, heirs: Heirs) -> Reopening {
        self.inner.reopen_shards(dead, heirs)
    }

    fn timestamper(&self) -> Option<Timestamper> {
        self.inner.timestamper()
    }

    fn succeed_timestamper(&self, by: NodeId) -> Succession {
        self.inner.succeed_timestamper(by)
    }

    fn read_lease(&self) -> LeaseWord {
        self.inner.read_lease()
    }

    fn acknowledge_read_lease(&self, by: NodeId, word: LeaseWord) {
        self.inner.acknowledge_read_lease(by, word);
    }

    fn change_read_lease(&self, by: NodeId, length_ns: u32) -> Result<ReadLeaseChange, UsageError> {
        self.inner.change_read_lease(by, length_ns)
    }

    fn read_lease_policy(&self) -> Option<LeasePolicy> {
        self.inner.read_lease_policy()
    }

    fn manage_read_lease(&self, by: NodeId) -> Management {
        self.inner.manage_read_lease(by)
    }

    fn running(&self) -> Vec<NodeId> {
        self.inner.running()
    }

    fn roster_changes(&self) -> u64 {
        self.inner.roster_changes()
    }

    fn read_lease_missing(&self) -> Vec<NodeId> {
        self.inner.read_lease_missing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_passes_on_is_another_state() {
        let service = Service::new(3, 0);
        let [dead, one, two] = [0, 1, 2].map(|slot| service.join(NodeSlot(slot)).expect("a life"));
        let mut seen = vec![service.claims()];
        service.expel(dead);
        for by in [one, two] {
            assert_eq!(
                service.claim_recovery(dead, by),
                Claim::Granted { before: seen_by(by, one) }
            );
            assert!(!seen.contains(&service.claims()));
            seen.push(service.claims());
            service.expel(by);
        }
    }

    fn seen_by(by: NodeId, first: NodeId) -> Vec<NodeId> {
        if by == first { Vec::new() } else { vec![first] }
    }
}
