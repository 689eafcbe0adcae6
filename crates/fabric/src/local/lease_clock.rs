//! The clock that measures windows and waits: the processor's time-stamp counter if that is safe, and otherwise the
//! system's clock.
//!
//! Invariant: all threads of a process measure by one clock. Suppose that one thread reads the clock and then acts,
//! and that another thread sees the effect of this action and then reads the clock. The second thread's reading is
//! then equal to the first thread's reading or later. So a wait that lies within a window is never longer than the
//! window. The system's monotonic clock guarantees that the second reading is not earlier. The processor's counter
//! guarantees it too, if the system's own clock is this counter (if the clock source is `tsc`). In that case the
//! system reads the counter in the same way. Safety does not depend on the counter's rate, since windows and waits
//! are counted in the same ticks. Each process measures the rate once, so that a lease has about its nominal length.
//! (Different processes would measure different rates, but they do not share leases.) Reading the counter takes a
//! fifth of the instructions that reading the clock takes.
//!
//! The counter is not memory, so memory fences do not order its readings. A thread reads the counter after all its
//! earlier instructions, and [`super::sync::clock_fence`] delays its later instructions until after the reading. Both
//! orders need a processor whose `lfence` delays all instructions, and the processor must report this property.
//!
//! **A window that begins earlier than it must** ([`Readings`]). A window may begin at a time in the past. A window
//! that begins in the past is longer than its reads took. So fewer windows are shorter than their lease, but no
//! answer is wrong. So if a thread closes one window after another, it need not read the clock to begin a window.
//! Each window begins at the reading before the last reading. The reading before the last one was made before the
//! fence of the last reading. This fence was executed before all reads of the present window.

use super::sync::clock_fence;
use crate::clock::Nanos;
use crate::window::{Closed, Drift, Wait, Window};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The file that names the kernel's clock source.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// To measure the counter's rate, the counter is compared with the clock for this length of time. The error of one
/// reading is small compared with this length.
const MEASURED: Duration = Duration::from_millis(2);
/// The counter and the clock count as read simultaneously if at most this time has passed between the two readings.
const TOGETHER: Duration = Duration::from_micros(1);
/// The maximum number of attempts to read the counter and the clock simultaneously.
const TRIES: usize = 1_000;

/// The clock of one process. See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseClock {
    /// The process uses the processor's counter.
    Counter(Rate),
    /// The process uses the system's clock, in nanoseconds since this instant.
    Clock(Instant),
}

/// The rate of a counter. Both fields are multiples of 2^-32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate {
    ticks_per_ns: u64,
    ns_per_tick: u64,
}

impl Rate {
    /// Returns the rate of a counter that has advanced by `ticks` in `passed`. Returns `None` if this rate is not
    /// possible for a clock. Possible rates are from 1 tick in 100 ns to 100 ticks in 1 ns.
    fn of(ticks: u64, passed: Duration) -> Option<Rate> {
        let rate = (u128::from(ticks) << 32) / passed.as_nanos().max(1);
        let least = (1 << 32) / 100;
        (least..=100 << 32).contains(&rate).then(|| Rate::from_ticks(rate as u64))
    }

    /// Returns the rate of `ticks_per_ns` × 2^-32 ticks per nanosecond. The argument must be more than 1.
    fn from_ticks(ticks_per_ns: u64) -> Rate {
        Rate { ticks_per_ns, ns_per_tick: ((1u128 << 64) / u128::from(ticks_per_ns)) as u64 }
    }

    /// Returns the length of `ticks` ticks in nanoseconds, or a little less.
    #[inline]
    fn length(self, ticks: u64) -> Nanos {
        Nanos(self.saturated(u128::from(ticks) * u128::from(self.ns_per_tick)))
    }

    /// Returns the number of whole ticks in `length`.
    #[inline]
    fn ticks_within(self, length: Nanos) -> u64 {
        self.saturated(u128::from(length.0) * u128::from(self.ticks_per_ns))
    }

    /// Returns the number of ticks after which `length` has passed.
    #[inline]
    fn ticks_beyond(self, length: Nanos) -> u64 {
        self.saturated(u128::from(length.0) * u128::from(self.ticks_per_ns) + u128::from(u32::MAX))
    }

    #[inline]
    fn saturated(self, scaled: u128) -> u64 {
        u64::try_from(scaled >> 32).unwrap_or(u64::MAX)
    }
}

/// A thread's readings at the ends of its last two windows. Before the thread has closed a window, both readings
/// are zero. A window that begins at 0 is too long for every lease.
#[derive(Default)]
pub(super) struct Readings {
    last: Cell<u64>,
    before: Cell<u64>,
}

impl Readings {
    /// Returns a window that began at the reading before the last reading.
    #[inline]
    pub(super) fn window(&self) -> Window {
        Window(self.before.get())
    }
}

impl LeaseClock {
    /// Returns the process's clock.
    pub(super) fn of_process() -> LeaseClock {
        static CHOSEN: OnceLock<LeaseClock> = OnceLock::new();
        *CHOSEN.get_or_init(choose)
    }

    /// Returns this clock's ticks so far, which it reads after all earlier instructions of this thread.
    #[inline]
    fn now(self) -> u64 {
        match self {
            LeaseClock::Counter(_) => counter(),
            LeaseClock::Clock(since) => nanoseconds(since),
        }
    }

    /// Opens a window. The window begins before all later actions of this thread.
    #[inline]
    pub(super) fn open_window(self) -> Window {
        let window = Window(self.now());
        clock_fence();
        window
    }

    #[inline]
    pub(super) fn close_window(self, window: Window, lease: Nanos) -> Closed {
        self.close_at(self.now(), window, lease)
    }

    /// Does the same as [`LeaseClock::close_window`], and keeps the reading for later windows.
    #[inline]
    pub(super) fn close_for(self, readings: &Readings, window: Window, lease: Nanos) -> Closed {
        let now = self.now();
        if matches!(self, LeaseClock::Clock(_)) {
            clock_fence(); // a reading of the counter has its own fence before it
        }
        readings.before.set(readings.last.replace(now));
        self.close_at(now, window, lease)
    }

    #[inline]
    fn close_at(self, now: u64, window: Window, lease: Nanos) -> Closed {
        let passed = now.saturating_sub(window.0);
        let length = match self {
            LeaseClock::Counter(rate) => rate.length(passed),
            LeaseClock::Clock(_) => Nanos(passed),
        };
        Closed { is_shorter: self.is_shorter(passed, lease), passed: Some(length) }
    }

    /// Returns whether a window was shorter than `lease`. The window's length was `passed` whole ticks and a part of
    /// one more tick.
    #[inline]
    fn is_shorter(self, passed: u64, lease: Nanos) -> bool {
        match self {
            LeaseClock::Counter(rate) => passed < rate.ticks_within(lease),
            LeaseClock::Clock(_) => Drift::ONE_CLOCK.is_shorter(Nanos(passed), lease),
        }
    }

    #[inline]
    pub(super) fn begin_wait(self) -> Wait {
        Wait(self.now())
    }

    /// Returns whether a wait has ended. If the wait has ended, it ended before all later stores of this thread.
    #[inline]
    pub(super) fn has_ended(self, wait: Wait, length: Nanos) -> bool {
        self.now() >= self.end_of(wait, length)
    }

    #[inline]
    fn end_of(self, wait: Wait, length: Nanos) -> u64 {
        match self {
            _ if length == Nanos(0) => wait.0,
            LeaseClock::Counter(rate) => {
                wait.0.saturating_add(rate.ticks_beyond(length)).saturating_add(1)
            }
            LeaseClock::Clock(_) => Drift::ONE_CLOCK.end_of(Nanos(wait.0), length).0,
        }
    }
}

fn choose() -> LeaseClock {
    match is_safe().then(measure).flatten() {
        Some(rate) => LeaseClock::Counter(rate),
        None => LeaseClock::Clock(now()),
    }
}

/// Whether the counter is safe: the system's clock uses the counter, and a thread can read the counter after all its
/// earlier instructions.
fn is_safe() -> bool {
    let source = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
    source.trim() == "tsc" && has_counter()
}

/// Measures the rate of the counter.
fn measure() -> Option<Rate> {
    let (first, since) = read_together()?;
    while now() - since < MEASURED {
        std::hint::spin_loop();
    }
    let (last, until) = read_together()?;
    Rate::of(last.checked_sub(first)?, until - since)
}

/// Reads the counter and the clock, with little time between the two readings.
fn read_together() -> Option<(u64, Instant)> {
    (0..TRIES).find_map(|_| {
        let before = now();
        let ticks = counter();
        (now() - before <= TOGETHER).then_some((ticks, before))
    })
}

#[expect(clippy::disallowed_methods, reason = "the real backend's clock")]
fn now() -> Instant {
    Instant::now()
}

#[inline]
fn nanoseconds(since: Instant) -> u64 {
    now().duration_since(since).as_nanos() as u64
}

/// Reads the counter after all earlier instructions of this thread.
#[inline(always)]
fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // The fence waits for all earlier instructions if the processor's `lfence` does so (`has_counter`). The
        // instruction RDTSCP also waits, but takes twice the time.
        clock_fence();
        // SAFETY: callers check that the processor has this counter. The instruction changes only its result.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unreachable!("no counter here")
}

/// Returns whether the processor's counter runs at one rate in every state, and whether its `lfence` delays all later
/// instructions. On Intel's processors it does, and other processors report this property.
fn has_counter() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::CpuidResult;
        let cpuid = std::arch::x86_64::__cpuid;
        let has = |leaf: u32, of: fn(CpuidResult) -> u32, bit: u32| {
            cpuid(0x8000_0000).eax >= leaf && of(cpuid(leaf)) >> bit & 1 == 1
        };
        let maker = cpuid(0);
        let is_intel =
            [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel";
        let is_steady = has(0x8000_0007, |it| it.edx, 8);
        is_steady && (is_intel || has(0x8000_0021, |it| it.eax, 2))
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> [LeaseClock; 2] {
        [LeaseClock::Counter(Rate::from_ticks(5 << 31)), LeaseClock::Clock(now())]
    }

    #[test]
    fn no_wait_of_a_lease_fits_into_a_window_that_was_shorter() {
        for clock in both() {
            for lease in [1, 2, 3, 7, 100, 20_000, u64::MAX / 4].map(Nanos) {
                let wait = clock.end_of(Wait(1_000), lease) - 1_000;
                assert!(!clock.is_shorter(wait, lease), "{lease:?}");
                assert!(
                    !clock.is_shorter(wait - 1, lease),
                    "{lease:?}: nor one that began within a tick"
                );
            }
            assert!(clock.is_shorter(5_000, Nanos(20_000)));
            assert!(!clock.is_shorter(0, Nanos(0)));
        }
    }

    #[test]
    fn a_window_that_begins_early_begins_two_readings_before() {
        for clock in
            both().into_iter().filter(|it| matches!(it, LeaseClock::Clock(_)) || has_counter())
        {
            let (readings, long) = (Readings::default(), Nanos(u64::MAX / 4));
            // The thread has no reading yet, so the window begins at 0 and is too long for any lease.
            assert!(!clock.close_at(clock.now(), readings.window(), Nanos(1)).is_shorter);
            let before = clock.now();
            let first = clock.close_for(&readings, Window(before), long);
            assert_eq!(readings.window(), Window(0), "one reading has no fence behind it");
            let between = clock.now();
            clock.close_for(&readings, Window(between), long);
            let Window(begun) = readings.window();
            assert!((before..=between).contains(&begun), "{before} {begun} {between}");
            assert!(first.is_shorter);
            clock.close_for(&readings, Window(begun), long);
            assert!(readings.window().0 >= between, "it moves on");
        }
    }

    #[test]
    fn an_impossible_rate_is_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(Rate::of(2_500_000_000, second), Some(Rate::from_ticks(5 << 31)));
        for ticks in [0, 1, 1 << 40] {
            assert_eq!(Rate::of(ticks, second), None, "{ticks}");
        }
    }

    #[test]
    fn the_process_clock_runs_as_fast_as_the_system_clock() {
        let clock = LeaseClock::of_process();
        let (length, begun) = (Nanos(5_000_000), now());
        let (wait, window) = (clock.begin_wait(), clock.open_window());
        while !clock.has_ended(wait, length) {}
        let waited = begun.elapsed();
        let Closed { is_shorter, passed } = clock.close_window(window, Nanos(length.0 / 2));
        assert!(!is_shorter);
        let (passed, least) = (passed.expect("there is time"), Nanos(4_000_000));
        assert!(passed >= least && passed.0 <= begun.elapsed().as_nanos() as u64 * 2, "{passed}");
        assert!(waited >= Duration::from_millis(4), "{waited:?}: 5 ms and what a rate may be off");
    }
}
