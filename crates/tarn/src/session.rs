//! A session: one transaction at a time, again and again.
//!
//! Invariant: a session stays on the thread that made it. Between its transactions it holds no
//! lock. If it is dropped in the middle of a transaction, the transaction is rolled back, or
//! settled if it was in doubt.

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
/// A session belongs to the thread that made it, as do its [`Transaction`]s and their futures. With
/// its [siblings](Session::sibling) it shares the thread's hold on the memory (its port, its
/// counters, its caches), without locks or atomics. None of them is `Send`. [`Tarn`], [`Table`] and
/// [`Error`] are: send those to another thread, and make a session there.
///
/// ```compile_fail
/// fn goes<T: Send>() {}
/// goes::<tarn::Session>();
/// ```
///
/// Any executor can run the futures, if it keeps them on their thread:
/// [`block_on`](crate::block_on) and [`Executor`](crate::Executor) of this crate, or tokio's
/// current-thread runtime (`LocalSet` and `spawn_local` for several sessions). Memory does not
/// report that it has answered. So a future that waits calls its waker at once, and another
/// executor polls busily: it uses its processor as long as a transaction runs or pauses, and its
/// other tasks run in turn.
pub struct Session {
    tarn: Tarn,
    coordinator: Coordinator,
    /// Given back after the coordinator was dropped, which settles its transaction in doubt if it
    /// can.
    _number: Number,
}

/// A log area that a session has.
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

    /// Runs `body` as one transaction, again whenever it is aborted in favour of another, until it
    /// commits, fails, or gives up by [`Transaction::abort`]. The result is the return value of the
    /// run that committed. As the body may run more than once, it should change nothing outside.
    ///
    /// Until it commits, a body may see records that do not fit together, and is then run again. It
    /// must come to its end without a panic on any such records. The caller gets the body's own
    /// error, by [`Transaction::abort`] or any other, only if all records that the body read were
    /// there at one moment. [`Transaction::fetch_validated`] checks that earlier.
    ///
    /// # Errors
    /// The body's own abort, a missed deadline, a mistake of the caller's, a failure of the fabric,
    /// or an outcome that is unknown (see [`Error::unknown`] and [`Session::resolve`]).
    pub async fn transact<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let result = self.coordinator.transact(body).await;
        self.told(result)
    }

    /// Like [`Session::transact`], for a body that means to change nothing. Where the protocol has
    /// snapshots, the body reads one, and hinders no other transaction. A body that changes
    /// something after all runs once more, with locks.
    ///
    /// # Errors
    /// Those of [`Session::transact`].
    pub async fn transact_read_only<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let result = self.coordinator.transact_read_only(body).await;
        self.told(result)
    }

    /// Reads the records of these keys, all of one moment, as a transaction of its own. The result
    /// has `None` for each key without a record. Where memory is near, this takes less time than a
    /// transaction that asks for the records one by one.
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
    /// Those of [`Session::transact_read_only`].
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

    /// Like [`Session::transact`], for programs without coroutines: returns when the transaction
    /// has ended.
    ///
    /// # Errors
    /// Those of [`Session::transact`].
    pub fn run<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        block_on(self.transact(body))
    }

    /// Finds out how a transaction with an unknown outcome ended ([`Error::unknown`]), and makes
    /// the outcome final. Any session of the database may ask, on any thread, before the
    /// transaction's own session goes on or after it is dropped. All get the same answer, and it
    /// agrees with the records. A session that goes on, or is dropped, settles its own transaction
    /// first.
    ///
    /// # Errors
    /// Those of the fabric: ask again. A usage error if the transaction's outcome was never
    /// unknown, or has been forgotten ([`Error::is_no_longer_known`]): the last 65,536 settled
    /// transactions are known.
    pub async fn resolve(&mut self, txn: TxnId) -> Result<Resolution, Error> {
        let result = self.coordinator.resolve(txn).await;
        self.told(result)
    }

    /// Makes another session on the same thread, for another coroutine: while one waits for its
    /// round trip, the other runs.
    ///
    /// # Errors
    /// When there are as many sessions as allowed.
    pub fn sibling(&self) -> Result<Session, Error> {
        self.tarn.sibling(self.coordinator.context())
    }

    /// Returns the thread's counters, clock and generator, for programs that measure.
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
        // The part of its last transactions that is over by now keeps nothing of the thread.
        self.coordinator.context().serve();
    }
}
