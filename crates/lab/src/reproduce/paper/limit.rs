//! Finds the resource that limited a point's throughput.
//!
//! Invariant: the doorbell is checked before the processors, because a thread that waits for a doorbell is also busy.
//! Atomics on different addresses overlap, so the sum of their times can exceed the phase. So the function counts
//! atomics instead. If the NIC is the limit and at least half of its verbs are atomics, the atomics are the limit.

use crate::reproduce::curve::Point;

/// A hardware part that is busy for at least this share of the time is the limit.
const LIMIT: f64 = 0.85;
/// If at least this share of tries is aborted and no hardware part is the limit, contention is the limit.
const CONTENDED: f64 = 0.2;

/// Describes the resource that limited a point, and the shares of time for which hardware parts were busy.
pub(super) fn limit(point: &Point) -> String {
    let share = |name: &str| {
        let busy = point.busiest.iter().find(|busy| busy.part == name);
        busy.map_or(0.0, |busy| busy.share)
    };
    let most = |names: &[&str]| names.iter().map(|name| share(name)).fold(0.0, f64::max);
    let nic = most(&["nic transmit", "nic receive", "nic pipeline"]);
    let (link, doorbell) = (most(&["link out", "link in"]), share("doorbell"));
    let outside = nic.max(link);
    let resource = if outside >= LIMIT && outside >= doorbell {
        match link > nic {
            true => "the link",
            false if atomics(point) * 2.0 >= point.verbs.values().sum::<f64>() => {
                "the NIC's atomics"
            }
            false => "the NIC",
        }
    } else if doorbell >= LIMIT {
        "the doorbell"
    } else if share("cpu") >= LIMIT {
        "the CPU"
    } else if point.conflict_rate >= CONTENDED {
        "contention"
    } else {
        "how many ran at once"
    };
    let is_in_vain = point.conflict_rate >= CONTENDED && resource != "contention";
    let shown = |name: &str| {
        let busy = point.busiest.iter().find(|busy| busy.part == name)?;
        Some(format!("{name} {:.0} %", busy.share * 100.0))
    };
    let parts = ["doorbell", "nic transmit", "nic pipeline", "nic atomics", "cpu"];
    let parts: Vec<String> = parts.into_iter().filter_map(shown).collect();
    format!(
        "limit {resource}{} ({}, {:.1} % of tries aborted)",
        if is_in_vain { ", much of it for tries that are aborted" } else { "" },
        parts.join(", "),
        point.conflict_rate * 100.0
    )
}

/// Returns the number of atomic verbs that one transaction sends.
pub(super) fn atomics(point: &Point) -> f64 {
    ["cas", "faa", "masked_cas"].into_iter().map(|kind| point.verbs_of(kind)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::curve::tests::series;
    use crate::simulate::report::Busy;

    fn limit_of(
        shares: &[(&'static str, f64)],
        verbs: &[(&'static str, f64)],
        aborted: f64,
    ) -> String {
        let mut point = series(&[(1, 1.0)]).points.remove(0);
        let busy = |&(part, share)| Busy { part, of: "compute node 0".into(), share };
        point.busiest = shares.iter().map(busy).collect();
        point.verbs = verbs.iter().copied().collect();
        point.conflict_rate = aborted;
        let told = limit(&point);
        let end = told.find(" (").expect("shares follow");
        told[..end].to_owned()
    }

    #[test]
    fn each_resource_can_be_the_limit() {
        let reads = [("read", 4.0)];
        let of = |shares: &[_]| limit_of(shares, &reads, 0.0);
        assert_eq!(of(&[("cpu", 1.0), ("doorbell", 0.5)]), "limit the CPU");
        // Threads that wait for a NIC's doorbell also count as busy.
        assert_eq!(of(&[("cpu", 1.0), ("doorbell", 0.9)]), "limit the doorbell");
        assert_eq!(of(&[("nic pipeline", 0.99), ("doorbell", 0.9)]), "limit the NIC");
        assert_eq!(of(&[("link in", 0.99), ("nic pipeline", 0.9)]), "limit the link");
        assert_eq!(of(&[("nic atomics", 5.0), ("cpu", 0.3)]), "limit how many ran at once");
        let locks = [("read", 4.0), ("faa", 8.0)];
        assert_eq!(limit_of(&[("nic pipeline", 1.0)], &locks, 0.0), "limit the NIC's atomics");
        assert_eq!(limit_of(&[("cpu", 0.5)], &reads, 0.4), "limit contention");
        let in_vain = "limit the CPU, much of it for tries that are aborted";
        assert_eq!(limit_of(&[("cpu", 1.0)], &reads, 0.4), in_vain);
    }
}
