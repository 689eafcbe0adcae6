//! A session: one transaction at a time, again and again.
//!
//! Invariant: a session stays on the thread that made it. Between its transactions it holds no
//! lock; when it is dropped in the middle of one, that one is rolled back.

use crate::database::Tarn;
use crate::error::Error;
use crate::rows::{Record, Table};
use std::rc::Rc;
use tarn_engine::context::Context;
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::{Explanation, Failure, Resolution, TxnId};
use tarn_engine::row::Row;
use tarn_engine::transaction::Transaction;
use tarn_fabric::executor::block_on;

/// Runs transactions; see [`Tarn::session`].
pub struct Session {
    tarn: Tarn,
    coordinator: Coordinator,
    number: u32,
    /// A transaction whose outcome is unknown: its log area is still needed.
    in_doubt: Option<TxnId>,
}

impl Session {
    pub(crate) fn new(tarn: Tarn, cx: Rc<Context>, number: u32) -> Session {
        let coordinator = Coordinator::new(cx, number, tarn.retry());
        Session { tarn, coordinator, number, in_doubt: None }
    }

    /// Runs `body` as one transaction and again whenever it is aborted for the sake of another,
    /// until it commits, fails, or gives up by [`Transaction::abort`]. What it returned when it
    /// committed is the result. As it may run more than once, it should change nothing outside.
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

    /// As [`Session::transact`], for a body that means to change nothing: where the protocol has snapshots it
    /// reads one, and hinders nobody. A body that changes something after all runs once more, with locks.
    ///
    /// # Errors
    /// As there.
    pub async fn transact_read_only<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let result = self.coordinator.transact_read_only(body).await;
        self.told(result)
    }

    /// Reads the records of these keys, all of one moment, as a transaction of its own: `None` for each that is not there. Where memory
    /// is near that takes less time than a transaction that asks for them one by one.
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
    /// As [`Session::transact_read_only`].
    pub async fn multi_get<R: Record<Key = u64>>(
        &mut self,
        table: Table<R>,
        keys: &[u64],
    ) -> Result<Vec<Option<R>>, Error> {
        let mut rows = Vec::with_capacity(keys.len());
        let see = |_, row: Option<Row<'_>>| rows.push(row.map(|row| R::load(&row)));
        let result = self.coordinator.multi_get(table.id(), keys.iter().copied(), see).await;
        self.told(result)?;
        Ok(rows)
    }

    fn told<R>(&mut self, result: Result<R, Failure>) -> Result<R, Error> {
        match result {
            Ok(result) => {
                // The coordinator settles what was in doubt before it runs another.
                self.in_doubt = None;
                Ok(result)
            }
            Err(failure) => Err(self.explain(failure)),
        }
    }

    /// As [`Session::transact`], for programs without coroutines: returns when it has ended.
    ///
    /// # Errors
    /// As there.
    pub fn run<R>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        block_on(self.transact(body))
    }

    /// Finds out how a transaction of this session ended whose outcome was unknown, and makes it
    /// final.
    ///
    /// # Errors
    /// The fabric's: ask again.
    pub async fn resolve(&mut self, txn: TxnId) -> Result<Resolution, Error> {
        match self.coordinator.resolve(txn).await {
            Ok(resolution) => {
                self.in_doubt = self.in_doubt.filter(|other| *other != txn);
                Ok(resolution)
            }
            Err(failure) => Err(self.explain(failure)),
        }
    }

    /// Another session on the same thread, for another coroutine: while one waits for its round
    /// trip, the other runs.
    ///
    /// # Errors
    /// When there are as many sessions as there may be.
    pub fn sibling(&self) -> Result<Session, Error> {
        self.tarn.sibling(self.coordinator.context())
    }

    /// The thread's counters, clock and generator, for programs that measure.
    pub fn context(&self) -> &Rc<Context> {
        self.coordinator.context()
    }

    fn explain(&mut self, failure: Failure) -> Error {
        let explanation = self.coordinator.context().explanation(failure);
        if let Some(Explanation::Unknown(txn)) = &explanation {
            self.in_doubt = Some(*txn);
        }
        Error::Transaction { failure, explanation }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.in_doubt.is_none() {
            self.tarn.give_back(self.number);
        }
    }
}
