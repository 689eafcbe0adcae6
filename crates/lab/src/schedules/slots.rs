//! Handles the later events of compute nodes' slots: nodes are expelled, other nodes take over coordinator numbers,
//! and slots get new incarnations.
//!
//! Invariant: two coordinators never run with the same number at the same time, except when one of them was declared
//! dead. The next incarnation of a slot does not use the coordinator numbers that other nodes have taken over.

use super::coverage::Kind;
use super::life::Life;
use super::play::{Member, Play};
use std::rc::Rc;
use std::sync::Arc;
use tarn_engine::cluster::membership::{Membership as _, Standing};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::UsageError;
use tarn_workloads::Workload;

/// The number of the first thread whose coordinators have numbers that were taken over from dead nodes. The threads
/// of coordinators, calls and keepers have smaller numbers.
const HEIRS: u16 = 4;

impl<W: Workload> Play<'_, W> {
    /// Returns the latest incarnation of this slot, if this incarnation is a member.
    pub(super) fn life_of(&self, slot: u16) -> Option<Rc<Life>> {
        let member = self.members.iter().rev().find(|member| member.slot == usize::from(slot))?;
        let is_member = self.cluster.service.standing(member.life.id) == Standing::Member;
        is_member.then(|| Rc::clone(&member.life))
    }

    pub(super) fn expel(&mut self, life: &Life) {
        if !life.has_stopped() {
            self.deaths.count(Kind::Zombie, life.phases());
        }
        self.cluster.service.expel(life.id);
        self.let_succeed(life.id);
    }

    /// A living node takes the number of a coordinator of a node that was declared dead. The dead node
    /// may continue to run, and its log may still be needed. So the coordinator that inherits the
    /// number has to wait.
    fn let_succeed(&mut self, dead: NodeId) {
        let slot = usize::from(dead.slot.0);
        let number = self.first_number(slot, 0);
        if !self.drawn.succession || self.taken.contains(&number) {
            return;
        }
        let Some(heir) = self.living().find(|it| it.slot != slot) else { return };
        let (life, node) = (Rc::clone(&heir.life), Arc::clone(&heir.node));
        let thread = self.drawn.threads as u16 + HEIRS + slot as u16;
        let Ok(cx) = self.cluster.context(&node, thread) else { return };
        cx.growth.enable(self.drawn.growth);
        self.taken.insert(number);
        self.deaths.successions += 1;
        self.begin_coordinator(&life, &cx, number);
        self.serve(&life, &cx);
        self.contexts.push(cx);
    }

    /// Lets the membership service read its clock, which shows true time, and expel nodes whose lease has lapsed. The
    /// standby (the node that is never lost) also has a lease, but is not expelled when this lease lapses.
    pub(super) fn let_leases_lapse(&mut self, now: Nanos) {
        for lapsed in self.cluster.service.tick(now) {
            let member = self.members.iter().find(|member| member.life.id == lapsed);
            if let Some(life) = member.map(|member| Rc::clone(&member.life)) {
                // The lapsed lease of a crashed node may show the crash before the planned time at which the crash is
                // noticed.
                self.deaths.lapsed += u64::from(!life.has_stopped());
                self.expel(&life);
            }
        }
    }

    /// For each recovered incarnation, lets the slot's next incarnation join, once. Returns whether any incarnation
    /// joined.
    pub(super) fn restart(&mut self) -> Result<bool, UsageError> {
        if !self.drawn.restarts {
            return Ok(false);
        }
        let is_due = |member: &&Member| {
            !self.restarted.contains(&member.life.id)
                && member.life.id.incarnation.0 <= 3
                && self.cluster.service.standing(member.life.id) == Standing::Recovered
        };
        let due: Vec<(NodeId, usize)> =
            self.members.iter().filter(is_due).map(|it| (it.life.id, it.slot)).collect();
        for &(id, slot) in &due {
            self.restarted.insert(id);
            self.deaths.restarts += 1;
            self.begin_life(slot)?;
        }
        Ok(!due.is_empty())
    }
}
