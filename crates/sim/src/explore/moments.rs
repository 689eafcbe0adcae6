//! Checks whether an execution's windows and waits are possible in true time.
//!
//! Invariant: the constraints on the moments of an execution's steps form a system of differences.
//! Each step happens after the previous step. If an actor found a window shorter than its lease, the
//! window is shorter. A wait is at least as long as its length says. The system has a solution unless
//! a cycle of differences is negative (Bellman and Ford). The explorer's rule for time (module
//! `time`) allows every execution that has a solution, and a few executions without a solution.

use super::trace::{Step, What};

/// The number of units in one nanosecond. This number must exceed the number of steps of time in an
/// execution, because each step takes at least one unit.
const UNIT: i64 = 1 << 20;

/// A system of differences between moments.
#[derive(Default)]
pub(crate) struct Moments {
    count: usize,
    /// The constraints: the second step happens at most this many units after the first step.
    at_most: Vec<(usize, usize, i64)>,
}

fn units(length_ns: u64) -> i64 {
    i64::try_from(length_ns).unwrap_or(i64::MAX).saturating_mul(UNIT).min(i64::MAX >> 20)
}

impl Moments {
    /// Adds a step after all other steps. Returns the number of the new step.
    pub(crate) fn step(&mut self) -> usize {
        if self.count > 0 {
            self.at_most.push((self.count, self.count - 1, -1));
        }
        self.count += 1;
        self.count - 1
    }

    /// Demands that the second step happens at least `length_ns` after the first step.
    pub(crate) fn at_least(&mut self, first: usize, second: usize, length_ns: u64) {
        self.at_most.push((second, first, -units(length_ns)));
    }

    /// Demands that the second step happens less than `length_ns` after the first step.
    pub(crate) fn shorter(&mut self, first: usize, second: usize, length_ns: u64) {
        self.at_most.push((first, second, units(length_ns) - 1));
    }

    /// Removes the constraint that was added last.
    #[cfg(test)]
    pub(crate) fn take_back(&mut self) {
        self.at_most.pop();
    }

    /// Returns whether moments exist that satisfy all constraints.
    pub(crate) fn are_possible(&self) -> bool {
        let mut moments = vec![0i64; self.count];
        for _ in 0..=self.count {
            let mut is_stable = true;
            for &(first, second, most) in &self.at_most {
                let latest = moments[first].saturating_add(most);
                if latest < moments[second] {
                    (moments[second], is_stable) = (latest, false);
                }
            }
            if is_stable {
                return true;
            }
        }
        false
    }
}

/// Returns whether clocks could show the windows and waits of an execution as its trace says. If
/// clocks could not show them, the judge's objection to the execution may not be a fault. Perhaps no
/// possible execution leads to the state to which the judge objects.
pub fn has_moments(trace: &[Step]) -> bool {
    let mut moments = Moments::default();
    let mut begun: Vec<(Option<usize>, bool, usize)> = Vec::new();
    for step in trace {
        let is_window = matches!(step.what, What::WindowOpened | What::WindowClosed { .. });
        let is_wait = matches!(step.what, What::WaitBegan | What::WaitEnded { .. });
        if !is_window && !is_wait {
            continue;
        }
        let now = moments.step();
        let since = begun.iter().position(|it| (it.0, it.1) == (step.actor, is_window));
        let since = since.map(|at| begun.swap_remove(at).2);
        match (&step.what, since) {
            (What::WindowOpened | What::WaitBegan, _) => begun.push((step.actor, is_window, now)),
            (What::WindowClosed { lease_ns, is_shorter: true }, Some(since)) => {
                moments.shorter(since, now, *lease_ns);
            }
            (What::WaitEnded { length_ns }, Some(since)) => {
                moments.at_least(since, now, *length_ns);
            }
            _ => {}
        }
    }
    moments.are_possible()
}
