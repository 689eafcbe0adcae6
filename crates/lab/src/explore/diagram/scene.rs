//! Converts a trace to rows. Each verb, each fault, and each beginning or end of a transaction has one row. A row
//! also shows the records after this event.
//!
//! Invariant: rows are in the order of the execution. If the lines of one verb land one after another, they share one
//! row. The row of the step that changed a record shows the record's words in memory after this step.

use super::super::desk::Desk;
use super::super::model::LitmusModel;
use super::names::{Names, field, lock, tag, version};
use std::collections::BTreeMap;
use tarn_fabric::address::{NodeId, Target};
use tarn_fabric::round::VerbKind;
use tarn_sim::explore::{Fault, Replayed, Step, What};
use tarn_store::ids::OwnerTag;
use tarn_store::layout::{LOCK_AT, VERSION_AT};

/// The kind of a row, which determines its colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// A READ, or the end of a round.
    Plain,
    /// A change of memory.
    Change,
    /// The beginning or the end of a transaction.
    Mark,
    /// A refusal or a fault.
    Bad,
}

/// One row of the drawing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The number of the step in the execution.
    pub step: u32,
    /// The actor that caused the event of this row, if any actor did.
    pub actor: Option<usize>,
    /// For a verb: the step in which it was sent, and the memory node at which it landed.
    pub arrow: Option<(u32, u16)>,
    /// A description of the event.
    pub words: String,
    /// The state of the records that the event changed.
    pub state: String,
    /// The kind of the row, for its colour.
    pub tone: Tone,
}

/// The rows of one schedule, ready to be drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scene {
    /// The title of the drawing.
    pub title: String,
    /// The verdict of the judge.
    pub verdict: String,
    /// The names of the actors. Each actor has one lane.
    pub actors: Vec<String>,
    /// The number of memory nodes. Each memory node has one lane.
    pub memory_nodes: usize,
    /// The rows of all events.
    pub rows: Vec<Row>,
}

impl Scene {
    /// Creates the scene of a schedule that was run again.
    pub fn of(title: String, model: &LitmusModel, replayed: &Replayed) -> Scene {
        let cluster = model.cluster();
        let names = Names::of(cluster);
        let desk = model.desk();
        let mut making = Making {
            names: &names,
            desk: &desk,
            heads: BTreeMap::new(),
            rows: Vec::new(),
            last: None,
        };
        for step in &replayed.trace {
            making.step(step);
        }
        let rows = making.rows;
        let actors = model.actor_names();
        // An actor without any event has no lane.
        let used = |at: usize| rows.iter().any(|row| row.actor == Some(at));
        let last = (0..actors.len()).rev().find(|at| used(*at)).map_or(0, |at| at + 1);
        let verdict = match &replayed.verdict {
            Ok(()) => "nothing is wrong".to_owned(),
            Err(text) => text.clone(),
        };
        let actors = actors.into_iter().take(last).collect();
        let shape = cluster.shape;
        Scene { title, verdict, actors, memory_nodes: shape.memory_nodes + shape.spares, rows }
    }
}

/// The known words of the head of a record at one node.
type Head = [Option<u64>; 2];

struct Making<'a> {
    names: &'a Names,
    desk: &'a Desk,
    heads: BTreeMap<(u16, u64), Head>,
    rows: Vec<Row>,
    /// The verb whose lines are landing one after another, and the number of this verb's lines that have landed.
    last: Option<((usize, u32, u32), u32)>,
}

/// A piece of a verb: some bytes of one object that the verb read or wrote.
struct Piece<'a> {
    kind: VerbKind,
    target: Target,
    len_bytes: usize,
    before: &'a [u64],
    after: &'a [u64],
}

impl Making<'_> {
    fn step(&mut self, step: &Step) {
        let mut row = Row {
            step: step.number,
            actor: step.actor,
            arrow: None,
            words: String::new(),
            state: String::new(),
            tone: Tone::Plain,
        };
        if let What::Landed { round, verb, kind, target, len_bytes, posted, before, after } =
            &step.what
        {
            let piece =
                Piece { kind: *kind, target: *target, len_bytes: *len_bytes, before, after };
            let id = (step.actor.unwrap_or(usize::MAX), *round, *verb);
            let state = self.change(&piece);
            if let Some((last, lines)) = &mut self.last
                && *last == id
                && state.is_empty()
                && let Some(before) = self.rows.last_mut()
            {
                *lines += 1;
                before.words = with_lines(&before.words, *lines);
                if piece.before != piece.after {
                    before.tone = Tone::Change;
                }
                before.step = step.number;
                return;
            }
            let phase = self.phase(step, *round);
            row.arrow = Some((*posted, target.node().0));
            row.words = format!("{phase}{}", self.piece(&piece));
            row.tone = if before == after { Tone::Plain } else { Tone::Change };
            row.state = state;
            self.last = Some((id, 1));
            self.rows.push(row);
            return;
        }
        if let Some((words, tone)) = words(&step.what) {
            self.last = None;
            (row.words, row.tone) = (words, tone);
            self.rows.push(row);
        }
    }

    fn phase(&self, step: &Step, round: u32) -> String {
        let left = self.desk.left();
        let known = step.actor.and_then(|actor| left.phases.get(&(actor, round)));
        match known.map(String::as_str) {
            Some(phase) if !phase.is_empty() => format!("{phase}: "),
            _ if !step.phase.is_empty() => format!("{}: ", step.phase),
            _ => String::new(),
        }
    }

    /// Describes the effect that a piece of a verb has on an object.
    fn piece(&self, piece: &Piece<'_>) -> String {
        let named = self.names.at(piece.target.address());
        let is_head = named.as_ref().is_some_and(|it| it.is_record && it.offset == LOCK_AT);
        let address = piece.target.address();
        let name = match &named {
            Some(it) => it.name.to_owned(),
            None => format!("{}:{}", address.group().0, address.offset_bytes()),
        };
        match piece.kind {
            VerbKind::Read if is_head && piece.before.len() > 1 => {
                format!("READ {name} ({}, {})", version(piece.before[1]), lock(piece.before[0]))
            }
            VerbKind::Read => format!("READ {name}"),
            VerbKind::Write => {
                let named = named.filter(|it| it.is_record);
                let of_several =
                    named.as_ref().and_then(|it| it.field).filter(|it| it.is_of_version());
                match of_several {
                    Some(field) => format!("WRITE {name}: {field}"),
                    None => format!("WRITE {name}{}", part(named.map(|it| it.offset), piece)),
                }
            }
            VerbKind::FetchAndAdd => format!("FAA {name}"),
            VerbKind::CompareAndSwap | VerbKind::MaskedCompareAndSwap => {
                let (from, to) = (piece.before[0], piece.after[0]);
                match (is_head, from == to) {
                    (true, true) => format!("CAS {name} finds {}", lock(from)),
                    (true, false) => format!("CAS {name} {} → {}", lock(from), lock(to)),
                    (false, true) => format!("CAS {name} refused"),
                    (false, false) => format!("CAS {name}"),
                }
            }
        }
    }

    /// Records the new words that a piece of a verb shows in the heads of records. Returns a description of the
    /// changed words.
    fn change(&mut self, piece: &Piece<'_>) -> String {
        let (mut said, mut cells) = (Vec::new(), Vec::new());
        for (word, (before, after)) in piece.before.iter().zip(piece.after).enumerate() {
            let address = piece.target.address().plus(word * 8);
            let Some(named) = self.names.at(address).filter(|it| it.is_record) else { continue };
            let node = piece.target.node().0;
            if let Some(text) = named.field.and_then(|it| field(it, *after)) {
                if before != after {
                    cells.push(format!("{}@M{node} {text}", named.name));
                }
                continue;
            }
            let at = match named.offset & !7 {
                LOCK_AT => 0,
                VERSION_AT => 1,
                _ => continue,
            };
            let name = format!("{}@M{node}", named.name);
            let head = self.heads.entry((node, named.at.to_word())).or_default();
            head[at] = Some(*after);
            if before != after {
                said.push((name, *head));
            }
        }
        said.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = later.1;
            }
            same
        });
        let said = said.iter().map(|(name, head)| format!("{name} {}", shown(head)));
        said.chain(cells).collect::<Vec<String>>().join(", ")
    }
}

fn shown([lock_word, version_word]: &Head) -> String {
    let version = version_word.map(version);
    let lock = lock_word.map(|word| match OwnerTag::from_word(word) {
        None => "free".to_owned(),
        Some(owner) => format!("locked {}", tag(owner)),
    });
    [version, lock].into_iter().flatten().collect::<Vec<String>>().join(" ")
}

/// Names the part of an object that a WRITE changes.
fn part(offset: Option<usize>, piece: &Piece<'_>) -> String {
    match offset {
        Some(0) if piece.len_bytes == 8 => format!(".lock = {}", lock(piece.after[0])),
        Some(VERSION_AT) => format!(" = {}", version(piece.after[0])),
        Some(0) if piece.after.len() > 1 => format!(" = {}", version(piece.after[1])),
        Some(0) | None => String::new(),
        Some(offset) => format!("+{offset}"),
    }
}

fn with_lines(words: &str, lines: u32) -> String {
    // Replaces only the number of lines at the end of the description. A number in the description of the first line
    // stays unchanged.
    let counted = words.strip_suffix(" lines)").and_then(|it| it.rsplit_once(" ("));
    let base = counted.map_or(words, |(base, _)| base);
    format!("{base} ({lines} lines)")
}

/// Returns the description and the tone of an event, or `None` for an event that needs no row.
fn words(what: &What) -> Option<(String, Tone)> {
    let node = |node: &NodeId| format!("compute node {}", node.slot.0);
    Some(match what {
        What::Began => ("begins a transaction".to_owned(), Tone::Mark),
        What::Ended => ("its caller is told".to_owned(), Tone::Mark),
        What::Finished => ("is done".to_owned(), Tone::Mark),
        What::Panicked(text) => (format!("PANICS: {text}"), Tone::Bad),
        What::Refused { round, at, error } => {
            (format!("round {round} refused at M{}: {error}", at.0), Tone::Bad)
        }
        What::Completed { round, error: Some(error) } => {
            (format!("round {round} ended: {error}"), Tone::Bad)
        }
        What::Completed { .. } | What::Started | What::Posted { .. } => return None,
        What::Landed { .. } => return None,
        What::Broke(Fault::Died(who)) => (format!("{} DIES", node(who)), Tone::Bad),
        What::Broke(Fault::DeclaredDead(who)) => {
            (format!("{} is DECLARED DEAD and goes on", node(who)), Tone::Bad)
        }
        What::Broke(Fault::MemoryDied(at)) => (format!("memory node {} DIES", at.0), Tone::Bad),
        What::Broke(Fault::MessageLost(to)) => {
            (format!("a message to node {} is LOST", to.0), Tone::Bad)
        }
        What::Broke(Fault::MessageDoubled(to)) => {
            (format!("a message to node {} is DOUBLED", to.0), Tone::Bad)
        }
        What::WindowOpened => ("its window opens".to_owned(), Tone::Plain),
        What::WindowClosed { lease_ns, is_shorter } => {
            let found = if *is_shorter { "shorter" } else { "longer" };
            (format!("its window closes: {found} than {lease_ns} ns"), Tone::Plain)
        }
        What::WaitBegan => ("its wait begins".to_owned(), Tone::Plain),
        What::WaitEnded { length_ns } => (format!("it has waited {length_ns} ns"), Tone::Plain),
        What::RevokeAsked { whom, at } => {
            (format!("asks M{} to revoke {}", at.0, node(whom)), Tone::Plain)
        }
        What::Revoked { whom, at } => (format!("M{} has revoked {}", at.0, node(whom)), Tone::Bad),
        What::MessageSent { message, to } => {
            (format!("sends message {message} to node {}", to.node.0), Tone::Plain)
        }
        What::MessageDelivered { message, to } => {
            (format!("message {message} has reached node {}", to.node.0), Tone::Plain)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_lines_takes_the_place_of_the_one_before_alone() {
        let two = with_lines("READ x (v1, free)", 2);
        assert_eq!(two, "READ x (v1, free) (2 lines)");
        assert_eq!(with_lines(&two, 3), "READ x (v1, free) (3 lines)");
        assert_eq!(with_lines(&with_lines("WRITE x", 2), 3), "WRITE x (3 lines)");
    }
}
