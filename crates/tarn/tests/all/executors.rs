//! Runs sessions under executors of other crates. Each operation ends, although the executor polls it again only
//! after its own waker was called.
//!
//! Invariant: every test runs under every protocol. An executor of this file ends the test if the executor would wait
//! for ever. A runtime of tokio has a time limit instead, because it does not notice that nothing can wake it.

#![allow(clippy::disallowed_methods, reason = "drives real threads")]

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tarn::{Builder, Error, Nanos, Retry, Row, Session, Table, Tarn};
use tarn_engine::protocol::ALL;

/// The time limit of a runtime that does not notice that nothing can wake it any more.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Row)]
#[row(table = "counters", key(id))]
struct Counter {
    id: u64,
    seen: u64,
}

fn protocols() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|info| info.name)
}

fn builder(protocol: &str) -> Builder {
    let nodes = Tarn::embedded().memory_nodes(2).spare_bytes(1 << 20).sessions_max(8);
    nodes.table::<Counter>(10).protocol(protocol, "corrected")
}

fn open(protocol: &str) -> Tarn {
    builder(protocol).open().expect("a database")
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// An executor for one future. The executor polls the future when the future was woken, and ends the test when
/// nothing could wake the future any more.
fn run_woken<T>(name: &str, future: impl Future<Output = T>) -> T {
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        assert!(flag.0.swap(false, Ordering::Acquire), "{name}: not ready, and not woken");
    }
}

/// Runs both futures in turn. Polls each future only when that future itself was woken.
async fn join<A, B>(name: &str, one: impl Future<Output = A>, other: impl Future<Output = B>) {
    let flags = [true; 2].map(|woken| Arc::new(Flag(AtomicBool::new(woken))));
    let wakers = flags.each_ref().map(|flag| Waker::from(Arc::clone(flag)));
    let one = pin!(async { drop(one.await) });
    let other = pin!(async { drop(other.await) });
    let mut both: [Option<Pin<&mut dyn Future<Output = ()>>>; 2] = [Some(one), Some(other)];
    std::future::poll_fn(|outer| {
        for ((future, flag), waker) in both.iter_mut().zip(&flags).zip(&wakers) {
            let Some(task) = future else { continue };
            assert!(flag.0.swap(false, Ordering::Acquire), "{name}: not ready, and not woken");
            if task.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                *future = None;
            }
        }
        if both.iter().all(Option::is_none) {
            return Poll::Ready(());
        }
        outer.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs `work` on a thread of its own, in tokio's current-thread runtime. The current-thread runtime can run tasks
/// that stay on their thread.
fn under_tokio<F: Future<Output = ()>>(name: &str, work: impl FnOnce() -> F + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, work());
        done.send(()).expect("it is awaited");
    });
    match ended.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name}: it does not return"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Adds 1 to a counter. In the middle of the transaction, other tasks run. By then the transaction has read the
/// record, and under some protocols locked it.
async fn add(session: &mut Session, counters: Table<Counter>, key: u64) -> Result<(), Error> {
    let work = async |tx: &mut tarn::Transaction<'_>| {
        let record = counters.update(tx, key);
        tx.fetch().await?;
        let Some(mut counter) = counters.get(tx, record) else { return tx.abort() };
        tokio::task::yield_now().await;
        counter.seen += 1;
        counters.set(tx, record, &counter);
        Ok(())
    };
    session.transact(work).await
}

/// Runs every operation of a session while no other session runs.
async fn every_operation(tarn: &Tarn) -> Result<(), Error> {
    let counters = tarn.table::<Counter>()?;
    let mut session = tarn.session()?;
    for key in 0..4 {
        session
            .transact(async |tx| counters.put(tx, &Counter { id: key, seen: key }).await)
            .await?;
    }
    add(&mut session, counters, 3).await?;
    let found = session.transact_read_only(async |tx| counters.find(tx, 3).await).await?;
    assert_eq!(found.map(|it| it.seen), Some(4));
    let read = session.multi_get(counters, &[0, 1, 2, 9]).await?;
    assert_eq!(read.iter().flatten().map(|it| it.seen).collect::<Vec<_>>(), [0, 1, 2]);
    let aborted: Result<(), Error> = session.transact(async |tx| tx.abort()).await;
    assert!(aborted.expect_err("it aborts").is_own_abort());
    let port = &session.context().port;
    let before = port.now();
    port.sleep(Nanos(300_000)).await;
    assert!(port.now() >= before + Nanos(300_000));
    Ok(())
}

/// Runs two sessions of one thread on the same record. Each session adds 1 to the record `times` times.
async fn contended(name: &str, tarn: &Tarn, times: u64) -> Result<(), Error> {
    let counters = tarn.table::<Counter>()?;
    let mut one = tarn.session()?;
    one.transact(async |tx| counters.put(tx, &Counter { id: 1, seen: 0 }).await).await?;
    let mut other = one.sibling()?;
    let many = async |session: &mut Session| {
        for _ in 0..times {
            add(session, counters, 1).await.expect("added");
        }
    };
    join(name, many(&mut one), many(&mut other)).await;
    let found = one.transact(async |tx| counters.find(tx, 1).await).await?;
    assert_eq!(found.map(|it| it.seen), Some(2 * times), "{name}");
    Ok(())
}

#[test]
fn every_operation_ends_under_a_bare_executor() {
    for protocol in protocols() {
        run_woken(protocol, every_operation(&open(protocol))).expect(protocol);
    }
}

#[test]
fn two_conflicting_sessions_end_under_a_bare_executor() {
    // The pauses between tries are none, the default pauses, or pauses so long that both sessions sleep at the same
    // time.
    let long = Retry { pause_first_ns: 50_000, pause_max_ns: 200_000, ..Retry::default() };
    let none = Retry { patient_tries: 0, ..long };
    for (protocol, retry) in
        protocols().flat_map(|it| [none, Retry::default(), long].map(|retry| (it, retry)))
    {
        let tarn = builder(protocol).retry(retry).open().expect("a database");
        // Outside of its runtime, tokio's `yield_now` calls the waker immediately.
        run_woken(protocol, contended(protocol, &tarn, 20)).expect(protocol);
    }
}

#[test]
fn every_operation_ends_under_tokio() {
    for protocol in protocols() {
        let tarn = open(protocol);
        under_tokio(protocol, move || async move { every_operation(&tarn).await.expect(protocol) });
    }
}

#[test]
fn tasks_of_one_thread_share_a_record_under_tokio() {
    const TIMES: u64 = 20;
    for protocol in protocols() {
        let tarn = open(protocol);
        under_tokio(protocol, move || async move {
            let counters = tarn.table::<Counter>().expect("its table");
            let mut first = tarn.session().expect("a session");
            let begun =
                first.transact(async |tx| counters.put(tx, &Counter { id: 1, seen: 0 }).await);
            begun.await.expect("put");
            let ended = Rc::new(Cell::new(0));
            // One task has a sibling of the first session, on the same thread. For the database, each of the other
            // two sessions has a thread of its own.
            let sessions = [first.sibling(), tarn.session(), tarn.session()];
            let tasks = sessions.map(|session| {
                let (ended, mut session) = (Rc::clone(&ended), session.expect("a session"));
                tokio::task::spawn_local(async move {
                    for _ in 0..TIMES {
                        add(&mut session, counters, 1).await.expect("added");
                    }
                    ended.set(ended.get() + 1);
                })
            });
            for task in tasks {
                task.await.expect("no panic");
            }
            assert_eq!(ended.get(), 3, "{protocol}");
            let found = first.transact(async |tx| counters.find(tx, 1).await).await;
            assert_eq!(found.expect("read").map(|it| it.seen), Some(3 * TIMES), "{protocol}");
        });
    }
}

#[test]
fn two_runtimes_share_a_record() {
    const TIMES: u64 = 50;
    for protocol in protocols() {
        let tarn = open(protocol);
        let counters = tarn.table::<Counter>().expect("its table");
        let mut session = tarn.session().expect("a session");
        session.run(async |tx| counters.put(tx, &Counter { id: 1, seen: 0 }).await).expect("put");
        let threads = [tarn.clone(), tarn.clone()].map(|tarn| {
            std::thread::spawn(move || {
                under_tokio(protocol, move || async move {
                    let mut session = tarn.session().expect("a session");
                    for _ in 0..TIMES {
                        add(&mut session, counters, 1).await.expect("added");
                    }
                });
            })
        });
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        let found = session.run(async |tx| counters.find(tx, 1).await).expect("read");
        assert_eq!(found.map(|it| it.seen), Some(2 * TIMES), "{protocol}");
    }
}

/// Tests which types may be sent to another thread, and which types may not. An example of [`tarn::Session`] that
/// does not compile shows that it may not.
#[test]
fn databases_tables_and_errors_go_to_other_threads() {
    fn goes<T: Send + Sync>() {}
    goes::<Tarn>();
    goes::<Table<Counter>>();
    goes::<Error>();
}
