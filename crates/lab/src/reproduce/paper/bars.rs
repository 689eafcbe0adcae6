//! Draws groups of bars as an SVG element, with each bar's value on the bar.
//!
//! Invariant: colours are names that the page's style defines, as in [`crate::sweep::chart`]. The same bars always
//! give the same bytes. If a bar has no value, its place stays empty.

use crate::sweep::chart::{COLOURS, escape, step};
use crate::sweep::report::brief;
use std::fmt::Write as _;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 34.0;
/// The part of a group's width that the bars of the group take together.
const FILLED: f64 = 0.8;

/// A drawing of groups of bars, with its title and the name of the values.
pub struct Bars {
    /// The title above the drawing.
    pub title: String,
    /// The name of the values, with their unit.
    pub y_name: String,
    /// The name below each group.
    pub groups: Vec<String>,
    /// Each series' name, and its value in each group.
    pub series: Vec<(String, Vec<Option<f64>>)>,
}

impl Bars {
    /// Returns whether the drawing has no value at all.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|(_, values)| values.iter().all(Option::is_none))
    }

    /// Returns the HTML text of the figure with its drawing and legend.
    pub fn html(&self) -> String {
        let mut html =
            format!("<figure>\n<figcaption>{}</figcaption>\n{}", escape(&self.title), self.svg());
        html.push_str("<ul class=\"legend\">");
        for (at, (name, _)) in self.series.iter().enumerate() {
            let _ = write!(
                html,
                "<li><svg viewBox=\"0 0 24 8\" class=\"key\"><rect class=\"bar c{}\" width=\"24\" \
                 height=\"8\"/></svg>{}</li>",
                at % COLOURS,
                escape(name)
            );
        }
        html.push_str("</ul>\n</figure>\n");
        html
    }

    fn svg(&self) -> String {
        let values = self.series.iter().flat_map(|(_, values)| values.iter().flatten());
        let most = values.copied().fold(0.0, f64::max);
        let step = step(most / 5.0);
        let count = (most / step - 1e-9).ceil().max(1.0);
        let y = |value: f64| HEIGHT - BOTTOM - value / (count * step) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        for tick in 0..=count as usize {
            let value = tick as f64 * step;
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y(value),
                WIDTH - RIGHT,
                LEFT - 6.0,
                y(value) + 3.5,
                brief(value)
            );
        }
        self.draw(&mut svg, &y);
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let _ = write!(
            svg,
            "<text class=\"name\" transform=\"translate(14 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>\n</svg>\n",
            escape(&self.y_name)
        );
        svg
    }

    fn draw(&self, svg: &mut String, y: &dyn Fn(f64) -> f64) {
        let group_width = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        let width = group_width * FILLED / self.series.len().max(1) as f64;
        for (at, name) in self.groups.iter().enumerate() {
            let from = LEFT + at as f64 * group_width;
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                from + group_width / 2.0,
                HEIGHT - BOTTOM + 16.0,
                escape(name)
            );
            for (which, (series, values)) in self.series.iter().enumerate() {
                let Some(value) = values.get(at).copied().flatten() else { continue };
                let x = from + group_width * (1.0 - FILLED) / 2.0 + which as f64 * width;
                let _ = writeln!(
                    svg,
                    "<g><title>{}, {}: {}</title><rect class=\"bar c{}\" x=\"{x:.1}\" y=\"{:.1}\" \
                     width=\"{:.1}\" height=\"{:.1}\"/></g>",
                    escape(name),
                    escape(series),
                    brief(value),
                    which % COLOURS,
                    y(value.max(0.0)),
                    width * 0.92,
                    y(0.0) - y(value.max(0.0))
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_a_tooltip_and_one_without_a_value_is_left_out() {
        let bars = Bars {
            title: "a < b".into(),
            y_name: "M/s".into(),
            groups: vec!["TATP".into(), "TPC-C".into()],
            series: vec![
                ("one".into(), vec![Some(1.0), Some(2.0)]),
                ("two".into(), vec![None, Some(0.5)]),
            ],
        };
        let html = bars.html();
        assert_eq!(html.matches("<title>").count(), 3, "{html}");
        assert!(html.contains("TPC-C, two: 0.5") && html.contains("a &lt; b"), "{html}");
        assert!(!bars.is_empty() && !html.contains("NaN"));
        let none = Bars { series: vec![("one".into(), vec![None, None])], ..bars };
        assert!(none.is_empty() && !none.html().contains("NaN"));
    }
}
