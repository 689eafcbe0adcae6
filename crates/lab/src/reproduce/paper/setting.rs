//! Makes cases from texts, and applies settings that change cases. A supposition applies such
//! settings to all systems of a run.
//!
//! Invariant: a setting changes only the property that it names. The page names each supposition. A value with a
//! supposition is never presented as the reproduction of a published value. The flag `--set` changes constants of the
//! hardware.

use super::case::{Bench, Case, Kind};
use super::data::{Benchmark, Paper, Supposable};
use super::extent::{Amount, Extent};
use crate::reproduce::Scale;
use crate::reproduce::systems::{Entrant, entrant};
use crate::reproduce::text::{Text, kept, tries};
use crate::simulate::stamps::Source;
use crate::simulate::warmth::Warmth;
use tarn_sim::profile::Change;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Placement;
use tarn_workloads::tpcc::CriticalField;

const CRITICAL: [CriticalField; 3] =
    [CriticalField::Warehouse, CriticalField::District, CriticalField::Customer];

impl Paper {
    /// Returns the case that a text describes, without the numbers of coordinators.
    ///
    /// # Errors
    /// The error names the word that the function does not understand.
    pub(super) fn case(&self, extent: &Extent, text: &str) -> Result<Case, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let find = |what: &str, is_it: &dyn Fn(&&&str) -> bool| {
            let found = words.iter().find(is_it).copied();
            found.ok_or_else(|| format!("{text} names no {what}"))
        };
        let form = find("form", &|word| word.starts_with('@'))?;
        let name = find("system", &|word| self.system.contains_key(**word))?;
        let on = find("benchmark", &|word| self.bench.contains_key(**word))?;
        let mut case = self.plain(extent, (name, &form[1..]), on)?;
        for word in words.into_iter().filter(|word| ![form, name, on].contains(word)) {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("{text}: {word} is unknown"))?;
            let value = extent.expand(Text(kept(value)))[0];
            self.set(&mut case, key, &value)?;
        }
        Ok(case)
    }

    /// Makes a case from a system in a form and a benchmark.
    fn plain(&self, extent: &Extent, (name, form): (&str, &str), on: &str) -> Result<Case, String> {
        let Entrant { system, layout, layouts, by_node, leases_of_benchmark } =
            entrant(&self.system, name, form)?;
        let (key, benchmark) = self.bench.get_key_value(on).expect("it was found");
        let layout = layouts.get(key).unwrap_or(&layout);
        let layout =
            self.layout.get(layout).ok_or_else(|| format!("layout = {layout}; there is none"))?;
        let records = match extent.amount(&benchmark.records) {
            Amount::Whole(records) => *records,
            other => {
                return Err(format!("{} = {other}; allowed: a whole number", benchmark.records));
            }
        };
        let bench = Bench::new(benchmark.kind, extent.expand(benchmark.mix)[0].0, records);
        let mut case = Case { bench, system, layout: *layout, coordinators: Vec::new() };
        if leases_of_benchmark {
            case.system.read_lease_ns = benchmark.lease_ns;
        }
        case.layout.warmth = benchmark.remembers.then(|| benchmark.warmth(by_node));
        self.set_all(&mut case, &benchmark.settings)?;
        Ok(case)
    }

    /// Returns the numbers of coordinators, one for each point. The text may be the name of a list in the extent, or
    /// `most`, or empty.
    pub(super) fn coordinators(&self, extent: &Extent, kind: Kind, at: Option<Text>) -> Vec<usize> {
        let list = self.bench.values().find(|it| it.kind == kind).and_then(|it| it.coordinators);
        let own =
            || list.map_or_else(|| extent.scale.coordinators.clone(), |it| extent.numbers(&it));
        match at.map(|at| at.0) {
            None => own(),
            Some("most") => own().into_iter().max().into_iter().collect(),
            Some(list) => extent.numbers(list),
        }
    }

    fn set_all(&self, case: &mut Case, settings: &str) -> Result<(), String> {
        for word in settings.split_whitespace() {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("{word} is no setting"))?;
            self.set(case, key, value)?;
        }
        Ok(())
    }

    /// Sets the property `key` of a case to a value.
    fn set(&self, case: &mut Case, key: &str, value: &str) -> Result<(), String> {
        if key == "remembers" {
            let is_on: bool = number(key, value)?;
            case.layout.warmth = is_on.then(|| self.remembered(case)).flatten();
            return Ok(());
        }
        let Case { bench, system, layout, .. } = case;
        match key {
            "zipf" => bench.zipf = Some(number(key, value)?),
            "updates" => bench.updates = Some(number(key, value)?),
            "records" => bench.records = number(key, value)?,
            "record_bytes" => bench.record_bytes = Some(number(key, value)?),
            "operations" => bench.operations = Some(number(key, value)?),
            "critical" => {
                bench.critical = Some(one_of(key, value, &CRITICAL, CriticalField::name)?)
            }
            "mix" => bench.mix = kept(value),
            "protocol" => system.protocol = kept(value),
            "variant" => system.variant = kept(value),
            "without" => system.variant = kept(&format!("{},-{value}", system.variant)),
            "timestamps" => system.timestamps = one_of(key, value, &Source::ALL, Source::name)?,
            "routed" => system.is_routed = number(key, value)?,
            "tries" => system.retry = tries(number(key, value)?),
            "version_cache_entries" => system.version_cache_entries = number(key, value)?,
            "read_lease_us" => system.read_lease_ns = number::<u32>(key, value)? * 1_000,
            "placement" => {
                let both = [Placement::Hash, Placement::Table];
                let name = |it| if it == Placement::Hash { "hash" } else { "table" };
                layout.placement = one_of(key, value, &both, name)?;
            }
            "read_whole" => layout.bucket.read_whole = number(key, value)?,
            "slots" => layout.bucket.slots = number(key, value)?,
            "slots_per_100_records" => layout.slots_per_100_records = number(key, value)?,
            "versions" => layout.versions = number(key, value)?,
            _ => return Err(format!("{key} = {value}; there is no such setting")),
        }
        Ok(())
    }

    /// Returns the rule for the addresses that threads would know after half of a published run. The data file's
    /// first system with the case's protocol determines whether all threads of a node know the same addresses.
    fn remembered(&self, case: &Case) -> Option<Warmth> {
        let benchmark = self.bench.values().find(|it| it.kind == case.bench.kind)?;
        let decisive = self.columns.decisive();
        let mut all =
            self.system.keys().filter_map(|name| entrant(&self.system, name, &decisive).ok());
        let of = all.find(|it| it.system.protocol == case.system.protocol)?;
        Some(benchmark.warmth(of.by_node))
    }
}

impl Benchmark {
    fn warmth(&self, by_node: bool) -> Warmth {
        let [transactions, records] = self.ran;
        Warmth { by_node, transactions_per_record: transactions / 2.0 / records }
    }
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key} = {value}; allowed: {}", std::any::type_name::<T>()))
}

fn one_of<T: Copy>(
    key: &str,
    value: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.iter().copied().find(|it| name(*it) == value);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|it| name(*it)).collect();
        format!("{key} = {value}; allowed: {}", names.join(", "))
    })
}

/// A supposition: an assumed change that applies to all systems of a run.
#[derive(Clone, Debug)]
pub struct Supposition {
    paper: &'static Paper,
    of: &'static Supposable,
    value: String,
    /// The settings of the supposition; only the setting `warm_up` changes the lengths of phases instead of a case.
    settings: String,
}

impl Paper {
    /// Returns the supposition that the text `KEY=VALUE` describes.
    ///
    /// # Errors
    /// Fails if no supposition has this key, or if the supposition does not allow this value.
    pub fn supposition(&'static self, text: &str) -> Result<Supposition, UsageError> {
        let refused = |allowed: String| UsageError {
            field: "what-if".into(),
            value: text.to_owned(),
            allowed,
        };
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let Some(of) = self.what_if.iter().find(|it| &*it.key == key) else {
            let keys: Vec<&str> = self.what_if.iter().map(|it| it.key.0).collect();
            return Err(refused(format!("KEY=VALUE with one of these keys: {}", keys.join(", "))));
        };
        let chosen = of.values.get(value);
        let settings = chosen.map(|settings| settings.to_string()).or_else(|| {
            let bounds = of.number.as_ref()?;
            let given = value
                .parse::<f64>()
                .ok()
                .filter(|_| bounds.is_fraction || value.parse::<u32>().is_ok())?;
            (bounds.from..=bounds.to).contains(&given).then(|| format!("{}={value}", bounds.sets))
        });
        let settings =
            settings.ok_or_else(|| refused(format!("{key}= with one of {}", of.allowed)))?;
        Ok(Supposition { paper: self, of, value: value.to_owned(), settings })
    }
}

impl Supposition {
    /// Changes a case, if the supposition concerns this case.
    ///
    /// # Panics
    /// Panics if a setting is wrong: this is a mistake in a data file, which the tests find.
    pub(super) fn apply(&self, case: &mut Case) {
        let Supposable { protocols, benches, not_mix, .. } = self.of;
        let is_about = (protocols.is_empty()
            || protocols.iter().any(|it| it.0 == case.system.protocol))
            && (benches.is_empty() || benches.contains(&case.bench.kind))
            && not_mix.is_none_or(|mix| mix.0 != case.bench.mix);
        if is_about && self.warm_up().is_none() {
            self.paper.set_all(case, &self.settings).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Returns the factor by which the supposition makes the uncounted part of a run longer, if it does so.
    fn warm_up(&self) -> Option<f64> {
        self.settings.strip_prefix("warm_up=").and_then(|times| times.parse().ok())
    }

    /// Multiplies the lengths of a scale's uncounted phases by the supposition's factor.
    pub(super) fn lengthen(&self, scale: &mut Scale) {
        if let Some(times) = self.warm_up() {
            scale.soak_ms *= times;
            scale.warm_up_ms *= times;
        }
    }

    /// Returns the supposition in the form that the page shows.
    pub(super) fn shown(&self) -> Change {
        let value = match &self.of.number {
            Some(bounds) => bounds.shown.replace("{}", &self.value),
            None => self.value.clone(),
        };
        Change { key: format!("what-if.{}", self.of.key), value, was: self.paper.was.to_string() }
    }
}

#[cfg(test)]
impl Supposition {
    /// Makes a supposition in which one available protocol replaces every system's protocol,
    /// without leases.
    pub(super) fn stand_in(paper: &'static Paper, protocol: &str) -> Supposition {
        static STAND_IN: Supposable = Supposable {
            key: Text("stand-in"),
            allowed: Text("a protocol"),
            protocols: Vec::new(),
            benches: Vec::new(),
            not_mix: None,
            values: std::collections::BTreeMap::new(),
            number: None,
        };
        let settings = format!("protocol={protocol} variant=corrected read_lease_us=0");
        Supposition { paper, of: &STAND_IN, value: protocol.to_owned(), settings }
    }
}
