//! The possible results of a litmus's transactions: every order of them, run one after another.
//!
//! Invariant: this module knows values only, neither versions nor protocols, and so is independent of the checker of
//! histories. The results are right if some order of the transactions that took effect gives every read and the contents
//! that are left. In it a transaction that ended before another began comes first. Under snapshot isolation the order is
//! that of commits. Each transaction runs on the contents after some of the transactions before it, among them all that had
//! ended before it began; no transaction between writes a record that it writes.

use super::litmus::Litmus;
use super::script::{Content, RecordIndex, Saw, Script};
use tarn_check::Isolation;

/// How one transaction of a litmus ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Ended {
    /// Not begun, or dead in the middle: whatever it did may be there or not.
    #[default]
    Unknown,
    /// Acknowledged; the results of its reads, in order.
    Committed(Vec<Saw>),
    /// A unique index refused it, so it took no effect: at its place another record must have said the same.
    Refused,
    /// It took no effect: aborted in every try, or failed before anything was committed.
    Without,
}

/// One transaction as it was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// When it began; `None`: never.
    pub began: Option<u64>,
    /// When its caller was told.
    pub told: Option<u64>,
    /// How it ended.
    pub ended: Ended,
}

/// Every result of a litmus whose transactions all commit under this isolation, ascending.
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

/// Whether some order explains the results and the contents that are left; `left` is `None` where memory could not be
/// looked at.
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

/// All scripts, coordinator by coordinator.
fn scripts(litmus: &Litmus) -> Vec<&Script> {
    litmus.coordinators.iter().flat_map(|crew| &crew.transactions).collect()
}

struct Orders<'a> {
    litmus: &'a Litmus,
    scripts: &'a [&'a Script],
    seen: &'a [Seen],
    /// Which transactions every order has.
    must: &'a [bool],
    isolation: Isolation,
}

/// A beginning of an order.
struct Path {
    /// Which transactions it has.
    done: Vec<bool>,
    /// The same in order, each with the records that it wrote.
    commits: Vec<(usize, Vec<RecordIndex>)>,
    /// The contents of the records before and after each.
    contents: Vec<Vec<Content>>,
}

impl Path {
    fn new(orders: &Orders<'_>) -> Path {
        let done = vec![false; orders.scripts.len()];
        Path { done, commits: Vec::new(), contents: vec![orders.litmus.initial.clone()] }
    }
}

impl Orders<'_> {
    /// Goes through every order that begins with `done`. It passes to `is_it` the contents after each beginning, and
    /// whether nothing must follow. Returns whether `is_it` returned true once.
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

    /// Returns the contents after `next` and the records it wrote, if `next` may commit now with a snapshot after `from`
    /// commits, and if its results are then those that were seen.
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
            // Another that it has not seen says the same by now.
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

    /// Whether it may come after those that are done, and before those that must still come.
    fn is_next(&self, next: usize, done: &[bool]) -> bool {
        (0..self.scripts.len()).filter(|at| *at != next).all(|at| match done[at] {
            true => !self.is_before(next, at),
            false => !self.must[at] || !self.is_before(at, next),
        })
    }

    /// Whether one of two had ended when the other began.
    fn is_before(&self, one: usize, other: usize) -> bool {
        let (told, began) = (self.seen[one].told, self.seen[other].began);
        matches!((told, began), (Some(told), Some(began)) if told < began)
            || self.same_coordinator_before(one, other)
    }

    /// Whether `at` is an earlier transaction of `next`'s coordinator.
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
