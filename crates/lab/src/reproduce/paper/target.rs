//! A figure of a paper's evaluation as it was published, and how a simulated one is held against it.
//!
//! Invariant: values in percent are compared as the factors that they stand for: a latency cut by 36.7 % as
//! 0.633 times, a gain of 9 % as 1.09 times. A row agrees if its factor is within the tolerance and on the
//! published side of 1; whose figure it is does not matter.

use crate::reproduce::row::{Published, Relation, Verdict};
use crate::reproduce::text::kept_from;
use serde::{Deserialize, Deserializer};

/// The unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// So many times as much.
    Times,
    /// Less by so many percent.
    CutPercent,
    /// More by so many percent.
    GainPercent,
    /// Something that is counted or measured, by its name.
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
    /// The value as a factor; of something counted, itself.
    pub fn factor(self, value: f64) -> f64 {
        match self {
            Unit::CutPercent => 1.0 - value / 100.0,
            Unit::GainPercent => 1.0 + value / 100.0,
            Unit::Times | Unit::Of(_) => value,
        }
    }

    /// The value that a factor stands for.
    pub fn value(self, factor: f64) -> f64 {
        match self {
            Unit::CutPercent => 100.0 * (1.0 - factor),
            Unit::GainPercent => 100.0 * (factor - 1.0),
            Unit::Times | Unit::Of(_) => factor,
        }
    }

    /// Whether a factor above and one below 1 have different winners.
    fn has_winner(self) -> bool {
        !matches!(self, Unit::Of(_))
    }

    /// A value in words, sign and all: less by a negative share is more, and more than doubled is
    /// so many times as much.
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

    /// The counted thing, for a heading beside values in words; empty, if the words say it.
    pub fn counted(self) -> &'static str {
        match self {
            Unit::Of(name) => name,
            _ => "",
        }
    }

    /// As it stands behind a value.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Times => "×",
            Unit::CutPercent => "% less",
            Unit::GainPercent => "% more",
            Unit::Of(name) => name,
        }
    }
}

/// The systems in a row, which decide by which column it is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// The paper's own system, over others or alone.
    Own,
    /// Those that it is compared with, alone.
    Baselines,
}

/// One published figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Target {
    /// The paper's figure or section.
    pub figure: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// The measured quantity, and the systems.
    pub metric: &'static str,
    /// The unit.
    pub unit: Unit,
    /// The published value, and its place in the paper.
    pub published: Published,
    /// Whose figure it is.
    pub party: Party,
    /// So far off it may be, as a share.
    pub tolerance: f64,
}

impl Target {
    /// Simulated over published, as factors.
    pub fn ratio(&self, simulated: f64) -> f64 {
        self.unit.factor(simulated) / self.unit.factor(self.published.value())
    }

    /// Whether the simulated value is on the published side of 1; `None` for a unit without a winner.
    pub fn winner_holds(&self, simulated: f64) -> Option<bool> {
        let published = self.unit.factor(self.published.value());
        let is_decided = self.unit.has_winner() && self.published.relation == Relation::Equal;
        is_decided.then(|| (published > 1.0) == (self.unit.factor(simulated) > 1.0))
    }

    /// See the module's text.
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

/// A stated value of the paper's own system, for tests.
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
        // LOTUS's median on TPC-C is 5.2 % longer than Motor's: that it loses is to be found again.
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
