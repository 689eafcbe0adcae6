//! The desk: the shared place where the coroutines of one execution put their results.
//!
//! Invariant: each execution has one desk. The times in the results are true time
//! ([`tarn_fabric::port::Port::observed`]). The interval of a transaction is the interval that its caller sees: from
//! the first try to the reply.

use super::oracle::{Ended, Seen};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;
use tarn_engine::site::Context;
use tarn_engine::transaction::HistorySink;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::mix;
use tarn_store::history::RecordedTxn;

/// The results that the coroutines of one execution have put on the desk.
#[derive(Default)]
pub struct Left {
    /// The result of each transaction of the litmus, coordinator by coordinator.
    pub seen: Vec<Seen>,
    /// The transactions that the engine recorded, by coordinator. Coordinators that died are included.
    pub sinks: Vec<HistorySink>,
    /// For each transaction, the position in its coordinator's sink at which its tries begin.
    pub first_tries: Vec<(usize, usize)>,
    /// The contexts of all threads. Each context has the thread's decisions about transactions in
    /// doubt.
    pub contexts: Vec<Rc<Context>>,
    /// Pairs of compute nodes. The first node of a pair has found that the recovery of the dead second node has
    /// ended.
    pub recovered: Vec<(NodeId, NodeId)>,
    /// Descriptions of events that happened although the engine must prevent them.
    pub failures: Vec<String>,
    /// The transactions that saw a torn row, in which two words have different numbers.
    pub torn: Vec<usize>,
    /// The phases in which each actor posted its rounds, by actor and round number, counted from 1. Only executions
    /// that draw a trace record these phases.
    pub phases: BTreeMap<(usize, u32), String>,
}

/// The desk of one execution.
#[derive(Default)]
pub struct Desk {
    pub(super) left: RefCell<Left>,
}

impl Desk {
    /// Creates a desk for `transactions` transactions.
    pub fn new(transactions: usize) -> Desk {
        let left = Left {
            seen: vec![Seen::default(); transactions],
            first_tries: vec![(0, usize::MAX); transactions],
            ..Left::default()
        };
        Desk { left: RefCell::new(left) }
    }

    /// Returns the sink for the next coordinator's history.
    pub fn sink(&self) -> HistorySink {
        let sink = HistorySink::default();
        self.left.borrow_mut().sinks.push(Rc::clone(&sink));
        sink
    }

    /// Records that a transaction of a coordinator begins.
    pub fn begins(&self, coordinator: usize, index: usize, at: Nanos) {
        let left = &mut *self.left.borrow_mut();
        let before = left.sinks[coordinator].borrow().len();
        left.first_tries[index] = (coordinator, before);
        left.seen[index].began = Some(at.0);
    }

    /// Records that the caller of a transaction is told how it ended.
    pub fn told(&self, index: usize, at: Nanos, ended: Ended) {
        let seen = &mut self.left.borrow_mut().seen[index];
        (seen.told, seen.ended) = (Some(at.0), ended);
    }

    /// Returns a digest of all results that the coroutines of a compute node have put on the desk. The digest omits
    /// the times of the results, because the explorer knows the order of these times. `coordinators` are the
    /// coordinators of the node.
    pub fn digest_of(&self, node: NodeId, coordinators: &[usize]) -> u64 {
        let left = &*self.left.borrow();
        let mut text = String::new();
        for (index, (coordinator, first)) in left.first_tries.iter().enumerate() {
            let Seen { began, told, ended } = &left.seen[index];
            if began.is_some() && coordinators.contains(coordinator) {
                let is_torn = left.torn.contains(&index);
                let _ = write!(text, "{index} {first} {} {is_torn} {ended:?};", told.is_some());
            }
        }
        for &coordinator in coordinators {
            for RecordedTxn { id, outcome, reads, writes, .. } in &*left.sinks[coordinator].borrow()
            {
                let _ = write!(text, "{id} {outcome:?} {reads:?} {writes:?};");
            }
        }
        for cx in left.contexts.iter().filter(|cx| cx.node.id == node) {
            let _ = write!(text, "{:?};", cx.decisions().into_iter().collect::<Vec<_>>());
        }
        let recovered = left.recovered.iter().filter(|(by, _)| *by == node);
        let _ = write!(text, "{:?}; {:?}", recovered.collect::<Vec<_>>(), left.failures);
        text.bytes().fold(text.len() as u64, |digest, byte| mix(digest ^ u64::from(byte)))
    }

    /// Returns all results, for the judge.
    pub fn left(&self) -> std::cell::Ref<'_, Left> {
        self.left.borrow()
    }
}
