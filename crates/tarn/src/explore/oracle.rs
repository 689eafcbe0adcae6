//! What the transactions of a litmus may come to: every order of them, run one after another.
//!
//! Invariant: knows values only, neither versions nor protocols, and so is independent of the checker of
//! histories. What was seen is right if some order of the transactions that took effect, in which whoever
//! ended before another began comes first, gives every read and the contents that are left.

use super::litmus::Litmus;
use super::script::{Content, Saw, Script};

/// How one transaction of a litmus ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Ended {
    /// Not begun, or dead in the middle: whatever it did may be there or not.
    #[default]
    Unknown,
    /// Acknowledged; what its reads saw, in order.
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

/// Every result of a litmus whose transactions all commit, ascending.
pub fn results(litmus: &Litmus) -> Vec<Vec<Content>> {
    let scripts = scripts(litmus);
    let seen: Vec<Seen> = scripts
        .iter()
        .map(|_| Seen { began: Some(0), told: None, ended: Ended::Unknown })
        .collect();
    let mut all = Vec::new();
    let must = vec![true; scripts.len()];
    let mut orders = Orders { litmus, scripts: &scripts, seen: &seen, must: &must };
    orders.walk(&mut vec![false; scripts.len()], &litmus.initial, &mut |contents, whole| {
        if whole {
            all.push(contents.to_vec());
        }
        false
    });
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether some order explains what was seen and what is left; `left` is `None` where memory could not
/// be looked at.
pub fn explains(litmus: &Litmus, seen: &[Seen], left: Option<&[Content]>) -> bool {
    let scripts = scripts(litmus);
    let is_placed = |ended: &Ended| matches!(ended, Ended::Committed(_) | Ended::Refused);
    let must: Vec<bool> = seen.iter().map(|it| is_placed(&it.ended)).collect();
    let mut orders = Orders { litmus, scripts: &scripts, seen, must: &must };
    orders.walk(&mut vec![false; scripts.len()], &litmus.initial, &mut |contents, whole| {
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
}

impl Orders<'_> {
    /// Goes through every order that begins with what is `done`; `is_it` is told the contents after each
    /// beginning, and whether nothing must follow. Whether it said yes once.
    fn walk(
        &mut self,
        done: &mut Vec<bool>,
        contents: &[Content],
        is_it: &mut dyn FnMut(&[Content], bool) -> bool,
    ) -> bool {
        let whole = self.must.iter().zip(&*done).all(|(must, done)| !must || *done);
        if is_it(contents, whole) {
            return true;
        }
        for next in 0..self.scripts.len() {
            if done[next] || !self.may_take_effect(next) || !self.is_next(next, done) {
                continue;
            }
            let mut after = contents.to_vec();
            let reads = self.scripts[next].interpret(self.litmus.ordered.as_ref(), &mut after);
            let is_as_seen = match &self.seen[next].ended {
                Ended::Committed(saw) => reads.as_ref() == Some(saw),
                Ended::Refused => reads.is_none(),
                Ended::Unknown | Ended::Without => true,
            };
            if !is_as_seen {
                continue;
            }
            done[next] = true;
            let found = self.walk(done, &after, is_it);
            done[next] = false;
            if found {
                return true;
            }
        }
        false
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
mod tests {
    use super::*;

    fn skew() -> Litmus {
        Litmus::load("write-skew").expect("a litmus")
    }

    fn committed(began: u64, told: u64, reads: &[Content]) -> Seen {
        let ended = Ended::Committed(reads.iter().copied().map(Saw::Content).collect());
        Seen { began: Some(began), told: Some(told), ended }
    }

    #[test]
    fn write_skew_has_two_results_and_not_the_third() {
        assert_eq!(results(&skew()), [[Some(1), Some(2)], [Some(2), Some(1)]]);
        let both = [committed(0, 9, &[Some(0)]), committed(1, 8, &[Some(0)])];
        assert!(!explains(&skew(), &both, Some(&[Some(1), Some(1)])));
        let serial = [committed(0, 9, &[Some(0)]), committed(1, 8, &[Some(1)])];
        assert!(explains(&skew(), &serial, Some(&[Some(1), Some(2)])));
        assert!(!explains(&skew(), &serial, Some(&[Some(2), Some(1)])));
        assert!(explains(&skew(), &serial, None));
    }

    #[test]
    fn real_time_and_doubt_count() {
        // The second saw what the first wrote, but had been told before the first began.
        let late = [committed(5, 9, &[Some(0)]), committed(1, 3, &[Some(1)])];
        assert!(!explains(&skew(), &late, None));
        // In doubt, it may have taken effect or not; never begun, it did not.
        let doubt = Seen { began: Some(0), ..Seen::default() };
        for left in [[Some(0), Some(1)], [Some(2), Some(1)]] {
            let seen = [doubt.clone(), committed(1, 3, &[Some(0)])];
            assert!(explains(&skew(), &seen, Some(&left)), "{left:?}");
        }
        let seen = [Seen::default(), committed(1, 3, &[Some(0)])];
        assert!(!explains(&skew(), &seen, Some(&[Some(2), Some(1)])));
        let without = Seen { ended: Ended::Without, ..doubt };
        let seen = [without, committed(1, 3, &[Some(0)])];
        assert!(!explains(&skew(), &seen, Some(&[Some(2), Some(1)])));
    }

    #[test]
    fn who_was_refused_needs_somebody_who_said_the_same() {
        let litmus = Litmus::load("unique-insert").expect("a litmus");
        assert_eq!(results(&litmus), [[None, Some(5)], [Some(5), None]]);
        let refused = Seen { began: Some(0), told: Some(9), ended: Ended::Refused };
        let one = [committed(0, 9, &[]), refused.clone()];
        assert!(explains(&litmus, &one, Some(&[Some(5), None])));
        assert!(!explains(&litmus, &[refused.clone(), refused], None));
        assert!(!explains(&litmus, &[committed(0, 9, &[]), committed(1, 8, &[])], None));
    }
}
