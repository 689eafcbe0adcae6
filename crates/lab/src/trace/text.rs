//! Draws a trace for a terminal of 100 columns. Time runs downwards, and the coordinator and each node have a lane.
//!
//! ```text
//!      µs  coordinator 3                                 M0             M1
//!    0.21  ┣━ lock
//!          ┃── CAS lock checking 17 ────────────────────►│              │
//!    2.31  ┃◄────────────────────────────────────────────┤              │
//! ```
//!
//! Invariant: no line is longer than 100 characters, and every verb has a line of its own.

use super::{Batch, Round, Trace, Transaction, Try, VerbSeen, Wait};
use crate::harness::letters::{clipped, put, trimmed};
use std::fmt::Write as _;

/// The number of columns of the terminal.
const WIDTH: usize = 100;
/// The column of the coordinator's lane.
const LANE: usize = 10;
/// The column of the first node's lane, and the largest possible column of the last node's lane.
const FIRST: usize = 60;
const LAST: usize = 97;
/// A wait gets a line of its own if it takes longer than this time. The same limit holds for a delay of the
/// coordinator by a busy processor.
const BUSY_NS: u64 = 100;

/// The rank of a line among the lines of the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Answer,
    Busy,
    End,
    Begin,
    Round,
    Verb,
    Wait,
}

/// A node to which the coordinator sends requests or messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Memory(u16),
    Compute(u16),
}

/// The column of each node's lane.
struct Lanes(Vec<(Node, usize)>);

impl Lanes {
    fn of(txn: &Transaction) -> Lanes {
        let memory = txn.nodes().into_iter().map(Node::Memory);
        let nodes: Vec<Node> = memory.chain(txn.peers().into_iter().map(Node::Compute)).collect();
        let gaps = nodes.len().saturating_sub(1).max(1);
        let gap = ((LAST - FIRST) / gaps).clamp(1, 16);
        let place = |(at, node): (usize, Node)| (node, (FIRST + at * gap).min(LAST));
        Lanes(nodes.into_iter().enumerate().map(place).collect())
    }

    fn column(&self, node: Node) -> usize {
        let lane = self.0.iter().find(|(other, _)| *other == node);
        lane.expect("every node that is asked has a lane").1
    }

    fn heading(&self, coordinator: u32) -> String {
        let mut line = Line::new(&Lanes(Vec::new()), None, ' ');
        line.put(3, "    µs");
        line.put(LANE, &format!("coordinator {coordinator}"));
        for (node, column) in &self.0 {
            let name = match node {
                Node::Memory(number) => format!("M{number}"),
                Node::Compute(number) => format!("C{number}"),
            };
            line.put(*column, &name);
        }
        line.end()
    }
}

/// A line of the drawing that is not yet complete.
struct Line(Vec<char>);

impl Line {
    /// Makes a line with all lanes and, if `at_ns` is given, a time.
    fn new(lanes: &Lanes, at_ns: Option<u64>, lane: char) -> Line {
        let mut line = Line(vec![' '; WIDTH]);
        line.0[LANE] = lane;
        for (_, column) in &lanes.0 {
            line.0[*column] = '│';
        }
        if let Some(ns) = at_ns {
            line.put(0, &format!("{:>9.2}", ns as f64 / 1e3));
        }
        line
    }

    fn put(&mut self, at: usize, text: &str) {
        put(&mut self.0, at, text);
    }

    /// Draws an arrow between the coordinator and a column, with words on the arrow.
    fn arrow(&mut self, column: usize, words: &str, is_answer: bool) {
        self.0[LANE + 1..column].fill('─');
        let room = FIRST.min(column) - LANE - 6;
        if !words.is_empty() {
            self.put(LANE + 3, &format!(" {} ", clipped(words, room)));
        }
        match is_answer {
            true => {
                self.0[LANE + 1] = '◄';
                self.0[column] = '┤';
            }
            false => self.0[column - 1] = '►',
        }
    }

    fn end(&self) -> String {
        trimmed(&self.0)
    }
}

/// Draws the whole trace.
pub fn draw(trace: &Trace) -> String {
    let mut text = trace.heading();
    text.push('\n');
    for txn in &trace.transactions {
        let _ = write!(text, "\n{}", draw_one(txn));
    }
    text
}

/// Draws one transaction.
pub fn draw_one(txn: &Transaction) -> String {
    let lanes = Lanes::of(txn);
    let mut lines: Vec<(u64, Order, String)> = Vec::new();
    for (number, it) in txn.tries.iter().enumerate() {
        draw_try(&mut lines, txn, (number + 1, it), &lanes);
    }
    lines.sort_by_key(|(at, order, _)| (*at, *order));
    let mut text = format!("{}\n{}\n", wrap(&txn.heading()), lanes.heading(txn.coordinator));
    for (_, _, line) in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn draw_try(
    lines: &mut Vec<(u64, Order, String)>,
    txn: &Transaction,
    (number, it): (usize, &Try),
    lanes: &Lanes,
) {
    let since = |ns: u64| Some(ns - txn.began_ns);
    let mut say = |at: u64, order: Order, lane: char, words: &str| {
        let mut line = Line::new(lanes, since(at), lane);
        // Words that would reach into the first node's lane are cut.
        let room = FIRST - LANE - 2;
        line.put(LANE + 1, &words.chars().take(room).collect::<String>());
        lines.push((at, order, line.end()));
    };
    if txn.tries.len() > 1 {
        say(it.began_ns, Order::Begin, '┏', &format!("━ try {number}"));
    }
    let is_long = |wait: &&Wait| wait.to_ns - wait.from_ns > BUSY_NS;
    for wait in it.waits.iter().filter(is_long) {
        let us = (wait.to_ns - wait.from_ns) as f64 / 1e3;
        say(wait.from_ns, Order::Wait, '┊', &format!(" {}, {us:.2} µs", wait.why));
    }
    for round in &it.rounds {
        let nobody = if round.awaited { "" } else { " (nobody waits for it)" };
        say(round.posted_ns(), Order::Round, '┣', &format!("━ {}{nobody}", round.name()));
        let resumed =
            round.resumed_ns.filter(|resumed| resumed.saturating_sub(round.completed_ns) > BUSY_NS);
        if let Some(resumed) = resumed {
            let us = (resumed - round.completed_ns) as f64 / 1e3;
            say(resumed, Order::Busy, '┃', &format!(" its thread was busy for {us:.2} µs"));
        }
    }
    say(it.ended_ns, Order::End, '┗', &format!("━ {}", it.outcome));
    for round in &it.rounds {
        for batch in &round.batches {
            draw_batch(lines, txn, (round, batch), lanes);
        }
    }
    for message in &it.messages {
        let mut line = Line::new(lanes, since(message.sent_ns), '┃');
        let column = lanes.column(Node::Compute(message.to));
        line.arrow(column, &format!("message, {} B", message.bytes), false);
        lines.push((message.sent_ns, Order::Verb, line.end()));
    }
}

fn draw_batch(
    lines: &mut Vec<(u64, Order, String)>,
    txn: &Transaction,
    (round, batch): (&Round, &Batch),
    lanes: &Lanes,
) {
    let column = lanes.column(Node::Memory(batch.to));
    for (at, verb) in batch.verbs.iter().enumerate() {
        let later = at == 0 && batch.posted_ns > round.posted_ns();
        let time = later.then(|| batch.posted_ns - txn.began_ns);
        let mut line = Line::new(lanes, time, '┃');
        line.arrow(column, &words(verb), false);
        lines.push((batch.posted_ns, Order::Verb, line.end()));
    }
    let mut line = Line::new(lanes, Some(batch.seen_ns - txn.began_ns), '┃');
    let refused = batch.verbs.iter().find_map(|verb| verb.refused.as_ref());
    let words = refused.map(|holder| format!("refused: {holder} has it")).unwrap_or_default();
    line.arrow(column, &words, true);
    lines.push((batch.seen_ns, Order::Answer, line.end()));
}

/// Describes a verb in one line of text.
pub(crate) fn words(verb: &VerbSeen) -> String {
    match verb.kind {
        "READ" | "WRITE" => format!("{} {}, {} B", verb.kind, verb.what, verb.bytes),
        kind => format!("{kind} {}", verb.what),
    }
}

/// Breaks the text into lines between words.
fn wrap(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("  {word}"));
        } else {
            *last = format!("{last}{}{word}", if last.is_empty() { "" } else { " " });
        }
    }
    lines.join("\n")
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
