//! Draws a trace as one picture. Time runs downwards and is to scale, except for long gaps. The coordinator, its NIC,
//! and each node that it contacts have a lane. An arrow shows each batch and its response.
//!
//! Invariant: the picture needs no other file (no script, no font, no link) and is readable on light and dark
//! backgrounds. The same trace always gives the same bytes of SVG text. A mark shows each place where time is not to
//! scale.

use super::text::words;
use super::{Batch, Message, Round, Trace, Transaction, Try};
use crate::harness::letters::clipped;
use crate::harness::lines::put;
use crate::sweep::chart::escape;
use std::fmt::Write as _;

/// The picture's distances, in pixels.
const LEFT: f64 = 214.0;
const NIC: f64 = 64.0;
const FIRST_NODE: f64 = 190.0;
const NODE_GAP: f64 = 232.0;
const RIGHT: f64 = 226.0;
const HEADING: f64 = 62.0;
const LINE: f64 = 14.0;
/// The largest number of letters that fit beside a node's lane.
const LETTERS: usize = 34;
/// The height of one microsecond in the picture, in pixels.
const SCALE: f64 = 64.0;
/// The largest height of a gap between two events; the picture shortens a longer gap to this height.
const GAP_MAX: f64 = 150.0;
/// A pause of the coordinator that is longer than this time is described in words.
const PAUSE_NS: u64 = 100;
/// Two events at different times are drawn at least this distance apart.
const GAP_MIN: f64 = 3.0;

const STYLE: &str = "svg{--back:#fff;--text:#1c2024;--soft:#60646c;--rule:#c9ccd2;--go:#0072b2;--come:#00856a;\
--bad:#c43c00;--band:#cfe0f0;--wait:#eceded}\
@media(prefers-color-scheme:dark){svg{--back:#15171a;--text:#e6e8eb;--soft:#9ba1a8;--rule:#43484f;--go:#58b4ec;\
--come:#3cc99b;--bad:#f28e4b;--band:#29415a;--wait:#26292d}}\
.back{fill:var(--back)}text{font:12px system-ui,sans-serif;fill:var(--text)}.soft{fill:var(--soft)}.head{font-weight:600}.strong{font-weight:600;font-size:11px}\
.small{font-size:11px}.mono{font:11px ui-monospace,monospace;paint-order:stroke;stroke:var(--back);stroke-width:3px;stroke-linejoin:round}.bad{fill:var(--bad)}.lane{stroke:var(--rule);fill:none}\
.go{stroke:var(--go);fill:none;stroke-width:1.5}.come{stroke:var(--come);fill:none;stroke-width:1.5}\
.tip-go{fill:var(--go)}.tip-come{fill:var(--come)}.dashed{stroke-dasharray:4 3}.box{fill:var(--go)}\
.band{fill:var(--band)}.wait{fill:var(--wait)}.cut{stroke:var(--soft);fill:none}";

/// Draws the whole trace, and places each transaction below the previous transaction.
pub fn draw(trace: &Trace) -> String {
    let lanes = trace.transactions.iter().map(|txn| txn.nodes().len() + txn.peers().len());
    let most = lanes.max().unwrap_or(0);
    let width = LEFT + FIRST_NODE + NODE_GAP * most.saturating_sub(1) as f64 + RIGHT;
    let mut body = String::new();
    for (at, line) in trace.heading().lines().enumerate() {
        let y = 20.0 + LINE * at as f64;
        let _ = writeln!(body, "<text class=\"soft\" x=\"12\" y=\"{y}\">{}</text>", escape(line));
    }
    let mut y = 20.0 + 2.0 * LINE;
    for txn in &trace.transactions {
        y = Picture::new(txn, y).draw(&mut body);
    }
    document(width, y + 12.0, &body)
}

/// Returns an SVG document with this width and height and the content `body`.
pub(crate) fn document(width: f64, height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\">\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"100%\" height=\"100%\"/>\n\
         <defs>{}{}</defs>\n{body}</svg>\n",
        tip("go"),
        tip("come")
    )
}

/// Returns the definition of an arrow's head.
fn tip(name: &str) -> String {
    format!(
        "<marker id=\"{name}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path class=\"tip-{name}\" d=\"M0 0L8 4L0 8z\"/></marker>"
    )
}

/// The drawing of one transaction, which begins below the height `top`.
struct Picture<'a> {
    txn: &'a Transaction,
    memory: Vec<u16>,
    compute: Vec<u16>,
    top: f64,
    scale: TimeScale,
}

impl<'a> Picture<'a> {
    fn new(txn: &'a Transaction, top: f64) -> Picture<'a> {
        let scale = TimeScale::of(txn, top + HEADING);
        Picture { txn, memory: txn.nodes(), compute: txn.peers(), top, scale }
    }

    /// Returns the horizontal position of the lane of the `at`-th node.
    fn lane(&self, at: usize) -> f64 {
        LEFT + FIRST_NODE + NODE_GAP * at as f64
    }

    fn lane_of(&self, batch: &Batch) -> f64 {
        let at = self.memory.iter().position(|node| *node == batch.to);
        self.lane(at.expect("every node that is asked has a lane"))
    }

    fn y(&self, ns: u64) -> f64 {
        self.scale.y(ns)
    }

    /// Draws the whole transaction. Returns the height of the lower end of the drawing.
    fn draw(&self, svg: &mut String) -> f64 {
        let (head, bottom) = (self.top + 16.0, self.scale.bottom() + 10.0);
        let heading = escape(&self.txn.heading());
        let _ = writeln!(svg, "<text class=\"head\" x=\"12\" y=\"{head:.1}\">{heading}</text>");
        self.draw_lanes(svg, bottom);
        for cut in &self.scale.cuts {
            let x = LEFT - 5.0;
            let _ = put!(svg =>
                "<path class=\"cut\" d=\"M{x:.1} {cut:.1}l5 -3l0 6l5 -3\"><title>time is cut short \
                 here</title></path>");
        }
        self.txn.tries.iter().for_each(|it| self.draw_try(svg, it));
        // The words are drawn last, so that no arrow crosses them.
        self.draw_words(svg);
        for batch in self.txn.rounds().flat_map(|round| &round.batches) {
            self.draw_labels(svg, batch);
        }
        bottom + 18.0
    }

    fn draw_lanes(&self, svg: &mut String, bottom: f64) {
        let memory = self.memory.iter().map(|node| format!("memory node {node}"));
        let compute = self.compute.iter().map(|node| format!("compute node {node}"));
        let nodes = memory.chain(compute).enumerate().map(|(at, name)| (self.lane(at), name));
        let coordinator = format!("coordinator {}", self.txn.coordinator);
        let own = [(LEFT, coordinator), (LEFT + NIC, "its NIC".to_owned())];
        let y = self.top + HEADING - 18.0;
        for (x, name) in own.into_iter().chain(nodes) {
            let anchor = if x == LEFT { "end" } else { "middle" };
            let at = if x == LEFT { x + 8.0 } else { x };
            let _ = put!(svg =>
                "<text class=\"soft\" x=\"{at:.1}\" y=\"{y:.1}\" \
                 text-anchor=\"{anchor}\">{name}</text><path class=\"lane\" d=\"M{x:.1} \
                 {:.1}V{bottom:.1}\"/>", y + 6.0);
        }
    }

    fn draw_try(&self, svg: &mut String, it: &Try) {
        for wait in &it.waits {
            let us = (wait.to_ns - wait.from_ns) as f64 / 1e3;
            let title = format!("{}, {us:.2} µs", wait.why);
            self.bar(svg, "wait", (self.y(wait.from_ns), self.y(wait.to_ns)), &title);
        }
        for round in &it.rounds {
            self.draw_round(svg, round);
        }
        for message in &it.messages {
            self.draw_message(svg, message);
        }
    }

    /// Draws the words beside the coordinator's lane; if several texts have the same time, they are placed below each
    /// other.
    fn draw_words(&self, svg: &mut String) {
        let (mut last, mut line) = (None, 0);
        for Said { ns, words, class, .. } in said(self.txn) {
            line = if last == Some(ns) { line + 1 } else { 0 };
            last = Some(ns);
            let y = self.y(ns) + 4.0 + LINE * f64::from(line);
            self.say(svg, ns, y, &words, class);
        }
    }

    /// Draws words to the left of the coordinator's lane, with their time.
    fn say(&self, svg: &mut String, ns: u64, y: f64, words: &str, class: &str) {
        let us = (ns - self.txn.began_ns) as f64 / 1e3;
        let _ = put!(svg =>
            "<text class=\"soft small\" x=\"60\" y=\"{y:.1}\" text-anchor=\"end\">{us:.2} \
             µs</text><text class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" \
             text-anchor=\"end\">{}</text>", LEFT - 10.0, escape(words));
    }

    fn bar(&self, svg: &mut String, class: &str, (from, to): (f64, f64), title: &str) {
        let _ = put!(svg =>
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{from:.1}\" width=\"8\" \
             height=\"{:.1}\"><title>{}</title></rect>",
            LEFT - 4.0, (to - from).max(1.0), escape(title));
    }

    fn draw_round(&self, svg: &mut String, round: &Round) {
        let (posted, name) = (round.posted_ns(), round.name());
        if round.awaited {
            let until = round.resumed_ns.unwrap_or(round.completed_ns);
            let us = (until - posted) as f64 / 1e3;
            let title = format!("{name}: {us:.2} µs until the coordinator goes on");
            self.bar(svg, "band", (self.y(posted), self.y(until)), &title);
        }
        for batch in &round.batches {
            self.draw_batch(svg, round, batch);
        }
    }

    fn draw_batch(&self, svg: &mut String, round: &Round, batch: &Batch) {
        let x = self.lane_of(batch);
        let dashed = if round.awaited { "" } else { " dashed" };
        let us = |ns: u64| (ns - self.txn.began_ns) as f64 / 1e3;
        let title = format!(
            "{}: posted {:.2}, sent {:.2}, arrived {:.2}, answer left {:.2}, taken in {:.2}, seen {:.2} µs",
            round.name(),
            us(batch.posted_ns),
            us(batch.sent_ns),
            us(batch.arrived_ns),
            us(batch.left_ns),
            us(batch.taken_ns),
            us(batch.seen_ns)
        );
        let (arrived, left) = (self.y(batch.arrived_ns), self.y(batch.left_ns));
        let _ = put!(svg =>
            "<g><title>{}</title><path class=\"go{dashed}\" marker-end=\"url(#go)\" d=\"M{LEFT:.1} \
             {:.1}L{:.1} {:.1}L{:.1} {arrived:.1}\"/><rect class=\"box\" x=\"{:.1}\" \
             y=\"{arrived:.1}\" width=\"8\" height=\"{:.1}\"/><path class=\"come{dashed}\" \
             marker-end=\"url(#come)\" d=\"M{:.1} {left:.1}L{:.1} {:.1}L{LEFT:.1} {:.1}\"/></g>",
            escape(&title), self.y(batch.posted_ns), LEFT + NIC, self.y(batch.sent_ns), x - 5.0,
            x - 4.0, (left - arrived).max(2.0), x - 5.0, LEFT + NIC, self.y(batch.taken_ns),
            self.y(batch.seen_ns));
    }

    fn draw_labels(&self, svg: &mut String, batch: &Batch) {
        let x = self.lane_of(batch);
        let arrived = self.y(batch.arrived_ns);
        for (line, (words, class)) in labels(batch).into_iter().enumerate() {
            let y = arrived + 4.0 + LINE * line as f64;
            let _ = put!(svg =>
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                x + 9.0, escape(&words));
        }
    }

    fn draw_message(&self, svg: &mut String, message: &Message) {
        let at = self.compute.iter().position(|node| *node == message.to).expect("it has a lane");
        let x = self.lane(self.memory.len() + at);
        let (from, to) = (self.y(message.sent_ns), self.y(message.arrived_ns));
        let _ = put!(svg =>
            "<path class=\"go\" marker-end=\"url(#go)\" d=\"M{LEFT:.1} {from:.1}L{:.1} \
             {to:.1}\"/><text class=\"mono\" x=\"{:.1}\" y=\"{:.1}\">message, {} B</text>",
            x - 2.0, x + 9.0, to + 4.0, message.bytes);
    }
}

/// A text beside the coordinator's lane.
struct Said {
    ns: u64,
    /// The text's rank among the texts of the same time.
    order: u8,
    words: String,
    class: &'static str,
}

/// Returns all texts about a transaction, in their order.
fn said(txn: &Transaction) -> Vec<Said> {
    let mut all = Vec::new();
    for (number, it) in txn.tries.iter().enumerate() {
        let mut say = |ns, order, words, class| all.push(Said { ns, order, words, class });
        if txn.tries.len() > 1 {
            say(it.began_ns, 2, format!("try {}", number + 1), "strong");
        }
        for round in &it.rounds {
            let class = if round.awaited { "small" } else { "small soft" };
            say(round.posted_ns(), 3, round.name(), class);
        }
        let class = if it.outcome == "committed" { "strong" } else { "strong bad" };
        say(it.ended_ns, 0, it.outcome.clone(), class);
        let pauses = it.waits.iter().filter(|wait| wait.why.starts_with("pause"));
        for wait in pauses.filter(|wait| wait.to_ns - wait.from_ns > PAUSE_NS) {
            let us = (wait.to_ns - wait.from_ns) as f64 / 1e3;
            say(wait.from_ns, 1, format!("pause of {us:.2} µs"), "small soft");
        }
    }
    all.sort_by_key(|said| (said.ns, said.order));
    all
}

/// Returns the text lines that the drawing shows beside a batch of requests: one line for each verb, and a second
/// line for a refused verb.
fn labels(batch: &Batch) -> Vec<(String, &'static str)> {
    let mut lines = Vec::new();
    for verb in &batch.verbs {
        lines.push((clipped(&words(verb), LETTERS), "mono"));
        if let Some(holder) = &verb.refused {
            lines.push((format!("  refused: {holder} has it"), "mono bad"));
        }
    }
    lines
}

/// A conversion from times to heights.
struct TimeScale {
    /// The time and the height of each event, in order.
    events: Vec<(u64, f64)>,
    /// The heights of the long gaps of time that the picture shortens.
    cuts: Vec<f64>,
    /// The height of the lower end of the last label.
    end: f64,
}

impl TimeScale {
    /// Makes a scale on which height is proportional to time, with two exceptions. The scale shortens long gaps, and
    /// it adds space where labels of one node would overlap.
    fn of(txn: &Transaction, top: f64) -> TimeScale {
        let mut arrivals: Vec<(u64, u16, usize)> = Vec::new();
        let mut times = vec![txn.began_ns, txn.ended_ns];
        for it in &txn.tries {
            times.extend([it.began_ns, it.ended_ns]);
            times.extend(it.waits.iter().flat_map(|wait| [wait.from_ns, wait.to_ns]));
            times.extend(it.messages.iter().flat_map(|it| [it.sent_ns, it.arrived_ns]));
            for round in &it.rounds {
                times.extend([round.completed_ns].into_iter().chain(round.resumed_ns));
                for batch in &round.batches {
                    let Batch { posted_ns, sent_ns, arrived_ns, .. } = *batch;
                    let Batch { left_ns, taken_ns, seen_ns, .. } = *batch;
                    times.extend([posted_ns, sent_ns, arrived_ns, left_ns, taken_ns, seen_ns]);
                    arrivals.push((arrived_ns, batch.to, labels(batch).len()));
                }
            }
        }
        times.sort_unstable();
        times.dedup();
        arrivals.sort_unstable();
        let said: Vec<u64> = said(txn).iter().map(|said| said.ns).collect();
        TimeScale::through(&times, &arrivals, &said, top)
    }

    fn through(times: &[u64], arrivals: &[(u64, u16, usize)], said: &[u64], top: f64) -> TimeScale {
        let mut scale = TimeScale { events: Vec::new(), cuts: Vec::new(), end: top };
        let (mut y, mut last) = (top, times[0]);
        // For each node, the height at which the node's last label ends. For the coordinator's own lane, the list has
        // the height at which the last words end.
        let mut free: Vec<(u16, f64)> = Vec::new();
        let mut words = top - LINE;
        for &time in times {
            let gap = (time - last) as f64 / 1e3 * SCALE;
            if gap > GAP_MAX {
                scale.cuts.push(y + GAP_MAX / 2.0);
            }
            y += if time > last { gap.clamp(GAP_MIN, GAP_MAX) } else { 0.0 };
            let here = arrivals.iter().filter(|(at, ..)| *at == time);
            for &(_, node, lines) in here {
                let until = free.iter().find(|(it, _)| *it == node).map_or(top, |(_, end)| *end);
                y = y.max(until);
                free.retain(|(it, _)| *it != node);
                free.push((node, y + LINE * lines as f64 + 4.0));
            }
            let lines = said.iter().filter(|at| **at == time).count();
            if lines > 0 {
                y = y.max(words + LINE);
                words = y + LINE * (lines - 1) as f64;
            }
            scale.events.push((time, y));
            last = time;
        }
        scale.end = free.iter().map(|(_, end)| *end).fold(y.max(words), f64::max);
        scale
    }

    fn y(&self, ns: u64) -> f64 {
        let at = self.events.partition_point(|(time, _)| *time < ns);
        self.events[at.min(self.events.len() - 1)].1
    }

    fn bottom(&self) -> f64 {
        self.end
    }
}
