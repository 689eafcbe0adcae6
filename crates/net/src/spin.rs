//! How long a thread looks for packets before it sleeps: as long as that pays.
//!
//! Invariant: the time is the configured one, or nothing. Where the thread that is to answer waits for the processor of the thread that
//! spins, spinning never pays; after a few failures most waits sleep at once, and now and then one spins again.

use std::sync::atomic::{AtomicU32, Ordering};

/// Spinning that has failed so often in sequence is left out for a while.
const FAILURES: u32 = 3;
/// Waits that are left out then; twice as many after each further failure.
const SKIPPED: u32 = 4;
/// How often that number doubles. Source: 64 waits that sleep take less than a millisecond.
const DOUBLINGS: u32 = 4;

/// The state of a process or of a client.
#[derive(Debug)]
pub(crate) struct Spin {
    most_ns: u64,
    /// Failures in sequence.
    failed: AtomicU32,
    /// Waits that are still to be left out.
    skipped: AtomicU32,
}

impl Spin {
    pub(crate) fn new(most_ns: u64) -> Spin {
        Spin { most_ns, failed: AtomicU32::new(0), skipped: AtomicU32::new(0) }
    }

    /// How long the wait that begins may spin.
    pub(crate) fn begin(&self) -> u64 {
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped == 0 {
            return self.most_ns;
        }
        self.skipped.store(skipped - 1, Ordering::Relaxed);
        0
    }

    /// A wait that might spin for `ns` has ended. `paid`: before it slept.
    pub(crate) fn end(&self, ns: u64, paid: bool) {
        if ns == 0 {
            return;
        }
        let failed = if paid { 0 } else { self.failed.load(Ordering::Relaxed).saturating_add(1) };
        self.failed.store(failed, Ordering::Relaxed);
        if failed >= FAILURES {
            let skipped = SKIPPED << (failed - FAILURES).min(DOUBLINGS);
            self.skipped.store(skipped, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_stops_while_it_does_not_pay() {
        let spin = Spin::new(50);
        for _ in 0..FAILURES {
            assert_eq!(spin.begin(), 50);
            spin.end(50, false);
        }
        for doublings in (0..=DOUBLINGS).chain([DOUBLINGS]) {
            for _ in 0..SKIPPED << doublings {
                assert_eq!(spin.begin(), 0);
                spin.end(0, false);
            }
            assert_eq!(spin.begin(), 50);
            spin.end(50, false);
        }
        while spin.begin() == 0 {}
        spin.end(50, true);
        assert_eq!(spin.begin(), 50, "one success is enough");
    }
}
