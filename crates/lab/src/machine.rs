//! The kind of this machine. Reports print the kind of machine beside every figure, because a
//! figure means nothing without the machine on which it was measured.
//!
//! Invariant: this module reports the kind of machine, never the machine's name. Only
//! [`pin_to_core`] changes how a run behaves.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Pins the calling thread to one core: the core whose number is `index` modulo the number of cores.
pub fn pin_to_core(index: usize) {
    tarn_fabric::local::pin_to_core(index);
}

/// The number of processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the processor's model, the number of processors, and the operating system.
pub fn describe() -> String {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    format!("{model}, {} processors, {}", processors(), std::env::consts::OS)
}

/// Returns the number of bytes of memory that another process takes now. Returns `None` if the system does not report
/// this number, or if the process has ended.
pub fn resident_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the time in nanoseconds that a cacheline takes from the first core to the second and back. The returned
/// time is the median of five measurements. The result is `None` on a machine with one core. The round trip of a
/// cacheline limits the rate of two threads that write the same records.
#[expect(clippy::disallowed_methods, reason = "measures the machine")]
pub fn line_round_trip_ns() -> Option<f64> {
    const TRIPS: u64 = 100_000;
    if processors() < 2 {
        return None;
    }
    let mut results: Vec<f64> = (0..5)
        .map(|_| {
            let word = AtomicU64::new(0);
            let start = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(|| pass(&word, 0, TRIPS));
                scope.spawn(|| pass(&word, 1, TRIPS));
            });
            start.elapsed().as_nanos() as f64 / TRIPS as f64
        })
        .collect();
    results.sort_by(f64::total_cmp);
    Some(results[2])
}

fn pass(word: &AtomicU64, player: u64, trips: u64) {
    pin_to_core(player as usize);
    for turn in (player..2 * trips).step_by(2) {
        while word.load(Ordering::Acquire) != turn {
            spin_loop();
        }
        word.store(turn + 1, Ordering::Release);
    }
}
