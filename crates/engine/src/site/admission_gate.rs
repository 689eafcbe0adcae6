//! A compute node's admission gate: it decides from the node's membership whether the node may begin transactions.
//!
//! Invariants: the gate costs a transaction one load and one comparison. After any change of the gate, every
//! coordinator of the node checks the node's membership again. If a node cannot renew its lease, it bars itself by
//! its own clock. The node bars itself before the membership service lets the lease lapse. The node's running
//! transactions continue, since an acknowledgement only states that something has happened. Clocks decide nothing
//! else here, and safety does not rely on the bar. Safety relies on revoked access: a node whose access is revoked
//! can do no harm (docs/fault-model.md).

use crate::cluster::membership::Renewal;
use crate::site::Context;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::clock::Nanos;

/// The bit that bars the node from beginning transactions. The bits below it contain a count of changes.
const BARRED: u64 = 1 << 63;

/// The admission gate of one compute node; see the module's text.
#[derive(Default, Debug)]
pub struct AdmissionGate(AtomicU64);

impl AdmissionGate {
    /// The gate's word. A coordinator compares it with the word that it loaded last. The gate's word never equals
    /// [`AdmissionGate::UNSEEN`].
    #[inline]
    pub fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The word of a coordinator that has not loaded the gate's word yet.
    pub const UNSEEN: u64 = u64::MAX;

    /// Whether the gate bars the node: no transaction may begin.
    pub fn is_barred(&self) -> bool {
        self.word() & BARRED != 0
    }

    /// Bars the node: from now on no transaction may begin.
    pub fn bar(&self) {
        self.0.fetch_or(BARRED, Ordering::AcqRel);
    }

    /// Lifts the bar of the node, because the node has renewed its lease after all.
    pub fn lift(&self) {
        if self.0.fetch_and(!BARRED, Ordering::AcqRel) & BARRED != 0 {
            self.look_again();
        }
    }

    /// Makes every coordinator of the node check the node's membership before its next transaction.
    pub fn look_again(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// A node's knowledge of its membership lease.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    until: Nanos,
    renew_every_ns: u64,
}

impl Lease {
    /// Requests the node's first lease. A node that gets no answer holds no lease.
    pub fn ask(cx: &Context) -> Lease {
        let mut lease = Lease { until: Nanos(0), renew_every_ns: 1_000 };
        lease.renew(cx);
        lease
    }

    /// Requests a new lease. If the node gets no new lease and the old lease has run out, the function bars the node.
    /// Returns whether the node is still a member.
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

/// Keeps renewing the node's lease. One coroutine of one of the node's threads runs this function until `stop`
/// returns true, or until the node has been expelled.
pub async fn keep(cx: &Context, stop: impl Fn() -> bool) {
    let mut lease = Lease::ask(cx);
    while !stop() && lease.renew(cx) {
        cx.port.sleep(Nanos(lease.renew_every_ns)).await;
    }
}
