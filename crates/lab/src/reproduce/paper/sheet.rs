//! Rows: a published figure beside the simulated ones.
//!
//! Invariant: a row is made of one target and of what came of it in each form; a form that has no figure has
//! the reason in its place, never a number. Each target of a section is filled exactly once.

use super::bars::Bars;
use super::case::Missing;
use super::target::{Party, Target, Unit};
use crate::reproduce::row::{Published, Verdict};
use crate::sweep::chart::Chart;
use serde::{Serialize, Serializer};
use std::marker::PhantomData;

/// A simulated value, and what was busiest.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// A factor, or, of something counted, itself.
    pub value: f64,
    /// In words.
    pub busy: String,
}

/// A value, or why there is none.
pub type Answer = Result<Found, Missing>;

/// In which forms a paper's systems run, and which columns of a row they stand in.
pub trait Columns: Copy + 'static {
    /// Names of the columns.
    const NAMES: &'static [&'static str];

    /// The form that stands in each column, if any does.
    fn of(party: Party) -> Vec<Option<Self>>;

    /// The column that decides.
    fn decides(party: Party) -> usize;

    /// Whether the other columns are judged, too, and shown beside it; they decide nothing.
    const JUDGES_ALL: bool = false;
}

/// A row's values by column.
#[derive(Clone, PartialEq, Debug)]
pub struct Values(pub Vec<(&'static str, Option<f64>)>);

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().copied())
    }
}

/// How a column came out that does not decide.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// Which.
    pub column: &'static str,
    /// Of it over the published value, as factors.
    pub ratio: Option<f64>,
    /// Whether it agrees.
    pub verdict: Verdict,
    /// Whether the published winner wins.
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

/// See the module's text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The paper's figure.
    pub figure: &'static str,
    /// What ran.
    pub workload: &'static str,
    /// What was measured, of whom.
    pub metric: &'static str,
    /// In what.
    pub unit: &'static str,
    /// The same, for words.
    #[serde(skip)]
    pub said_in: Unit,
    /// What the paper says.
    pub published: Published,
    /// What came out, in each form.
    #[serde(flatten)]
    pub values: Values,
    /// Of the deciding column over the published value, as factors.
    pub ratio: Option<f64>,
    /// Which column decides.
    pub judged_by: &'static str,
    /// Whether another column decides than where the paper's own system is in the row.
    #[serde(skip)]
    pub is_of_baselines: bool,
    /// What was busiest in it.
    pub bottleneck: String,
    /// Whether it agrees.
    pub verdict: Verdict,
    /// Whether the published winner wins.
    pub winner_holds: Option<bool>,
    /// Why there is no figure.
    pub why: String,
    /// The other columns, where they are judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
}

impl Row {
    /// Of what came out in each form.
    pub fn of<F: Columns>(target: &Target, answer: &dyn Fn(F) -> Answer) -> Row {
        let answers: Vec<Option<Answer>> =
            F::of(target.party).into_iter().map(|form| form.map(answer)).collect();
        let at = F::decides(target.party);
        let decides = answers[at].as_ref().expect("what decides has a form");
        let found = decides.as_ref().ok();
        let why = match decides {
            Err(Missing(why)) => why.clone(),
            Ok(_) => String::new(),
        };
        let value = |found: &Found| target.unit.value(found.value);
        let in_column = |it: &Option<Answer>| it.as_ref()?.as_ref().ok().map(value);
        let values = F::NAMES.iter().copied().zip(answers.iter().map(in_column)).collect();
        let beside = F::NAMES.iter().zip(&answers).enumerate();
        let beside = beside.filter(|(column, _)| F::JUDGES_ALL && *column != at);
        let beside =
            beside.filter_map(|(_, (name, it))| Some(Beside::of(target, name, it.as_ref()?)));
        Row {
            beside: beside.collect(),
            figure: target.figure,
            workload: target.workload,
            metric: target.metric,
            unit: target.unit.name(),
            said_in: target.unit,
            published: target.published,
            values: Values(values),
            ratio: found.map(|found| target.ratio(value(found))),
            judged_by: F::NAMES[at],
            is_of_baselines: at != F::decides(Party::Own),
            bottleneck: found.map(|found| found.busy.clone()).unwrap_or_default(),
            verdict: found.map_or(Verdict::NotSimulated, |found| target.verdict(value(found))),
            winner_holds: found.and_then(|found| target.winner_holds(value(found))),
            why,
        }
    }

    /// The value in a column, if it has one.
    pub fn value(&self, column: &str) -> Option<f64> {
        self.values.0.iter().find(|(name, _)| *name == column).and_then(|(_, value)| *value)
    }
}

/// A drawing.
pub(crate) enum Picture {
    /// Curves.
    Lines(Chart),
    /// Groups of bars.
    Bars(Bars),
}

/// What a section puts on the page.
pub struct Sheet<F> {
    forms: PhantomData<F>,
    targets: &'static [Target],
    rows: Vec<Option<Row>>,
    pictures: Vec<Picture>,
    notes: Vec<String>,
}

impl<F: Columns> Sheet<F> {
    /// Nothing yet.
    pub fn new(targets: &'static [Target]) -> Sheet<F> {
        let rows = vec![None; targets.len()];
        Sheet { forms: PhantomData, targets, rows, pictures: Vec::new(), notes: Vec::new() }
    }

    /// Fills the target of this workload and metric.
    ///
    /// # Panics
    /// If there is no such target, or it is filled: a mistake in a figure's file.
    pub fn fill(&mut self, workload: &str, metric: &str, answer: &dyn Fn(F) -> Answer) {
        let is_it = |target: &Target| target.workload == workload && target.metric == metric;
        let at = self.targets.iter().position(is_it);
        let at = at.unwrap_or_else(|| panic!("{workload}: {metric} is not published"));
        assert!(self.rows[at].is_none(), "{workload}: {metric} is filled twice");
        self.rows[at] = Some(Row::of(&self.targets[at], answer));
    }

    /// Adds a drawing, unless there is nothing in it.
    pub(crate) fn draw(&mut self, picture: Picture) {
        let is_empty = match &picture {
            Picture::Lines(chart) => chart.lines.iter().all(|line| line.marks.is_empty()),
            Picture::Bars(bars) => bars.is_empty(),
        };
        if !is_empty {
            self.pictures.push(picture);
        }
    }

    /// Adds what a reader has to know.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// All of it.
    ///
    /// # Panics
    /// If a target was left out.
    pub(crate) fn done(self) -> (Vec<Row>, Vec<Picture>, Vec<String>) {
        let rows = self.rows.into_iter().zip(self.targets);
        let rows = rows.map(|(row, target)| {
            row.unwrap_or_else(|| panic!("{}: {} was left out", target.workload, target.metric))
        });
        (rows.collect(), self.pictures, self.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::{Unit, stated};
    use super::*;
    use crate::reproduce::lotus::entrant::Form;

    const TWO: &[Target] = &[
        stated(("Figure 0", "W"), "ratio", Unit::Times, 2.0, "there"),
        stated(("Figure 0", "W"), "rate", Unit::Of("M/s"), 4.0, "there").of_baselines(),
    ];

    fn found(value: f64) -> Answer {
        Ok(Found { value, busy: format!("busy at {value}") })
    }

    #[test]
    fn a_row_with_lotus_is_judged_by_the_corrected_form_and_one_without_by_the_literal_one() {
        let mut sheet = Sheet::<Form>::new(TWO);
        for metric in ["ratio", "rate"] {
            sheet.fill("W", metric, &|form| match form {
                Form::Literal => found(4.0),
                Form::Corrected => found(2.2),
                Form::Best => found(3.0),
            });
        }
        let (rows, ..) = sheet.done();
        let [ratio, rate] = &rows[..] else { panic!("{rows:?}") };
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
    fn what_is_missing_has_its_reason_and_no_figure() {
        let mut sheet = Sheet::<Form>::new(&TWO[..1]);
        sheet.fill("W", "ratio", &|form| match form {
            Form::Literal => found(2.0),
            _ => Err(Missing("not there".into())),
        });
        let (rows, ..) = sheet.done();
        assert_eq!((rows[0].value("corrected"), rows[0].ratio), (None, None));
        assert_eq!((rows[0].verdict, rows[0].why.as_str()), (Verdict::NotSimulated, "not there"));
        assert_eq!(rows[0].value("literal"), Some(2.0));
    }

    #[test]
    #[should_panic(expected = "W: rate was left out")]
    fn a_target_that_is_left_out_is_noticed() {
        let mut sheet = Sheet::<Form>::new(TWO);
        sheet.fill("W", "ratio", &|_| found(1.0));
        sheet.done();
    }

    #[test]
    #[should_panic(expected = "W: ratio is filled twice")]
    fn a_target_that_is_filled_twice_is_noticed() {
        let mut sheet = Sheet::<Form>::new(TWO);
        sheet.fill("W", "ratio", &|_| found(1.0));
        sheet.fill("W", "ratio", &|_| found(1.0));
    }
}
