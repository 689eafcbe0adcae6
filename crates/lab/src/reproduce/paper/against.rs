//! Draws simulated values against published values. Each row that has both values gets one mark.
//!
//! Invariant: both axes are logarithmic and have the same range. So the rows whose values agree lie along the
//! diagonal, between the two lines of the tolerance. A value in percent is drawn as the factor to which it
//! corresponds.

use super::report::{said, value_of};
use super::sheet::Row;
use crate::reproduce::row::{TOLERANCE, Verdict};
use crate::sweep::chart::escape;
use std::fmt::Write as _;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

const TITLE: &str = "Simulated values against published ones";

/// The possible results of rows, in the legend's order, with the colours that the style names.
const OUTCOMES: [(&str, usize); 4] = [
    ("agrees", 2),
    ("misses, the published winner wins", 4),
    ("misses, another wins", 1),
    ("follows from an input, or not judged", APART_COLOUR),
];
const APART: usize = 3;
const APART_COLOUR: usize = 6;

/// Returns the position of a row's result in [`OUTCOMES`].
fn outcome(row: &Row) -> usize {
    match (row.verdict, row.winner_holds) {
        _ if row.apart.is_some() => APART,
        (Verdict::Agrees, _) => 0,
        (_, Some(false)) => 2,
        _ => 1,
    }
}

/// Returns a row's published value and its simulated value, both as factors.
fn factors(row: &Row) -> Option<(f64, f64)> {
    let published = row.said_in.factor(row.published.value());
    let simulated = published * row.ratio?;
    (published > 0.0 && simulated > 0.0).then_some((published, simulated))
}

/// The range of both axes, as powers of ten.
struct Axes {
    low: i32,
    high: i32,
}

impl Axes {
    /// Makes axes that enclose all values.
    fn around(values: &[f64]) -> Axes {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let low = least.log10().floor() as i32;
        Axes { low, high: (most.log10().ceil() as i32).max(low + 1) }
    }

    fn share(&self, value: f64) -> f64 {
        (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// Draws ticks at every power of ten, the diagonal of equal values, the two lines of the tolerance, and the names
    /// of the axes.
    fn draw(&self, svg: &mut String) {
        let [first, last] = [self.low, self.high].map(|power| 10f64.powi(power));
        let (left, right, bottom) = (self.x(first), self.x(last), self.y(first));
        for value in (self.low..=self.high).map(|power| 10f64.powi(power)) {
            let (x, y) = (self.x(value), self.y(value));
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}M{x:.1} {bottom:.1}V{TOP}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                left - 6.0,
                y + 3.5,
                short(value),
                bottom + 16.0,
                short(value)
            );
        }
        for (factor, class) in [(1.0, "axis"), (1.0 + TOLERANCE, "grid"), (1.0 - TOLERANCE, "grid")]
        {
            let (from, to) = (first / factor.min(1.0), last / factor.max(1.0));
            let (x1, y1) = (self.x(from), self.y(from * factor));
            let (x2, y2) = (self.x(to), self.y(to * factor));
            let _ =
                writeln!(svg, "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>");
        }
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">published (logarithmic)</text>\
             <text class=\"name\" transform=\"translate(14 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">simulated (logarithmic)</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 8.0
        );
    }
}

/// Returns the text for a power of ten.
fn short(value: f64) -> String {
    if value < 1.0 { format!("{value}") } else { format!("{value:.0}") }
}

/// Returns the HTML text of the figure with its drawing and legend. The text is empty if no row has both values.
pub(super) fn html(rows: &[&Row]) -> String {
    let marks: Vec<(&Row, (f64, f64))> =
        rows.iter().filter_map(|row| Some((*row, factors(row)?))).collect();
    if marks.is_empty() {
        return String::new();
    }
    let all = marks.iter().flat_map(|(_, (published, simulated))| [*published, *simulated]);
    let axes = Axes::around(&all.collect::<Vec<f64>>());
    let mut html = format!(
        "<figure>\n<figcaption>{TITLE}</figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{TITLE}\">\n"
    );
    axes.draw(&mut html);
    for (row, (published, simulated)) in &marks {
        let _ = writeln!(
            html,
            "<g class=\"c{}\"><title>{}</title>\
             <circle class=\"mark\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/></g>",
            OUTCOMES[outcome(row)].1,
            escape(&told(row)),
            axes.x(*published),
            axes.y(*simulated)
        );
    }
    let outcomes: Vec<usize> = marks.iter().map(|(row, _)| outcome(row)).collect();
    let _ = write!(html, "</svg>\n{}</figure>\n", legend(&outcomes));
    html
}

fn legend(outcomes: &[usize]) -> String {
    let mut html = "<ul class=\"legend\">".to_owned();
    for (at, (name, colour)) in OUTCOMES.iter().enumerate() {
        let count = outcomes.iter().filter(|it| **it == at).count();
        if at == APART && count == 0 {
            continue;
        }
        let _ = write!(
            html,
            "<li><svg viewBox=\"0 0 24 8\" class=\"key\"><g class=\"c{colour}\"><circle class=\"mark\" \
             cx=\"12\" cy=\"4\" r=\"4\"/></g></svg>{name}: {count}</li>"
        );
    }
    html.push_str("</ul>\n");
    html
}

/// Returns the text of the tooltip on a row's mark.
fn told(row: &Row) -> String {
    let deciding = row.value(row.judged_by);
    format!(
        "{}, {}: {}\npublished {} {}, simulated {}: {}",
        row.figure,
        row.workload,
        row.metric,
        said(row),
        row.said_in.counted(),
        value_of(row, deciding),
        row.verdict_name()
    )
}

#[cfg(test)]
mod tests {
    use super::super::data::by_name;
    use super::super::sheet::{Answer, Found};
    use super::super::target::{Unit, stated};
    use super::*;

    fn row(unit: Unit, published: f64, answer: f64) -> Row {
        let target = stated(("Figure 0", "W"), "m < n", unit, published, "there");
        let columns = &by_name("oocc").expect("a paper").columns;
        Row::of(columns, &target, &|_| -> Answer { Ok(Found::of(answer, "busy".into())) })
    }

    #[test]
    fn a_row_that_agrees_lies_on_the_diagonal_and_each_outcome_is_counted() {
        let rows = [
            row(Unit::Times, 2.0, 2.0),
            row(Unit::Of("ms"), 4.0, 40.0),
            row(Unit::CutPercent, 50.0, 2.0),
        ];
        let axes = Axes::around(&[0.5, 40.0]);
        assert_eq!((axes.low, axes.high), (-1, 2));
        let (x, y) = (axes.x(2.0), axes.y(2.0));
        let html = html(&rows.iter().collect::<Vec<_>>());
        assert!(html.contains(&format!("cx=\"{x:.1}\" cy=\"{y:.1}\"")), "{html}");
        assert_eq!(html.matches("<title>").count(), 3, "{html}");
        for text in ["agrees: 1", "published winner wins: 1", "another wins: 1", "m &lt; n"] {
            assert!(html.contains(text), "no {text}: {html}");
        }
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
        assert_eq!(super::html(&[]), "");
    }
}
