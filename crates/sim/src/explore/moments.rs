//! Whether an execution's windows and waits are possible by true time.
//!
//! Invariant: what is known of the moments of its steps is a system of differences: each comes after the one before it, a window that was
//! found shorter is shorter than its lease, a wait is no shorter than its length. It has a solution unless a cycle of differences is
//! negative (Bellman and Ford). The explorer's rule offers all that has one, and a little more (`time`).

use super::trace::{Step, What};

/// Of one nanosecond: more than an execution has steps of time, each of which takes some time too.
const UNIT: i64 = 1 << 20;

/// A system of differences between moments.
#[derive(Default)]
pub(crate) struct Moments {
    count: usize,
    /// The second is at most so long after the first.
    at_most: Vec<(usize, usize, i64)>,
}

fn units(length_ns: u64) -> i64 {
    i64::try_from(length_ns).unwrap_or(i64::MAX).saturating_mul(UNIT).min(i64::MAX >> 20)
}

impl Moments {
    /// One more step, after all others; its number.
    pub(crate) fn step(&mut self) -> usize {
        if self.count > 0 {
            self.at_most.push((self.count, self.count - 1, -1));
        }
        self.count += 1;
        self.count - 1
    }

    /// The second is at least so long after the first.
    pub(crate) fn at_least(&mut self, first: usize, second: usize, length_ns: u64) {
        self.at_most.push((second, first, -units(length_ns)));
    }

    /// The second is less than that after the first.
    pub(crate) fn shorter(&mut self, first: usize, second: usize, length_ns: u64) {
        self.at_most.push((first, second, units(length_ns) - 1));
    }

    /// Takes back what was said last.
    #[cfg(test)]
    pub(crate) fn take_back(&mut self) {
        self.at_most.pop();
    }

    /// Whether there are such moments.
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

/// Whether clocks could show the windows and waits of an execution as it says. If they could not, what it was objected to for
/// need not be wrong: another execution may come to the same, or none.
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
