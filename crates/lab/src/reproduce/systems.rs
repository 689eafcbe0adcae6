//! Systems and layouts as data files describe them: once for each system, with the differences from form to form.
//!
//! Invariant: a description is complete or refused with the name of the property that is missing or unknown. A derived system has
//! every property of the one that it is derived from, except those that it names itself.

use super::stage::{Layout, System};
use super::text::Text;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// A system's properties: in all forms, and in each form by name.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Described {
    /// The system that this one is derived from.
    from: Option<Text>,
    /// Properties in every form.
    all: Table,
    /// Properties by form.
    #[serde(flatten)]
    forms: BTreeMap<Text, Table>,
}

/// All systems of a file, by name.
pub(super) type Systems = BTreeMap<Text, Described>;
/// All layouts of a file, by name.
pub(super) type Layouts = BTreeMap<Text, Layout>;

/// A system in one of its forms.
#[derive(Clone, Debug)]
pub(super) struct Entrant {
    /// The system.
    pub system: System,
    /// The layout of its tables.
    pub layout: Text,
    /// The layouts of single benchmarks, by name.
    pub layouts: BTreeMap<Text, Text>,
    /// Whether the threads of a node remember addresses together.
    pub by_node: bool,
    /// Whether the benchmark decides how long its leases are.
    pub leases_of_benchmark: bool,
}

/// The properties of an entrant beside its system.
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

/// The properties of [`Placed`].
const PLACED: [&str; 4] = ["layout", "layouts", "remembers_by_node", "leases_of_benchmark"];

/// A system of a file in a form.
///
/// # Errors
/// Names the system, and the property that is missing, unknown or wrong.
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

/// A system's properties in a form, those of the system that it is derived from included.
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
