//! Gets beside the growth of a table to ten times its entries.
//!
//! Invariant: the loop of gets is the same with and without growth, and the clock is read after each get.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tarn_table::Table;

use crate::keys::{key_of, uniform};
use crate::report::{Growth, Report};
use crate::rivals::{Dash, Papaya, Rival, Scc, Step};
use crate::work::Plan;

/// The table grows by this factor.
const FACTOR: u64 = 10;
/// The gets of the loop without growth.
const STILL_GETS: u64 = 5_000_000;
/// The width of a class of latencies, and their number: up to 16 ms.
const CLASS_NS: u64 = 250;
const CLASSES: usize = 1 << 16;

/// Latencies in classes.
struct Latencies {
    classes: Vec<u64>,
    gets: u64,
    seconds: f64,
}

/// Measures each wanted table.
pub fn measure(plan: Plan, report: &mut Report, wants: impl Fn(&str) -> bool) {
    if wants(<Table<u64, u64> as Rival>::NAME) {
        one::<Table<u64, u64>>(plan, report);
    }
    if wants(Papaya::NAME) {
        one::<Papaya>(plan, report);
    }
    if wants(Dash::NAME) {
        one::<Dash>(plan, report);
    }
    if wants(Scc::NAME) {
        one::<Scc>(plan, report);
    }
}

fn one<R: Rival>(plan: Plan, report: &mut Report) {
    let few = plan.entries / FACTOR;
    let table = R::with_capacity(few as usize);
    table.run((0..few).map(|it| Step::Insert(key_of(it), it)));
    let still = gets(&table, few, plan.seed, |at| at < STILL_GETS.min(few * 20));
    let growing = AtomicBool::new(true);
    let beside = std::thread::scope(|scope| {
        scope.spawn(|| {
            table.run((few..plan.entries).map(|it| Step::Insert(key_of(it), it)));
            growing.store(false, Ordering::Relaxed);
        });
        gets(&table, few, plan.seed + 1, |_| growing.load(Ordering::Relaxed))
    });
    let (found, _) = table.get_all((0..plan.entries).map(key_of));
    assert_eq!(found, plan.entries, "{}: an entry was lost", R::NAME);
    report.add_growth(Growth {
        table: R::NAME,
        still: still.gets as f64 / still.seconds,
        beside: beside.gets as f64 / beside.seconds,
        p9999_us: beside.percentile_us(99.99),
        p9999_still_us: still.percentile_us(99.99),
    });
}

fn gets<R: Rival>(table: &R, entries: u64, seed: u64, goes_on: impl Fn(u64) -> bool) -> Latencies {
    let mut classes = vec![0; CLASSES];
    let begin = Instant::now();
    let mut last = begin;
    let mut count = 0;
    let keys = uniform(entries, seed)
        .map(key_of)
        .map_while(|key| goes_on(count_up(&mut count)).then_some(key));
    for key in keys {
        let (found, value) = table.get_all(std::iter::once(key));
        assert_eq!(found, 1, "{}: every key is present", R::NAME);
        black_box(value);
        let now = Instant::now();
        let class = (now - last).as_nanos() as u64 / CLASS_NS;
        classes[(class as usize).min(CLASSES - 1)] += 1;
        last = now;
    }
    let gets = classes.iter().sum();
    Latencies { classes, gets, seconds: (last - begin).as_secs_f64() }
}

fn count_up(count: &mut u64) -> u64 {
    *count += 1;
    *count
}

impl Latencies {
    fn percentile_us(&self, percent: f64) -> f64 {
        let wanted = (self.gets as f64 * percent / 100.0).ceil() as u64;
        let mut sum = 0;
        let class = self.classes.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        (class.unwrap_or(CLASSES) as u64 + 1) as f64 * CLASS_NS as f64 / 1000.0
    }
}
