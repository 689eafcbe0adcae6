//! Measures the time of single loads on this machine. The loads read memory with the same size and the same kind of
//! pages as the workload's memory. The reader can compare a transaction's time with the time of bare loads.
//!
//! Invariant: one thread loads 8 bytes of a random line each time, after every page was accessed
//! once. A linear congruential generator draws the lines, so no loop reads a list of addresses.

use serde::Serialize;
use std::hint::black_box;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tarn_fabric::address::GroupId;
use tarn_fabric::local::{Backing, LineAtomicity, NodeMemory, Region};

/// The number of loads of one loop.
const LOADS: u64 = 1 << 20;
/// The number of lines that the prefetched loop requests ahead.
const DEPTH: usize = 16;
const PAGE_BYTES: u64 = 4096;
const LINE_BYTES: u64 = 64;

/// The measured time of one loop of loads.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BareLoop {
    /// The loop's name. `dependent`: the next address needs the loaded value. `independent`: the
    /// next address does not need the loaded value, so the processor overlaps loads. `prefetched`:
    /// the loop prefetches a batch of lines, and then loads them.
    #[serde(rename = "loop")]
    pub name: &'static str,
    /// The number of loads that the loop itself keeps in flight; `None`: the processor decides this
    /// number.
    pub depth: Option<usize>,
    /// The number of nanoseconds per line.
    pub ns_per_line: f64,
    /// The size of the memory in bytes.
    pub bytes: u64,
    /// The kind of the memory's pages.
    pub pages: &'static str,
}

/// Runs the three loops over `bytes` of memory, or over half of the machine's available memory if
/// this half is smaller.
///
/// # Errors
/// Returns the operating system's error if the system cannot provide the memory.
pub fn loops(bytes: u64, backing: Backing) -> io::Result<Vec<BareLoop>> {
    let left = tarn::memory::available_bytes().unwrap_or(u64::MAX) / 2;
    let bytes = bytes.min(left).max(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
    let memory = NodeMemory::create(&[(GroupId(0), bytes)], backing, LineAtomicity::PlantedTorn)?;
    let region = memory.regions(1)[0];
    for page in 0..bytes / PAGE_BYTES {
        region.word(page * PAGE_BYTES).store(0, Ordering::Relaxed);
    }
    let walk = Walk { region, lines: bytes / LINE_BYTES };
    let pages = memory.pages().name();
    let figure = |name, depth, run: fn(&Walk<'_>)| {
        let ns_per_line = ns_per_line(|| run(&walk));
        BareLoop { name, depth, ns_per_line, bytes, pages }
    };
    Ok(vec![
        figure("dependent", Some(1), |walk| walk.dependent()),
        figure("independent", None, |walk| walk.independent()),
        figure("prefetched", Some(DEPTH), |walk| walk.prefetched()),
    ])
}

#[expect(clippy::disallowed_methods, reason = "measures the machine")]
fn ns_per_line(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / LOADS as f64
}

struct Walk<'a> {
    region: Region<'a>,
    lines: u64,
}

/// Returns the generator's next state, with Knuth's multiplier for 64-bit linear congruences
/// (MMIX).
#[inline]
fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

impl Walk<'_> {
    #[inline]
    fn offset(&self, state: u64) -> u64 {
        (((state >> 32) * self.lines) >> 32) * LINE_BYTES
    }

    #[inline]
    fn load(&self, offset: u64) -> u64 {
        self.region.word(offset).load(Ordering::Relaxed)
    }

    fn dependent(&self) {
        let mut state = 1;
        for _ in 0..LOADS {
            // Each load returns zero, but the processor does not know this before the load is
            // complete.
            state = next(state).wrapping_add(self.load(self.offset(state)));
        }
        black_box(state);
    }

    fn independent(&self) {
        let (mut state, mut sum) = (1, 0u64);
        for _ in 0..LOADS {
            state = next(state);
            sum = sum.wrapping_add(self.load(self.offset(state)));
        }
        black_box(sum);
    }

    fn prefetched(&self) {
        let (mut state, mut sum) = (1, 0u64);
        for _ in 0..LOADS / DEPTH as u64 {
            let offsets: [u64; DEPTH] = std::array::from_fn(|_| {
                state = next(state);
                self.offset(state)
            });
            for offset in offsets {
                self.region.prefetch_line(offset, false);
            }
            for offset in offsets {
                sum = sum.wrapping_add(self.load(offset));
            }
        }
        black_box(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_loops_with_their_names() {
        let loops = loops(1 << 20, Backing::Private).expect("1 MiB of memory");
        let names: Vec<_> = loops.iter().map(|each| each.name).collect();
        assert_eq!(names, ["dependent", "independent", "prefetched"]);
        assert!(loops.iter().all(|each| each.ns_per_line > 0.0 && each.bytes == 1 << 20));
    }
}
