//! Finds clocks that drift too far: it compares the rates of the members' clocks, by two readings of each clock.
//!
//! Invariants: the monitor never reports a clock that differs from the reference by less than [`OFF_PERCENT`] of the
//! believed drift, however slow messages are. The reason is that each reading certainly lies between two readings of
//! the asking node's own clock. The monitor also reports a clock that differs by all of the believed drift, as soon
//! as message delays are short against the time between two readings. Then the difference between [`OFF_PERCENT`] and
//! all of the drift exceeds the uncertainty of the rates.
//!
//! Leases rely on clock rates alone: readers trust `lease·(1 − ρ)`, writers wait `lease·(1 + ρ)`, each by its own
//! clock. So two clocks may differ by almost 2ρ (docs/fault-model.md). Two clocks that differ from one reference by
//! 0.8ρ differ from each other by 1.6ρ. The reference is the clock with the median rate, since the asking node's own
//! clock may be the clock that drifts too far. If two clocks are in the middle, the reference is the one nearer to
//! the asking node's clock. The monitor compares the time by which each clock has advanced. The monitor cannot use an
//! interval that contains the true time ([`tarn_fabric::port::Port::clock`]). Such an interval is computed from the
//! same clock, and already allows for the believed drift.

use std::collections::BTreeMap;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::window::Drift;

/// The percentage of the believed drift above which a clock counts as wrong (docs/protocols/oocc.md, "Leases").
pub const OFF_PERCENT: i128 = 80;

const BILLION: i128 = 1_000_000_000;

/// One reading of a member's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// The reading of the asking node's clock before the member's clock was read.
    pub before: Nanos,
    /// The reading of the member's clock.
    pub shown: Nanos,
    /// The reading of the asking node's clock after the member's clock was read.
    pub after: Nanos,
}

/// Two bounds on how much faster a clock runs than the asking node's clock, in parts per billion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rate {
    low: i128,
    high: i128,
}

impl Rate {
    /// The rate of the asking node's own clock.
    const OWN: Rate = Rate { low: 0, high: 0 };

    /// The rate of a clock between two readings; `None` if no time passed between them.
    fn of(first: Sighting, last: Sighting, tick_ns: u32) -> Option<Rate> {
        let tick = i128::from(tick_ns);
        let apart = |from: Nanos, to: Nanos| i128::from(to.0) - i128::from(from.0);
        let (shown, longest) =
            (apart(first.shown, last.shown), apart(first.before, last.after) + tick);
        let shortest = apart(first.after, last.before) - tick;
        (shortest > 0).then(|| Rate {
            low: ((shown - tick) * BILLION).div_euclid(longest) - BILLION,
            high: ((shown + tick) * BILLION).div_euclid(shortest) + 1 - BILLION,
        })
    }

    fn middle(self) -> i128 {
        (self.low + self.high) / 2
    }

    fn unknown(self) -> i128 {
        self.high - self.low
    }
}

/// The readings of other nodes' clocks that one asking node has made. A new manager begins without readings.
#[derive(Clone, Default, Debug)]
pub struct ClockMonitor {
    first: BTreeMap<NodeId, Sighting>,
}

impl ClockMonitor {
    /// Processes one reading of each member except the asking node `by`. Returns the members whose clocks drift too
    /// far.
    pub fn look(
        &mut self,
        drift: Drift,
        by: NodeId,
        seen: &BTreeMap<NodeId, Sighting>,
    ) -> Vec<NodeId> {
        if drift.ppm() == 0 {
            // All nodes share one clock, or the fabric has no clock.
            return Vec::new();
        }
        self.first.retain(|node, _| seen.contains_key(node));
        let mut rates: Vec<(NodeId, Rate)> = vec![(by, Rate::OWN)];
        for (node, last) in seen {
            let first = *self.first.entry(*node).or_insert(*last);
            rates.extend(Rate::of(first, *last, drift.tick_ns()).map(|rate| (*node, rate)));
        }
        let believed = i128::from(drift.ppm()) * 1_000;
        let reference = reference(&rates);
        let is_off = |rate: &Rate| {
            let apart = (rate.low - reference.high).max(reference.low - rate.high);
            apart * 100 > believed * OFF_PERCENT
        };
        for (node, rate) in &rates {
            let rest = believed * (100 - OFF_PERCENT);
            if (rate.unknown() + reference.unknown()) * 100 <= rest && *node != by {
                self.first.insert(*node, seen[node]);
            }
        }
        rates.into_iter().filter(|(_, rate)| is_off(rate)).map(|(node, _)| node).collect()
    }
}

fn reference(rates: &[(NodeId, Rate)]) -> Rate {
    let mut sorted: Vec<Rate> = rates.iter().map(|(_, rate)| *rate).collect();
    sorted.sort_by_key(|rate| rate.middle());
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    if low.middle().abs() <= high.middle().abs() { low } else { high }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Incarnation, NodeSlot};

    const BELIEVED_PPM: u32 = 1_000;
    const SECOND: u64 = 1_000_000_000;

    fn node(slot: u16) -> NodeId {
        NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
    }

    /// The reading at true time `at` of a clock that gains `ppm` parts per million.
    fn shows(at: u64, ppm: i64) -> Nanos {
        Nanos((i128::from(at) * i128::from(1_000_000 + ppm) / 1_000_000) as u64)
    }

    /// Reads these clocks once a second for a minute, with messages that take `way_ns` in each direction. The first
    /// clock is the asking node's clock. Returns the first second in which the monitor reported a node, and the
    /// reported nodes.
    fn watch(ppm: &[i64], way_ns: u64) -> Option<(u64, Vec<NodeId>)> {
        let drift = Drift::new(BELIEVED_PPM, 1).expect("below a million");
        let mut monitor = ClockMonitor::default();
        (1..=60).find_map(|second| {
            let at = second * SECOND;
            let sight = |(slot, ppm_of): (usize, &i64)| {
                let sighting = Sighting {
                    before: shows(at, ppm[0]),
                    shown: shows(at + way_ns, *ppm_of),
                    after: shows(at + 2 * way_ns, ppm[0]),
                };
                (node(slot as u16), sighting)
            };
            let seen = ppm.iter().enumerate().skip(1).map(sight).collect();
            let off = monitor.look(drift, node(0), &seen);
            (!off.is_empty()).then_some((second, off))
        })
    }

    #[test]
    fn below_80_of_100_no_node_is_named_despite_slow_messages() {
        for way_ns in [1_000, 100_000, 400_000_000] {
            for off in [-799, -500, 0, 500, 799] {
                assert_eq!(watch(&[0, 0, off], way_ns), None, "{off} ppm, {way_ns} ns");
                assert_eq!(watch(&[off, 0, 0], way_ns), None, "the asker's {off} ppm");
            }
        }
    }

    #[test]
    fn a_clock_above_it_is_named_at_the_second_look_before_the_bound() {
        for off in [-2_000, -1_000, -900, 810, 900, 1_000, 900_000] {
            assert_eq!(watch(&[0, 0, off], 1_000), Some((2, vec![node(2)])), "{off} ppm");
            assert_eq!(watch(&[off, 0, 0], 1_000), Some((2, vec![node(0)])), "the asker's");
        }
    }

    #[test]
    fn slow_messages_need_more_looks_but_name_the_clock() {
        // A round trip of 20 ms is 20,000 ppm of a second. Sixty readings are too few to detect a drift of 900 ppm.
        // The second reading detects a drift of 500,000 ppm.
        assert_eq!(watch(&[0, 0, 900], 10_000_000), None);
        assert_eq!(watch(&[0, 0, 500_000], 10_000_000), Some((2, vec![node(2)])));
        let (second, named) = watch(&[0, 0, 2_000], 1_000_000).expect("in a minute");
        assert!(second > 2 && named == [node(2)], "{second}");
    }

    #[test]
    fn of_two_clocks_the_asker_trusts_its_own() {
        assert_eq!(watch(&[900, 0], 1_000), Some((2, vec![node(1)])));
    }

    #[test]
    fn a_clock_that_drifts_later_is_noticed_then() {
        let drift = Drift::new(BELIEVED_PPM, 1).expect("below a million");
        let mut monitor = ClockMonitor::default();
        let mut shown = 0;
        let named = (1..=60).find(|second| {
            shown += SECOND + if *second > 40 { SECOND * 950 / 1_000_000 } else { 0 };
            let (at, shown) = (Nanos(second * SECOND), Nanos(shown));
            let good = Sighting { before: at, shown: at, after: at };
            let bad = Sighting { shown, ..good };
            let seen = BTreeMap::from([(node(1), good), (node(2), bad)]);
            !monitor.look(drift, node(0), &seen).is_empty()
        });
        assert_eq!(named, Some(41), "what was measured before does not hide it");
    }
}
