//! The membership service in one process.
//!
//! Invariant: what a life's standing was when somebody asked, it was at one moment: every change, and the
//! view's number with it, is made under the register's lock. No transaction takes that lock: how the latest
//! life of each slot stands is known without it.

use super::{Claim, LeaseTerms, Membership, Renewal, Standing, ViewNumber};
use crate::outcome::UsageError;
use crate::owner::{INCARNATIONS_MAX, SLOTS_MAX};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;

/// A life that is over.
#[derive(Clone, Default, Debug)]
struct Ended {
    is_recovered: bool,
    /// Who claimed its recovery, the last one last.
    claimants: Vec<NodeId>,
}

/// When the service gives a member up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// It has spoken since the service last looked at its clock: counted from the next look.
    Fresh,
    /// By the service's clock.
    Until(Nanos),
}

#[derive(Default, Debug)]
struct Register {
    /// Lives given out, by slot.
    given: Vec<u16>,
    ended: BTreeMap<NodeId, Ended>,
    members: BTreeMap<NodeId, Patience>,
}

/// The service in one process: a register behind a lock, which no transaction takes. How the latest
/// life of each slot stands is known without it.
#[derive(Debug)]
pub struct EmbeddedMembership {
    view: AtomicU64,
    /// By slot: the latest incarnation, then how it stands.
    latest: Vec<AtomicU32>,
    /// How many lives are over: while there are none, nobody need look.
    ended: AtomicU64,
    terms: LeaseTerms,
    register: Mutex<Register>,
}

impl EmbeddedMembership {
    /// For `compute_nodes` slots, without leases.
    pub fn new(compute_nodes: usize) -> EmbeddedMembership {
        EmbeddedMembership::with_leases(compute_nodes, LeaseTerms::ENDLESS)
    }

    /// For `compute_nodes` slots, with leases: see [`EmbeddedMembership::tick`].
    pub fn with_leases(compute_nodes: usize, terms: LeaseTerms) -> EmbeddedMembership {
        let given = vec![0; compute_nodes.min(SLOTS_MAX)];
        EmbeddedMembership {
            view: AtomicU64::new(1),
            latest: given.iter().map(|_| AtomicU32::new(0)).collect(),
            ended: AtomicU64::new(0),
            terms,
            register: Mutex::new(Register { given, ..Register::default() }),
        }
    }

    /// The service looks at its clock, which is the caller's: those whose lease has lapsed. They are
    /// still members; the caller expels them. A lease that was renewed since the last look is counted
    /// from this one, which is later than when its holder asked.
    pub fn tick(&self, now: Nanos) -> Vec<NodeId> {
        if self.terms.lease_ns == u64::MAX {
            return Vec::new();
        }
        let mut lapsed = Vec::new();
        for (node, patience) in &mut self.register().members {
            match *patience {
                Patience::Fresh => *patience = Patience::Until(now + Nanos(self.terms.lease_ns)),
                Patience::Until(end) if end <= now => lapsed.push(*node),
                Patience::Until(_) => {}
            }
        }
        lapsed
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().expect("no panic under this lock")
    }

    /// Under the register's lock.
    fn next_view(&self) {
        self.view.fetch_add(1, Ordering::AcqRel);
    }

    /// Says how a life stands, if it is its slot's latest.
    fn publish(&self, node: NodeId, standing: Standing) {
        let latest = &self.latest[usize::from(node.slot.0)];
        if latest.load(Ordering::Acquire) >> 2 <= u32::from(node.incarnation.0) {
            latest.store(packed(node, standing), Ordering::Release);
        }
    }

    /// A member's life is over, if it was one.
    fn end(&self, node: NodeId, is_recovered: bool) {
        let mut register = self.register();
        if register.members.remove(&node).is_none() {
            return;
        }
        register.ended.insert(node, Ended { is_recovered, claimants: Vec::new() });
        self.ended.fetch_add(1, Ordering::AcqRel);
        let standing = if is_recovered { Standing::Recovered } else { Standing::Expelled };
        self.publish(node, standing);
        self.next_view();
    }
}

fn packed(node: NodeId, standing: Standing) -> u32 {
    (u32::from(node.incarnation.0) << 2) | standing as u32
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
        let Register { given, ended, members } = &mut *self.register();
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
            return Err(refuse(value, format!("at most {} lives", INCARNATIONS_MAX - 1)));
        }
        *lives += 1;
        let node = NodeId { slot, incarnation: Incarnation(*lives) };
        members.insert(node, Patience::Fresh);
        self.publish(node, Standing::Member);
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
        let (_, before) = ended.claimants.split_last().expect("the caller is the last one");
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
        let Register { ended, members, .. } = &mut *self.register();
        let Some(ended) = ended.get_mut(&dead) else { return false };
        if ended.claimants.last() != Some(&by) || !members.contains_key(&by) {
            return false;
        }
        if !std::mem::replace(&mut ended.is_recovered, true) {
            self.publish(dead, Standing::Recovered);
            self.next_view();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (EmbeddedMembership, [NodeId; 3]) {
        let service = EmbeddedMembership::new(3);
        let ids = [0, 1, 2].map(|slot| service.join(NodeSlot(slot)).expect("a life"));
        (service, ids)
    }

    #[test]
    fn a_slot_waits_for_the_recovery_of_its_last_life() {
        let (service, [dead, by, _]) = three();
        let before = service.view();
        assert_eq!(service.claim_recovery(dead, by), Claim::NotExpelled);
        assert!(service.expel(dead) > before);
        assert_eq!(service.expel(dead), service.view(), "idempotent");
        assert_eq!(
            (service.standing(dead), service.renew(dead)),
            (Standing::Expelled, Renewal::Expelled)
        );
        let refused = service.join(dead.slot).expect_err("not recovered").to_string();
        assert!(refused.contains("compute node slot = 0 after life 1"), "{refused}");
        assert_eq!(service.claim_recovery(dead, by), Claim::Granted { before: vec![] });
        assert!(service.recovered(dead, by));
        assert_eq!(service.standing(dead), Standing::Recovered);
        let next = service.join(dead.slot).expect("recovered");
        assert_eq!((next.incarnation.0, service.standing(next)), (2, Standing::Member));
        assert!(service.unrecovered().is_empty());
    }

    #[test]
    fn one_recovers_at_a_time_and_another_takes_over() {
        let (service, [dead, first, second]) = three();
        service.expel(dead);
        assert_eq!(service.claim_recovery(dead, dead), Claim::NotMember);
        assert_eq!(service.claim_recovery(dead, first), Claim::Granted { before: vec![] });
        assert_eq!(service.claim_recovery(dead, second), Claim::Held { by: first });
        service.give_back(dead, second);
        service.give_back(dead, first);
        assert_eq!(service.claim_recovery(dead, second), Claim::Granted { before: vec![] });
        service.give_back(dead, second);
        assert_eq!(service.claim_recovery(dead, first), Claim::Granted { before: vec![] });
        service.expel(first);
        assert_eq!(service.unrecovered(), [dead, first]);
        assert_eq!(service.claim_recovery(dead, second), Claim::Granted { before: vec![first] });
        assert!(!service.recovered(dead, first), "it has lost its claim");
        assert!(service.recovered(dead, second) && service.recovered(dead, second));
        assert_eq!(service.claim_recovery(dead, second), Claim::Done);
    }

    #[test]
    fn nothing_is_done_for_whoever_has_missed_something() {
        let (service, [dead, by, other]) = three();
        let ran = |by: NodeId, view: ViewNumber| {
            let mut ran = false;
            assert_eq!(service.while_settled(by, view, &mut || ran = true), ran);
            ran
        };
        let before = service.view();
        assert!(ran(by, before));
        service.expel(dead);
        assert!(!ran(by, before) && !ran(by, service.view()), "not recovered");
        assert_eq!(service.claim_recovery(dead, other), Claim::Granted { before: vec![] });
        assert!(service.recovered(dead, other));
        assert!(!ran(by, before), "a life has ended since");
        assert!(ran(by, service.view()));
        service.leave(other);
        assert!(!ran(other, service.view()), "no member");
    }

    #[test]
    fn a_lease_lapses_later_by_the_service_than_by_its_holder() {
        let terms = LeaseTerms { lease_ns: 1_000, renew_every_ns: 300, drift_ppm: 100_000 };
        let service = EmbeddedMembership::with_leases(1, terms);
        let node = service.join(NodeSlot(0)).expect("a life");
        assert_eq!(terms.held_until(Nanos(5_000)), Nanos(5_818));
        assert_eq!(LeaseTerms::ENDLESS.held_until(Nanos(5)), Nanos(u64::MAX));
        assert!(service.tick(Nanos(50)).is_empty(), "counted from here");
        assert!(service.tick(Nanos(1_049)).is_empty());
        assert_eq!(service.tick(Nanos(1_050)), [node]);
        assert!(matches!(service.renew(node), Renewal::Renewed { .. }), "not expelled yet");
        assert!(service.tick(Nanos(9_000)).is_empty(), "renewed since");
        assert_eq!(service.tick(Nanos(10_000)), [node]);
        service.leave(node);
        assert_eq!(service.standing(node), Standing::Recovered);
    }
}
