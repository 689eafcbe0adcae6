//! Workers: tasks of a runtime with several threads, and threads without a runtime, run transactions by them.
//!
//! Invariant: a test that waits for something fails after `PATIENCE`.

#![allow(clippy::disallowed_methods, reason = "drives real threads")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn::{Error, Row, Table, Tarn, Workers};
use tarn_engine::protocol::ALL;
use tokio::runtime::{Builder, Runtime};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Row)]
#[row(table = "counters", key(id))]
struct Counter {
    id: u64,
    seen: u64,
}

fn open(protocol: &str) -> (Tarn, Table<Counter>) {
    let builder = Tarn::embedded().spare_bytes(1 << 20).sessions_max(8);
    let tarn = builder.table::<Counter>(10).protocol(protocol, "corrected").open();
    let tarn = tarn.expect("a database");
    let counters = tarn.table().expect("the table");
    (tarn, counters)
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

/// Adds one to each of two counters, and returns their values.
async fn bump(workers: &Workers, counters: Table<Counter>, keys: [u64; 2]) -> Result<u64, Error> {
    let body = async move |tx: &mut tarn::Transaction<'_>| {
        let records = keys.map(|key| counters.update(tx, key));
        tx.fetch().await?;
        let mut sum = 0;
        for record in records {
            let Some(mut counter) = counters.get(tx, record) else { return tx.abort() };
            counter.seen += 1;
            sum += counter.seen;
            counters.set(tx, record, &counter);
        }
        Ok(sum)
    };
    workers.run(body).await
}

fn fill(workers: &Workers, counters: Table<Counter>) {
    let filled = workers.run_blocking(async move |tx| {
        for key in 0..4 {
            counters.put(tx, &Counter { id: key, seen: 0 }).await?;
        }
        tarn::Ok(())
    });
    filled.expect("filled");
}

fn sum(workers: &Workers, counters: Table<Counter>) -> u64 {
    let read = async move |tx: &mut tarn::Transaction<'_>| {
        let mut sum = 0;
        for key in 0..4 {
            sum += counters.find(tx, key).await?.map_or(0, |counter| counter.seen);
        }
        tarn::Ok(sum)
    };
    workers.run_blocking(read).expect("read")
}

#[test]
fn tasks_of_a_runtime_and_threads_count_exactly_under_every_protocol() {
    const TASKS: u64 = 16;
    const EACH: u64 = 20;
    for protocol in ALL.iter().map(|info| info.name) {
        let (tarn, counters) = open(protocol);
        let workers = tarn.workers(2).expect("workers");
        fill(&workers, counters);
        let runtime = runtime();
        let spawned = (0..TASKS).map(|task| {
            let workers = workers.clone();
            runtime.spawn(async move {
                for turn in 0..EACH {
                    let keys = [(task + turn) % 4, (task + turn + 1 + turn % 3) % 4];
                    bump(&workers, counters, keys).await.expect("counted");
                }
            })
        });
        let tasks: Vec<_> = spawned.collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let add = async move |tx: &mut tarn::Transaction<'_>| {
                            let record = counters.update(tx, 0);
                            tx.fetch().await?;
                            let Some(counter) = counters.get(tx, record) else {
                                return tx.abort();
                            };
                            counters.set(tx, record, &Counter { id: 0, seen: counter.seen + 1 });
                            tarn::Ok(())
                        };
                        workers.run_blocking(add).expect("counted");
                    }
                });
            }
        });
        let ended = async {
            for task in tasks {
                task.await.expect("the task has ended");
            }
        };
        runtime.block_on(async { tokio::time::timeout(PATIENCE, ended).await }).expect("in time");
        assert_eq!(sum(&workers, counters), (TASKS * 2 + 2) * EACH, "{protocol}");
    }
}

#[test]
fn a_panic_reaches_its_own_task_and_rolls_its_transaction_back() {
    let (tarn, counters) = open("ford");
    let workers = tarn.workers(1).expect("workers");
    fill(&workers, counters);
    let panics = async move |tx: &mut tarn::Transaction<'_>| -> Result<(), Error> {
        let record = counters.update(tx, 0);
        tx.fetch().await?;
        counters.set(tx, record, &Counter { id: 0, seen: 99 });
        panic!("planted");
    };
    let caught = catch_unwind(AssertUnwindSafe(|| workers.run_blocking(panics)));
    let panic = caught.expect_err("the body panicked");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planted"));
    // The same thread goes on, and the record is neither changed nor locked.
    runtime().block_on(bump(&workers, counters, [0, 1])).expect("counted");
    assert_eq!(sum(&workers, counters), 2);
}

#[test]
fn a_body_whose_future_was_dropped_early_never_runs() {
    let (tarn, counters) = open("ford");
    let workers = tarn.workers(1).expect("workers");
    fill(&workers, counters);
    let runtime = runtime();
    let runs = Arc::new(AtomicU64::new(0));
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let first = {
        let (workers, held) = (workers.clone(), std::sync::Mutex::new(held));
        std::thread::spawn(move || {
            workers.run_blocking(async move |_| {
                _ = begin.send(());
                _ = held.lock().map(|held| held.recv());
                tarn::Ok(())
            })
        })
    };
    begun.recv().expect("the first body begins");
    // The only thread is busy. The second body is dropped while it waits, the third is not.
    let count = |runs: &Arc<AtomicU64>| {
        let runs = Arc::clone(runs);
        async move |_: &mut tarn::Transaction<'_>| {
            runs.fetch_add(1, Ordering::Relaxed);
            tarn::Ok(())
        }
    };
    runtime.block_on(async {
        let waits = tokio::time::timeout(Duration::from_millis(20), workers.run(count(&runs)));
        waits.await.expect_err("the thread is busy");
    });
    hold.send(()).expect("the first body waits");
    first.join().expect("no panic").expect("committed");
    workers.run_blocking(count(&runs)).expect("committed");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

/// The processor time of this process's threads of workers, in clock ticks, and their number.
fn ticks() -> (u64, usize) {
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let stat = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()
    };
    let idle = |stat: &String| stat.contains("(tarn-worker-");
    let stats: Vec<String> = threads.filter_map(stat).filter(idle).collect();
    let of = |stat: &String| -> u64 {
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        let field = |at: usize| fields.split_whitespace().nth(at)?.parse::<u64>().ok();
        // Fields 14 and 15 of the line, the time in this program and in the kernel; the name is field 2.
        field(11).expect("utime") + field(12).expect("stime")
    };
    (stats.iter().map(of).sum(), stats.len())
}

/// Other tests of this program may have workers at the same time, so this test looks at a program of its own.
#[test]
fn threads_without_work_sleep() {
    const ASKED: &str = "TARN_TEST_IDLE_WORKERS";
    if std::env::var_os(ASKED).is_none() {
        let this = std::env::current_exe().expect("this program");
        let name = "workers::threads_without_work_sleep";
        let run = std::process::Command::new(this).args(["--exact", name]).env(ASKED, "1").output();
        let run = run.expect("a process");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        return;
    }
    let (tarn, counters) = open("ford");
    let workers = tarn.workers(2).expect("workers");
    fill(&workers, counters);
    std::thread::sleep(Duration::from_millis(50));
    let (before, threads) = ticks();
    let since = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    let (after, _) = ticks();
    assert_eq!(threads, 2);
    // A tick is 10 ms: 1 % of 3 s on each of two threads is 6 ticks.
    let most = since.elapsed().as_millis() as u64 / 1_000 * 2;
    assert!(after - before <= most, "{} ticks, at most {most}", after - before);
    drop(workers);
    let end = Instant::now() + PATIENCE;
    while ticks().1 > 0 {
        assert!(Instant::now() < end, "the threads go on without workers");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_threads_and_too_many_sessions_are_refused() {
    let (tarn, _) = open("ford");
    let error = tarn.workers(0).err().expect("no threads");
    assert_eq!(error.to_string(), "workers = 0; allowed: at least 1");
    let error = tarn.workers(9).err().expect("8 sessions at once");
    assert!(error.to_string().contains("at most 8; see `sessions_max`"), "{error}");
}

#[test]
fn workers_and_their_futures_move_between_threads() {
    fn moves<T: Send>(_: &T) {}
    fn shares<T: Send + Sync + Clone>(_: &T) {}
    let (tarn, counters) = open("ford");
    let workers = tarn.workers(1).expect("workers");
    shares(&workers);
    moves(&bump(&workers, counters, [0, 1]));
}
