//! Where the coroutines of one execution leave what they saw.
//!
//! Invariant: one desk an execution. Stamps are true time ([`tarn_fabric::port::Port::observed`]), and
//! a transaction's interval is its caller's: from the first try to the reply.

use super::oracle::{Ended, Seen};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tarn_engine::history::RecordedTxn;
use tarn_engine::outcome::{Resolution, TxnId};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;

/// How somebody else resolved a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Whose.
    pub id: TxnId,
    /// How.
    pub resolution: Resolution,
    /// When.
    pub at: Nanos,
}

/// What coroutines leave.
#[derive(Default, Debug)]
pub struct Left {
    /// Each transaction of the litmus, coordinator by coordinator.
    pub seen: Vec<Seen>,
    /// Each transaction's tries, as the engine recorded them, by transaction of the litmus.
    pub tries: Vec<Vec<RecordedTxn>>,
    /// What recovery said.
    pub answers: Vec<Answer>,
    /// Dead compute nodes whose recovery came to its end.
    pub recovered: Vec<NodeId>,
    /// What must not happen.
    pub failures: Vec<String>,
    /// Rows that said two things, by transaction.
    pub torn: Vec<usize>,
    /// Phases in which each actor posted its rounds, by actor and round from 1; kept for traces only.
    pub phases: BTreeMap<(usize, u32), String>,
}

/// See the module's text.
#[derive(Default)]
pub struct Desk {
    left: RefCell<Left>,
}

impl Desk {
    /// For so many transactions.
    pub fn new(transactions: usize) -> Desk {
        let left = Left {
            seen: vec![Seen::default(); transactions],
            tries: vec![Vec::new(); transactions],
            ..Left::default()
        };
        Desk { left: RefCell::new(left) }
    }

    /// A transaction begins.
    pub fn begins(&self, index: usize, at: Nanos) {
        self.left.borrow_mut().seen[index].began = Some(at.0);
    }

    /// Its caller is told.
    pub fn told(&self, index: usize, at: Nanos, ended: Ended) {
        let seen = &mut self.left.borrow_mut().seen[index];
        (seen.told, seen.ended) = (Some(at.0), ended);
    }

    /// What the engine recorded of it.
    pub fn recorded(&self, index: usize, tries: Vec<RecordedTxn>) {
        self.left.borrow_mut().tries[index].extend(tries);
    }

    /// A row of it said two things.
    pub fn torn(&self, index: usize) {
        self.left.borrow_mut().torn.push(index);
    }

    /// What must not happen has.
    pub fn fails(&self, text: String) {
        self.left.borrow_mut().failures.push(text);
    }

    /// Recovery has decided.
    pub fn answers(&self, answer: Answer) {
        self.left.borrow_mut().answers.push(answer);
    }

    /// Nothing of a dead node's transactions is left to decide.
    pub fn recovered(&self, node: NodeId) {
        self.left.borrow_mut().recovered.push(node);
    }

    /// In which phases an actor posted a round.
    pub fn posted(&self, actor: usize, round: u32, phases: String) {
        self.left.borrow_mut().phases.insert((actor, round), phases);
    }

    /// Everything, for the judge.
    pub fn left(&self) -> std::cell::Ref<'_, Left> {
        self.left.borrow()
    }
}
