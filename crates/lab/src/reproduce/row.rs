//! Compares a published value with a simulated value, as a row of a report.
//!
//! Invariant: a row is never omitted. If the two values differ too much, the row names the busiest hardware parts. If
//! the value cannot be simulated, the row states the reason. Only [`TOLERANCE`] decides whether the values agree.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A simulated value agrees if it differs from the published value, or from the published range, by
/// at most a quarter.
pub const TOLERANCE: f64 = 0.25;

/// The relation that a simulated value must have to the published value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The simulated value must equal the published value, within the tolerance.
    Equal,
    /// The simulated value must be smaller than the published value.
    Below,
    /// The simulated value must be larger than the published value.
    Above,
}

/// The origin of a published value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The paper's text states the value.
    Stated,
    /// The value was computed from values in the paper's text.
    Derived,
}

/// A value that a paper reports.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Published {
    /// The lowest and the highest value, which are often equal.
    pub range: (f64, f64),
    /// The relation that a simulated value must have to this value.
    pub relation: Relation,
    /// The origin of the value: stated or derived.
    pub standing: Standing,
    /// The place of the value in the paper, and, for a derived value, its computation.
    pub source: &'static str,
}

impl Published {
    /// Makes a value that the paper's text states.
    pub const fn stated(value: f64, source: &'static str) -> Published {
        let (range, relation) = ((value, value), Relation::Equal);
        Published { range, relation, standing: Standing::Stated, source }
    }

    /// Returns the middle of the range; ratios are computed with this value.
    pub fn value(&self) -> f64 {
        f64::midpoint(self.range.0, self.range.1)
    }

    fn agrees(&self, simulated: f64) -> bool {
        let (low, high) = self.range;
        match self.relation {
            Relation::Equal => {
                (low * (1.0 - TOLERANCE)..=high * (1.0 + TOLERANCE)).contains(&simulated)
            }
            Relation::Below => simulated < high,
            Relation::Above => simulated > low,
        }
    }
}

impl Published {
    /// Returns the value, the bound or the range as text; `say` formats each number.
    pub fn in_words(&self, say: &dyn Fn(f64) -> String) -> String {
        let (low, high) = self.range;
        match self.relation {
            Relation::Below => format!("< {}", say(high)),
            Relation::Above => format!("> {}", say(low)),
            Relation::Equal if low == high => say(low),
            Relation::Equal => format!("{}–{}", say(low), say(high)),
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&brief))
    }
}

fn brief(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The result of the comparison of a row's two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The simulated value is within the tolerance, or on the required side of the bound.
    Agrees,
    /// The simulated value is outside the tolerance, or on the wrong side of the bound.
    Misses,
    /// No simulated value exists yet for the comparison.
    NotSimulated,
}

/// One row of a report: a published value beside a simulated value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The names of the measured quantity, of the system, and of the unit.
    pub metric: String,
    /// The published value.
    pub published: Published,
    /// The series that gives the simulated value.
    pub series: Option<&'static str>,
    /// The simulated value.
    pub simulated: Option<f64>,
    /// The ratio of the simulated value to the published value, or to the middle of the published
    /// range.
    pub ratio: Option<f64>,
    /// Whether the simulated value agrees with the published value.
    pub verdict: Verdict,
    /// The names of the busiest hardware parts, or the reason for a missing simulated value.
    pub why: String,
}

impl Row {
    /// Makes a row with a value of `series`; `why` names the busiest hardware parts during this series.
    pub fn of(
        metric: &str,
        published: Published,
        series: &'static str,
        simulated: f64,
        why: String,
    ) -> Row {
        let verdict = if published.agrees(simulated) { Verdict::Agrees } else { Verdict::Misses };
        Row {
            metric: metric.to_owned(),
            published,
            series: Some(series),
            simulated: Some(simulated),
            ratio: Some(simulated / published.value()),
            verdict,
            why,
        }
    }

    /// Makes a row for a published value that cannot be simulated.
    pub fn not_simulated(metric: &str, published: Published, why: &str) -> Row {
        Row {
            metric: metric.to_owned(),
            published,
            series: None,
            simulated: None,
            ratio: None,
            verdict: Verdict::NotSimulated,
            why: why.to_owned(),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = self.simulated.map_or_else(|| "–".to_owned(), brief);
        let ratio = self.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let verdict = match self.verdict {
            Verdict::Agrees => "agrees",
            Verdict::Misses => "MISSES",
            Verdict::NotSimulated => "not simulated",
        };
        let published = self.published.to_string();
        writeln!(f, "  {}", self.metric)?;
        writeln!(
            f,
            "    published {published:>9}   simulated {simulated:>6}   ratio {ratio:>5}   {verdict}"
        )?;
        let derived = match self.published.standing {
            Standing::Stated => "",
            Standing::Derived => "derived: ",
        };
        writeln!(f, "    {derived}{}", self.published.source)?;
        match self.why.is_empty() {
            true => Ok(()),
            false => writeln!(f, "    {}", self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_off_agrees_and_more_misses() {
        let published = Published::stated(100.0, "somewhere");
        let verdict = |simulated| Row::of("m", published, "s", simulated, String::new()).verdict;
        assert_eq!([125.0, 75.0].map(verdict), [Verdict::Agrees; 2]);
        assert_eq!([126.0, 74.0].map(verdict), [Verdict::Misses; 2]);
        let row = Row::of("m", published, "s", 50.0, "busy".into());
        assert_eq!(row.ratio, Some(0.5));
        assert!(row.to_string().contains("MISSES") && row.to_string().contains("busy"));
    }

    #[test]
    fn a_bound_has_one_side() {
        let below = Published { relation: Relation::Below, ..Published::stated(2.4, "there") };
        let verdict = |simulated| Row::of("m", below, "s", simulated, String::new()).verdict;
        assert_eq!(
            [1.0, 2.39, 2.4].map(verdict),
            [Verdict::Agrees, Verdict::Agrees, Verdict::Misses]
        );
        let none = Row::not_simulated("m", below, "no such protocol yet");
        assert_eq!((none.simulated, none.verdict), (None, Verdict::NotSimulated));
        assert!(none.to_string().contains("no such protocol yet"));
    }
}
