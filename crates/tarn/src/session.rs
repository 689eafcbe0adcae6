//! A session: it runs transactions one after another, one at a time.
//!
//! Invariant: a session stays on the thread that created it. Between its transactions the session holds no lock. If
//! the session is dropped in the middle of a transaction, the transaction is rolled back, or settled if it was in
//! doubt.

use crate::database::Tarn;
use crate::deadline::{Course, Deadline, Phase};
use crate::error::Error;
use crate::field::Field as _;
use crate::rows::Row;
use crate::table::Table;
use crate::transaction::Transaction;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction as engine;
use tarn_engine::site::Context;
use tarn_engine::transaction::working_set::Intent;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{Explanation, Failure, Resolution, TxnId};

/// Runs transactions; see [`Tarn::session`]. Tasks of tokio's `spawn`, and other tasks that move between threads, use
/// [`Workers`](crate::Workers) instead.
///
/// A body is an async closure, `async |tx| { ... }`. The compiler refuses a closure that returns an async block,
/// `|tx| async move { ... }`, as "not general enough". The body may run several times, so it borrows or clones what it
/// captures.
///
/// # Threads and executors
/// A session belongs to the thread that created it. The session's [`Transaction`]s and their futures also belong to
/// that thread. A session shares the thread's access to memory with its [siblings](Session::sibling): its port, its
/// counters, its caches. This sharing needs no locks and no atomics. A session, a transaction and its future are not
/// `Send`. [`Tarn`], [`Table`] and [`Error`] are `Send`. A program can send them to another thread, and create a
/// session there.
///
/// ```compile_fail
/// fn goes<T: Send>() {}
/// goes::<tarn::Session>();
/// ```
///
/// Any executor can run the futures, if it keeps them on their thread: [`block_on`](crate::block_on) and
/// [`Executor`](crate::Executor) of this crate, or tokio's current-thread runtime (`LocalSet` and `spawn_local` for
/// several sessions). Memory does not report that it has answered. So a future that waits calls its waker
/// immediately, and an executor of another crate polls the future in a busy loop. Such an executor uses its processor
/// as long as a transaction runs or pauses, and its other tasks run in turn. For tasks that move between threads there is
/// [`Workers`](crate::Workers).
pub struct Session {
    tarn: Tarn,
    coordinator: Coordinator,
    cx: Rc<Context>,
    /// The deadline of each call.
    deadline: Deadline,
    /// The session gives this number back after its coordinator was dropped. The dropped coordinator settles its
    /// transaction in doubt if it can.
    _number: Number,
}

/// The number of a session's log area. Dropping this value gives the number back.
struct Number {
    tarn: Tarn,
    number: u32,
}

impl Drop for Number {
    fn drop(&mut self) {
        self.tarn.give_back(self.number);
    }
}

impl Session {
    pub(crate) fn new(tarn: Tarn, cx: Rc<Context>, number: u32) -> Session {
        let coordinator = Coordinator::new(Rc::clone(&cx), number, tarn.retry());
        let given = Number { tarn: tarn.clone(), number };
        let deadline = Deadline::new(&cx, tarn.deadline());
        Session { tarn, coordinator, cx, deadline, _number: given }
    }

    /// Sets the deadline of the session's next calls. `None` means that a call may take for ever. Without this call,
    /// the deadline is that of [`Builder::deadline`](crate::Builder::deadline).
    ///
    /// ```
    /// # #[derive(tarn::Row)]
    /// # #[row(table = "players", key(id))]
    /// # struct Player { id: u64, points: u64 }
    /// # let game = tarn::Tarn::embedded().table::<Player>(100).open()?;
    /// # let players = game.table::<Player>()?;
    /// # let mut session = game.session()?;
    /// use std::time::Duration;
    /// let found = session.deadline(Duration::from_millis(50)).run(async |tx| players.find(tx, 1).await)?;
    /// # assert!(found.is_none());
    /// # Ok::<(), tarn::Error>(())
    /// ```
    pub fn deadline(&mut self, deadline: impl Into<Option<Duration>>) -> &mut Session {
        self.deadline = Deadline::new(&self.cx, deadline.into());
        self
    }

    /// Runs `body` as one transaction. If another transaction causes an abort, the session runs the body again. The
    /// session stops when the transaction commits or fails, when the body returns an error of its own, or at the
    /// deadline. The result is the return value of the run that committed. Because the body may run more than once,
    /// it should change nothing outside the transaction.
    ///
    /// # Errors of the body
    /// `E` is any type that a [`tarn::Error`](Error) can become: the body uses `?` for both kinds. An error of the
    /// body's own rolls the transaction back, and the caller gets this very value. If a fetch of the body has failed,
    /// the session decides by the reason of the failure, whatever error the body made of it: after a conflict the
    /// body runs again.
    ///
    /// Before it commits, a body may see rows that are inconsistent with each other. The session runs such a body
    /// again. The body must end without a panic for any values of its rows. The caller gets the body's own error only
    /// if all rows that the body read existed together at one moment. [`Transaction::fetch_validated`] checks this
    /// earlier.
    ///
    /// The compiler must know `E`: from the function that returns the result, or from [`tarn::Ok`](crate::Ok) at the
    /// end of the body.
    ///
    /// ```
    /// # use tarn::{Error, Row, Session, Table, Tarn};
    /// #[derive(Row)]
    /// #[row(table = "stock", key(item))]
    /// struct Stock {
    ///     item: u32,
    ///     pieces: u64,
    /// }
    ///
    /// #[derive(Debug)]
    /// enum SaleError {
    ///     NoSuchItem,
    ///     Only(u64),
    ///     Store(Error),
    /// }
    ///
    /// impl From<Error> for SaleError {
    ///     fn from(error: Error) -> SaleError {
    ///         SaleError::Store(error)
    ///     }
    /// }
    ///
    /// fn sell(session: &mut Session, stock: Table<Stock>, pieces: u64) -> Result<u64, SaleError> {
    ///     session.run(async |tx| {
    ///         let take = |row: &mut Stock| match row.pieces.checked_sub(pieces) {
    ///             Some(left) => { row.pieces = left; Ok(left) }
    ///             None => Err(SaleError::Only(row.pieces)),
    ///         };
    ///         stock.modify(tx, 1, take).await?.ok_or(SaleError::NoSuchItem)?
    ///     })
    /// }
    ///
    /// let tarn = Tarn::embedded().table::<Stock>(10).open()?;
    /// let (stock, mut session) = (tarn.table::<Stock>()?, tarn.session()?);
    /// assert!(matches!(sell(&mut session, stock, 2), Err(SaleError::NoSuchItem)));
    /// session.run(async |tx| {
    ///     stock.put(tx, &Stock { item: 1, pieces: 3 }).await?;
    ///     tarn::Ok(())
    /// })?;
    /// assert!(matches!(sell(&mut session, stock, 2), Ok(1)));
    /// assert!(matches!(sell(&mut session, stock, 2), Err(SaleError::Only(1))));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Rounds
    /// The rounds of the body's fetches, and those of the commit, for each try. A body that only read rows commits
    /// without a round if the protocol allows.
    ///
    /// # Deadline
    /// If the call takes longer than [the deadline](Session::deadline), it ends with an error that says what it
    /// waited for, and the transaction is rolled back. This also ends a body that waits for something else, if the
    /// executor polls it then. Only DSLR cannot end a body in its middle. A commit that has begun always ends by
    /// itself.
    ///
    /// # Errors
    /// The body's own error, a missed deadline, a mistake of the caller, a failure of the fabric, no memory, or an
    /// unknown outcome (see [`Error::unknown`] and [`Session::resolve`]).
    pub fn run<R, E: From<Error>>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        block_on(self.transact(body))
    }

    /// Does the same as [`Session::run`], for programs with coroutines: the session's other siblings run while this
    /// transaction waits.
    ///
    /// # Errors
    /// The same errors as [`Session::run`].
    pub fn transact<R, E: From<Error>>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> impl Future<Output = Result<R, E>> {
        self.transact_as(Intent::ReadWrite, body)
    }

    /// Does the same as [`Session::transact`], for a body that intends to change nothing. If the protocol has
    /// snapshots, the body reads a snapshot, and delays no other transaction. If the body nevertheless changes a
    /// row, it runs once more, with locks.
    ///
    /// # Errors
    /// The same errors as [`Session::run`].
    pub fn transact_read_only<R, E: From<Error>>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> impl Future<Output = Result<R, E>> {
        self.transact_as(Intent::ReadOnly, body)
    }

    async fn transact_as<R, E: From<Error>>(
        &mut self,
        intent: Intent,
        mut body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let Session { coordinator, cx, deadline, .. } = self;
        let course = Course::default();
        // The end of the last try's body: its result, or its error with the verdict of the engine by which it ended.
        // It does not travel through the engine, because each level on the way would copy it.
        let mut last: Option<Result<R, (Failure, E)>> = None;
        let tried = async |tx: &mut engine::Transaction<'_>| {
            if course.begin_is_late() {
                std::future::pending::<()>().await;
            }
            let mut tx = Transaction::new(tx.reborrow());
            match body(&mut tx).await {
                Ok(result) => {
                    course.set(Phase::Commit);
                    last = Some(Ok(result));
                    Ok(())
                }
                Err(error) => {
                    course.set(Phase::Between);
                    let failure = tx.inner().failure().unwrap_or(Failure::user_abort());
                    last = Some(Err((failure, error)));
                    Err(failure)
                }
            }
        };
        let ended = {
            let call = pin!(coordinator.transact_as(intent, tried));
            deadline.watch(cx, &course, call).await
        };
        let failure = match ended {
            Some(Ok(())) => match last {
                Some(Ok(result)) => return Ok(result),
                _ => unreachable!("the transaction of this body has committed"),
            },
            Some(Err(failure)) => failure,
            None => {
                last = None;
                coordinator.deadline_passed(course.is_in_body())
            }
        };
        match last {
            Some(Err((ended_by, error))) if ended_by == failure => Err(error),
            _ => Err(Error::of(cx, failure).into()),
        }
    }

    /// Reads the rows of these keys at one moment, as a transaction of its own. For each key without a row, the
    /// result contains `None`. Where memory is near and a key has at most 8 bytes, this function takes less time than
    /// a transaction that requests the rows one by one. It takes the rounds of one fetch.
    ///
    /// ```
    /// # #[derive(tarn::Row)]
    /// # #[row(table = "players", key(id))]
    /// # struct Player { id: u64, points: u64 }
    /// # fn main() -> Result<(), tarn::Error> {
    /// # let game = tarn::Tarn::embedded().table::<Player>(100).open()?;
    /// # let players = game.table::<Player>()?;
    /// # let mut session = game.session()?;
    /// session.run(async |tx| players.put(tx, &Player { id: 7, points: 3 }).await)?;
    /// # tarn::block_on(async {
    /// let read = session.multi_get(players, &[7, 8]).await?;
    /// assert_eq!(read[0].as_ref().map(|player| player.points), Some(3));
    /// assert!(read[1].is_none());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same errors as [`Session::run`].
    pub async fn multi_get<R: Row>(
        &mut self,
        table: Table<R>,
        keys: &[R::Key],
    ) -> Result<Vec<Option<R>>, Error> {
        if !table.is_of(self.cx.database().number()) {
            return Err(table.foreign().into());
        }
        if R::Key::BYTES > 8 {
            let find =
                async |tx: &mut Transaction<'_>| table.find_many(tx, keys.iter().copied()).await;
            return self.transact_read_only(find).await;
        }
        let Session { coordinator, cx, deadline, .. } = self;
        let mut rows = Vec::with_capacity(keys.len());
        let ended = {
            let words = Table::<R>::words(keys);
            let read = pin!(coordinator.multi_get(table.id(), words, |at, row| {
                rows.push(row.map(|row| R::load(keys[at], row.payload())));
            }));
            deadline.watch(cx, &Course::default(), read).await
        };
        match ended {
            Some(Ok(())) => Ok(rows),
            Some(Err(failure)) => Err(Error::of(cx, failure)),
            None => {
                let waited = format!("reading rows ({}) of {}", keys.len(), R::TABLE);
                let late = Explanation::DeadlineExceeded { tries: 0, waited };
                Err(Error::of(cx, cx.explain(late)))
            }
        }
    }

    /// Does the same as [`Session::transact_read_only`], for programs without coroutines.
    ///
    /// # Errors
    /// The same errors as [`Session::run`].
    pub fn run_read_only<R, E: From<Error>>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        block_on(self.transact_read_only(body))
    }

    /// Finds out how a transaction with an unknown outcome ended ([`Error::unknown`]), and makes the outcome final.
    /// Any session of the database may call this function, on any thread. The call may come before the transaction's
    /// own session continues, or after that session is dropped. All callers get the same answer, and the answer
    /// agrees with the records. A session that continues, or is dropped, first settles its own transaction.
    ///
    /// # Errors
    /// The errors of the fabric: the caller may ask again. A usage error if the transaction's outcome was never
    /// unknown, or is no longer stored ([`Error::is_no_longer_known`]). The outcomes of the last 65,536 settled
    /// transactions are stored.
    pub async fn resolve(&mut self, txn: TxnId) -> Result<Resolution, Error> {
        let result = self.coordinator.resolve(txn).await;
        result.map_err(|failure| Error::of(&self.cx, failure))
    }

    /// Creates another session on the same thread, for another coroutine. While one session waits for its round trip,
    /// the other session runs.
    ///
    /// # Errors
    /// If the database already has the greatest allowed number of sessions.
    pub fn sibling(&self) -> Result<Session, Error> {
        self.tarn.sibling(self.coordinator.context())
    }

    /// Returns the thread's context with its counters, clock and random generator, for programs that measure.
    pub fn context(&self) -> &Rc<Context> {
        self.coordinator.context()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // This call completes work of the session's last transactions, so that finished work uses no more of the
        // thread's memory.
        self.coordinator.context().serve();
    }
}
