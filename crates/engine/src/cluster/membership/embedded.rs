//! The membership service in one process.
//!
//! Invariant: every answer about an incarnation was true at one moment. The reason is that every change of the
//! register and of the view number is made under the register's lock. No transaction takes that lock, because a
//! thread can read the state of each slot's latest incarnation without it.

use super::read_leases::PublishedLease;
use super::register::{Ended, Register};
use super::shards::Shards;
use super::{
    Claim, Heirs, LeaseTerms, Management, Membership, Patience, ReadLeaseChange, Renewal,
    Reopening, ShardChange, Standing, Succession, Timestamper,
};
use crate::cluster::lease::{LeasePolicy, LeaseWord};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_store::ids::{INCARNATIONS_MAX, SLOTS_MAX, UsageError, ViewNumber};
use tarn_store::placement::shard_map::{ShardEntry, ShardId, ShardRecord, ShardState};

/// The membership service in one process: a register behind a lock. Transactions do not take the lock. Without this
/// lock they read the state of each slot's latest incarnation.
#[derive(Debug)]
pub struct EmbeddedMembership {
    view: AtomicU64,
    roster_changes: AtomicU64,
    /// For each slot, the latest incarnation and its state.
    latest: Vec<AtomicU32>,
    /// The number of incarnations that have ended. While the number is 0, no caller reads the register.
    ended: AtomicU64,
    terms: LeaseTerms,
    shards: Shards,
    read_lease: PublishedLease,
    read_lease_policy: Option<LeasePolicy>,
    /// The latest timestamper, packed into a word; 0 while there is no timestamper.
    timestamper: AtomicU64,
    register: Mutex<Register>,
}

impl EmbeddedMembership {
    /// Creates a service for `compute_nodes` slots, without membership leases.
    pub fn new(compute_nodes: usize) -> EmbeddedMembership {
        EmbeddedMembership::with_leases(compute_nodes, LeaseTerms::ENDLESS)
    }

    /// Creates a service for `compute_nodes` slots, with membership leases: see [`EmbeddedMembership::tick`].
    pub fn with_leases(compute_nodes: usize, terms: LeaseTerms) -> EmbeddedMembership {
        let given = vec![0; compute_nodes.min(SLOTS_MAX)];
        EmbeddedMembership {
            view: AtomicU64::new(1),
            roster_changes: AtomicU64::new(0),
            latest: given.iter().map(|_| AtomicU32::new(0)).collect(),
            ended: AtomicU64::new(0),
            terms,
            shards: Shards::default(),
            read_lease: PublishedLease::default(),
            read_lease_policy: None,
            timestamper: AtomicU64::new(0),
            register: Mutex::new(Register { given, ..Register::default() }),
        }
    }

    /// Sets the first length of readers' leases. No node may have joined before this call.
    ///
    /// # Errors
    /// If the lease length is too long.
    pub fn leasing_reads(self, length_ns: u32) -> Result<EmbeddedMembership, UsageError> {
        self.register().read_lease.begin(length_ns, &self.read_lease)?;
        Ok(self)
    }

    /// Allows the length of readers' leases to be adjusted to how long transactions take. One of the members that run
    /// [`crate::requests::read_lease::manager::LeaseKeeper`] adjusts the length. No node may have joined before this
    /// call.
    #[must_use]
    pub fn adjusting_reads(self, policy: Option<LeasePolicy>) -> EmbeddedMembership {
        EmbeddedMembership { read_lease_policy: policy, ..self }
    }

    /// Checks the members' leases at the time `now`, by the caller's clock. Returns the members whose membership
    /// lease has lapsed. The result also lists members that have delayed a change of readers' leases for the same
    /// time. The returned nodes are still members; the caller expels them. If a lease was renewed since the last
    /// check, its time counts from this check, which is later than the holder's request.
    pub fn tick(&self, now: Nanos) -> Vec<NodeId> {
        if self.terms.lease_ns == u64::MAX {
            return Vec::new();
        }
        let mut lapsed = Vec::new();
        let mut register = self.register();
        for (node, patience) in &mut register.members {
            match *patience {
                Patience::Fresh => *patience = Patience::Until(now + Nanos(self.terms.lease_ns)),
                Patience::Until(end) if end <= now => lapsed.push(*node),
                Patience::Until(_) => {}
            }
        }
        if register.read_lease.has_lapsed(now, self.terms.lease_ns) {
            let missing = register.read_lease.missing(&register.may_run());
            lapsed.extend(missing.iter().filter(|it| register.members.contains_key(it)));
            lapsed.sort_unstable();
            lapsed.dedup();
        }
        lapsed
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().expect("no panic under this lock")
    }

    /// Continues a change of readers' leases after an incarnation has acknowledged the lease word, or counts no more.
    fn go_on_with_lease(&self, register: &mut Register) {
        let counting = register.may_run();
        register.read_lease.go_on(&counting, &self.read_lease);
    }

    /// Starts the next view of the membership. The caller holds the register's lock.
    fn next_view(&self) {
        self.view.fetch_add(1, Ordering::AcqRel);
        self.change_roster();
    }

    /// Counts a change of the set of incarnations that may run. The caller holds the register's lock.
    fn change_roster(&self) {
        self.roster_changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Publishes the state of an incarnation, if it is the latest incarnation of its slot.
    fn publish(&self, node: NodeId, standing: Standing) {
        let latest = &self.latest[usize::from(node.slot.0)];
        if latest.load(Ordering::Acquire) >> 2 <= u32::from(node.incarnation.0) {
            latest.store(packed(node, standing), Ordering::Release);
        }
    }

    /// Returns the members that own shards. If no member owns a shard, returns all members that run transactions.
    fn owners(&self, register: &Register) -> Vec<NodeId> {
        let owning: BTreeSet<NodeId> =
            ShardId::all().filter_map(|shard| Some(self.shards.entry(shard)?.owner)).collect();
        let members: Vec<NodeId> = register.running().collect();
        let owners: Vec<NodeId> =
            members.iter().filter(|node| owning.contains(node)).copied().collect();
        if owners.is_empty() { members } else { owners }
    }

    /// Ends a member's incarnation. The function does nothing if the node is not a member.
    fn end(&self, node: NodeId, is_recovered: bool) {
        let mut register = self.register();
        if register.members.remove(&node).is_none() {
            return;
        }
        register.retired.remove(&node);
        register.ended.insert(node, Ended { is_recovered, ..Ended::default() });
        self.shards.bereave(node);
        self.ended.fetch_add(1, Ordering::AcqRel);
        let standing = if is_recovered { Standing::Recovered } else { Standing::Expelled };
        self.publish(node, standing);
        self.next_view();
        self.go_on_with_lease(&mut register);
    }
}

fn packed(node: NodeId, standing: Standing) -> u32 {
    (u32::from(node.incarnation.0) << 2) | standing as u32
}

impl ShardRecord for EmbeddedMembership {
    fn shard(&self, shard: ShardId) -> Option<ShardEntry> {
        self.shards.entry(shard)
    }

    fn shard_changes(&self) -> u64 {
        self.shards.changes()
    }
}

impl Membership for EmbeddedMembership {
    fn view(&self) -> ViewNumber {
        ViewNumber(self.view.load(Ordering::Acquire))
    }

    fn join(&self, slot: NodeSlot) -> Result<NodeId, UsageError> {
        let refuse = |value: String, allowed: String| UsageError {
            field: "compute node slot".into(),
            value,
            allowed,
        };
        let Register { given, ended, members, .. } = &mut *self.register();
        let slots = given.len();
        let lives = given.get_mut(usize::from(slot.0)).ok_or_else(|| {
            refuse(slot.0.to_string(), format!("0 to {}", slots.saturating_sub(1)))
        })?;
        let last = NodeId { slot, incarnation: Incarnation(*lives) };
        if ended.get(&last).is_some_and(|ended| !ended.is_recovered) {
            let value = format!("{} after life {}", slot.0, lives);
            return Err(refuse(value, "a slot whose last life was recovered".into()));
        }
        if usize::from(*lives) + 1 >= INCARNATIONS_MAX {
            let value = format!("{} in life {}", slot.0, *lives + 1);
            return Err(refuse(value, format!("at most {} lives of a slot", INCARNATIONS_MAX - 1)));
        }
        *lives += 1;
        let node = NodeId { slot, incarnation: Incarnation(*lives) };
        members.insert(node, Patience::Fresh);
        self.publish(node, Standing::Member);
        self.change_roster();
        Ok(node)
    }

    fn standing(&self, node: NodeId) -> Standing {
        let latest = self.latest.get(usize::from(node.slot.0)).map(|it| it.load(Ordering::Acquire));
        for standing in [Standing::Member, Standing::Expelled, Standing::Recovered] {
            if latest == Some(packed(node, standing)) {
                return standing;
            }
        }
        let register = self.register();
        match register.ended.get(&node) {
            Some(ended) if ended.is_recovered => Standing::Recovered,
            Some(_) => Standing::Expelled,
            None if register.members.contains_key(&node) => Standing::Member,
            None => Standing::Unknown,
        }
    }

    fn renew(&self, node: NodeId) -> Renewal {
        match self.register().members.get_mut(&node) {
            None => Renewal::Expelled,
            Some(patience) => {
                *patience = Patience::Fresh;
                Renewal::Renewed { view: self.view(), terms: self.terms }
            }
        }
    }

    fn leave(&self, node: NodeId) {
        self.end(node, true);
    }

    fn expel(&self, node: NodeId) -> ViewNumber {
        self.end(node, false);
        self.view()
    }

    fn ended(&self) -> Vec<NodeId> {
        self.register().ended.keys().copied().collect()
    }

    fn while_settled(&self, by: NodeId, view: ViewNumber, act: &mut dyn FnMut()) -> bool {
        let register = self.register();
        let is_settled = register.ended.values().all(|ended| ended.is_recovered);
        let may = is_settled && register.members.contains_key(&by) && self.view() == view;
        if may {
            act();
        }
        may
    }

    fn unrecovered(&self) -> Vec<NodeId> {
        if self.ended.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let register = self.register();
        let left = register.ended.iter().filter(|(_, ended)| !ended.is_recovered);
        left.map(|(node, _)| *node).collect()
    }

    fn claim_recovery(&self, dead: NodeId, by: NodeId) -> Claim {
        let Register { ended, members, .. } = &mut *self.register();
        let Some(ended) = ended.get_mut(&dead) else { return Claim::NotExpelled };
        if ended.is_recovered {
            return Claim::Done;
        }
        if !members.contains_key(&by) {
            return Claim::NotMember;
        }
        match ended.claimants.last() {
            Some(&last) if last == by => {}
            Some(&last) if members.contains_key(&last) => return Claim::Held { by: last },
            _ => ended.claimants.push(by),
        }
        let (_, before) = ended.claimants.split_last().expect("the caller is the last claimant");
        Claim::Granted { before: before.to_vec() }
    }

    fn give_back(&self, dead: NodeId, by: NodeId) {
        let Register { ended, .. } = &mut *self.register();
        if let Some(ended) = ended.get_mut(&dead)
            && ended.claimants.last() == Some(&by)
        {
            ended.claimants.pop();
        }
    }

    fn recovered(&self, dead: NodeId, by: NodeId) -> bool {
        let register = &mut *self.register();
        let Some(ended) = register.ended.get_mut(&dead) else { return false };
        if ended.claimants.last() != Some(&by) || !register.members.contains_key(&by) {
            return false;
        }
        if !std::mem::replace(&mut ended.is_recovered, true) {
            self.publish(dead, Standing::Recovered);
            self.next_view();
            self.go_on_with_lease(register);
        }
        true
    }

    fn open_shards(&self, owners: &[NodeId]) {
        assert!(!owners.is_empty(), "shards have owners");
        let _register = self.register();
        self.shards.open(owners);
    }

    fn change_shard(
        &self,
        by: NodeId,
        shard: ShardId,
        from: ShardEntry,
        to: ShardEntry,
    ) -> ShardChange {
        let register = self.register();
        let found = self.shards.entry(shard);
        let is_known = |node: NodeId| register.members.contains_key(&node);
        let is_step = match (from.state, to.state) {
            (ShardState::Open, ShardState::Closed) => to.owner == from.owner,
            (ShardState::Closed, ShardState::Open) => is_known(to.owner),
            _ => false,
        };
        let may = from.owner == by && is_known(by) && is_step && found == Some(from);
        if !may || to != from.next(to.owner, to.state) {
            return ShardChange::Refused(found);
        }
        self.shards.set(shard, to);
        ShardChange::Made
    }

    fn ack_lost(&self, dead: NodeId, by: NodeId) {
        if let Some(ended) = self.register().ended.get_mut(&dead) {
            ended.acknowledged.insert(by);
        }
    }

    fn lost_acks(&self, dead: NodeId) -> Vec<NodeId> {
        let register = self.register();
        let acknowledged = register.ended.get(&dead).map(|ended| &ended.acknowledged);
        acknowledged.into_iter().flatten().copied().collect()
    }

    fn retire(&self, by: NodeId) {
        let register = &mut *self.register();
        if register.members.contains_key(&by) {
            register.retired.insert(by);
        }
        self.change_roster();
        self.go_on_with_lease(register);
    }

    fn bereaved(&self) -> Vec<NodeId> {
        self.shards.bereaved()
    }

    fn reopen_shards(&self, dead: NodeId, heirs: Heirs) -> Reopening {
        let register = self.register();
        let Some(lost) = register.ended.get(&dead).filter(|ended| ended.is_recovered) else {
            return Reopening::NotRecovered;
        };
        let living = register.may_run().into_iter();
        let missing: Vec<NodeId> =
            living.filter(|node| !lost.acknowledged.contains(node)).collect();
        if !missing.is_empty() {
            return Reopening::Unacknowledged(missing);
        }
        let heirs: Vec<NodeId> = match heirs {
            Heirs::One(heir) => vec![heir],
            Heirs::Owners => self.owners(&register),
            Heirs::NextLife => {
                register.running().rfind(|node| node.slot == dead.slot).into_iter().collect()
            }
        };
        if heirs.is_empty() || !heirs.iter().all(|heir| register.members.contains_key(heir)) {
            return Reopening::NoHeir;
        }
        self.shards.inherit(dead, &heirs);
        Reopening::Done
    }

    fn timestamper(&self) -> Option<Timestamper> {
        let word = self.timestamper.load(Ordering::Acquire);
        let node = NodeId {
            slot: NodeSlot((word >> 12) as u16 % SLOTS_MAX as u16),
            incarnation: Incarnation(word as u16 % INCARNATIONS_MAX as u16),
        };
        (word != 0).then_some(Timestamper { node, since: ViewNumber(word >> 22) })
    }

    fn succeed_timestamper(&self, by: NodeId) -> Succession {
        let mut register = self.register();
        if !register.members.contains_key(&by) {
            return Succession::NotMember;
        }
        let last = register.timestampers.last().copied();
        let is_member = |it: &Timestamper| register.members.contains_key(&it.node);
        let since = match last {
            Some(last) if last.node == by => last.since,
            Some(last) if is_member(&last) => return Succession::Held { by: last.node },
            _ => {
                self.next_view();
                let since = self.view();
                register.timestampers.push(Timestamper { node: by, since });
                let node = u64::from(by.slot.0) << 12 | u64::from(by.incarnation.0);
                self.timestamper.store(since.0 << 22 | node, Ordering::Release);
                since
            }
        };
        let (_, before) = register.timestampers.split_last().expect(
            "the caller is the last \
            timestamper",
        );
        Succession::Granted { since, before: before.iter().map(|it| it.node).collect() }
    }

    fn read_lease(&self) -> LeaseWord {
        self.read_lease.word()
    }

    fn acknowledge_read_lease(&self, by: NodeId, word: LeaseWord) {
        let register = &mut *self.register();
        register.read_lease.acknowledge(by, word);
        self.go_on_with_lease(register);
    }

    fn change_read_lease(&self, by: NodeId, length_ns: u32) -> Result<ReadLeaseChange, UsageError> {
        let register = &mut *self.register();
        let counting = register.may_run();
        if !register.members.contains_key(&by) {
            return Ok(ReadLeaseChange::NotMember);
        }
        let begun = register.read_lease.propose(length_ns, &counting, &self.read_lease)?;
        Ok(begun.map_or_else(ReadLeaseChange::NotNow, ReadLeaseChange::Begun))
    }

    fn read_lease_policy(&self) -> Option<LeasePolicy> {
        self.read_lease_policy
    }

    fn manage_read_lease(&self, by: NodeId) -> Management {
        let register = &mut *self.register();
        let runs = |node: NodeId| register.running().any(|it| it == node);
        if self.read_lease_policy.is_none() || !runs(by) {
            return Management::NotNow;
        }
        match register.read_lease_manager.filter(|node| *node != by && runs(*node)) {
            Some(by) => Management::Held { by },
            None => {
                register.read_lease_manager = Some(by);
                Management::Granted
            }
        }
    }

    fn running(&self) -> Vec<NodeId> {
        self.register().running().collect()
    }

    fn roster_changes(&self) -> u64 {
        self.roster_changes.load(Ordering::SeqCst)
    }

    fn read_lease_missing(&self) -> Vec<NodeId> {
        let register = self.register();
        register.read_lease.missing(&register.may_run())
    }
}

#[cfg(test)]
#[path = "read_leases_tests.rs"]
mod read_leases_tests;
#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
