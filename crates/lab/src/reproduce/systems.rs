//! Reads systems and layouts from data files. A data file describes each system once, together with the differences
//! between the system's forms.
//!
//! Invariant: a description is either complete or refused with the name of the missing or unknown
//! property. A derived system has every property of its base system, except for the properties that
//! it sets itself.

use super::stage::{Layout, System};
use super::text::Text;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// A system's properties: the properties of all forms, and the properties of each form by the
/// form's name.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Described {
    /// The base system from which this system is derived.
    from: Option<Text>,
    /// The properties that the system has in every form.
    all: Table,
    /// The properties that the system has only in one form, by the form's name.
    #[serde(flatten)]
    forms: BTreeMap<Text, Table>,
}

/// All systems of a file, by name.
pub(super) type Systems = BTreeMap<Text, Described>;
/// All layouts of a file, by name.
pub(super) type Layouts = BTreeMap<Text, Layout>;

/// A system in one of its forms, with everything that a run of this system needs.
#[derive(Clone, Debug)]
pub(super) struct Entrant {
    /// The system.
    pub system: System,
    /// The name of the layout of the system's tables.
    pub layout: Text,
    /// The layouts that the system has for single benchmarks, by the benchmark's name.
    pub layouts: BTreeMap<Text, Text>,
    /// Whether all threads of a node know the same addresses.
    pub by_node: bool,
    /// Whether the benchmark determines the length of the system's leases.
    pub leases_of_benchmark: bool,
}

/// The properties that a data file gives to an entrant and that are not properties of its system.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Placed {
    layout: Text,
    #[serde(default)]
    layouts: BTreeMap<Text, Text>,
    #[serde(default)]
    remembers_by_node: bool,
    #[serde(default)]
    leases_of_benchmark: bool,
}

/// The names of the properties in [`Placed`].
const PLACED: [&str; 4] = ["layout", "layouts", "remembers_by_node", "leases_of_benchmark"];

/// Returns a system of the data file in one form.
///
/// # Errors
/// The error names the system, and the property that is missing, unknown or wrong.
pub(super) fn entrant(systems: &Systems, name: &str, form: &str) -> Result<Entrant, String> {
    let told = |error: toml::de::Error| format!("system {name}, {form}: {}", error.message());
    let mut all = properties(systems, name, form)?;
    let placed: Table = PLACED
        .into_iter()
        .filter_map(|key| all.remove(key).map(|value| (key.to_owned(), value)))
        .collect();
    let system = Value::Table(all).try_into::<System>().map_err(told)?;
    let placed = Value::Table(placed).try_into::<Placed>().map_err(told)?;
    let Placed { layout, layouts, remembers_by_node: by_node, leases_of_benchmark } = placed;
    Ok(Entrant { system, layout, layouts, by_node, leases_of_benchmark })
}

/// Returns a system's properties in a form, including the properties that it inherits from its base
/// system.
fn properties(systems: &Systems, name: &str, form: &str) -> Result<Table, String> {
    let described = systems.get(name);
    let described = described.ok_or_else(|| format!("system = {name}; there is none"))?;
    let mut all = match described.from {
        Some(from) => properties(systems, &from, form)?,
        None => Table::new(),
    };
    all.extend(described.all.clone());
    all.extend(described.forms.get(form).cloned().unwrap_or_default());
    Ok(all)
}
