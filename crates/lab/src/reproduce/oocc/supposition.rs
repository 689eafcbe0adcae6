//! What if: a suspected cause changed for all systems of a run, alone, to see whether a gap moves.
//!
//! Invariant: a supposition is named on the page and never part of a figure that is held against a published one.
//! Constants of the hardware have `--set`.

use crate::reproduce::Scale;
use crate::reproduce::paper::Suppose;
use crate::reproduce::paper::case::{Case, Kind};
use tarn_engine::session::coordinator::Retry;
use tarn_sim::profile::Change;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Placement;

/// One cause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Supposition {
    /// OOCC's leases are so long wherever it has any, in nanoseconds; 0: it always validates.
    Lease(u32),
    /// OOCC's leases are explicit: a writer waits only where somebody reads.
    Explicit,
    /// A transaction of YCSB, whose keys are known, has so many operations.
    Operations(usize),
    /// Records lie so.
    Placement(Placement),
    /// A look-up reads the key's bin of two slots, not the whole bucket.
    Bins,
    /// No address is remembered.
    Forgotten,
    /// A transaction that was aborted is dropped and another one drawn, or tried until it commits.
    Dropped(bool),
    /// TPC-C as this profile has it.
    Tpcc(&'static str),
    /// So many times as long runs what is not counted.
    WarmUp(f64),
    /// Somebody who is there runs in the place of everybody, without leases: for tests of what runs them.
    #[cfg(test)]
    StandIn(&'static str),
}

/// The causes, with what is allowed.
const KEYS: [(&str, &str); 9] = [
    ("lease", "0 (OOCC always validates) to 1000, in µs"),
    ("leases", "explicit (OOCC's writers ask who reads)"),
    ("operations", "1 to 16, of a transaction of YCSB"),
    ("placement", "hash, table"),
    ("buckets", "off (a look-up reads a bin of two slots)"),
    ("addresses", "off (none are remembered)"),
    ("dropped", "on (an aborted transaction is), off (it is tried until it commits)"),
    ("tpcc", "oocc, lotus-code, crest, crest-code, tiny"),
    ("warm-up", "0 to 10, times as long as the page's own"),
];
/// Profiles of TPC-C that differ in what a New-Order fetches at once and in sizes.
const TPCC: [&str; 5] = ["oocc", "lotus-code", "crest", "crest-code", "tiny"];
const WARM_UP_MAX: f64 = 10.0;
/// Who has leases of a length that can be chosen, and writers that may ask.
const OOCC: &str = "oocc";
const LEASE_US_MAX: u32 = 1_000;

impl Suppose for Supposition {
    fn parse(text: &str) -> Result<Supposition, UsageError> {
        let refused = |allowed: &str| UsageError {
            field: "suppose".into(),
            value: text.to_owned(),
            allowed: allowed.to_owned(),
        };
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let Some((_, allowed)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let keys: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
            return Err(refused(&format!("KEY=VALUE with one of these keys: {}", keys.join(", "))));
        };
        let number = value.parse::<u32>().ok();
        let found = match (key, value) {
            ("lease", _) => {
                number.filter(|us| *us <= LEASE_US_MAX).map(|us| Supposition::Lease(us * 1_000))
            }
            ("leases", "explicit") => Some(Supposition::Explicit),
            ("operations", _) => number
                .filter(|count| (1..=16).contains(count))
                .map(|count| Supposition::Operations(count as usize)),
            ("placement", "hash") => Some(Supposition::Placement(Placement::Hash)),
            ("placement", "table") => Some(Supposition::Placement(Placement::Table)),
            ("buckets", "off") => Some(Supposition::Bins),
            ("addresses", "off") => Some(Supposition::Forgotten),
            ("dropped", "on") => Some(Supposition::Dropped(true)),
            ("dropped", "off") => Some(Supposition::Dropped(false)),
            ("tpcc", _) => TPCC.into_iter().find(|it| *it == value).map(Supposition::Tpcc),
            ("warm-up", _) => {
                let times = value.parse::<f64>().ok();
                times.filter(|it| (0.0..=WARM_UP_MAX).contains(it)).map(Supposition::WarmUp)
            }
            _ => None,
        };
        found.ok_or_else(|| refused(&format!("{key}= with one of {allowed}")))
    }

    fn apply(self, case: &mut Case) {
        let Case { bench, system, layout, .. } = case;
        match self {
            Supposition::Lease(ns) if system.protocol == OOCC => {
                system.read_lease_ns = ns;
            }
            Supposition::Operations(count)
                if bench.kind == Kind::Ycsb && bench.mix != "oocc-unknown" =>
            {
                bench.operations = Some(count);
            }
            Supposition::Explicit if system.protocol == OOCC => {
                system.variant = explicit(system.variant);
            }
            Supposition::Tpcc(mix) if bench.kind == Kind::Tpcc => bench.mix = mix,
            Supposition::Lease(_)
            | Supposition::Explicit
            | Supposition::Operations(_)
            | Supposition::Tpcc(_)
            | Supposition::WarmUp(_) => {}
            Supposition::Placement(placement) => layout.placement = placement,
            Supposition::Bins => layout.bucket.read_whole = false,
            Supposition::Forgotten => layout.warmth = None,
            Supposition::Dropped(is_on) => {
                let tries_max = if is_on { 1 } else { Retry::PATIENT.tries_max };
                system.retry = Retry { tries_max, ..Retry::PATIENT };
            }
            #[cfg(test)]
            Supposition::StandIn(protocol) => {
                (system.protocol, system.variant) = (protocol, "corrected");
                system.read_lease_ns = 0;
            }
        }
    }

    fn lengthen(self, scale: &mut Scale) {
        if let Supposition::WarmUp(times) = self {
            scale.soak_ms *= times;
            scale.warm_up_ms *= times;
        }
    }

    fn shown(self) -> Change {
        let (key, value) = match self {
            Supposition::Lease(ns) => ("lease", format!("{} µs", ns / 1_000)),
            Supposition::Explicit => ("leases", "explicit".to_owned()),
            Supposition::Operations(count) => ("operations", count.to_string()),
            Supposition::Placement(Placement::Hash) => ("placement", "hash".to_owned()),
            Supposition::Placement(Placement::Table) => ("placement", "table".to_owned()),
            Supposition::Bins => ("buckets", "off".to_owned()),
            Supposition::Forgotten => ("addresses", "off".to_owned()),
            Supposition::Dropped(is_on) => ("dropped", if is_on { "on" } else { "off" }.to_owned()),
            Supposition::Tpcc(mix) => ("tpcc", mix.to_owned()),
            Supposition::WarmUp(times) => ("warm-up", format!("{times} times as long")),
            #[cfg(test)]
            Supposition::StandIn(protocol) => ("stand-in", protocol.to_owned()),
        };
        Change { key: format!("suppose.{key}"), value, was: "the page's own".to_owned() }
    }
}

/// The same variant of OOCC's with explicit leases; nobody else's has any.
fn explicit(variant: &'static str) -> &'static str {
    match variant {
        "corrected" => "corrected,-implicit",
        "corrected,-intent" => "corrected,-intent,-implicit",
        "corrected,-write-unlock,-intent" => "corrected,-write-unlock,-intent,-implicit",
        "literal" => "literal,-implicit",
        "literal,-intent" => "literal,-intent,-implicit",
        "literal,-write-unlock,-intent" => "literal,-write-unlock,-intent,-implicit",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::oocc::entrant::{Form, Who};
    use crate::reproduce::oocc::extent::Extent;
    use crate::reproduce::paper::Portion as _;

    #[test]
    fn a_supposition_changes_what_it_names_and_nobody_else() {
        let bench = Extent::quick().ycsb(0.0, 0);
        let after = |text: &str, who| {
            let mut case = Case::of(bench, (who, Form::Corrected), &[8]);
            Supposition::parse(text).expect("one").apply(&mut case);
            case
        };
        assert_eq!(after("lease=7", Who::Oocc).system.read_lease_ns, 7_000);
        assert_eq!(after("lease=7", Who::Occ).system.read_lease_ns, 0);
        assert_eq!(after("leases=explicit", Who::Oocc).system.variant, "corrected,-implicit");
        assert_eq!(after("leases=explicit", Who::Occ).system.variant, "corrected");
        assert_eq!(after("operations=1", Who::Dslr).bench.operations, Some(1));
        assert_eq!(after("placement=table", Who::Oocc).layout.placement, Placement::Table);
        assert!(!after("buckets=off", Who::Oocc).layout.bucket.read_whole);
        assert!(after("addresses=off", Who::Oocc).layout.warmth.is_none());
        assert_eq!(after("dropped=on", Who::Drtm).system.retry.tries_max, 1);
        assert_eq!(after("dropped=off", Who::Drtm).system.retry, Retry::PATIENT);
        let mut tpcc = Case::of(Extent::quick().tpcc(), (Who::Oocc, Form::Literal), &[8]);
        Supposition::parse("tpcc=crest").expect("one").apply(&mut tpcc);
        Supposition::parse("leases=explicit").expect("one").apply(&mut tpcc);
        assert_eq!((tpcc.bench.mix, tpcc.system.variant), ("crest", "literal,-implicit"));
        let mut scale = Extent::quick().scale;
        Supposition::parse("warm-up=2").expect("one").lengthen(&mut scale);
        assert_eq!((scale.soak_ms, scale.warm_up_ms, scale.virtual_ms), (12.0, 1.6, 1.0));
        let shown = Supposition::parse("lease=7").expect("one").shown();
        assert_eq!((shown.key.as_str(), shown.value.as_str()), ("suppose.lease", "7 µs"));
    }

    #[test]
    fn what_there_is_not_is_refused_with_all_that_there_are() {
        let refused = |text| Supposition::parse(text).expect_err("refused").to_string();
        assert!(refused("length=7").contains("lease, leases, operations, placement"));
        for text in [
            "lease=1001",
            "lease=",
            "leases=implicit",
            "operations=0",
            "placement=best",
            "dropped=no",
            "tpcc=large",
            "warm-up=11",
            "warm-up=-1",
        ] {
            let error = refused(text);
            assert!(error.starts_with(&format!("suppose = {text}; allowed: ")), "{error}");
        }
    }
}
