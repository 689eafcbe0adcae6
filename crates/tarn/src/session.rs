//! A session: it runs transactions one after another, one at a time.
//!
//! Invariant: a session stays on the thread that created it. Between its transactions the session holds no lock. If
//! the session is dropped in the middle of a transaction, the transaction is rolled back, or settled if it was in
//! doubt.

use crate::database::Tarn;
use crate::error::Error;
use crate::rows::{Record, Table};
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{Failure, Resolution, TxnId};
use tarn_store::schema::row::Row;

/// Runs transactions; see [`Tarn::session`].
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
        let coordinator = Coordinator::new(cx, number, tarn.retry());
        let given = Number { tarn: tarn.clone(), number };
        Session { tarn, coordinator, _number: given }
    }

    /// Runs `body` as one transaction. If another transaction causes an abort, the session runs the body again. The
    /// session stops when the transaction commits, fails, or aborts itself by [`Transaction::abort`]. The result is
    /// the return value of the run that committed. Because the body may run more than once, it should change nothing
    /// outside the transaction.
    ///
    /// Before it commits, a body may see records that are inconsistent with each other. The session runs such a body
    /// again. The body must end without a panic for any values of its records. The caller gets the body's own error,
    /// by [`Transaction::abort`] or any other, only if all records that the body read existed together at one moment.
    /// [`Transaction::fetch_validated`] checks this earlier.
    ///
    /// # Errors
    /// The body's own abort, a missed deadline, a mistake of the caller, a failure of the fabric, or an unknown
    /// outcome (see [`Error::unknown`] and [`Session::resolve`]).
    pub async fn transact<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let result = self.coordinator.transact(body).await;
        self.told(result)
    }

    /// Does the same as [`Session::transact`], for a body that intends to change nothing. If the protocol has
    /// snapshots, the body reads a snapshot, and delays no other transaction. If the body nevertheless changes a
    /// record, it runs once more, with locks.
    ///
    /// # Errors
    /// The same errors as [`Session::transact`].
    pub async fn transact_read_only<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let result = self.coordinator.transact_read_only(body).await;
        self.told(result)
    }

    /// Reads the records of these keys at one moment, as a transaction of its own. For each key without a record, the
    /// result contains `None`. Where memory is near, this function takes less time than a transaction that requests
    /// the records one by one.
    ///
    /// ```
    /// # tarn::row! {
    /// #     /// A player.
    /// #     pub struct Player in "players" by u64 {
    /// #         /// Points.
    /// #         pub points: u64,
    /// #     }
    /// # }
    /// # fn main() -> Result<(), tarn::Error> {
    /// # let game = tarn::Tarn::embedded().table::<Player>(100).open()?;
    /// # let players = game.table::<Player>()?;
    /// # let mut session = game.session()?;
    /// session.run(async |tx| players.put(tx, 7, &Player { points: 3 }).await)?;
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
    /// The same errors as [`Session::transact_read_only`].
    pub async fn multi_get<R: Record<Key = u64>>(
        &mut self,
        table: Table<R>,
        keys: &[u64],
    ) -> Result<Vec<Option<R>>, Error> {
        if !table.is_of(self.context().database().number()) {
            return Err(table.foreign().into());
        }
        let mut rows = Vec::with_capacity(keys.len());
        let see = |_, row: Option<Row<'_>>| rows.push(row.map(|row| R::load(&row)));
        let result = self.coordinator.multi_get(table.id(), keys.iter().copied(), see).await;
        self.told(result)?;
        Ok(rows)
    }

    fn told<R>(&mut self, result: Result<R, Failure>) -> Result<R, Error> {
        result.map_err(|failure| self.explain(failure))
    }

    /// Does the same as [`Session::transact`], for programs without coroutines. The function returns when the
    /// transaction has ended.
    ///
    /// # Errors
    /// The same errors as [`Session::transact`].
    pub fn run<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        block_on(self.transact(body))
    }

    /// Does the same as [`Session::transact_read_only`], for programs without coroutines.
    ///
    /// # Errors
    /// The same errors as [`Session::transact_read_only`].
    pub fn run_read_only<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
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
        self.told(result)
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

    fn explain(&self, failure: Failure) -> Error {
        let explanation = self.coordinator.context().explanation(failure);
        Error::Transaction { failure, explanation }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // This call completes work of the session's last transactions, so that finished work uses no more of the
        // thread's memory.
        self.coordinator.context().serve();
    }
}
