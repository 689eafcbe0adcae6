//! Reads published figures of real NICs, with their citations, from the file `figures.toml`.
//!
//! Invariant: the model does not use the published figures. If a constant of the profile was derived from a figure,
//! the file names this constant beside the figure. The model necessarily meets such a figure. The figures from which
//! no constant was derived test the model. If the model misses a figure and the cause is known, the file explains the
//! cause beside the figure.

use super::{Found, Point, curves::curve};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tarn_sim::profile::{Profile, Standing};

/// The property of a point that a publication reports.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The rate, in millions of operations per second.
    #[default]
    Rate,
    /// The median latency, in microseconds.
    Latency,
    /// The rate, as a multiple of the rate of another point of the curve.
    Gain(String),
}

/// A figure that a publication reports for real hardware.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The profile of the hardware on which the figure was measured.
    pub profile: String,
    /// The name of the curve to which the figure belongs.
    pub curve: String,
    /// The label of the curve's point at which the figure was measured.
    pub point: String,
    /// The property of the point that the publication reports: a rate, a latency, or a ratio of two rates.
    #[serde(default)]
    pub quantity: Quantity,
    /// The figure's value, in the quantity's unit.
    pub value: f64,
    /// The publication, by its name in the file.
    source: String,
    /// The constant of the profile that was derived from this figure, or fitted to it.
    pub rests_on: Option<String>,
    /// The name of the explanation, in the file, of the model's miss of this figure; `None` if no
    /// explanation is known.
    miss: Option<String>,
}

impl Figure {
    /// Returns the curve's point at which the figure was measured.
    pub fn of(&self) -> Point {
        curve(&self.curve).point(&self.point)
    }
}

/// The contents of `figures.toml`.
#[derive(Deserialize)]
struct File {
    figures: Vec<Figure>,
    sources: BTreeMap<String, String>,
    misses: BTreeMap<String, String>,
}

static FILE: LazyLock<File> =
    LazyLock::new(|| toml::from_str(include_str!("figures.toml")).expect("a file of this program"));

/// Returns all published figures.
pub fn figures() -> &'static [Figure] {
    &FILE.figures
}

/// A published figure beside the model's figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// The property for which the two figures are compared.
    pub quantity: &'static str,
    /// The model's figure.
    pub model: f64,
    /// The published figure.
    pub published: f64,
    /// The ratio of the model's figure to the published figure.
    pub ratio: f64,
    /// The publication's citation.
    pub source: &'static str,
    /// The evidence for the constant that was derived from this figure: `measured`, `derived` or
    /// `assumed`. A figure from which no constant was derived is `predicted`.
    pub standing: &'static str,
    /// The constant that was derived from this figure.
    pub rests_on: Option<&'static str>,
    /// The explanation of the model's miss, if the model misses the figure and the cause is known.
    pub miss: Option<&'static str>,
}

/// Returns the name of a constant's evidence, in one word.
pub fn standing_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Measured => "measured",
        Standing::Derived => "derived",
        Standing::Assumed => "assumed",
    }
}

/// If the ratio of the model's figure to the published figure is within this range, the model meets the figure.
const MET: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// Returns the figures that were published for `point` on this hardware, beside the model's figures. The function
/// calls `rate_of` to get the rate of another point.
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
