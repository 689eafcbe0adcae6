//! A hook for tests: a thread that has asked for it is stopped at random points of its rounds.
//!
//! Invariant: without the feature `preempt` a point does nothing. With it, points are between the
//! verbs of a round, between the lines of a copy, and between a stripe and the words that it
//! guards. Whether a thread yields or sleeps at a point is a function of its seed and of the number
//! of points passed. How long the operating system then keeps it away is not.

#[cfg(feature = "preempt")]
use crate::rng::mix;
#[cfg(feature = "preempt")]
use std::cell::Cell;
#[cfg(feature = "preempt")]
use std::time::Duration;

/// How often a thread is stopped. A rate of n stops it at one point in n; a rate of 0, never.
#[cfg(feature = "preempt")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    /// The thread gives the processor up.
    pub yield_one_in: u32,
    /// The thread sleeps, so that others make many rounds meanwhile.
    pub sleep_one_in: u32,
    /// The length of a sleep, in nanoseconds.
    pub sleep_ns: u64,
}

#[cfg(feature = "preempt")]
std::thread_local! {
    static RATES: Cell<Option<Rates>> = const { Cell::new(None) };
    /// The seed, moved on by every point.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Makes the calling thread stop at points from now on; `None` ends that.
#[cfg(feature = "preempt")]
pub fn arm(seed: u64, rates: Option<Rates>) {
    STATE.set(seed);
    RATES.set(rates);
}

/// Whether copies are to be made line by line.
#[cfg(not(loom))]
#[inline(always)]
pub(super) fn is_armed() -> bool {
    #[cfg(feature = "preempt")]
    return RATES.get().is_some();
    #[cfg(not(feature = "preempt"))]
    false
}

/// A point at which a thread may be stopped.
#[inline(always)]
pub(super) fn point() {
    #[cfg(feature = "preempt")]
    if let Some(rates) = RATES.get() {
        stop(rates);
    }
}

#[cfg(feature = "preempt")]
#[cold]
#[expect(clippy::disallowed_methods, reason = "the operating system is to keep the thread away")]
fn stop(rates: Rates) {
    STATE.set(STATE.get().wrapping_add(1));
    let draw = mix(STATE.get());
    let falls = |draw: u64, one_in: u32| one_in > 0 && draw.is_multiple_of(one_in.into());
    if falls(draw >> 32, rates.sleep_one_in) {
        std::thread::sleep(Duration::from_nanos(rates.sleep_ns));
    } else if falls(draw & 0xffff_ffff, rates.yield_one_in) {
        std::thread::yield_now();
    }
}
