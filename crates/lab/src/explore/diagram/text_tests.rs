//! Tests of drawings for a terminal.
//!
//! Invariant checked: each row is one line of text, with its arrow and its state.

use super::super::scene::Tone;
use super::*;

#[test]
fn a_row_is_a_line_with_its_arrow_and_state() {
    let row = |step, actor, arrow, words: &str, state: &str| Row {
        step,
        actor,
        arrow,
        words: words.to_owned(),
        state: state.to_owned(),
        tone: Tone::Plain,
    };
    let scene = Scene {
        title: "t".into(),
        verdict: "v".into(),
        actors: vec!["a".into(), "b".into()],
        memory_nodes: 2,
        rows: vec![
            row(1, Some(0), None, "begins", ""),
            row(2, Some(0), Some((1, 1)), "lock: CAS x free → T0/1", "x@M1 locked T0/1"),
            row(9, Some(1), Some((2, 0)), "READ y", ""),
            row(9, None, None, "memory node 0 DIES", ""),
        ],
    };
    let text = draw(&scene);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 11, "{text}");
    assert!(lines[7].starts_with("    1  ●   │    begins"), "{text}");
    assert!(lines[8].starts_with("    2  ┣━━━┿━━━ lock: CAS x free → T0/1 ━"), "{text}");
    assert!(lines[8].ends_with("━►│       x@M1 locked T0/1"), "{text}");
    assert!(lines[9].contains("┣━━━ READ y ━"), "{text}");
    assert!(lines[10].contains("memory node 0 DIES"), "{text}");
}
