//! The clock that measures windows and waits: the processor's time-stamp counter where that is
//! safe, else the system's clock.
//!
//! Invariant: all threads of a process measure by one clock. If a thread sees an effect of another
//! thread's action after the other's reading, its own later reading is the same or later. So a wait
//! that lies within a window is never longer than the window. The system's monotonic clock promises
//! that. The counter keeps the promise where the system's own clock is that counter (its clock
//! source is `tsc`), since the system uses it no differently. The counter's rate is not a matter
//! of safety, since windows and waits are counted in the same ticks. It is measured once a process,
//! so that a lease is about as long as it says. (Processes would measure different rates: they do
//! not share leases.) Reading the counter takes a fifth of the instructions of reading the clock.
//!
//! A counter is no memory. It is read after all instructions before it, and
//! [`super::sync::clock_fence`] keeps back the instructions behind it. Both need a processor whose
//! `lfence` holds back everything, which the processor has to report.
//!
//! **A window that begins earlier than it must** ([`Readings`]). A window may be opened in the
//! past. It is then longer than the reads in it took: fewer windows are within their lease, and
//! none wrongly. So a thread that closes one window after the other need not read its clock for
//! their beginnings: each begins at the last reading but one. That reading is in front of the fence
//! of the last one, and that fence is in front of all that is read now.

use super::sync::clock_fence;
use crate::clock::Nanos;
use crate::window::{Closed, Drift, Wait, Window};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The file that names the kernel's clock source.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// The counter is compared with the clock for this long: the error of a reading is small beside it.
const MEASURED: Duration = Duration::from_millis(2);
/// A reading of both counts as simultaneous if no more time has passed between the two.
const TOGETHER: Duration = Duration::from_micros(1);
/// Number of attempts to read both together.
const TRIES: usize = 1_000;

/// One process's clock; see the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseClock {
    /// The counter.
    Counter(Rate),
    /// The system's clock, in nanoseconds since that instant.
    Clock(Instant),
}

/// A counter's rate, in multiples of 2^-32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate {
    ticks_per_ns: u64,
    ns_per_tick: u64,
}

impl Rate {
    /// Returns the rate of a counter that has advanced by `ticks` in `passed`. The result is `None`
    /// if that cannot be the rate of a clock: allowed are 1 tick in 100 ns to 100 ticks in 1 ns.
    fn of(ticks: u64, passed: Duration) -> Option<Rate> {
        let rate = (u128::from(ticks) << 32) / passed.as_nanos().max(1);
        let least = (1 << 32) / 100;
        (least..=100 << 32).contains(&rate).then(|| Rate::from_ticks(rate as u64))
    }

    /// The rate of `ticks_per_ns` × 2^-32 ticks in a nanosecond; the argument is more than 1.
    fn from_ticks(ticks_per_ns: u64) -> Rate {
        Rate { ticks_per_ns, ns_per_tick: ((1u128 << 64) / u128::from(ticks_per_ns)) as u64 }
    }

    /// Returns the length of `ticks`, or a little less.
    #[inline]
    fn length(self, ticks: u64) -> Nanos {
        Nanos(self.saturated(u128::from(ticks) * u128::from(self.ns_per_tick)))
    }

    /// How many whole ticks fit into `length`.
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

/// A thread's readings at the ends of its last two windows. They are 0 before there were any: a
/// window that begins there is too long for every lease.
#[derive(Default)]
pub(super) struct Readings {
    last: Cell<u64>,
    before: Cell<u64>,
}

impl Readings {
    /// A window that began at the last reading but one.
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

    /// Returns this clock's ticks so far, read after all earlier instructions of this thread.
    #[inline]
    fn now(self) -> u64 {
        match self {
            LeaseClock::Counter(_) => counter(),
            LeaseClock::Clock(since) => nanoseconds(since),
        }
    }

    /// Opens a window, before all later actions of this thread.
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

    /// Like [`LeaseClock::close_window`]; keeps the reading for later windows.
    #[inline]
    pub(super) fn close_for(self, readings: &Readings, window: Window, lease: Nanos) -> Closed {
        let now = self.now();
        if matches!(self, LeaseClock::Clock(_)) {
            clock_fence(); // the counter is read behind one of its own
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

    /// Returns whether a window of `passed` whole ticks, and a part of one, was shorter than
    /// `lease`.
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

    /// Returns whether a wait has ended; if so, it ended before all later stores of this thread.
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

/// Whether the system's clock is the counter, and the counter can be read behind other instructions.
fn is_safe() -> bool {
    let source = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
    source.trim() == "tsc" && has_counter()
}

/// How fast the counter runs.
fn measure() -> Option<Rate> {
    let (first, since) = read_together()?;
    while now() - since < MEASURED {
        std::hint::spin_loop();
    }
    let (last, until) = read_together()?;
    Rate::of(last.checked_sub(first)?, until - since)
}

/// Reads the counter and the clock, with little time between the two.
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

/// The counter, read after all instructions before it.
#[inline(always)]
fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // The fence waits for all earlier instructions where `lfence` does so (`has_counter`).
        // RDTSCP waits too, but takes twice as long.
        clock_fence();
        // SAFETY: callers make sure that the processor has such a counter; it changes nothing but
        // its result.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unreachable!("no counter here")
}

/// Returns whether the processor's counter runs at one rate in every state, and its `lfence` holds
/// back all instructions: Intel's does, others report it.
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
            // There is no reading yet: no lease is that long.
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
