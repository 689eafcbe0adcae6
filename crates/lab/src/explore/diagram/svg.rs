//! Draws a scene as one picture. Time runs downwards, and each step has a row. An arrow goes from the step in which a
//! verb was sent to the step in which it landed.
//!
//! Invariant: the picture needs no other file (no script, no font, no link) and is readable on light and dark
//! backgrounds. The same scene always gives the same bytes of SVG text.

use super::scene::{Row, Scene, Tone};
use crate::harness::lines::put;
use crate::sweep::chart::escape;
use crate::trace::svg::document;
use std::fmt::Write as _;

/// Lengths and distances in the picture, in pixels.
const LEFT: f64 = 64.0;
const ACTOR_GAP: f64 = 110.0;
const WORDS: f64 = 360.0;
const MEMORY_GAP: f64 = 90.0;
const STATE: f64 = 300.0;
const LINE: f64 = 18.0;
const HEADING: f64 = 30.0;

/// Draws a scene as SVG text.
pub fn draw(scene: &Scene) -> String {
    let verdict: Vec<&str> = scene.verdict.lines().collect();
    let top = 24.0 + LINE * (verdict.len() + 2) as f64 + HEADING;
    let picture = Picture { scene, top };
    let (width, bottom) = (picture.memory(scene.memory_nodes) + STATE, picture.y(scene.rows.len()));
    let mut body = String::new();
    let _ =
        writeln!(body, "<text class=\"head\" x=\"12\" y=\"20\">{}</text>", escape(&scene.title));
    for (at, line) in verdict.iter().enumerate() {
        let y = 20.0 + LINE * (at + 1) as f64;
        let _ =
            writeln!(body, "<text class=\"soft\" x=\"12\" y=\"{y:.0}\">{}</text>", escape(line));
    }
    picture.lanes(&mut body, bottom);
    for (at, row) in scene.rows.iter().enumerate() {
        picture.row(&mut body, at, row);
    }
    document(width, bottom + 16.0, &body)
}

struct Picture<'a> {
    scene: &'a Scene,
    top: f64,
}

impl Picture<'_> {
    fn actor(&self, at: usize) -> f64 {
        LEFT + ACTOR_GAP * at as f64
    }

    fn memory(&self, at: usize) -> f64 {
        self.actor(self.scene.actors.len()) + WORDS + MEMORY_GAP * at as f64
    }

    fn y(&self, row: usize) -> f64 {
        self.top + LINE * row as f64
    }

    /// Returns the vertical position of a step, which is the position of its last row.
    fn y_of_step(&self, step: u32) -> f64 {
        let at = self.scene.rows.iter().rposition(|row| row.step <= step);
        self.y(at.unwrap_or(0))
    }

    fn lanes(&self, svg: &mut String, bottom: f64) {
        let actors = self.scene.actors.iter().enumerate();
        let actors = actors.map(|(at, name)| (self.actor(at), name.clone()));
        let memory = 0..self.scene.memory_nodes;
        let memory = memory.map(|at| (self.memory(at), format!("memory node {at}")));
        for (x, name) in actors.chain(memory) {
            let y = self.top - HEADING + 8.0;
            let _ = put!(svg =>
                "<text class=\"soft small\" x=\"{x:.0}\" y=\"{y:.0}\" \
                 text-anchor=\"middle\">{}</text><path class=\"lane\" d=\"M{x:.0} \
                 {:.0}V{bottom:.0}\"/>", escape(&name), y + 6.0);
        }
    }

    fn row(&self, svg: &mut String, at: usize, row: &Row) {
        let y = self.y(at);
        let _ = put!(svg =>
            "<text class=\"soft small\" x=\"12\" y=\"{:.0}\">{}</text>", y + 4.0, row.step);
        let class = match row.tone {
            Tone::Plain => "mono",
            Tone::Change => "mono strong",
            Tone::Mark => "small",
            Tone::Bad => "mono bad",
        };
        let x = self.actor(self.scene.actors.len()) - ACTOR_GAP / 2.0;
        match (row.actor, row.arrow) {
            (Some(actor), Some((posted, node))) => {
                let (from, to) = (self.actor(actor), self.memory(usize::from(node)));
                let colour = if row.tone == Tone::Plain { "come" } else { "go" };
                let _ = put!(svg =>
                    "<path class=\"{colour}\" marker-end=\"url(#{colour})\" d=\"M{from:.0} \
                     {:.0}L{x:.0} {y:.0}H{:.0}\"/>", self.y_of_step(posted), to - 3.0);
            }
            (Some(actor), None) => {
                let lane = self.actor(actor);
                let _ = put!(svg =>
                    "<rect class=\"box\" x=\"{:.0}\" y=\"{:.0}\" width=\"8\" height=\"8\"/>",
                    lane - 4.0, y - 4.0);
            }
            (None, _) => {}
        }
        let _ = put!(svg =>
            "<text class=\"{class}\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            x + 8.0, y - 3.0, escape(&row.words));
        if !row.state.is_empty() {
            let _ = put!(svg =>
                "<text class=\"mono\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                self.memory(self.scene.memory_nodes - 1) + 12.0, y + 4.0, escape(&row.state));
        }
    }
}
