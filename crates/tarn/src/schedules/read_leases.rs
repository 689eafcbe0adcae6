//! Readers' leases that change their length while transactions run and nodes die, under a protocol that has any.
//!
//! Invariant: a function of the seed. Every node looks at the word of record as long as any coordinator runs, whatever
//! those do, so that none of them keeps a change waiting; some members ask for changes, one beside the other, of any length.

use super::drawn::ReadLeases;
use super::run::Desk;
use rand::RngExt as _;
use serde::Serialize;
use std::rc::Rc;
use tarn_engine::context::Context;
use tarn_engine::membership::ReadLeaseChange;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::{mix, seeded};

/// The stream of a node's changes, beside its name.
const CHANGES_STREAM: u64 = 0x6368_616e_6765;
/// How often a node looks at the word of record beside its transactions, at the most.
const LOOK_EVERY: Nanos = Nanos(2_000);
/// Of so many looks one asks for a change, where changes are asked for often.
const TURNS_MAX: u32 = 800;

/// What became of changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct LeaseChanges {
    /// Lengths that were asked for and came, or were on their way at the end.
    pub begun: u64,
    /// Changes that had to wait for another.
    pub refused: u64,
}

impl LeaseChanges {
    /// Adds another run's.
    pub fn add(&mut self, other: &LeaseChanges) {
        self.begun += other.begun;
        self.refused += other.refused;
    }
}

/// Follows the word of record, and asks for other lengths, until all coordinators have ended.
pub(super) async fn keep_changing<T>(
    cx: Rc<Context>,
    (leases, seed): (ReadLeases, u64),
    desk: &Desk<T>,
) {
    let id = cx.node.id;
    let name = u64::from(id.slot.0) << 16 | u64::from(id.incarnation.0);
    let mut rng = seeded(seed, mix(CHANGES_STREAM ^ name));
    let membership = &cx.database().membership;
    for _ in 0..TURNS_MAX {
        if desk.left.borrow().at_work == 0 || !membership.is_member(id) {
            return;
        }
        cx.node.read_lease();
        cx.port.sleep(Nanos(rng.random_range(1..=LOOK_EVERY.0))).await;
        let asks = leases.change_every_ns > 0
            && rng.random_range(0..leases.change_every_ns) < LOOK_EVERY.0 / 2;
        if !asks {
            continue;
        }
        let length_ns = ReadLeases::LENGTHS_NS[rng.random_range(0..ReadLeases::LENGTHS_NS.len())];
        let mut left = desk.left.borrow_mut();
        match membership.change_read_lease(id, length_ns) {
            Ok(ReadLeaseChange::Begun(_)) => left.lease_changes.begun += 1,
            Ok(_) => left.lease_changes.refused += 1,
            Err(error) => left.failures.push(error.to_string()),
        }
    }
}
