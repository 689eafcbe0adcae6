//! Threads that run transactions for tasks: the way into a database from an async server.
//!
//! Invariants: each thread has one session and runs one transaction at a time, from its begin to its end. A thread
//! without work sleeps until there is work. A panic of a body reaches the task that gave the body, and no other task.

use crate::cluster::OpenError;
use crate::database::Tarn;
use crate::error::Error;
use crate::session::Session;
use crate::transaction::Transaction;
use crossbeam_channel::{Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{Resolution, TxnId, UsageError};

/// A task's work, with the way to return its result.
type Job = Box<dyn FnOnce(&mut Session) + Send>;

/// Runs transactions on threads of its own, for any number of tasks; see [`Tarn::workers`].
///
/// A [`Session`] belongs to one thread, and its futures wait by being polled. `Workers` is `Send`, `Sync` and `Clone`.
/// The futures of its methods are `Send`, and sleep until their transaction has ended. So tasks of tokio or of any other
/// executor can use it, and so can threads without an executor ([`Workers::run_blocking`]).
///
/// A body moves to a thread of the workers. There it runs as in [`Session::run`], as often as its transaction is tried.
/// So a body borrows or clones what it has captured, and consumes nothing.
/// A body is `Send` and `'static`; the transaction and the futures in the body need not be. While a body awaits, its
/// thread runs no other body. A body that awaits something slow, or another transaction of the same workers, delays all
/// tasks, or stops them for ever.
///
/// If a future of these methods is dropped before a thread has taken its body, the body never runs. After that the
/// transaction goes on to its end, as if its caller had left after sending a request.
///
/// The cost beyond the transaction's is two allocations, and two notices from thread to thread. A program that wants
/// every transaction of a processor should use a [`Session`] on each thread.
///
/// The threads end when the last clone is dropped and all bodies have run.
///
/// ```
/// # #[derive(tarn::Row)]
/// # #[row(table = "players", key(id))]
/// # struct Player { id: u64, points: u64 }
/// # fn main() -> Result<(), tarn::Error> {
/// let game = tarn::Tarn::embedded().table::<Player>(100).open()?;
/// let players = game.table::<Player>()?;
/// let workers = game.workers(2)?;
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
/// let task = runtime.spawn(async move {
///     workers.run(async move |tx| players.put(tx, &Player { id: 7, points: 3 }).await).await
/// });
/// let was_there = runtime.block_on(task).expect("the task has ended")?;
/// assert!(!was_there);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Workers {
    jobs: Sender<Job>,
}

impl Workers {
    pub(crate) fn start(tarn: &Tarn, threads: usize) -> Result<Workers, Error> {
        if threads == 0 {
            let (field, allowed) = ("workers".into(), "at least 1".into());
            return Err(UsageError { field, value: "0".into(), allowed }.into());
        }
        let (jobs, taken) = crossbeam_channel::unbounded();
        let (ready, opened) = mpsc::channel();
        for number in 0..threads {
            let (tarn, taken, ready) = (tarn.clone(), taken.clone(), ready.clone());
            let work = move || match tarn.session() {
                Ok(session) => {
                    _ = ready.send(Ok(()));
                    drop(ready);
                    work(session, &taken);
                }
                Err(error) => _ = ready.send(Err(error)),
            };
            let thread = thread::Builder::new().name(format!("tarn-worker-{number}"));
            #[expect(clippy::disallowed_methods, reason = "the threads that the caller asks for")]
            thread.spawn(work).map_err(OpenError::Io)?;
        }
        drop(ready);
        opened.iter().collect::<Result<(), Error>>()?;
        Ok(Workers { jobs })
    }

    /// Runs `body` as one transaction; see [`Session::run`].
    ///
    /// # Errors
    /// The same errors as [`Session::run`].
    ///
    /// # Panics
    /// If the body panics. The transaction is rolled back.
    pub async fn run<R, E, F>(&self, body: F) -> Result<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: AsyncFnMut(&mut Transaction<'_>) -> Result<R, E> + Send + 'static,
    {
        unwound(self.send(move |session: &mut Session| session.run(body)).await)
    }

    /// Runs `body` as one transaction that intends to change nothing; see [`Session::transact_read_only`].
    ///
    /// # Errors
    /// The same errors as [`Session::transact_read_only`].
    ///
    /// # Panics
    /// If the body panics.
    pub async fn run_read_only<R, E, F>(&self, body: F) -> Result<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: AsyncFnMut(&mut Transaction<'_>) -> Result<R, E> + Send + 'static,
    {
        unwound(self.send(move |session: &mut Session| session.run_read_only(body)).await)
    }

    /// Finds out how a transaction with an unknown outcome ended; see [`Session::resolve`].
    ///
    /// # Errors
    /// The same errors as [`Session::resolve`].
    pub async fn resolve(&self, txn: TxnId) -> Result<Resolution, Error> {
        unwound(self.send(move |session: &mut Session| block_on(session.resolve(txn))).await)
    }

    /// Runs `body` as [`Workers::run`] does. The calling thread sleeps until the transaction has ended. A task of an
    /// executor must not call this function.
    ///
    /// # Errors
    /// The same errors as [`Session::run`].
    ///
    /// # Panics
    /// If the body panics. The transaction is rolled back.
    pub fn run_blocking<R, E, F>(&self, body: F) -> Result<R, E>
    where
        R: Send + 'static,
        E: From<Error> + Send + 'static,
        F: AsyncFnMut(&mut Transaction<'_>) -> Result<R, E> + Send + 'static,
    {
        unwound(self.send(move |session: &mut Session| session.run(body)).recv())
    }

    /// Hands work to the threads. Returns the place where its result will be.
    fn send<R, F>(&self, work: F) -> oneshot::Receiver<thread::Result<R>>
    where
        R: Send + 'static,
        F: FnOnce(&mut Session) -> R + Send + 'static,
    {
        let (told, outcome) = oneshot::channel();
        let job: Job = Box::new(move |session| {
            if !told.is_closed() {
                // An unwound body leaves nothing behind in its session: its transaction was dropped.
                _ = told.send(catch_unwind(AssertUnwindSafe(|| work(session))));
            }
        });
        self.jobs.send(job).expect("the threads take jobs as long as these workers exist");
        outcome
    }
}

/// Returns the result of a body, or continues its panic in the task that gave the body.
fn unwound<R>(outcome: Result<thread::Result<R>, oneshot::RecvError>) -> R {
    match outcome.expect("a job that was taken sends its result") {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// The life of a worker's thread.
fn work(mut session: Session, taken: &Receiver<Job>) {
    loop {
        let job = match taken.try_recv() {
            Ok(job) => job,
            Err(_) => {
                // No work of the last transactions stays with a thread that sleeps.
                session.context().serve();
                match taken.recv() {
                    Ok(job) => job,
                    Err(_) => return,
                }
            }
        };
        job(&mut session);
    }
}
