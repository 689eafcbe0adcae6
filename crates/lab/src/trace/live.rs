//! A transaction that is being recorded: its tries, its coordinator's waits, and its rounds that
//! are not yet complete.
//!
//! Invariant: a try of a transaction ends when the engine has counted the try's abort or commit. If the coordinator
//! waits after this end, the wait belongs to the next try.

use super::{Pick, Transaction, Try, Wait};
use std::cmp::Reverse;
use tarn_fabric::clock::Nanos;

/// The text for an outcome or a lock holder that is not known.
pub(super) const UNKNOWN: &str = "unknown";

/// A transaction that has not ended, or that has incomplete rounds, so that it may still cause events.
pub(super) struct Live {
    pub(super) txn: Transaction,
    /// The number of the transaction's rounds that are not yet complete.
    pub(super) on_the_way: usize,
    /// Whether the transaction's caller has the reply.
    pub(super) has_ended: bool,
    /// Whether the last try was aborted or committed, so that the next wait belongs to another try.
    pub(super) try_is_over: bool,
    /// The phases that the transaction entered since its last round.
    pub(super) entered: Vec<&'static str>,
    /// The index of the round for which the coordinator waits.
    pub(super) awaited: Option<usize>,
    /// The time at which the executor last finished polling the coordinator.
    pub(super) polled_until: Nanos,
}

/// A transaction's rank for the selection: a transaction with a smaller rank is kept before one with a larger rank.
pub(super) type Rank = (Reverse<u64>, Reverse<u64>, u64);

impl Try {
    pub(super) fn begun(now: Nanos) -> Try {
        let (began_ns, ended_ns) = (now.0, now.0);
        Try { began_ns, ended_ns, outcome: UNKNOWN.into(), ..Try::default() }
    }
}

impl Live {
    pub(super) fn of(txn: Transaction, now: Nanos) -> Live {
        Live {
            txn,
            on_the_way: 0,
            has_ended: false,
            try_is_over: false,
            entered: Vec::new(),
            awaited: None,
            polled_until: now,
        }
    }

    pub(super) fn last(&mut self) -> &mut Try {
        self.txn.tries.last_mut().expect("there is one from the beginning on")
    }

    /// Begins the next try of the transaction, if the last try is over.
    pub(super) fn go_on(&mut self, now: Nanos) {
        if std::mem::take(&mut self.try_is_over) {
            self.txn.tries.push(Try::begun(now));
        }
    }

    /// Notes that the executor polls the transaction's coordinator again.
    pub(super) fn resumes(&mut self, now: Nanos) {
        if let Some(at) = self.awaited.take() {
            self.last().rounds[at].resumed_ns = Some(now.0);
            return;
        }
        let why = match self.try_is_over {
            true => "pause after the abort",
            false => "work of its thread, or an unlock before it",
        };
        let (from_ns, to_ns) = (self.polled_until.0, now.0);
        if let Some(last) = self.last().waits.last_mut()
            && last.why == why
            && last.to_ns + 1_000 > from_ns
        {
            last.to_ns = to_ns;
        } else if to_ns > from_ns {
            self.last().waits.push(Wait { why, from_ns, to_ns });
        }
    }
}

/// Returns the rank of a transaction in the selection; `None` if the transaction is not wanted.
pub(super) fn rank(pick: Pick, txn: &Transaction) -> Option<Rank> {
    let (tries, latency) = (txn.tries.len() as u64, txn.latency_ns());
    let was_aborted = txn.tries.iter().any(|it| it.outcome.starts_with("aborted"));
    match pick {
        Pick::First => Some((Reverse(0), Reverse(0), txn.number)),
        Pick::Slowest => Some((Reverse(latency), Reverse(0), txn.number)),
        Pick::Aborted => was_aborted.then_some((Reverse(0), Reverse(0), txn.number)),
        Pick::Contended => (tries > 1).then_some((Reverse(tries), Reverse(latency), txn.number)),
    }
}
