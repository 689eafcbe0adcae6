//! What if: a suspected cause changed for all systems of a run, alone, to see whether a gap moves.
//!
//! Invariant: a supposition is named on the page and never part of a figure that is held against a published one.
//! Constants of the hardware have `--set`.

use super::entrant::Who;
use crate::reproduce::paper::Suppose;
use crate::reproduce::paper::case::{Case, Kind};
use crate::reproduce::stage::Layout;
use crate::simulate::stamps::Source;
use tarn_engine::session::coordinator::Retry;
use tarn_sim::profile::Change;
use tarn_store::ids::UsageError;
use tarn_store::layout::BucketShape;
use tarn_store::placement::catalog::Placement;

/// One cause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Supposition {
    /// Everybody's timestamps come from here.
    Timestamps(Source),
    /// Records lie so.
    Placement(Placement),
    /// Transactions of LOTUS are routed, or not.
    Routing(bool),
    /// A lookup of LOTUS's reads buckets of eight whole, or the key's bin of two slots, whatever the table.
    Buckets(bool),
    /// The same of LOTUS's and Motor's.
    Tables(bool),
    /// TPC-C as this profile has it.
    Tpcc(&'static str),
    /// A transaction that was aborted is dropped and another one drawn, or tried until it commits.
    Dropped(bool),
    /// FORD has its stock number of buckets, and so chains, or enough for half of its slots to be in use.
    Chains(bool),
    /// Addresses are remembered on all benchmarks as after half of a run, or on none.
    Addresses(bool),
}

/// Profiles of TPC-C that differ in what a New-Order fetches at once and in sizes.
const TPCC: [&str; 4] = ["lotus-code", "crest", "crest-code", "tiny"];

/// The causes, with what is allowed.
const KEYS: [(&str, &str); 9] = [
    ("timestamps", "counter, service, pool, clock"),
    ("placement", "hash, table"),
    ("routing", "on, off"),
    ("lotus-buckets", "on (eight slots, read whole), off (bins of two slots)"),
    ("tables", "on (eight slots of LOTUS's and Motor's, read whole), off (bins of two slots)"),
    ("tpcc", "lotus-code, crest, crest-code, tiny"),
    ("dropped", "on (an aborted transaction is), off (it is tried until it commits)"),
    ("ford-chains", "on (22 slots for 100 records), off (200)"),
    ("addresses", "on (as after half of a run, on all benchmarks), off (none are remembered)"),
];

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
        let is_on = match value {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        };
        let source = Source::ALL.into_iter().find(|source| source.name() == value);
        let placement = match value {
            "hash" => Some(Placement::Hash),
            "table" => Some(Placement::Table),
            _ => None,
        };
        let found = match key {
            "timestamps" => source.map(Supposition::Timestamps),
            "placement" => placement.map(Supposition::Placement),
            "routing" => is_on.map(Supposition::Routing),
            "lotus-buckets" => is_on.map(Supposition::Buckets),
            "tables" => is_on.map(Supposition::Tables),
            "tpcc" => TPCC.into_iter().find(|name| *name == value).map(Supposition::Tpcc),
            "dropped" => is_on.map(Supposition::Dropped),
            "ford-chains" => is_on.map(Supposition::Chains),
            _ => is_on.map(Supposition::Addresses),
        };
        found.ok_or_else(|| refused(&format!("{key}= with one of {allowed}")))
    }

    fn apply(self, case: &mut Case) {
        let Case { bench, system, layout, .. } = case;
        match self {
            Supposition::Timestamps(source) => system.timestamps = source,
            Supposition::Placement(placement) => layout.placement = placement,
            // What has its locks in memory nodes has nowhere to be routed to.
            Supposition::Routing(is_routed) => {
                system.is_routed = is_routed && system.protocol == "lotus";
            }
            Supposition::Buckets(read_whole) if system.protocol == "lotus" => {
                all_tables(layout, read_whole);
            }
            Supposition::Tables(read_whole) if system.protocol != "ford" => {
                all_tables(layout, read_whole);
            }
            Supposition::Tpcc(mix) if bench.kind == Kind::Tpcc => bench.mix = mix,
            Supposition::Dropped(is_on) => {
                system.retry = Retry {
                    tries_max: if is_on { 1 } else { Retry::PATIENT.tries_max },
                    ..Retry::PATIENT
                };
            }
            Supposition::Chains(is_on) if system.protocol == "ford" => {
                layout.slots_per_100_records = if is_on { 22 } else { 200 };
            }
            Supposition::Buckets(_) | Supposition::Tables(_) | Supposition::Chains(_) => {}
            Supposition::Tpcc(_) => {}
            Supposition::Addresses(true) => {
                let who = Who::ALL.into_iter().find(|who| who.protocol() == system.protocol);
                layout.warmth = who.map(|who| who.remembers(bench.kind));
            }
            Supposition::Addresses(false) => layout.warmth = None,
        }
    }

    fn shown(self) -> Change {
        let on = |is_on: bool| (if is_on { "on" } else { "off" }).to_owned();
        let (key, value) = match self {
            Supposition::Timestamps(source) => ("timestamps", source.name().to_owned()),
            Supposition::Placement(Placement::Hash) => ("placement", "hash".to_owned()),
            Supposition::Placement(Placement::Table) => ("placement", "table".to_owned()),
            Supposition::Routing(is_on) => ("routing", on(is_on)),
            Supposition::Buckets(is_on) => ("lotus-buckets", on(is_on)),
            Supposition::Tables(is_on) => ("tables", on(is_on)),
            Supposition::Tpcc(mix) => ("tpcc", mix.to_owned()),
            Supposition::Dropped(is_on) => ("dropped", on(is_on)),
            Supposition::Chains(is_on) => ("ford-chains", on(is_on)),
            Supposition::Addresses(is_on) => ("addresses", on(is_on)),
        };
        let was = "each system's own".to_owned();
        Change { key: format!("suppose.{key}"), value, was }
    }
}

fn all_tables(layout: &mut Layout, read_whole: bool) {
    layout.bucket = BucketShape { slots: 8, read_whole, ..layout.bucket };
}

#[cfg(test)]
mod tests {
    use super::super::entrant::Form;
    use super::super::extent::Extent;
    use super::*;

    #[test]
    fn a_supposition_changes_what_it_names() {
        let case = |bench, who, text: &str| {
            let mut case = Case::of(bench, (who, Form::Corrected), &[9]);
            Supposition::parse(text).expect("there is one").apply(&mut case);
            case
        };
        let extent = Extent::quick();
        let of = |text: &str| case(extent.kvs(0.99, 0), Who::Lotus, text);
        assert_eq!(of("timestamps=counter").system.timestamps, Source::Counter);
        assert!(!of("routing=off").system.is_routed && of("routing=on").system.is_routed);
        assert_eq!(of("placement=hash").layout.placement, Placement::Hash);
        assert!(of("lotus-buckets=on").layout.bucket.read_whole);
        let without = of("addresses=off");
        assert!(without.layout.warmth.is_none() && of("addresses=on").layout.warmth.is_some());
        assert_eq!(of("dropped=off").system.retry, Retry::PATIENT);
        let tpcc = |text| case(extent.tpcc(), Who::Motor, text);
        assert_eq!(tpcc("tpcc=crest").bench.mix, "crest");
        assert!(tpcc("addresses=on").layout.warmth.is_some_and(|it| !it.by_node));
        assert!(tpcc("lotus-buckets=off").layout == tpcc("tpcc=crest").layout);
        let bins = tpcc("tables=off").layout;
        assert!(!bins.bucket.read_whole && bins.bucket.slots == 8);
        for (key, _) in KEYS {
            let error = Supposition::parse(&format!("{key}=perhaps")).expect_err("refused");
            assert!(error.to_string().contains(key), "{error}");
        }
        let error = Supposition::parse("weather=on").expect_err("refused").to_string();
        assert!(error.contains("suppose = weather=on") && error.contains("timestamps"), "{error}");
    }
}
