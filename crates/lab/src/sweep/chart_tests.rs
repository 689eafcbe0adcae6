//! Tests of charts.
//!
//! Invariant checked: an axis's ticks are round numbers, and all values lie between the first and the last tick.
//! Titles are escaped.

use super::*;

#[test]
fn ticks_are_round_and_enclose_the_values() {
    for (most, to, count) in [(0.0, 1.0, 2), (1.0, 1.0, 6), (37.0, 40.0, 5), (880.0, 1000.0, 6)] {
        let span = Span::over(&[most / 2.0, most], true);
        assert_eq!((span.to, span.ticks.len()), (to, count), "{most}");
        assert!((0.0..=1.0).contains(&span.place(most)));
    }
    assert!(!Span::over(&[9.0, 800.0], false).is_logarithmic);
    let span = Span::over(&[9.0, 800.0], true);
    assert!(span.is_logarithmic);
    assert_eq!((span.from, span.to), (5.0, 1000.0));
    assert!(span.place(9.0) > 0.0 && span.place(800.0) < 1.0);
    assert_eq!(span.ticks[..4], [5.0, 10.0, 20.0, 50.0]);
    assert!(Span::over(&[1.0, 2.0, 4.0, 8.0, 8.0], true).is_logarithmic, "doubles");
    assert!(!Span::over(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], true).is_logarithmic);
}

#[test]
fn a_drawing_escapes_what_it_is_given_and_has_a_tooltip_a_mark() {
    let marks = (0..3).map(|at| Mark {
        x: f64::from(at),
        y: f64::from(at * at),
        title: format!("a<{at}>&"),
    });
    let line = Line { name: "n".into(), colour: 9, dashed: false, marks: marks.collect() };
    assert_eq!(class(&line), "c1 dashed");
    let chart = Chart {
        title: "\"t\"".into(),
        x_name: "x <".into(),
        y_name: "y".into(),
        x_scale: Scale::Names(["p", "q&", "r"].map(String::from).into()),
        y_may_be_logarithmic: false,
        lines: vec![line],
    };
    let svg = chart.svg();
    assert_eq!(svg.matches("<title>").count(), 3);
    assert!(svg.contains("a&lt;2&gt;&amp;") && svg.contains("q&amp;") && svg.contains("x &lt;"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(chart.svg(), svg);
}
