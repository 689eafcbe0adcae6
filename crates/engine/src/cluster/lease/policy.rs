//! Decides when the length of leases is wrong, and which length would be right.
//!
//! Invariant: the decision depends only on the counted delays. The decision affects how many readers must validate
//! and how long writers wait, but never safety.
//!
//! The design follows OOCC, section VII. At least 80 of a hundred read-only transactions should skip validation, and
//! the manager checks this once a second. The manager shortens a lease that is "significantly larger than the
//! execution delay". The paper does not say how large the difference must be, so the difference is a field of this
//! policy.

use super::{Delays, LEASE_NS_MAX, LeaseWord};
use tarn_fabric::window::Drift;
use tarn_store::ids::UsageError;

/// The bounds and thresholds of the decision; see the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeasePolicy {
    /// The interval between the manager's checks of the delays, by its clock, in nanoseconds.
    pub every_ns: u64,
    /// The shortest lease that the manager requests, in nanoseconds.
    pub least_ns: u32,
    /// The longest lease that the manager requests, in nanoseconds.
    pub most_ns: u32,
    /// The percentage of read-only transactions that should end within their leases.
    pub in_lease_percent: u8,
    /// A lease is too long if it exceeds the needed length by more than this percentage. The value should be at least
    /// 10, because a percentile may be too long by a tenth. Otherwise the lease length would alternate between two
    /// neighbouring values.
    pub slack_percent: u32,
    /// Whether members whose clocks drift too far are expelled ([`crate::requests::read_lease::monitor`]). Another
    /// node must then recover the expelled members.
    pub monitors_clocks: bool,
}

impl LeasePolicy {
    /// The interval between two checks of the delays by the paper's manager, in nanoseconds.
    pub const EVERY_NS: u64 = 1_000_000_000;

    /// Creates a policy with the paper's target: 80 of a hundred transactions end in lease. Under this policy a lease
    /// is too long if it exceeds the needed length by half.
    ///
    /// # Errors
    /// The error names the field that is out of range, its value and the allowed range.
    pub fn new(every_ns: u64, (least_ns, most_ns): (u32, u32)) -> Result<LeasePolicy, UsageError> {
        let refuse = |field: &str, value: String, allowed: String| {
            Err(UsageError { field: field.into(), value, allowed })
        };
        if every_ns == 0 {
            return refuse("read-lease-adjust-ns", "0".into(), "1 or more".into());
        }
        if !(1..=LEASE_NS_MAX).contains(&most_ns) {
            let allowed = format!("1 to {LEASE_NS_MAX}");
            return refuse("read-lease-most-ns", most_ns.to_string(), allowed);
        }
        if !(1..=most_ns).contains(&least_ns) {
            // Without a lease the threads count nothing, so the lease length would stay 0 for ever.
            return refuse("read-lease-least-ns", least_ns.to_string(), format!("1 to {most_ns}"));
        }
        Ok(LeasePolicy {
            every_ns,
            least_ns,
            most_ns,
            in_lease_percent: 80,
            slack_percent: 50,
            monitors_clocks: true,
        })
    }

    /// The lease length to request, if the present length is wrong. `delays` covers the transactions since the last
    /// check. `drift` is the believed limit of clock drift.
    pub fn decide(&self, present: LeaseWord, delays: &Delays, drift: Drift) -> Option<u32> {
        let now_ns = present.read_ns();
        if !present.is_settled() {
            return None;
        }
        let allowed_ns = now_ns.clamp(self.least_ns, self.most_ns);
        if allowed_ns != now_ns {
            return Some(allowed_ns);
        }
        let passed = delays.percentile(self.in_lease_percent)?;
        let needed_ns = u32::try_from(drift.lease_for(passed).0).unwrap_or(u32::MAX);
        let needed_ns = needed_ns.clamp(self.least_ns, self.most_ns);
        let too_long_ns = u64::from(needed_ns) * u64::from(100 + self.slack_percent) / 100;
        let is_wrong = now_ns < needed_ns || u64::from(now_ns) > too_long_ns;
        is_wrong.then_some(needed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::lease::ThreadDelays;
    use tarn_fabric::clock::Nanos;

    fn policy() -> LeasePolicy {
        LeasePolicy::new(1_000, (2_000, 50_000)).expect("as it should be")
    }

    /// Creates delays of transactions: for each pair `(count, ns)`, `count` transactions that took `ns` each.
    fn delays(of: &[(u64, u64)]) -> Delays {
        let thread = ThreadDelays::default();
        for (count, ns) in of {
            (0..*count).for_each(|_| thread.note_read(Nanos(*ns), false));
        }
        thread.snapshot()
    }

    fn settled(length_ns: u32) -> LeaseWord {
        LeaseWord::new(7, length_ns, length_ns)
    }

    #[test]
    fn a_lease_that_covers_too_few_reads_is_raised_to_cover_80_of_100() {
        let drift = Drift::new(1_000, 1).expect("below a million");
        let delays = delays(&[(80, 10_000), (20, 30_000)]);
        let raised = policy().decide(settled(4_000), &delays, drift).expect("too short");
        assert!(drift.is_shorter(Nanos(10_000), Nanos(raised.into())), "{raised}");
        assert!((10_000..=11_200).contains(&raised), "{raised}: by a tenth and the drift");
        assert_eq!(policy().decide(settled(raised), &delays, drift), None, "it is right now");
    }

    #[test]
    fn a_lease_that_is_too_long_is_lowered_step_by_step() {
        let (drift, delays) = (Drift::ONE_CLOCK, delays(&[(100, 10_000)]));
        let needed = policy().decide(settled(4_000), &delays, drift).expect("too short");
        assert_eq!(policy().decide(settled(needed * 3 / 2), &delays, drift), None, "in the band");
        assert_eq!(policy().decide(settled(needed * 3 / 2 + 1), &delays, drift), Some(needed));
    }

    #[test]
    fn lengths_stay_within_bounds_and_change_only_after_counted_reads() {
        let (policy, drift) = (policy(), Drift::ONE_CLOCK);
        let none = Delays::default();
        assert_eq!(
            policy.decide(settled(0), &none, drift),
            Some(2_000),
            "so that there are windows"
        );
        assert_eq!(policy.decide(settled(60_000), &none, drift), Some(50_000));
        assert_eq!(policy.decide(settled(9_000), &none, drift), None);
        assert_eq!(policy.decide(settled(9_000), &delays(&[(9, 900_000)]), drift), Some(50_000));
        assert_eq!(policy.decide(settled(9_000), &delays(&[(9, 1)]), drift), Some(2_000));
        let on_its_way = LeaseWord::new(8, 2_000, 9_000);
        assert_eq!(policy.decide(on_its_way, &delays(&[(9, 900_000)]), drift), None);
    }

    #[test]
    fn impossible_values_are_refused_by_field() {
        let refused = |every_ns, bounds| LeasePolicy::new(every_ns, bounds).expect_err("no").field;
        assert_eq!(refused(0, (1, 2)), "read-lease-adjust-ns");
        assert_eq!(refused(1, (0, 2)), "read-lease-least-ns");
        assert_eq!(refused(1, (3, 2)), "read-lease-least-ns");
        assert_eq!(refused(1, (1, 0)), "read-lease-most-ns");
        assert_eq!(refused(1, (1, LEASE_NS_MAX + 1)), "read-lease-most-ns");
    }
}
