//! This example measures the simulator's event queue against a binary heap. The load has the shape of a
//! large run: 540 coordinators on nine compute nodes, three memory nodes, and one round in flight for
//! each coordinator.
//!
//! Invariant: both queues receive the same events, and return them in the same order.

#![allow(clippy::disallowed_methods, reason = "measures what a queue really takes")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;
use tarn_fabric::rng::mix;
use tarn_sim::queue::EventQueue;

const COORDINATORS: u64 = 540;
const EVENTS: u64 = 4_000_000;

/// The operations that both queues have.
trait Queue {
    fn push(&mut self, at_ps: u64, item: u64);
    fn pop(&mut self) -> (u64, u64);
}

impl Queue for EventQueue<u64> {
    fn push(&mut self, at_ps: u64, item: u64) {
        EventQueue::push(self, at_ps, item);
    }
    fn pop(&mut self) -> (u64, u64) {
        EventQueue::pop(self).expect("never empty")
    }
}

#[derive(Default)]
struct Heap {
    entries: BinaryHeap<Reverse<(u64, u64, u64)>>,
    sequence: u64,
}

impl Queue for Heap {
    fn push(&mut self, at_ps: u64, item: u64) {
        self.sequence += 1;
        self.entries.push(Reverse((at_ps, self.sequence, item)));
    }
    fn pop(&mut self) -> (u64, u64) {
        let Reverse((at_ps, _, item)) = self.entries.pop().expect("never empty");
        (at_ps, item)
    }
}

/// Each event creates the next event of its coordinator. An arrival follows after 0.7 µs and a
/// completion after 1.1 µs. The time spent in queues changes these two times a little. One event in
/// 64 is so late that it lies beyond the calendar.
fn run(queue: &mut impl Queue) -> (f64, u64) {
    for coordinator in 0..COORDINATORS {
        queue.push(coordinator * 1_000, coordinator);
    }
    let (start, mut digest) = (Instant::now(), 0);
    for _ in 0..EVENTS {
        let (now, item) = queue.pop();
        let draw = mix(now ^ item);
        digest = mix(digest ^ draw);
        let delay = match draw % 64 {
            0 => 50_000_000,
            odd if odd % 2 == 1 => 700_000,
            _ => 1_100_000,
        };
        queue.push(now + delay + (draw >> 44), item);
    }
    (EVENTS as f64 / start.elapsed().as_secs_f64() / 1e6, digest)
}

fn main() {
    println!("{COORDINATORS} coordinators, {EVENTS} events, one push and one pop each");
    for _ in 0..3 {
        let (heap, heap_digest) = run(&mut Heap::default());
        let (calendar, digest) = run(&mut EventQueue::new());
        assert_eq!(digest, heap_digest);
        println!("binary heap {heap:6.1} M/s    calendar {calendar:6.1} M/s");
    }
}
