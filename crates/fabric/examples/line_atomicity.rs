//! Measures the cost of each method that keeps a line atomic, on the machine on which the program runs.
//!
//! Invariant: the program makes no assumptions about the machine, and skips a method that the machine does not
//! support. If the caller gives a seed, each number is the median of five repetitions. Without a seed, each number
//! comes from one repetition, for a quick impression. The reasons for the local backend's method are in
//! docs/design/0002-line-atomicity.md.
//!
//! `cargo run --release -p tarn-fabric --example line_atomicity [seed]`

#![allow(clippy::disallowed_methods, reason = "measures the machine")]

use rand::RngExt as _;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn_fabric::address::GroupId;
use tarn_fabric::local::probe::{WideLine, has_wide, wide_load, wide_store};
use tarn_fabric::local::{Backing, LineAtomicity, NodeMemory, Region};
use tarn_fabric::rng::{Rng, seeded};

fn repetitions() -> usize {
    if std::env::args().len() > 1 { 5 } else { 1 }
}

const LINES: u64 = 1 << 20;
/// The number of transactions whose lines are prefetched together.
const BATCH: usize = 16;

fn main() {
    let seed = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    println!("{}; {cores} processors; seed {seed}; medians of {}", machine(), repetitions());
    println!("memory: {}\n", memory(LineAtomicity::PlantedTorn).pages().name());
    one_line();
    if cores == 1 {
        println!("one processor: no measurement with two threads");
        return;
    }
    torn_reads();
    scaling(seed);
    println!("a line's round trip between two threads: {:.0} ns", round_trip());
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find(|line| line.starts_with("model name"));
    name.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown processor").to_owned()
}

fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut results: Vec<f64> = (0..repetitions()).map(|_| measure()).collect();
    results.sort_by(f64::total_cmp);
    results[results.len() / 2]
}

/// Measures the time of one `action` in nanoseconds.
fn ns(mut action: impl FnMut()) -> f64 {
    const TIMES: u32 = 2_000_000;
    median(|| {
        let start = Instant::now();
        (0..TIMES).for_each(|_| action());
        start.elapsed().as_nanos() as f64 / f64::from(TIMES)
    })
}

fn memory(atomicity: LineAtomicity) -> NodeMemory {
    let memory = NodeMemory::create(&[(GroupId(0), LINES * 64)], Backing::Private, atomicity);
    memory.expect("64 MiB of memory")
}

const STRIPES: [u32; 5] = [14, 16, 18, 20, 22];

fn ways() -> Vec<(String, LineAtomicity)> {
    let striped =
        STRIPES.map(|bits| (format!("striped, 2^{bits}"), LineAtomicity::Striped { bits }));
    std::iter::once(("plain copies".to_owned(), LineAtomicity::PlantedTorn))
        .chain(striped)
        .collect()
}

fn one_line() {
    println!("| one line in L1, ns | READ | WRITE | CAS |\n|---|---|---|---|");
    for (name, atomicity) in ways() {
        let memory = memory(atomicity);
        let region = memory.regions(1)[0];
        let mut line = [0; 8];
        let read = ns(|| {
            region.read_words(4096, black_box(&mut line)).expect("no writer");
        });
        let value = [7u8; 64];
        let write = ns(|| region.write(4096, black_box(&value)).expect("no writer"));
        println!("| {name} | {read:.1} | {write:.1} | {:.1} |", cas(region.word(8192)));
    }
    if has_wide() {
        let line = WideLine::default();
        let read = ns(|| _ = black_box(wide_load(black_box(&line))));
        let write = ns(|| wide_store(black_box(&line), black_box(&[7; 8])));
        println!("| one 512-bit access | {read:.1} | {write:.1} | {:.1} |", cas(&line.0[0]));
    }
    println!();
}

fn cas(word: &AtomicU64) -> f64 {
    ns(|| _ = black_box(word.compare_exchange(0, 0, Ordering::SeqCst, Ordering::SeqCst)))
}

/// Reads and writes one line from two threads. Returns the number of reads, and the number of torn reads.
fn race(write: impl Fn(u64) + Sync, read: impl Fn() -> [u64; 8]) -> (u64, u64) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                write(value);
            }
        });
        let (start, mut reads, mut torn) = (Instant::now(), 0, 0);
        while start.elapsed() < Duration::from_secs(2) {
            for _ in 0..1000 {
                let line = read();
                reads += 1;
                torn += u64::from(line != [line[0]; 8]);
            }
        }
        stop.store(true, Ordering::Relaxed);
        (reads, torn)
    })
}

fn torn_reads() {
    println!("| a writer and a reader, 2 s | reads | torn |\n|---|---|---|");
    let show = |name: &str, (reads, torn)| println!("| {name} | {reads} | {torn} |");
    for (name, atomicity) in ways() {
        let memory = memory(atomicity);
        let write = |value: u64| {
            let region = memory.regions(1)[0];
            for _ in 0..100 {
                region.write(4096, bytemuck::bytes_of(&[value; 8])).expect("the writer lives");
                region.write(4096, bytemuck::bytes_of(&[!value; 8])).expect("the writer lives");
            }
        };
        let region = memory.regions(1)[0];
        let read = || {
            let mut line = [0; 8];
            region.read_words(4096, &mut line).expect("the writer lives");
            line
        };
        show(&name, race(write, read));
    }
    if has_wide() {
        let line = WideLine::default();
        let outcome = race(|value| wide_store(&line, &[value; 8]), || wide_load(&line));
        show("one 512-bit access", outcome);
    }
    println!();
}

/// The memory that is prefetched before a batch.
#[derive(Clone, Copy)]
enum Fetch {
    Nothing,
    Lines,
    LinesAndStripes,
}

fn scaling(seed: u64) {
    println!("| CAS, READ, WRITE, CAS on one of 1 M lines | fetched ahead | 1 thread, M/s | 2 |");
    println!("|---|---|---|---|");
    for (name, atomicity) in ways() {
        let memory = memory(atomicity);
        fill(&memory.regions(1)[0]);
        for (fetch, fetched) in [
            (Fetch::Nothing, "nothing"),
            (Fetch::Lines, "lines"),
            (Fetch::LinesAndStripes, "lines, stripes"),
        ] {
            let run = |threads| rate(seed, threads, |rng| batch(&memory.regions(1)[0], fetch, rng));
            println!("| {name} | {fetched} | {:.1} | {:.1} |", run(1), run(2));
        }
    }
    println!();
}

fn fill(region: &Region<'_>) {
    (0..LINES).for_each(|line| region.write(line * 64, &[0; 64]).expect("no other writer"));
}

/// Measures how many millions of the transactions that `batch` executes run per second.
fn rate(seed: u64, threads: usize, batch: impl Fn(&mut Rng) + Sync) -> f64 {
    const BATCHES: usize = 30_000;
    median(|| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let batch = &batch;
                scope.spawn(move || {
                    let mut rng = seeded(seed, thread as u64);
                    (0..BATCHES).for_each(|_| batch(&mut rng));
                });
            }
        });
        (BATCHES * BATCH * threads) as f64 / start.elapsed().as_secs_f64() / 1e6
    })
}

fn batch(region: &Region<'_>, fetch: Fetch, rng: &mut Rng) {
    let lines: [u64; BATCH] = std::array::from_fn(|_| rng.random_range(0..LINES) * 64);
    for line in lines {
        match fetch {
            Fetch::Nothing => {}
            Fetch::Lines => region.prefetch_line(line, true),
            Fetch::LinesAndStripes => {
                region.prefetch_line(line, true);
                region.prefetch_stripe(line, true);
            }
        }
    }
    for line in lines {
        let lock = region.word(line);
        if lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            continue;
        }
        let mut record = [0u64; 8];
        region.read_words(line, &mut record).expect("writers live");
        record[1] += 1;
        region.write(line + 8, bytemuck::bytes_of(&record).split_at(8).1).expect("writers live");
        let unlocked = lock.compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst);
        assert_eq!(unlocked, Ok(1));
    }
}

fn round_trip() -> f64 {
    const TRIPS: u64 = 1_000_000;
    median(|| {
        let word = AtomicU64::new(0);
        let pass = |from: u64| {
            for turn in (from..2 * TRIPS).step_by(2) {
                while word.load(Ordering::Acquire) != turn {
                    spin_loop();
                }
                word.store(turn + 1, Ordering::Release);
            }
        };
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| pass(1));
            pass(0);
        });
        start.elapsed().as_nanos() as f64 / TRIPS as f64
    })
}
