//! A target is a published figure of a paper's evaluation, with the rule that compares a simulated figure with this
//! published figure.
//!
//! Invariant: values in percent are compared as factors. For example, a latency cut of 36.7 % is the factor 0.633,
//! and a gain of 9 % is the factor 1.09. A simulated value agrees if its factor is within the tolerance and on the
//! same side of 1 as the published factor. The rule for agreement is the same for all systems.

use crate::reproduce::row::{Published, Relation, Verdict};
use crate::reproduce::text::kept_from;
use serde::{Deserialize, Deserializer};

/// The unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A factor: the ratio of one value to another.
    Times,
    /// A reduction of one value against another value, in percent.
    CutPercent,
    /// An increase of one value over another value, in percent.
    GainPercent,
    /// A counted or measured quantity, with the name of its unit.
    Of(&'static str),
}

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Unit, D::Error> {
        let name = kept_from(from)?;
        let factors = [Unit::Times, Unit::CutPercent, Unit::GainPercent];
        let found = factors.into_iter().find(|unit| unit.name() == name);
        Ok(found.unwrap_or(Unit::Of(name)))
    }
}

impl Unit {
    /// Returns the value as a factor; a counted value is returned unchanged.
    pub fn factor(self, value: f64) -> f64 {
        match self {
            Unit::CutPercent => 1.0 - value / 100.0,
            Unit::GainPercent => 1.0 + value / 100.0,
            Unit::Times | Unit::Of(_) => value,
        }
    }

    /// Returns the value in this unit that corresponds to a factor.
    pub fn value(self, factor: f64) -> f64 {
        match self {
            Unit::CutPercent => 100.0 * (1.0 - factor),
            Unit::GainPercent => 100.0 * (factor - 1.0),
            Unit::Times | Unit::Of(_) => factor,
        }
    }

    /// Returns whether the unit compares two systems, so that factors above 1 and below 1 mean different winners.
    fn has_winner(self) -> bool {
        !matches!(self, Unit::Of(_))
    }

    /// Returns a value as text that names the direction: a negative reduction is shown as an increase. If a value has
    /// more than doubled, the text shows the factor.
    pub fn say(self, value: f64) -> String {
        let number = super::report::number;
        let factor = self.factor(value);
        match self {
            Unit::CutPercent | Unit::GainPercent if factor >= 2.0 => {
                format!("{} times", number(factor))
            }
            Unit::CutPercent | Unit::GainPercent => {
                let (percent, side) =
                    (100.0 * (factor - 1.0), if factor > 1.0 { "more" } else { "less" });
                format!("{} % {side}", number(percent.abs()))
            }
            Unit::Times => format!("{} ×", number(value)),
            Unit::Of(_) => number(value),
        }
    }

    /// Returns the name of the counted quantity, which headings show. The name is empty if the text of a value
    /// already contains it.
    pub fn counted(self) -> &'static str {
        match self {
            Unit::Of(name) => name,
            _ => "",
        }
    }

    /// Returns the unit's text that follows a value.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Times => "×",
            Unit::CutPercent => "% less",
            Unit::GainPercent => "% more",
            Unit::Of(name) => name,
        }
    }
}

/// The kinds of systems in a row. The kinds of systems in a row determine which column decides the row's verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// The paper's own system, alone or compared with other systems.
    Own,
    /// Only systems to which the paper compares its own system.
    Baselines,
}

/// One figure that the paper publishes, and the rule for its comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Target {
    /// The number of the paper's figure or section.
    pub figure: &'static str,
    /// The workload's name.
    pub workload: &'static str,
    /// The measured quantity and the names of the measured systems.
    pub metric: &'static str,
    /// The unit of the value.
    pub unit: Unit,
    /// The published value, and its place in the paper.
    pub published: Published,
    /// The kinds of systems in the row of this figure.
    pub party: Party,
    /// The allowed deviation, as a share of the published factor.
    pub tolerance: f64,
}

impl Target {
    /// Returns the ratio of the simulated value to the published value, both as factors.
    pub fn ratio(&self, simulated: f64) -> f64 {
        self.unit.factor(simulated) / self.unit.factor(self.published.value())
    }

    /// Returns whether the simulated value as a factor is on the same side of 1 as the published value; `None` for a
    /// unit without a winner.
    pub fn winner_holds(&self, simulated: f64) -> Option<bool> {
        let published = self.unit.factor(self.published.value());
        let is_decided = self.unit.has_winner() && self.published.relation == Relation::Equal;
        is_decided.then(|| (published > 1.0) == (self.unit.factor(simulated) > 1.0))
    }

    /// Returns the verdict on a simulated value, by the rule at the top of this file.
    pub fn verdict(&self, simulated: f64) -> Verdict {
        let (factor, value) = (self.unit.factor(simulated), self.published.value());
        let agrees = match self.published.relation {
            Relation::Below => factor < self.unit.factor(value),
            Relation::Above => factor > self.unit.factor(value),
            Relation::Equal => {
                let is_near = (self.ratio(simulated) - 1.0).abs() <= self.tolerance + 1e-9;
                is_near && self.winner_holds(simulated) != Some(false)
            }
        };
        if agrees { Verdict::Agrees } else { Verdict::Misses }
    }
}

/// Makes a stated value of the paper's own system, for tests.
#[cfg(test)]
pub(super) fn stated(
    (figure, workload): (&'static str, &'static str),
    metric: &'static str,
    unit: Unit,
    value: f64,
    source: &'static str,
) -> Target {
    let published = Published::stated(value, source);
    let tolerance = crate::reproduce::row::TOLERANCE;
    Target { figure, workload, metric, unit, published, party: Party::Own, tolerance }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(unit: Unit, value: f64) -> Target {
        stated(("Figure 0", "W"), "m", unit, value, "somewhere")
    }

    #[test]
    fn percentages_are_compared_as_the_factors_that_they_stand_for() {
        let cut = of(Unit::CutPercent, 50.0);
        assert!((cut.ratio(60.0) - 0.8).abs() < 1e-12);
        assert_eq!([40.0, 60.0].map(|it| cut.verdict(it)), [Verdict::Agrees; 2]);
        assert_eq!([30.0, 70.0].map(|it| cut.verdict(it)), [Verdict::Misses; 2]);
        let gain = of(Unit::GainPercent, 9.0);
        assert!((gain.ratio(9.0) - 1.0).abs() < 1e-12);
        for unit in [Unit::Times, Unit::CutPercent, Unit::GainPercent, Unit::Of("ms")] {
            assert!((unit.value(unit.factor(12.5)) - 12.5).abs() < 1e-9, "{unit:?}");
        }
    }

    #[test]
    fn values_are_said_without_a_sign_that_turns_their_word_around() {
        let said = [
            (Unit::CutPercent, 36.7, "36.7 % less"),
            (Unit::CutPercent, -5.2, "5.20 % more"),
            (Unit::CutPercent, -805.0, "9.05 times"),
            (Unit::CutPercent, 0.0, "0.00 % less"),
            (Unit::GainPercent, 9.0, "9.00 % more"),
            (Unit::GainPercent, -80.0, "80.0 % less"),
            (Unit::GainPercent, 99.0, "99.0 % more"),
            (Unit::GainPercent, 150.0, "2.50 times"),
            (Unit::Times, 2.1, "2.10 ×"),
            (Unit::Of("ms"), 250.0, "250"),
        ];
        for (unit, value, expected) in said {
            assert_eq!(unit.say(value), expected, "{unit:?} {value}");
        }
    }

    #[test]
    fn a_value_near_the_published_one_misses_if_another_wins() {
        let gain = of(Unit::GainPercent, 9.0);
        assert_eq!(gain.verdict(1.0), Verdict::Agrees);
        assert_eq!((gain.verdict(-1.0), gain.winner_holds(-1.0)), (Verdict::Misses, Some(false)));
        // LOTUS's median latency on TPC-C is 5.2 % longer than Motor's, so LOTUS must also lose in
        // the simulation.
        let lost = of(Unit::CutPercent, -5.2);
        assert_eq!((lost.verdict(-4.0), lost.verdict(4.0)), (Verdict::Agrees, Verdict::Misses));
        assert_eq!(of(Unit::Of("ms"), 2.0).winner_holds(0.5), None);
    }

    #[test]
    fn bounds_have_one_side_and_a_headline_is_held_more_narrowly() {
        let bound = |relation| {
            let of = of(Unit::Times, 1.0);
            Target { published: Published { relation, ..of.published }, ..of }
        };
        let falls = bound(Relation::Below);
        assert_eq!((falls.verdict(0.2), falls.verdict(1.0)), (Verdict::Agrees, Verdict::Misses));
        let rises = bound(Relation::Above);
        assert_eq!((rises.verdict(9.0), rises.verdict(1.0)), (Verdict::Agrees, Verdict::Misses));
        let headline = Target { tolerance: 0.15, ..of(Unit::Times, 2.1) };
        assert_eq!(
            (headline.verdict(2.4), headline.verdict(2.5)),
            (Verdict::Agrees, Verdict::Misses)
        );
    }
}
