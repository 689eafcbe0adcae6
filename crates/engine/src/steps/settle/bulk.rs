//! Sends many verbs together: READs, WRITEs and CASes of words, in as few rounds as possible.
//!
//! Invariant: verbs to one node take effect in the order of the caller's list. If a dead memory node makes a round
//! fail, this module sends the round again without that node. So this module offers only verbs that may be repeated:
//! READ, WRITE of given bytes, and CAS of a word whose old value never returns.

use crate::site::Context;
use std::collections::BTreeSet;
use tarn_fabric::address::{NodeSlot, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{BufferOffset, Round, VERB_BYTES_MAX};
use tarn_store::ids::Failure;

/// The maximum number of verbs of one round.
const VERBS_MAX: usize = 512;
/// The maximum number of bytes that one round moves.
const BYTES_MAX: usize = 256 << 10;

/// One verb that the caller of [`Bulk`] wants to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// Reads the given number of bytes.
    Read(Target, usize),
    /// Writes the given bytes.
    Write(Target, Vec<u8>),
    /// Sets a word to 0 if it has the given value.
    Clear(Target, u64),
    /// Sets a word to the second value if it has the first value.
    Swap(Target, u64, u64),
}

impl Wish {
    fn target(&self) -> Target {
        match self {
            Wish::Read(target, _)
            | Wish::Write(target, _)
            | Wish::Clear(target, _)
            | Wish::Swap(target, ..) => *target,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Wish::Read(_, len) => *len,
            Wish::Write(_, bytes) => bytes.len(),
            Wish::Clear(..) | Wish::Swap(..) => 8,
        }
    }
}

/// The outcome of one verb that the caller wanted to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The verb was executed. The value contains the bytes that the verb read, or no bytes if the verb reads nothing.
    Done(Vec<u8>),
    /// The node of the verb is down.
    Down,
}

impl Answer {
    /// Returns the first word of the bytes that the verb has read, or `None` if the verb's node is down.
    pub(crate) fn word(&self) -> Option<u64> {
        let Answer::Done(bytes) = self else { return None };
        bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

/// Sends a list of verbs in few rounds. The text at the beginning of this file describes which verbs are allowed.
pub(crate) struct Bulk<'a> {
    cx: &'a Context,
    round: Round,
    down: BTreeSet<NodeSlot>,
}

impl<'a> Bulk<'a> {
    pub(crate) fn new(cx: &'a Context) -> Bulk<'a> {
        Bulk { cx, round: Round::new(), down: BTreeSet::new() }
    }

    /// Sends all verbs in the list `wishes`. Returns the answers to the verbs in the order of the list. Verbs to
    /// different nodes take effect in no particular order.
    pub(crate) async fn run(&mut self, wishes: &[Wish]) -> Result<Vec<Answer>, Failure> {
        let mut answers = Vec::with_capacity(wishes.len());
        let mut rest = wishes;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |wish: &&Wish| {
                bytes += wish.bytes();
                bytes <= BYTES_MAX
            };
            let count = rest.iter().take(VERBS_MAX).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            answers.extend(self.round_of(now).await?);
            rest = later;
        }
        Ok(answers)
    }

    async fn round_of(&mut self, wishes: &[Wish]) -> Result<Vec<Answer>, Failure> {
        loop {
            self.round.clear();
            let places: Vec<Option<BufferOffset>> =
                wishes.iter().map(|wish| self.plan(wish)).collect();
            match self.cx.port.execute(&mut self.round).await {
                Ok(()) => {
                    let answers = wishes.iter().zip(places);
                    return Ok(answers.map(|(wish, at)| self.answer(wish, at)).collect());
                }
                Err(error) => match *error {
                    FabricError::NodeDown(node) if self.down.insert(node) => {}
                    _ => return Err(error.into()),
                },
            }
        }
    }

    fn plan(&mut self, wish: &Wish) -> Option<BufferOffset> {
        let target = wish.target();
        if self.down.contains(&target.node()) {
            return None;
        }
        let round = &mut self.round;
        let at = match wish {
            Wish::Clear(_, word) => {
                round.cas(target, *word, 0);
                return Some(BufferOffset::default());
            }
            Wish::Swap(_, word, other) => {
                round.cas(target, *word, *other);
                return Some(BufferOffset::default());
            }
            Wish::Read(_, len) => round.reserve_lines(*len),
            Wish::Write(_, bytes) => {
                let at = round.reserve_lines(bytes.len());
                round.bytes_mut(at, bytes.len()).copy_from_slice(bytes);
                at
            }
        };
        for from in (0..wish.bytes()).step_by(VERB_BYTES_MAX) {
            let part = VERB_BYTES_MAX.min(wish.bytes() - from);
            match wish {
                Wish::Read(..) => round.read_into(target.plus(from), at.plus(from), part),
                _ => round.write(target.plus(from), at.plus(from), part),
            }
        }
        Some(at)
    }

    fn answer(&self, wish: &Wish, at: Option<BufferOffset>) -> Answer {
        match (wish, at) {
            (_, None) => Answer::Down,
            (Wish::Read(_, len), Some(at)) => Answer::Done(self.round.bytes(at, *len).to_vec()),
            _ => Answer::Done(Vec::new()),
        }
    }
}
