//! A line chart as an SVG element: axes with units, lines with markers, and a tooltip on every marker.
//!
//! Invariant: colours are names that the page's style defines, never colour values, so that one drawing serves light
//! and dark pages. The same lines always give the same bytes of SVG text.

use super::report::brief;
use crate::harness::lines::{put, put_part};
use std::fmt::Write as _;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// The number of colours that the style names; if a chart has more lines, the further lines use these colours again,
/// with another dash.
pub(crate) const COLOURS: usize = 8;
/// An axis is logarithmic if its greatest value is more than this factor times its smallest value. An axis is also
/// logarithmic if the function `doubles` returns true for its values.
const LOGARITHMIC_FROM: f64 = 40.0;

/// A value to draw, and the text of the value's tooltip.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Mark {
    pub x: f64,
    pub y: f64,
    pub title: String,
}

/// A line that joins marks in their order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line {
    /// The line's name in the legend; an empty name keeps the line out of the legend.
    pub name: String,
    /// The number of the line's colour.
    pub colour: usize,
    /// Whether the line is dashed, as the second of two lines of one colour is.
    pub dashed: bool,
    pub marks: Vec<Mark>,
}

/// The kind of an axis: numbers or names.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Scale {
    /// An axis of numbers: it starts at zero, or is logarithmic if the values are far apart.
    Number,
    /// An axis of names: the places 0, 1, 2… have these names.
    Names(Vec<String>),
}

/// A line chart with its title, axes and lines.
pub(crate) struct Chart {
    pub title: String,
    /// The name of each axis, unit included.
    pub x_name: String,
    pub y_name: String,
    pub x_scale: Scale,
    /// Whether the vertical axis is logarithmic if its values are far apart.
    pub y_may_be_logarithmic: bool,
    pub lines: Vec<Line>,
}

/// The smallest and the greatest value along an axis.
struct Span {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    ticks: Vec<f64>,
}

impl Span {
    fn over(values: &[f64], may_be_logarithmic: bool) -> Span {
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let is_logarithmic = || most / least > LOGARITHMIC_FROM || doubles(values);
        if may_be_logarithmic && least > 0.0 && is_logarithmic() {
            return Span::logarithmic(least, most);
        }
        let step = step(most / 5.0);
        let count = (most / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|at| at as f64 * step).collect();
        Span { from: 0.0, to: count * step, is_logarithmic: false, ticks }
    }

    fn logarithmic(least: f64, most: f64) -> Span {
        let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let decades = (low..high).flat_map(|power| {
            let few: &[f64] = if high - low > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            few.iter().map(move |digit| digit * 10f64.powi(power))
        });
        let mut ticks: Vec<f64> = decades.chain([10f64.powi(high)]).collect();
        let first = ticks.iter().rposition(|tick| *tick <= least).unwrap_or(0);
        ticks.drain(..first);
        let last = ticks.iter().position(|tick| *tick >= most).unwrap_or(ticks.len() - 1);
        ticks.truncate(last + 1);
        Span { from: ticks[0], to: ticks[ticks.len() - 1], is_logarithmic: true, ticks }
    }

    /// Returns the position of a value along the axis, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match self.is_logarithmic {
            true => (value / self.from).log10() / (self.to / self.from).log10(),
            false => (value - self.from) / (self.to - self.from),
        }
    }
}

/// Returns whether the values grow by factors instead of by equal steps. The function compares neighbouring values
/// and needs at least three such steps. At least half of the steps must multiply the value by 1.5 or more. The
/// greatest value must be at least eight times the least value.
fn doubles(values: &[f64]) -> bool {
    let mut rising = values.to_vec();
    rising.sort_by(f64::total_cmp);
    rising.dedup();
    let mut steps: Vec<f64> = rising.windows(2).map(|pair| pair[1] / pair[0]).collect();
    steps.sort_by(f64::total_cmp);
    let is_far = rising.first().zip(rising.last()).is_some_and(|(least, most)| most / least >= 8.0);
    steps.len() >= 3 && steps[steps.len() / 2] >= 1.5 && is_far
}

/// Returns the smallest number that is 1, 2 or 5 times a power of ten and is not below `least`.
pub(crate) fn step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    let fits = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= least * (1.0 - 1e-9));
    fits.unwrap_or(10.0) * power
}

/// Escapes text for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn along_x(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn along_y(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

impl Chart {
    /// Returns the chart's SVG element, with the chart's title.
    pub(crate) fn svg(&self) -> String {
        let marks = || self.lines.iter().flat_map(|line| &line.marks);
        let across = match &self.x_scale {
            Scale::Number => Span::over(&marks().map(|mark| mark.x).collect::<Vec<_>>(), true),
            Scale::Names(names) => {
                let ticks = (0..names.len()).map(|at| at as f64).collect();
                let to = names.len() as f64 - 0.5;
                Span { from: -0.5, to, is_logarithmic: false, ticks }
            }
        };
        let heights: Vec<f64> = marks().map(|mark| mark.y).collect();
        let up = Span::over(&heights, self.y_may_be_logarithmic);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        self.axes(&mut svg, &across, &up);
        for line in &self.lines {
            draw(&mut svg, line, &across, &up);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, across: &Span, up: &Span) {
        let (left, right, bottom, top) = (along_x(0.0), along_x(1.0), along_y(0.0), along_y(1.0));
        for tick in &up.ticks {
            let y = along_y(up.place(*tick));
            let _ = put!(svg =>
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/><text class=\"tick\" \
                 x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0, y + 3.5, tick_name(*tick));
        }
        for (at, tick) in across.ticks.iter().enumerate() {
            let x = along_x(across.place(*tick));
            let name = match &self.x_scale {
                Scale::Number => tick_name(*tick),
                Scale::Names(names) => escape(&names[at]),
            };
            let _ = put!(svg =>
                "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v4\"/><text class=\"tick\" \
                 x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>", bottom + 16.0);
        }
        let middle = (top + bottom) / 2.0;
        let _ = put_part!(svg =>
            "<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>\n<text class=\"name\" \
             x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n<text class=\"name\" \
             transform=\"translate(14 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>\n",
            (left + right) / 2.0, HEIGHT - 10.0, named(&self.x_name, across),
            named(&self.y_name, up));
    }
}

fn named(name: &str, span: &Span) -> String {
    let how = if span.is_logarithmic { " (logarithmic)" } else { "" };
    format!("{}{how}", escape(name))
}

fn tick_name(tick: f64) -> String {
    if tick >= 100.0 || (tick - tick.round()).abs() < 1e-9 {
        return format!("{tick:.0}");
    }
    let text = brief(tick);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn draw(svg: &mut String, line: &Line, across: &Span, up: &Span) {
    let places: Vec<(f64, f64)> = line
        .marks
        .iter()
        .map(|mark| (along_x(across.place(mark.x)), along_y(up.place(mark.y))))
        .collect();
    let _ = writeln!(svg, "<g class=\"{}\">", class(line));
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let _ = writeln!(svg, "<path class=\"line\" d=\"M{}\"/>", path.join("L"));
    for ((x, y), mark) in places.iter().zip(&line.marks) {
        let title = escape(&mark.title);
        // A larger invisible disc around each marker makes it easy to point at the marker.
        let _ = put!(svg =>
            "<g><title>{title}</title><circle class=\"reach\" cx=\"{x:.1}\" cy=\"{y:.1}\" \
             r=\"11\"/><circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/></g>");
    }
    svg.push_str("</g>\n");
}

/// Returns a line's class names in the style sheet.
pub(crate) fn class(line: &Line) -> String {
    let dash = if line.dashed || line.colour >= COLOURS { " dashed" } else { "" };
    format!("c{}{dash}", line.colour % COLOURS)
}

#[cfg(test)]
#[path = "chart_tests.rs"]
mod tests;
