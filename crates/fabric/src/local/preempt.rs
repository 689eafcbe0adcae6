//! Lets tests stop threads. The hook stops a thread at random points of its rounds, if the thread has requested it.
//!
//! Invariant: without the feature `preempt`, a stop point does nothing. With the feature, stop points lie between the
//! verbs of a round and between the lines of a copy. A stop point also lies between the access to a stripe and the
//! accesses to the words that the stripe guards. Whether a thread yields or sleeps at a stop point depends only on
//! the thread's seed and on the number of passed stop points. But the operating system decides when a thread that has
//! stopped runs again.

#[cfg(feature = "preempt")]
use crate::rng::mix;
#[cfg(feature = "preempt")]
use std::cell::Cell;
#[cfg(feature = "preempt")]
use std::time::Duration;

/// The rates at which a thread is stopped. A rate of n stops the thread at one of n stop points. A rate of 0 never
/// stops the thread.
#[cfg(feature = "preempt")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    /// The rate at which the thread yields the processor.
    pub yield_one_in: u32,
    /// The rate at which the thread sleeps, so that other threads execute many rounds during the sleep.
    pub sleep_one_in: u32,
    /// The length of a sleep, in nanoseconds.
    pub sleep_ns: u64,
}

#[cfg(feature = "preempt")]
std::thread_local! {
    static RATES: Cell<Option<Rates>> = const { Cell::new(None) };
    /// The state of the thread's random generator, which every stop point changes.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Makes the calling thread stop at stop points from now on. With `None`, the thread is not stopped any more.
#[cfg(feature = "preempt")]
pub fn arm(seed: u64, rates: Option<Rates>) {
    STATE.set(seed);
    RATES.set(rates);
}

/// Whether this thread must copy line by line, with a stop point after each line.
#[cfg(not(loom))]
#[inline(always)]
pub(super) fn is_armed() -> bool {
    #[cfg(feature = "preempt")]
    return RATES.get().is_some();
    #[cfg(not(feature = "preempt"))]
    false
}

/// A stop point, at which a thread may be stopped.
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
