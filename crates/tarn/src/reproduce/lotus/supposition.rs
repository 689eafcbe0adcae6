//! What if: a suspected cause changed for all systems of a run, alone, to see whether a gap moves.
//!
//! Invariant: a supposition is named on the page and never part of a figure that is held against a published one.
//! Constants of the hardware have `--set`.

use crate::reproduce::stage::{Layout, System};
use crate::simulate::stamps::Source;
use tarn_engine::catalog::Placement;
use tarn_engine::outcome::UsageError;
use tarn_sim::profile::Change;

/// One cause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Supposition {
    /// Everybody's timestamps come from here.
    Timestamps(Source),
    /// Records lie so.
    Placement(Placement),
    /// Transactions of LOTUS are routed, or not.
    Routing(bool),
    /// A lookup of LOTUS's reads whole buckets, or the key's bin of two slots.
    Buckets(bool),
    /// FORD has its stock number of buckets, and so chains, or enough for half of its slots to be in use.
    Chains(bool),
    /// Addresses are remembered as the layout says, or not.
    Addresses(bool),
}

/// The causes, with what is allowed.
const KEYS: [(&str, &str); 6] = [
    ("timestamps", "counter, service, pool, clock"),
    ("placement", "hash, table"),
    ("routing", "on, off"),
    ("lotus-buckets", "on (read whole), off (bins of two slots)"),
    ("ford-chains", "on (22 slots for 100 records), off (200)"),
    ("addresses", "on, off (none are remembered)"),
];

impl Supposition {
    /// As it is written: KEY=VALUE.
    ///
    /// # Errors
    /// A key or value that there is not.
    pub fn parse(text: &str) -> Result<Supposition, UsageError> {
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
            "ford-chains" => is_on.map(Supposition::Chains),
            _ => is_on.map(Supposition::Addresses),
        };
        found.ok_or_else(|| refused(&format!("{key}= with one of {allowed}")))
    }

    /// Changes a system and how it is laid out.
    pub fn apply(self, system: &mut System, layout: &mut Layout) {
        match self {
            Supposition::Timestamps(source) => system.timestamps = source,
            Supposition::Placement(placement) => layout.placement = placement,
            // What has its locks in memory nodes has nowhere to be routed to.
            Supposition::Routing(is_routed) => {
                system.is_routed = is_routed && system.protocol == "lotus";
            }
            Supposition::Buckets(read_whole) if system.protocol == "lotus" => {
                layout.bucket.read_whole = read_whole;
            }
            Supposition::Chains(is_on) if system.protocol == "ford" => {
                layout.slots_per_100_records = if is_on { 22 } else { 200 };
            }
            Supposition::Buckets(_) | Supposition::Chains(_) => {}
            Supposition::Addresses(true) => {}
            Supposition::Addresses(false) => layout.warmth = None,
        }
    }

    /// As the page shows it.
    pub fn shown(self) -> Change {
        let on = |is_on: bool| (if is_on { "on" } else { "off" }).to_owned();
        let (key, value) = match self {
            Supposition::Timestamps(source) => ("timestamps", source.name().to_owned()),
            Supposition::Placement(Placement::Hash) => ("placement", "hash".to_owned()),
            Supposition::Placement(Placement::Table) => ("placement", "table".to_owned()),
            Supposition::Routing(is_on) => ("routing", on(is_on)),
            Supposition::Buckets(is_on) => ("lotus-buckets", on(is_on)),
            Supposition::Chains(is_on) => ("ford-chains", on(is_on)),
            Supposition::Addresses(is_on) => ("addresses", on(is_on)),
        };
        let was = "each system's own".to_owned();
        Change { key: format!("suppose.{key}"), value, was }
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Kind;
    use super::super::entrant::{Form, Who};
    use super::*;

    #[test]
    fn a_supposition_changes_what_it_names() {
        let of = |text: &str| {
            let (mut system, mut layout) =
                (Who::Lotus.system(Form::Corrected), Who::Lotus.layout(Form::Corrected, Kind::Kvs));
            Supposition::parse(text).expect("there is one").apply(&mut system, &mut layout);
            (system, layout)
        };
        assert_eq!(of("timestamps=counter").0.timestamps, Source::Counter);
        assert!(!of("routing=off").0.is_routed && of("routing=on").0.is_routed);
        assert_eq!(of("placement=hash").1.placement, Placement::Hash);
        assert!(!of("lotus-buckets=off").1.bucket.read_whole);
        assert!(of("addresses=off").1.warmth.is_none() && of("addresses=on").1.warmth.is_some());
        for (key, _) in KEYS {
            let error = Supposition::parse(&format!("{key}=perhaps")).expect_err("refused");
            assert!(error.to_string().contains(key), "{error}");
        }
        let error = Supposition::parse("weather=on").expect_err("refused").to_string();
        assert!(error.contains("suppose = weather=on") && error.contains("timestamps"), "{error}");
    }
}
