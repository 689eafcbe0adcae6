//! Makes the rows of a page. Each row shows a published figure beside the simulated figures.
//!
//! Invariant: a row consists of one published figure and of the simulated values or reasons of all forms. If a form
//! has no simulated value, the row states the reason instead of a number.

use super::bars::Bars;
use super::case::Missing;
use super::data::Columns;
use super::report::verdict_name;
use super::target::{Party, Target, Unit};
use crate::reproduce::row::{Published, Verdict};
use crate::sweep::chart::Chart;
use serde::{Serialize, Serializer};

/// A simulated value, and the resource that limited it.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The simulated value: a factor, or the counted number itself.
    pub value: f64,
    /// A description of the resource that limited the value.
    pub busy: String,
    /// If the result is a position on an axis, the position at which the value was found.
    pub(super) told: Option<f64>,
}

impl Found {
    /// Makes a result from a value and a description of the resource that limited the value.
    pub(in crate::reproduce) fn of(value: f64, busy: String) -> Found {
        Found { value, busy, told: None }
    }
}

/// A simulated value, or the reason for which it is missing.
pub type Answer = Result<Found, Missing>;

/// The simulated values of a row, one for each column.
#[derive(Clone, PartialEq, Debug)]
pub struct Values(pub Vec<(&'static str, Option<f64>)>);

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().copied())
    }
}

/// The comparison of a column's simulated value with the published value, for a column that does not decide the row's
/// verdict.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// The name of the column.
    pub column: &'static str,
    /// The ratio of the column's value to the published value, both as factors.
    pub ratio: Option<f64>,
    /// Whether the column's value agrees with the published value.
    pub verdict: Verdict,
    /// Whether the published winner also wins in the simulation.
    pub winner_holds: Option<bool>,
}

impl Beside {
    fn of(target: &Target, column: &'static str, answer: &Answer) -> Beside {
        let value = answer.as_ref().ok().map(|found| target.unit.value(found.value));
        Beside {
            column,
            ratio: value.map(|value| target.ratio(value)),
            verdict: value.map_or(Verdict::NotSimulated, |value| target.verdict(value)),
            winner_holds: value.and_then(|value| target.winner_holds(value)),
        }
    }
}

/// Why a row is no evidence for the model, and is counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Apart {
    /// The simulated value follows from an input of the model: the text names the input.
    FollowsFrom(&'static str),
    /// The paper states no number for this quantity, or only a bound: the text says which.
    NotJudged(&'static str),
}

impl Apart {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Apart::FollowsFrom(_) => "follows from an input",
            Apart::NotJudged(_) => "not judged",
        }
    }

    /// Returns the reason.
    pub fn reason(self) -> &'static str {
        match self {
            Apart::FollowsFrom(text) | Apart::NotJudged(text) => text,
        }
    }
}

/// One row of a page: a published figure beside its simulated figures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The number of the paper's figure.
    pub figure: &'static str,
    /// The workload's name.
    pub workload: &'static str,
    /// The measured quantity and the names of the measured systems.
    pub metric: &'static str,
    /// The name of the values' unit.
    pub unit: &'static str,
    /// The unit, as a type that can format the row's values.
    #[serde(skip)]
    pub said_in: Unit,
    /// The published value.
    pub published: Published,
    /// The simulated value in each form.
    #[serde(flatten)]
    pub values: Values,
    /// The ratio of the deciding column's simulated value to the published value, both as factors.
    pub ratio: Option<f64>,
    /// The name of the column that decides the verdict.
    pub judged_by: &'static str,
    /// Whether the row contains only systems to which the paper compares its own system, so that
    /// another column may decide.
    #[serde(skip)]
    pub is_of_baselines: bool,
    /// A description of the resource that limited the simulated value.
    pub bottleneck: String,
    /// Whether the simulated value agrees with the published value.
    pub verdict: Verdict,
    /// Whether the published winner also wins in the simulation.
    pub winner_holds: Option<bool>,
    /// The reason for a missing simulated value.
    pub why: String,
    /// The cause of a value that misses, if a cause is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// The verdicts on the columns that do not decide, if these columns are judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// If the row is counted apart, the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
}

impl Row {
    /// Makes a row from a published figure and the results of all forms.
    pub(in crate::reproduce) fn of(
        columns: &Columns,
        target: &Target,
        answer: &dyn Fn(&str) -> Answer,
    ) -> Row {
        let column = columns.of(target.party);
        let answers: Vec<Answer> = column.forms.iter().map(|form| answer(form)).collect();
        let decides = &answers[column.decides];
        let found = decides.as_ref().ok();
        let why = match decides {
            Err(Missing(why)) => why.clone(),
            Ok(_) => String::new(),
        };
        let value = |found: &Found| target.unit.value(found.value);
        let names = columns.names.iter().map(|name| name.0);
        let in_column = answers.iter().map(|answer| answer.as_ref().ok().map(value));
        let values = names.clone().zip(in_column.chain(std::iter::repeat(None))).collect();
        let beside = names.zip(&answers).enumerate();
        let beside = beside.filter(|(at, _)| columns.judges_all && *at != column.decides);
        let at = columns.names[column.decides].0;
        Row {
            beside: beside.map(|(_, (name, it))| Beside::of(target, name, it)).collect(),
            figure: target.figure,
            workload: target.workload,
            metric: target.metric,
            unit: target.unit.name(),
            said_in: target.unit,
            published: target.published,
            values: Values(values),
            ratio: found.map(|found| target.ratio(value(found))),
            judged_by: at,
            is_of_baselines: column.decides != columns.of(Party::Own).decides,
            bottleneck: found.map(|found| found.busy.clone()).unwrap_or_default(),
            verdict: found.map_or(Verdict::NotSimulated, |found| target.verdict(value(found))),
            winner_holds: found.and_then(|found| target.winner_holds(value(found))),
            why,
            cause: None,
            apart: None,
        }
    }

    /// Returns the name of the row's verdict. A row that is counted apart has none of the usual verdicts.
    pub(in crate::reproduce) fn verdict_name(&self) -> &'static str {
        let usual = verdict_name(self.verdict, self.winner_holds);
        self.apart.filter(|_| self.ratio.is_some()).map_or(usual, Apart::name)
    }

    /// Returns whether the row is judged, and its deciding value misses.
    pub(in crate::reproduce) fn misses(&self) -> bool {
        self.apart.is_none() && self.verdict == Verdict::Misses
    }

    /// Returns the value in a column, if the column has a value.
    pub fn value(&self, column: &str) -> Option<f64> {
        self.values.0.iter().find(|(name, _)| *name == column).and_then(|(_, value)| *value)
    }
}

/// A drawing of a section.
pub(crate) enum Picture {
    /// A drawing of curves.
    Lines(Chart),
    /// A drawing of groups of bars.
    Bars(Bars),
}

impl Picture {
    /// Returns whether the drawing contains no value.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Picture::Lines(chart) => chart.lines.iter().all(|line| line.marks.is_empty()),
            Picture::Bars(bars) => bars.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::by_name;
    use super::super::target::{Unit, stated};
    use super::*;

    fn found(value: f64) -> Answer {
        Ok(Found::of(value, format!("busy at {value}")))
    }

    #[test]
    fn a_row_with_lotus_is_judged_by_the_corrected_form_and_one_without_by_the_literal_one() {
        let ratio = stated(("Figure 0", "W"), "ratio", Unit::Times, 2.0, "there");
        let rate = stated(("Figure 0", "W"), "rate", Unit::Of("M/s"), 4.0, "there");
        let rate = Target { party: Party::Baselines, ..rate };
        let columns = &by_name("lotus").expect("a paper").columns;
        let [ratio, rate] = [ratio, rate].map(|target| {
            Row::of(columns, &target, &|form| match form {
                "literal" => found(4.0),
                "corrected" => found(2.2),
                _ => found(3.0),
            })
        });
        assert_eq!(
            ["literal", "corrected", "best_form"].map(|it| ratio.value(it)),
            [Some(4.0), Some(2.2), Some(3.0)]
        );
        assert!((ratio.ratio.unwrap() - 1.1).abs() < 1e-9 && ratio.bottleneck == "busy at 2.2");
        assert_eq!(
            ["literal", "corrected", "best_form"].map(|it| rate.value(it)),
            [Some(4.0), Some(3.0), None]
        );
        assert_eq!((rate.ratio, rate.verdict), (Some(1.0), Verdict::Agrees));
    }

    #[test]
    fn a_missing_answer_has_its_reason_and_no_figure() {
        let target = stated(("Figure 0", "W"), "ratio", Unit::Times, 2.0, "there");
        let columns = &by_name("lotus").expect("a paper").columns;
        let row = Row::of(columns, &target, &|form| match form {
            "literal" => found(2.0),
            _ => Err(Missing("not there".into())),
        });
        assert_eq!((row.value("corrected"), row.ratio), (None, None));
        assert_eq!((row.verdict, row.why.as_str()), (Verdict::NotSimulated, "not there"));
        assert_eq!(row.value("literal"), Some(2.0));
    }
}
