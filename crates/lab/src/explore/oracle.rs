//! The oracle: it computes the possible results of a litmus's transactions. The oracle tries every
//! order of the transactions, one after another.
//!
//! Invariant: this module knows only values, and neither versions nor protocols. So the oracle is independent of the
//! checker of histories. The results are right if some order of the transactions that took effect gives the result of
//! every read and the final contents. If one transaction ended before another transaction began, the order must
//! contain the ended transaction first. Under snapshot isolation the order is the order of commits. Each transaction
//! reads a snapshot: the contents after some of the transactions before it. The snapshot of a transaction includes
//! all transactions that had ended before the transaction began. No transaction that commits between this snapshot
//! and the transaction's own commit writes a record that the transaction writes.

use super::litmus::Litmus;
use super::script::{Content, RecordIndex, Saw, Script};
use tarn_check::Isolation;

/// How one transaction of a litmus ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Ended {
    /// The transaction did not begin, or its coordinator died in the middle. The effects of such a
    /// transaction may be in memory or not.
    #[default]
    Unknown,
    /// The transaction was acknowledged. The field holds the results of its reads, in order.
    Committed(Vec<Saw>),
    /// A unique index refused the transaction, so it took no effect. At its place in the order, another
    /// record must have had the same value.
    Refused,
    /// The transaction took no effect: it aborted in every try, or failed before it committed.
    Without,
}

/// One transaction, as its caller saw it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// The time at which the transaction began. `None` means that the transaction never began.
    pub began: Option<u64>,
    /// The time at which the transaction's caller got the reply.
    pub told: Option<u64>,
    /// How the transaction ended.
    pub ended: Ended,
}

/// Returns every result of a litmus whose transactions all commit under this isolation, in ascending
/// order.
pub fn results(litmus: &Litmus, isolation: Isolation) -> Vec<Vec<Content>> {
    let scripts = scripts(litmus);
    let seen: Vec<Seen> = scripts
        .iter()
        .map(|_| Seen { began: Some(0), told: None, ended: Ended::Unknown })
        .collect();
    let mut all = Vec::new();
    let must = vec![true; scripts.len()];
    let orders = Orders { litmus, scripts: &scripts, seen: &seen, must: &must, isolation };
    orders.walk(&mut Path::new(&orders), &mut |contents, whole| {
        if whole {
            all.push(contents.to_vec());
        }
        false
    });
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns whether some order of the transactions gives the results that the callers saw and the final contents.
/// `left` is the final contents, or `None` if memory could not be read.
pub fn explains(
    (litmus, isolation): (&Litmus, Isolation),
    seen: &[Seen],
    left: Option<&[Content]>,
) -> bool {
    let scripts = scripts(litmus);
    let is_placed = |ended: &Ended| matches!(ended, Ended::Committed(_) | Ended::Refused);
    let must: Vec<bool> = seen.iter().map(|it| is_placed(&it.ended)).collect();
    let orders = Orders { litmus, scripts: &scripts, seen, must: &must, isolation };
    orders.walk(&mut Path::new(&orders), &mut |contents, whole| {
        whole && left.is_none_or(|left| left == contents)
    })
}

/// Returns all scripts, coordinator by coordinator.
fn scripts(litmus: &Litmus) -> Vec<&Script> {
    litmus.coordinators.iter().flat_map(|crew| &crew.transactions).collect()
}

struct Orders<'a> {
    litmus: &'a Litmus,
    scripts: &'a [&'a Script],
    seen: &'a [Seen],
    /// For each transaction, whether every order must contain it.
    must: &'a [bool],
    isolation: Isolation,
}

/// The first part of an order of transactions.
struct Path {
    /// For each transaction, whether the first part of the order contains it.
    done: Vec<bool>,
    /// The transactions of the first part of the order, in order, each with the records that it wrote.
    commits: Vec<(usize, Vec<RecordIndex>)>,
    /// The contents of the records before the first transaction and after each transaction.
    contents: Vec<Vec<Content>>,
}

impl Path {
    fn new(orders: &Orders<'_>) -> Path {
        let done = vec![false; orders.scripts.len()];
        Path { done, commits: Vec::new(), contents: vec![orders.litmus.initial.clone()] }
    }
}

impl Orders<'_> {
    /// Tries every order that begins with the transactions of `path`. For each longer beginning of an order, the
    /// function calls `is_it` with the contents after it. The second argument of `is_it` says whether the order may
    /// end there. Returns whether `is_it` returned true for any beginning.
    fn walk(&self, path: &mut Path, is_it: &mut dyn FnMut(&[Content], bool) -> bool) -> bool {
        let whole = self.must.iter().zip(&path.done).all(|(must, done)| !must || *done);
        if is_it(path.contents.last().expect("the initial ones"), whole) {
            return true;
        }
        for next in 0..self.scripts.len() {
            if path.done[next] || !self.may_take_effect(next) || !self.is_next(next, &path.done) {
                continue;
            }
            let first = match self.isolation {
                Isolation::SnapshotIsolation => 0,
                _ => path.commits.len(),
            };
            for from in first..=path.commits.len() {
                let Some((after, written)) = self.commit(next, path, from) else { continue };
                path.done[next] = true;
                path.commits.push((next, written));
                path.contents.push(after);
                let found = self.walk(path, is_it);
                path.contents.pop();
                path.commits.pop();
                path.done[next] = false;
                if found {
                    return true;
                }
            }
        }
        false
    }

    /// Returns the contents after the transaction `next`, and the records that `next` wrote. The result is `None` if
    /// `next` cannot commit now with a snapshot after `from` commits. The result is also `None` if the results of
    /// `next` would differ from the results that its caller saw.
    fn commit(
        &self,
        next: usize,
        path: &Path,
        from: usize,
    ) -> Option<(Vec<Content>, Vec<RecordIndex>)> {
        let between = &path.commits[from..];
        if between.iter().any(|&(at, _)| self.is_before(at, next)) {
            return None;
        }
        let ordered = self.litmus.ordered.as_ref();
        let (mut own, mut written) = (path.contents[from].clone(), Vec::new());
        let mut reads = self.scripts[next].interpret_noting(ordered, &mut own, &mut written);
        let is_overwritten = |it| between.iter().any(|(_, others)| others.contains(it));
        if written.iter().any(is_overwritten) {
            return None;
        }
        let mut after = path.contents.last().expect("the initial ones").clone();
        written.iter().for_each(|it| after[it.0] = own[it.0]);
        if !written.is_empty() && ordered.is_some_and(|it| it.refuses(&after)) {
            // Another record has taken the same value since the transaction's snapshot.
            reads = None;
        }
        let is_as_seen = match &self.seen[next].ended {
            Ended::Committed(saw) => reads.as_ref() == Some(saw),
            Ended::Refused => reads.is_none(),
            Ended::Unknown | Ended::Without => true,
        };
        if reads.is_none() {
            return is_as_seen.then(|| (path.contents[path.commits.len()].clone(), Vec::new()));
        }
        is_as_seen.then_some((after, written))
    }

    fn may_take_effect(&self, at: usize) -> bool {
        let seen = &self.seen[at];
        self.must[at] || (seen.ended == Ended::Unknown && seen.began.is_some())
    }

    /// Returns whether a transaction may follow the transactions of the order, and precede the
    /// transactions that must still follow.
    fn is_next(&self, next: usize, done: &[bool]) -> bool {
        (0..self.scripts.len()).filter(|at| *at != next).all(|at| match done[at] {
            true => !self.is_before(next, at),
            false => !self.must[at] || !self.is_before(at, next),
        })
    }

    /// Returns whether transaction `one` had ended when transaction `other` began.
    fn is_before(&self, one: usize, other: usize) -> bool {
        let (told, began) = (self.seen[one].told, self.seen[other].began);
        matches!((told, began), (Some(told), Some(began)) if told < began)
            || self.same_coordinator_before(one, other)
    }

    /// Returns whether the transaction `at` precedes the transaction `next` in the same coordinator's list.
    fn same_coordinator_before(&self, at: usize, next: usize) -> bool {
        let mut first = 0;
        for crew in &self.litmus.coordinators {
            let own = first..first + crew.transactions.len();
            if own.contains(&next) {
                return own.contains(&at) && at < next;
            }
            first = own.end;
        }
        false
    }
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
