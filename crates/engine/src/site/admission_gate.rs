//! A compute node's own side of its membership: whether it may begin transactions.
//!
//! Invariants: a transaction pays one load and one comparison for it; whatever changes makes every
//! coordinator of the node look again. A node that cannot renew its lease bars itself, by its own clock,
//! before the service lets the lease lapse; what it had begun goes on, since an acknowledgement only says
//! what has happened. Nothing else is decided by a clock, and nothing rests on this: a barred node is
//! polite, a revoked one is harmless (docs/fault-model.md).

use crate::cluster::membership::Renewal;
use crate::site::Context;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::clock::Nanos;

/// The bit that says no. Below it a count of changes.
const BARRED: u64 = 1 << 63;

/// One compute node's; see the module's text.
#[derive(Default, Debug)]
pub struct AdmissionGate(AtomicU64);

impl AdmissionGate {
    /// What a coordinator compares with what it saw last; never [`AdmissionGate::UNSEEN`].
    #[inline]
    pub fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// What a coordinator has seen that has not looked yet.
    pub const UNSEEN: u64 = u64::MAX;

    /// Whether no transaction may begin.
    pub fn is_barred(&self) -> bool {
        self.word() & BARRED != 0
    }

    /// From now on none may.
    pub fn bar(&self) {
        self.0.fetch_or(BARRED, Ordering::AcqRel);
    }

    /// They may again: the lease was renewed after all.
    pub fn lift(&self) {
        if self.0.fetch_and(!BARRED, Ordering::AcqRel) & BARRED != 0 {
            self.look_again();
        }
    }

    /// Makes every coordinator of the node look around before its next transaction.
    pub fn look_again(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// What a node knows of its lease.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    until: Nanos,
    renew_every_ns: u64,
}

impl Lease {
    /// Asks for the first one. A node that gets no answer holds none.
    pub fn ask(cx: &Context) -> Lease {
        let mut lease = Lease { until: Nanos(0), renew_every_ns: 1_000 };
        lease.renew(cx);
        lease
    }

    /// Asks for a new one, and bars the node if there is none and the old one has run out. Whether the
    /// node is still a member.
    pub fn renew(&mut self, cx: &Context) -> bool {
        let asked = cx.port.now();
        let node = &cx.node;
        match node.database.membership.renew(node.id) {
            Renewal::Renewed { terms, .. } => {
                self.until = terms.held_until(asked);
                self.renew_every_ns = terms.renew_every_ns;
            }
            Renewal::Pending => {}
            Renewal::Expelled => {
                node.admission_gate.bar();
                return false;
            }
        }
        match cx.port.now() < self.until {
            true => node.admission_gate.lift(),
            false => node.admission_gate.bar(),
        }
        true
    }
}

/// Keeps the node's lease: one coroutine of one of its threads runs this until `stop`, or until the node
/// has been expelled.
pub async fn keep(cx: &Context, stop: impl Fn() -> bool) {
    let mut lease = Lease::ask(cx);
    while !stop() && lease.renew(cx) {
        cx.port.sleep(Nanos(lease.renew_every_ns)).await;
    }
}
