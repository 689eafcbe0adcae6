//! Draws a scene for a terminal. Time runs downwards, and each coordinator and each memory node has a lane.
//!
//! ```text
//!  step  C0  C1                                                  M0      M1
//!     3  ┣━━━┿━━━ lock: CAS x free → T0/1 ━━━━━━━━━━━━━━━━━━━━━━►│       │       x@M0 v1 locked T0/1
//! ```
//!
//! Invariant: each row is one line of text. An arrow is drawn in the row in which a verb landed. If the verb was sent
//! earlier than the previous row, the row's description names the step in which the verb was sent.

use super::scene::{Row, Scene};
use crate::harness::letters::{clipped, put, trimmed};
use std::fmt::Write as _;

/// The column of the first lane.
const FIRST: usize = 7;
/// The distance between the lanes of two coordinators, in columns.
const GAP: usize = 4;
/// The width of the description of an arrow, in columns.
const WORDS: usize = 56;
/// The distance between the lanes of two memory nodes, in columns.
const MEMORY_GAP: usize = 8;

/// Draws a scene as text.
pub fn draw(scene: &Scene) -> String {
    let mut text = format!("{}\n", scene.title);
    scene.verdict.lines().for_each(|line| {
        let _ = writeln!(text, "    {line}");
    });
    text.push('\n');
    for (at, name) in scene.actors.iter().enumerate() {
        let _ = writeln!(text, "C{at} is {name}");
    }
    let lanes = Lanes { actors: scene.actors.len(), memory: scene.memory_nodes };
    let mut heading = vec![' '; lanes.width()];
    put(&mut heading, 1, "step");
    (0..lanes.actors).for_each(|at| put(&mut heading, lanes.actor(at), &format!("C{at}")));
    (0..lanes.memory).for_each(|at| put(&mut heading, lanes.memory(at), &format!("M{at}")));
    let _ = writeln!(text, "\n{}", trimmed(&heading));
    let mut before = 0;
    for row in &scene.rows {
        let _ = writeln!(text, "{}", line(&lanes, row, before));
        before = row.step;
    }
    text
}

struct Lanes {
    actors: usize,
    memory: usize,
}

impl Lanes {
    fn actor(&self, at: usize) -> usize {
        FIRST + at * GAP
    }

    fn memory(&self, at: usize) -> usize {
        self.actor(self.actors) + WORDS + at * MEMORY_GAP
    }

    fn width(&self) -> usize {
        self.memory(self.memory)
    }
}

fn line(lanes: &Lanes, row: &Row, before: u32) -> String {
    let mut line = vec![' '; lanes.width()];
    put(&mut line, 0, &format!("{:>5}", row.step));
    (0..lanes.actors).for_each(|at| line[lanes.actor(at)] = '│');
    (0..lanes.memory).for_each(|at| line[lanes.memory(at)] = '│');
    let words_at = lanes.actor(lanes.actors);
    match (row.actor, row.arrow) {
        (Some(actor), Some((posted, node))) => {
            let (from, to) = (lanes.actor(actor), lanes.memory(usize::from(node)));
            for (at, place) in line.iter_mut().enumerate().take(to).skip(from + 1) {
                let crossed = *place == '│';
                *place = if crossed && at < words_at { '┿' } else { '━' };
            }
            line[from] = '┣';
            line[to - 1] = '►';
            let sent =
                if posted + 1 < before { format!(" (sent in {posted})") } else { String::new() };
            let words = format!(" {}{sent} ", row.words);
            put(&mut line, words_at, &clipped(&words, WORDS - 3));
        }
        (Some(actor), None) => {
            line[lanes.actor(actor)] = '●';
            put(&mut line, words_at + 1, &clipped(&row.words, WORDS - 3));
        }
        (None, _) => put(&mut line, words_at + 1, &clipped(&row.words, WORDS - 3)),
    }
    let mut text: String = line.into_iter().collect();
    text.push_str(&row.state);
    text.trim_end().to_owned()
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
