//! A chart of horizontal bars, as SVG.
//!
//! Invariant: the colours follow the reader's light or dark mode, and every bar shows its number.

use std::fmt::Write;

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar {
    pub group: &'static str,
    pub series: &'static str,
    pub value: f64,
}

const WIDTH: usize = 760;
const LEFT: usize = 300;
const BAR_HEIGHT: usize = 16;
const GROUP_GAP: usize = 12;
const TOP: usize = 48;
/// The room for the number behind the longest bar.
const NUMBER_WIDTH: usize = 70;
/// Okabe and Ito's colours, which colour-blind readers can tell apart.
const COLOURS: [&str; 5] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#999999"];

/// Draws the bars, grouped by the work that they measure.
pub fn svg(bars: &[Bar], caption: &str) -> String {
    let mut groups: Vec<&str> = Vec::new();
    let mut series: Vec<&str> = Vec::new();
    for bar in bars {
        if !groups.contains(&bar.group) {
            groups.push(bar.group);
        }
        if !series.contains(&bar.series) {
            series.push(bar.series);
        }
    }
    let most = bars.iter().map(|bar| bar.value).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - NUMBER_WIDTH) as f64 / most;
    let mut body = String::new();
    let mut y = TOP;
    for group in groups {
        let _ = writeln!(body, "<text x=\"4\" y=\"{}\" class=\"t b\">{group}</text>", y + 12);
        for bar in bars.iter().filter(|bar| bar.group == group) {
            let at = series.iter().position(|it| *it == bar.series).unwrap_or(0);
            let colour = COLOURS[at % COLOURS.len()];
            let width = (bar.value * scale).max(1.0);
            let text_y = y + 12;
            let _ = writeln!(
                body,
                "<text x=\"{}\" y=\"{text_y}\" class=\"t e\">{}</text>\
                 <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{text_y}\" class=\"t\">{:.1}</text>",
                LEFT - 6,
                bar.series,
                BAR_HEIGHT - 3,
                LEFT as f64 + width + 4.0,
                bar.value
            );
            y += BAR_HEIGHT;
        }
        y += GROUP_GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" role=\"img\">\n\
         <style>.t{{font:12px sans-serif;fill:#222}}.b{{font-weight:bold}}.e{{text-anchor:end}}\
         @media(prefers-color-scheme:dark){{.t{{fill:#ddd}}}}</style>\n\
         <text x=\"4\" y=\"16\" class=\"t b\">Million operations in a second (longer is better)</text>\n\
         <text x=\"4\" y=\"34\" class=\"t\">{caption}</text>\n{body}</svg>\n"
    )
}
