//! The workloads, and the measurement of each.
//!
//! Invariant: every loop checks its number of effects, so that a table that loses entries cannot win.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tarn_table::{Request, Table};

use crate::keys::{Zipf, key_of, uniform};
use crate::rivals::{Rival, Step};

/// The configuration of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub entries: u64,
    /// Operations of one repetition.
    pub operations: u64,
    pub repetitions: u32,
    pub seed: u64,
}

/// Operations in a second.
pub type Rate = f64;

/// Returns the best rate of several repetitions. `f` gets the number of the repetition.
pub fn best(repetitions: u32, operations: u64, mut f: impl FnMut(u64) -> Duration) -> Rate {
    let fastest = (0..repetitions).map(|at| f(u64::from(at))).min().expect("a repetition");
    operations as f64 / fastest.as_secs_f64()
}

/// Whether a thread's own processor time is measured instead of the real time: for a machine that other programs use.
pub static BY_PROCESSOR_TIME: AtomicBool = AtomicBool::new(false);

/// Returns the present time.
fn now() -> Duration {
    let clock = if BY_PROCESSOR_TIME.load(Ordering::Relaxed) {
        libc::CLOCK_THREAD_CPUTIME_ID
    } else {
        libc::CLOCK_MONOTONIC
    };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of a local variable. Both clocks exist on every Linux.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "the clock exists");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the time that `f` takes in each of several threads, from a common start to the last end. `prepare` makes the
/// input of each thread before the start, so that drawing keys takes no time of the measurement.
pub fn in_threads<T>(
    threads: u64,
    prepare: impl Fn(u64) -> T + Sync,
    f: impl Fn(T) + Sync,
) -> Duration {
    let start = Barrier::new(threads as usize);
    let spans: Vec<(Duration, Duration)> = std::thread::scope(|scope| {
        let run = |thread| {
            let (prepare, f, start) = (&prepare, &f, &start);
            scope.spawn(move || {
                let input = prepare(thread);
                start.wait();
                let begin = now();
                f(input);
                (begin, now())
            })
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|it| it.join().expect("no panic")).collect()
    });
    if BY_PROCESSOR_TIME.load(Ordering::Relaxed) {
        return spans.iter().map(|span| span.1 - span.0).max().expect("a thread");
    }
    let begin = spans.iter().map(|span| span.0).min().expect("a thread");
    spans.iter().map(|span| span.1).max().expect("a thread") - begin
}

/// The operations of a batch of updates.
const UPDATES: usize = 16;

/// Runs operations in batches, and returns how many had an effect.
fn in_batches(table: &Table<u64, u64>, mut steps: impl Iterator<Item = Request<u64, u64>>) -> u64 {
    let mut done = 0;
    loop {
        let mut batch = [const { Request::Found(None) }; UPDATES];
        let mut size = 0;
        for (place, step) in batch.iter_mut().zip(steps.by_ref()) {
            *place = step;
            size += 1;
        }
        table.execute(&mut batch[..size]);
        let has_effect = |it: &&Request<u64, u64>| {
            matches!(it, Request::Found(Some(_)) | Request::Stored(Ok(_)))
        };
        done += batch[..size].iter().filter(has_effect).count() as u64;
        if size < UPDATES {
            return done;
        }
    }
}

impl Plan {
    /// Draws the keys of one thread in one repetition.
    fn keys(&self, at: u64, thread: u64) -> Vec<u64> {
        let entries = uniform(self.entries, self.seed + at * 1000 + thread);
        entries.map(key_of).take(self.operations as usize).collect()
    }

    /// Measures a loop over uniformly chosen keys.
    fn over_keys(&self, threads: u64, f: impl Fn(&[u64]) + Sync) -> Rate {
        best(self.repetitions, self.operations * threads, |at| {
            in_threads(threads, |thread| self.keys(at, thread), |keys| f(&keys))
        })
    }

    /// Draws the keys of one thread, none of which another thread draws.
    fn own_keys(&self, at: u64, thread: u64, threads: u64) -> Vec<u64> {
        let entries = uniform(self.entries / threads, self.seed + at * 1000 + thread);
        let own = entries.map(|it| key_of(it * threads + thread));
        own.take(self.operations as usize).collect()
    }

    /// Measures the insertion of a tenth of the entries, which were removed before. They touch random places in memory
    /// that is not new.
    fn over_removed<R: Rival>(
        &self,
        table: &R,
        threads: u64,
        f: impl Fn(std::ops::Range<u64>) -> u64 + Sync,
    ) -> Rate {
        let count = (self.entries / 10).min(self.operations);
        best(self.repetitions, count, |at| {
            let first = at * count % (self.entries - count);
            let removed = table.run((first..first + count).map(|it| Step::Remove(key_of(it))));
            assert_eq!(removed, count, "{}: every key is present", R::NAME);
            let part =
                |thread| first + thread * count / threads..first + (thread + 1) * count / threads;
            let insert = |part: std::ops::Range<u64>| {
                let size = part.end - part.start;
                assert_eq!(f(part), size, "{}: all are new", R::NAME);
            };
            in_threads(threads, part, insert)
        })
    }

    /// Fills a new table, by several threads.
    pub fn fill<R: Rival>(&self, threads: u64) -> (R, Rate) {
        let table = R::with_capacity(self.entries as usize);
        let part = self.entries / threads;
        let insert = |thread: u64| {
            let end = if thread + 1 == threads { self.entries } else { (thread + 1) * part };
            let steps = (thread * part..end).map(|it| Step::Insert(key_of(it), it));
            let done = table.run(steps);
            assert_eq!(done, end - thread * part, "{}: every key is new", R::NAME);
        };
        let time = in_threads(threads, |thread| thread, insert);
        (table, self.entries as f64 / time.as_secs_f64())
    }

    /// Gets uniformly chosen keys, all of them present.
    pub fn gets<R: Rival>(&self, table: &R, threads: u64) -> Rate {
        self.over_keys(threads, |keys| {
            let (found, sum) = table.get_all(keys.iter().copied());
            assert_eq!(found, self.operations, "{}: every key is present", R::NAME);
            black_box(sum);
        })
    }

    /// Gets keys with a skew.
    pub fn zipf<R: Rival>(&self, table: &R, threads: u64) -> Rate {
        let zipf = Zipf::new(self.entries);
        let draw = |at: u64| {
            let ranks = zipf.stream(self.seed + at).take(self.operations as usize);
            ranks.map(key_of).collect::<Vec<u64>>()
        };
        best(self.repetitions, self.operations * threads, |at| {
            in_threads(
                threads,
                |thread| draw(at + thread * 1000),
                |keys| {
                    let (found, sum) = table.get_all(keys.iter().copied());
                    assert_eq!(found, self.operations, "{}: every key is present", R::NAME);
                    black_box(sum);
                },
            )
        })
    }

    /// Gets, and replaces values of, uniformly chosen keys.
    pub fn mixed<R: Rival>(&self, table: &R, threads: u64, gets_of_100: u64) -> Rate {
        // The key's own bits choose, so that the choice costs no draw.
        let step = |key: &u64| {
            let dice = ((key & 0xffff_ffff) * 100) >> 32;
            if dice < gets_of_100 { Step::Get(*key) } else { Step::Put(*key, dice) }
        };
        self.over_keys(threads, |keys| {
            let done = table.run(keys.iter().map(step));
            assert_eq!(done, self.operations, "{}: every key is present", R::NAME);
        })
    }

    /// Removes uniformly chosen keys, and inserts each again. One operation is a removal or an insertion.
    pub fn churn<R: Rival>(&self, table: &R, threads: u64) -> Rate {
        let churn = |keys: Vec<u64>| {
            let pairs = keys[..keys.len() / 2].iter();
            let steps = pairs.flat_map(|key| [Step::Remove(*key), Step::Insert(*key, *key)]);
            let done = table.run(steps);
            assert_eq!(done, self.operations / 2 * 2, "{}: every step has an effect", R::NAME);
        };
        best(self.repetitions, self.operations * threads, |at| {
            in_threads(threads, |thread| self.own_keys(at, thread, threads), churn)
        })
    }

    /// As `churn`, in batches of 16.
    pub fn churn_in_batches(&self, table: &Table<u64, u64>) -> Rate {
        self.over_keys(1, |keys| {
            let pairs = keys[..keys.len() / 2].iter();
            let steps = pairs.flat_map(|key| [Request::Remove(*key), Request::Insert(*key, *key)]);
            let done = in_batches(table, steps);
            assert_eq!(done, self.operations / 2 * 2, "every step has an effect");
        })
    }

    /// Inserts entries that were removed before.
    pub fn inserts<R: Rival>(&self, table: &R, threads: u64) -> Rate {
        self.over_removed(table, threads, |entries| {
            table.run(entries.map(|it| Step::Insert(key_of(it), it)))
        })
    }

    /// As `inserts`, in batches of 16.
    pub fn inserts_in_batches(&self, table: &Table<u64, u64>) -> Rate {
        self.over_removed(table, 1, |entries| {
            in_batches(table, entries.map(|it| Request::Insert(key_of(it), it)))
        })
    }

    /// Gets keys in batches of a fixed size.
    pub fn batches<const SIZE: usize>(&self, table: &Table<u64, u64>) -> Rate {
        self.over_keys(1, |keys| {
            let mut sum = 0_u64;
            for batch in keys.chunks(SIZE) {
                let mut answers = [None; SIZE];
                table.get_many(batch, &mut answers[..batch.len()]);
                for answer in &answers[..batch.len()] {
                    sum = sum.wrapping_add(answer.expect("every key is present"));
                }
            }
            black_box(sum);
        })
    }

    /// Gets a stream of keys in a rolling window.
    pub fn rolling(&self, table: &Table<u64, u64>) -> Rate {
        self.over_keys(1, |keys| {
            let answers = table.get_stream(keys.iter().copied());
            let (found, sum) = answers.fold((0, 0_u64), |(found, sum), (_, value)| {
                (found + u64::from(value.is_some()), sum.wrapping_add(value.unwrap_or(0)))
            });
            assert_eq!(found, self.operations, "every key is present");
            black_box(sum);
        })
    }

    /// Loads the bins of a stream of keys, and does nothing with them.
    pub fn bare(&self, table: &Table<u64, u64>, threads: u64) -> Rate {
        self.over_keys(threads, |keys| {
            black_box(table.bare_loop(keys.iter().copied()));
        })
    }

    /// Takes locked steps on the bins of a stream of keys, and does nothing else.
    pub fn bare_locked(&self, table: &Table<u64, u64>, steps: usize) -> Rate {
        self.over_keys(1, |keys| {
            black_box(table.bare_locked_loop(keys.iter().copied(), steps));
        })
    }
}
