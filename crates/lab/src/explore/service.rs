//! The membership service that the executions of a litmus use. The service records each claim of a recovery.
//!
//! Invariant: the service passes all questions to the engine's own service and returns that service's answers. The
//! service also records claims of recoveries, because the result of a later claim depends on the earlier claims. So
//! the explorer must distinguish states with different claims. The service does not count changes of shards, because
//! [`super::beside`] reads the litmus's own shards.

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

/// The membership service of one execution.
pub struct Service {
    inner: EmbeddedMembership,
    /// For each dead incarnation, a digest of the sequence of nodes that were allowed to recover it.
    claims: Mutex<BTreeMap<NodeId, u64>>,
}

impl Service {
    /// Creates a service with `compute_nodes` slots. The members need not renew their membership, and
    /// readers' leases last `read_lease_ns`.
    ///
    /// # Panics
    /// Panics if the leases are too long.
    pub fn new(compute_nodes: usize, read_lease_ns: u32) -> Arc<Service> {
        let inner = EmbeddedMembership::new(compute_nodes).leasing_reads(read_lease_ns);
        let inner = inner.expect("a short lease");
        Arc::new(Service { inner, claims: Mutex::default() })
    }

    /// Returns a digest of the claims.
    pub fn claims(&self) -> u64 {
        let claims = self.claims.lock().expect("no panic under this lock");
        claims.iter().fold(0, |digest, (dead, by)| mix(digest ^ u64::from(dead.slot.0)) ^ by)
    }
}

impl ShardRecord for Service {
    fn shard(&self, shard: ShardId) -> Option<ShardEntry> {
        self.inner.shard(shard)
    }

    /// The function reports no change, so that no node reads all 4,096 shards again. Each poll reads the shards of
    /// the litmus in any case.
    fn shard_changes(&self) -> u64 {
        0
    }
}

/// Defines the methods that only call the same method of the engine's own service.
macro_rules! asked {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)+) => {
        $(fn $name(&self, $($argument: $type),*) $(-> $answer)? {
            self.inner.$name($($argument),*)
        })+
    };
}

impl Membership for Service {
    asked! {
        view() -> ViewNumber;
        join(slot: NodeSlot) -> Result<NodeId, UsageError>;
        standing(node: NodeId) -> Standing;
        renew(node: NodeId) -> Renewal;
        leave(node: NodeId);
        expel(node: NodeId) -> ViewNumber;
        while_settled(by: NodeId, view: ViewNumber, act: &mut dyn FnMut()) -> bool;
        ended() -> Vec<NodeId>;
        unrecovered() -> Vec<NodeId>;
        recovered(dead: NodeId, by: NodeId) -> bool;
        is_shared_out() -> bool;
        open_shards(owners: &[NodeId]);
        change_shard(by: NodeId, shard: ShardId, from: ShardEntry, to: ShardEntry) -> ShardChange;
        ack_lost(dead: NodeId, by: NodeId);
        lost_acks(dead: NodeId) -> Vec<NodeId>;
        retire(by: NodeId);
        bereaved() -> Vec<NodeId>;
        reopen_shards(dead: NodeId, heirs: Heirs) -> Reopening;
        timestamper() -> Option<Timestamper>;
        succeed_timestamper(by: NodeId) -> Succession;
        read_lease() -> LeaseWord;
        acknowledge_read_lease(by: NodeId, word: LeaseWord);
        change_read_lease(by: NodeId, length_ns: u32) -> Result<ReadLeaseChange, UsageError>;
        read_lease_policy() -> Option<LeasePolicy>;
        manage_read_lease(by: NodeId) -> Management;
        running() -> Vec<NodeId>;
        roster_changes() -> u64;
        read_lease_missing() -> Vec<NodeId>;
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
