//! A transaction that is being recorded: its tries, its coordinator's waits, its rounds on their way.
//!
//! Invariant: a try is over when the engine has counted its abort or its commit; a wait of the coordinator after that is
//! the next try's.

use super::{Pick, Transaction, Try, Wait};
use std::cmp::Reverse;
use tarn_fabric::clock::Nanos;

/// While nothing is known of an outcome or a holder.
pub(super) const UNKNOWN: &str = "unknown";

/// A transaction of which something may still come.
pub(super) struct Live {
    pub(super) txn: Transaction,
    /// Rounds on their way.
    pub(super) on_the_way: usize,
    /// The caller has the reply.
    pub(super) has_ended: bool,
    /// The last try was aborted or committed: the next wait is another one's.
    pub(super) try_is_over: bool,
    /// Phases entered since the last round.
    pub(super) entered: Vec<&'static str>,
    /// The round that the coordinator waits for.
    pub(super) awaited: Option<usize>,
    /// The coordinator's last turn ended.
    pub(super) polled_until: Nanos,
}

/// The smaller, the better.
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

    /// The next try, if the last is over.
    pub(super) fn go_on(&mut self, now: Nanos) {
        if std::mem::take(&mut self.try_is_over) {
            self.txn.tries.push(Try::begun(now));
        }
    }

    /// Its coordinator is polled again.
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

/// How much a transaction is wanted; `None` for not at all.
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
