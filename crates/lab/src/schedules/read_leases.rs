//! Changes the length of readers' leases while transactions run and nodes die, under a protocol that has such leases.
//!
//! Invariant: the seed determines all changes of the lease length. Every node reads the authoritative lease word
//! repeatedly as long as any coordinator runs. So no node delays a change of the lease length. Some members request
//! changes to any length, and several members may do this at the same time.

use super::desk::Desk;
use rand::RngExt as _;
use serde::Serialize;
use std::rc::Rc;
use tarn_engine::cluster::lease::LeasePolicy;
use tarn_engine::cluster::membership::ReadLeaseChange;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::{mix, seeded};
use tarn_store::ids::UsageError;

/// The stream of random numbers for a node's changes. The node's name is mixed into the seed.
const CHANGES_STREAM: u64 = 0x6368_616e_6765;
/// The shortest time between two reads of the authoritative lease word by a node outside of its
/// transactions.
const LOOK_EVERY: Nanos = Nanos(2_000);
/// The largest number of times that one node reads the lease word. In runs with frequent changes, a few of these
/// reads also request a change.
const TURNS_MAX: u32 = 800;

/// The stream of random numbers for the draws that only protocols with readers' leases use.
const READ_LEASES_STREAM: u64 = 0x6c65_6173_6573;

/// The rule by which readers' leases are used in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ReadLeases {
    /// The length of the leases when the run begins, in nanoseconds.
    pub length_ns: u32,
    /// The average virtual time between two requests for another length, in nanoseconds. If this time is 0, no member
    /// requests another length.
    pub change_every_ns: u64,
    /// The time between two checks by the manager of leases, in virtual nanoseconds of the manager's clock. A check
    /// compares the leases with the time that transactions take. If this time is 0, no manager runs.
    pub adjust_every_ns: u64,
    /// The shortest lease that the manager requests.
    pub least_ns: u32,
    /// The longest lease that the manager requests.
    pub most_ns: u32,
}

impl ReadLeases {
    /// The lease lengths that a run may draw. The shortest length means no lease. The longest length is so long that
    /// every other event of the run happens before a writer has waited for such a lease.
    pub const LENGTHS_NS: [u32; 5] = [0, 2_000, 8_000, 30_000, 120_000];

    /// Returns the rule for readers' leases that `seed` determines. A separate stream of random numbers determines
    /// this rule.
    pub(super) fn of(seed: u64) -> ReadLeases {
        let mut rng = seeded(seed, READ_LEASES_STREAM);
        let mut pick = |choices: &[u64]| choices[rng.random_range(0..choices.len())];
        let length_ns = pick(&ReadLeases::LENGTHS_NS.map(u64::from)) as u32;
        let change_every_ns = pick(&[0, 0, 2_000, 8_000, 30_000]);
        // Keep the order of these values. With this order, the seeds of tests that show the effect of a
        // missing lease rule keep their meaning.
        let adjust_every_ns = pick(&[0, 0, 20_000, 60_000, 0, 0, 0, 0]);
        let least_ns = pick(&[1, 2_000]) as u32;
        let most_ns = pick(&[2_000, 30_000, 120_000]) as u32;
        ReadLeases { length_ns, change_every_ns, adjust_every_ns, least_ns, most_ns }
    }

    /// Returns the policy of the manager of leases. The manager monitors clocks if a keeper `recovers` expelled
    /// members.
    ///
    /// # Errors
    /// The values that seeds draw never cause an error.
    pub fn policy(&self, recovers: bool) -> Result<Option<LeasePolicy>, UsageError> {
        if self.adjust_every_ns == 0 {
            return Ok(None);
        }
        let policy = LeasePolicy::new(self.adjust_every_ns, (self.least_ns, self.most_ns))?;
        Ok(Some(LeasePolicy { monitors_clocks: recovers, ..policy }))
    }
}

/// Repeatedly reads the authoritative lease word, and requests other lease lengths, until all coordinators have
/// ended.
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
            Ok(ReadLeaseChange::Begun(_)) => left.incidents.lease_changes.begun += 1,
            Ok(_) => left.incidents.lease_changes.refused += 1,
            Err(error) => left.failures.push(error.to_string()),
        }
    }
}
