//! Reads the curves of the microbenchmarks from the file `curves.toml`.
//!
//! Invariant: a point of the file has the fields of its curve's base, except for the fields that
//! the point itself sets. Each label is unique on its curve, so that a published figure can name
//! the point to which it belongs.

use super::{Point, name_of};
use serde::de::{Deserialize, Deserializer, Error};
use std::sync::LazyLock;
use tarn_fabric::round::VerbKind;
use toml::{Table, Value};

/// A curve: a series of points that vary one parameter.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(from = "Stated")]
pub struct Curve {
    /// The curve's name on the command line.
    pub name: String,
    /// A description of the curve.
    pub about: String,
    /// The curve's points, each with the label of its varied parameter.
    pub points: Vec<(String, Point)>,
}

/// All curves, in the order in which they are shown.
pub static CURVES: LazyLock<Vec<Curve>> = LazyLock::new(|| {
    #[derive(serde::Deserialize)]
    struct File {
        curve: Vec<Curve>,
    }
    toml::from_str::<File>(include_str!("curves.toml")).expect("a file of this program").curve
});

/// A curve in the form in which the file states it.
#[derive(serde::Deserialize)]
struct Stated {
    name: String,
    about: String,
    /// The kind of the curve's points: `verbs` or `calls`.
    of: String,
    base: Table,
    points: Vec<Table>,
}

impl From<Stated> for Curve {
    fn from(Stated { name, about, of, base, points }: Stated) -> Curve {
        let point = |own: Table| {
            let mut all = base.clone();
            all.extend(own);
            let Some(Value::String(label)) = all.remove("label") else { panic!("no label: {all}") };
            let stated = Value::Table(Table::from_iter([(of.clone(), Value::Table(all))]));
            let point =
                stated.try_into().unwrap_or_else(|error| panic!("{name}, {label}: {error}"));
            (label, point)
        };
        let points = points.into_iter().map(point).collect();
        Curve { name, about, points }
    }
}

impl Curve {
    /// Returns the curve's point with this label.
    ///
    /// # Panics
    /// Panics if the curve has no point with this label.
    pub fn point(&self, label: &str) -> Point {
        let found = self.points.iter().find(|(known, _)| known == label);
        found.unwrap_or_else(|| panic!("no point {label} on the curve {}", self.name)).1
    }

    /// Returns the label of this point of the curve.
    pub fn varied(&self, point: Point) -> &str {
        self.points.iter().find(|(_, known)| *known == point).map_or("", |(label, _)| label)
    }
}

/// Returns the curve with this name.
///
/// # Panics
/// Panics if no curve has this name.
pub fn curve(name: &str) -> &'static Curve {
    let found = CURVES.iter().find(|curve| curve.name == name);
    found.unwrap_or_else(|| panic!("no curve {name}"))
}

/// Reads a verb's kind from the verb's name.
pub(super) fn verb_named<'de, D: Deserializer<'de>>(from: D) -> Result<VerbKind, D::Error> {
    use VerbKind::{CompareAndSwap, FetchAndAdd, Read, Write};
    let name = String::deserialize(from)?;
    let all = [Read, Write, CompareAndSwap, FetchAndAdd];
    let verb = all.into_iter().find(|verb| name_of(*verb) == name);
    verb.ok_or_else(|| D::Error::custom(format!("verb = {name}; allowed: read, write, cas, faa")))
}
