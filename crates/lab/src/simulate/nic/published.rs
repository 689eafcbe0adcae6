//! Figures of real NICs, with their citations, as `figures.toml` states them.
//!
//! Invariant: nothing here is used by the model. A figure that a constant of the profile was taken from says so, because
//! the model cannot miss it; the others test it. A miss that is understood is explained where the figure stands.

use super::{Found, Point, curves::curve};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tarn_sim::profile::{Profile, Standing};

/// The property of a point that was published.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Millions a second.
    #[default]
    Rate,
    /// Median latency, in microseconds.
    Latency,
    /// The rate in multiples of the rate of another point of the curve.
    Gain(String),
}

/// A published figure.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// On which hardware.
    pub profile: String,
    /// On which curve it stands.
    pub curve: String,
    /// At which point of the curve, by its label.
    pub point: String,
    /// Which property of the point was measured.
    #[serde(default)]
    pub quantity: Quantity,
    /// In the quantity's unit.
    pub value: f64,
    /// The publication, by its name in the file.
    source: String,
    /// The constant of the profile that was taken from it, or fitted to it.
    pub rests_on: Option<String>,
    /// Why the model misses it, if that is known; by its name in the file.
    miss: Option<String>,
}

impl Figure {
    /// The point that it was measured at.
    pub fn of(&self) -> Point {
        curve(&self.curve).point(&self.point)
    }
}

/// `figures.toml`.
#[derive(Deserialize)]
struct File {
    figures: Vec<Figure>,
    sources: BTreeMap<String, String>,
    misses: BTreeMap<String, String>,
}

static FILE: LazyLock<File> =
    LazyLock::new(|| toml::from_str(include_str!("figures.toml")).expect("a file of this program"));

/// All of them.
pub fn figures() -> &'static [Figure] {
    &FILE.figures
}

/// A published figure beside the model's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// The property that is compared.
    pub quantity: &'static str,
    /// The model's figure.
    pub model: f64,
    /// The published one.
    pub published: f64,
    /// The model's figure over the published one.
    pub ratio: f64,
    /// The publication.
    pub source: &'static str,
    /// `measured`, `derived` or `assumed`, as the constant that rests on it; else `predicted`.
    pub standing: &'static str,
    /// That constant.
    pub rests_on: Option<&'static str>,
    /// Why the model misses it, if it does and that is known.
    pub miss: Option<&'static str>,
}

/// A standing in one word.
pub fn standing_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Measured => "measured",
        Standing::Derived => "derived",
        Standing::Assumed => "assumed",
    }
}

/// Within this a figure is met.
const MET: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// Returns the figures that were published of `point` on this hardware, beside the model's; `rate_of` runs another point.
pub(super) fn beside<E>(
    profile: &Profile,
    point: Point,
    found: &Found,
    rate_of: impl Fn(Point) -> Result<f64, E>,
) -> Result<Vec<Beside>, E> {
    let of_point = |figure: &&Figure| figure.profile == profile.name && figure.of() == point;
    let figures = figures().iter().filter(of_point);
    let each = figures.map(|figure| {
        let (quantity, model) = match &figure.quantity {
            Quantity::Rate => ("M/s", found.rate_mops),
            Quantity::Latency => ("µs", found.latency_us.p50),
            Quantity::Gain(other) => {
                let other = curve(&figure.curve).point(other);
                ("times the rate of half as many", found.rate_mops / rate_of(other)?)
            }
        };
        Ok(compare(profile, figure, quantity, model))
    });
    each.collect()
}

fn compare(
    profile: &Profile,
    figure: &'static Figure,
    quantity: &'static str,
    model: f64,
) -> Beside {
    let constants = profile.constants();
    let rests_on = figure.rests_on.as_deref();
    let named = constants
        .iter()
        .find(|listed| Some(&*format!("{}.{}", listed.section, listed.name)) == rests_on);
    let ratio = model / figure.value;
    Beside {
        quantity,
        model,
        published: figure.value,
        ratio,
        source: &FILE.sources[&figure.source],
        standing: named.map_or("predicted", |listed| standing_name(listed.constant.standing)),
        rests_on,
        miss: figure.miss.as_ref().filter(|_| !MET.contains(&ratio)).map(|it| &*FILE.misses[it]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_name_profiles_and_constants_that_there_are() {
        for figure in figures() {
            let profile = Profile::load(&figure.profile).expect("a profile");
            let beside = compare(&profile, figure, "", figure.value);
            assert_eq!((beside.ratio, beside.miss), (1.0, None));
            assert_eq!(beside.standing == "predicted", figure.rests_on.is_none(), "{figure:?}");
        }
    }
}
