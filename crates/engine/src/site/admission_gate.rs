//! A compute node's own side of its membership: whether it may begin transactions.
//!
//! Invariants: a transaction pays one load and one comparison for this. Any change makes every coordinator of the node
//! look again. A node that cannot renew its lease bars itself, by its own clock, before the service lets the lease
//! lapse. Its running transactions go on, since an acknowledgement only says that something has happened. No clock
//! decides anything else, and safety does not rest on this: a barred node is polite, a revoked one is harmless
//! (docs/fault-model.md).

use crate::cluster::membership::Renewal;
use crate::site::Context;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::clock::Nanos;

/// The bit that bars the node. The bits below it count changes.
const BARRED: u64 = 1 << 63;

/// One compute node's gate; see the module's text.
#[derive(Default, Debug)]
pub struct AdmissionGate(AtomicU64);

impl AdmissionGate {
    /// The word that a coordinator compares with the one it saw last; never [`AdmissionGate::UNSEEN`].
    #[inline]
    pub fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The word of a coordinator that has not looked yet.
    pub const UNSEEN: u64 = u64::MAX;

    /// Whether no transaction may begin.
    pub fn is_barred(&self) -> bool {
        self.word() & BARRED != 0
    }

    /// Bars the node: from now on no transaction may begin.
    pub fn bar(&self) {
        self.0.fetch_or(BARRED, Ordering::AcqRel);
    }

    /// Lifts the bar: the lease was renewed after all.
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

/// A node's knowledge of its lease.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    until: Nanos,
    renew_every_ns: u64,
}

impl Lease {
    /// Asks for the first lease. A node that gets no answer holds none.
    pub fn ask(cx: &Context) -> Lease {
        let mut lease = Lease { until: Nanos(0), renew_every_ns: 1_000 };
        lease.renew(cx);
        lease
    }

    /// Asks for a new lease, and bars the node if it gets none and the old one has run out. Returns whether the node is
    /// still a member.
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

/// Keeps the node's lease. One coroutine of one of its threads runs this until `stop`, or until the node has been
/// expelled.
pub async fn keep(cx: &Context, stop: impl Fn() -> bool) {
    let mut lease = Lease::ask(cx);
    while !stop() && lease.renew(cx) {
        cx.port.sleep(Nanos(lease.renew_every_ns)).await;
    }
}
