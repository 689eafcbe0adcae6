//! A published value beside a simulated one.
//!
//! Invariant: a row is never left out. One that misses says which parts were busiest; one that cannot be
//! simulated says why. Whether a value agrees is decided by [`TOLERANCE`] and nothing else.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A simulated value agrees if it is within a quarter of the published one, or of its range.
pub const TOLERANCE: f64 = 0.25;

/// How a simulated value is held against the published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The same.
    Equal,
    /// Smaller.
    Below,
    /// Larger.
    Above,
}

/// Where a published value stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// In the paper's text.
    Stated,
    /// Arithmetic on values in the paper's text.
    Derived,
}

/// A published value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Published {
    /// Lowest and highest, often the same.
    pub range: (f64, f64),
    /// How a simulated value is held against it.
    pub relation: Relation,
    /// Said, or derived.
    pub standing: Standing,
    /// Where, and how it was derived.
    pub source: &'static str,
}

impl Published {
    /// A value from the paper's text.
    pub const fn stated(value: f64, source: &'static str) -> Published {
        let (range, relation) = ((value, value), Relation::Equal);
        Published { range, relation, standing: Standing::Stated, source }
    }

    /// The middle of the range: ratios are of this value.
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
    /// The value, the bound or the range, each number as `say` says it.
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

/// How a row came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the tolerance, or on the right side.
    Agrees,
    /// Not.
    Misses,
    /// There is nothing to hold against it yet.
    NotSimulated,
}

/// See the module's text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The measured quantity, the system, the unit.
    pub metric: String,
    /// The published value.
    pub published: Published,
    /// The series that it is held against.
    pub series: Option<&'static str>,
    /// The simulated value.
    pub simulated: Option<f64>,
    /// Simulated over published; of a range, over its middle.
    pub ratio: Option<f64>,
    /// Whether they agree.
    pub verdict: Verdict,
    /// The parts that were busiest; or why there is no figure.
    pub why: String,
}

impl Row {
    /// A value of `series`, whose busiest parts `why` tells.
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

    /// A value that nothing can be held against.
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
