//! The transaction that a body works with.
//!
//! Invariant: an error of this crate that a body gets has its explanation with it. So the body may keep the error, or
//! turn it into an error of its own.

use crate::error::Error;
use tarn_engine::session::transaction as engine;
use tarn_store::ids::Failure;

/// A transaction in progress: see [`Session::run`](crate::Session::run).
///
/// A function that is part of a body takes the transaction by reference:
///
/// ```
/// use tarn::{Error, Row, Table, Tarn, Transaction};
///
/// #[derive(Row)]
/// #[row(table = "players", key(id))]
/// struct Player {
///     id: u64,
///     points: u64,
/// }
///
/// async fn give(
///     players: Table<Player>,
///     tx: &mut Transaction<'_>,
///     (from, to): (u64, u64),
/// ) -> Result<(), Error> {
///     let both = [players.update(tx, from), players.update(tx, to)];
///     tx.fetch().await?; // one fetch for both rows
///     let [Some(from), Some(to)] = both.map(|record| players.get(tx, record)) else {
///         return tx.abort();
///     };
///     players.set(tx, both[0], &Player { points: from.points - 1, ..from });
///     players.set(tx, both[1], &Player { points: to.points + 1, ..to });
///     Ok(())
/// }
///
/// let game = Tarn::embedded().table::<Player>(100).open()?;
/// let players = game.table::<Player>()?;
/// let mut session = game.session()?;
/// let rows = [1, 2].map(|id| Player { id, points: 5 });
/// session.run(async |tx| players.put_many(tx, &rows).await)?;
/// session.run(async |tx| give(players, tx, (1, 2)).await)?;
/// let missing = session.run(async |tx| give(players, tx, (1, 3)).await);
/// assert!(missing.is_err_and(|error| error.is_own_abort()));
/// # Ok::<(), Error>(())
/// ```
pub struct Transaction<'c> {
    inner: engine::Transaction<'c>,
}

impl<'c> Transaction<'c> {
    pub(crate) fn new(inner: engine::Transaction<'c>) -> Transaction<'c> {
        Transaction { inner }
    }

    /// Fetches everything that was requested since the last fetch: locks the rows that the transaction will change,
    /// and reads all requested rows and selections.
    ///
    /// # Errors
    /// An abort, an error of the fabric, no memory, or the caller's mistakes since the last fetch. The body passes
    /// the error on. If another transaction was the reason, the session runs the body again.
    #[inline]
    pub async fn fetch(&mut self) -> Result<(), Error> {
        match self.inner.fetch().await {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.explain(failure)),
        }
    }

    /// Does the same as [`Transaction::fetch`], and then validates all rows that the transaction has read. If the
    /// function returns `Ok`, all these rows existed together at one moment. This validation costs one more round if
    /// the protocol does not lock reads, and it does not make the commit cheaper. It is meant for bodies that must
    /// not continue with an impossible state: see [`Session::run`](crate::Session::run).
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`]. An abort if a row has changed; the session then runs the body
    /// again.
    pub async fn fetch_validated(&mut self) -> Result<(), Error> {
        match self.inner.fetch_validated().await {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.explain(failure)),
        }
    }

    /// Returns the error of a transaction that its own body aborts: all its changes are rolled back, and it is not
    /// tried again ([`Error::is_own_abort`]). A body with errors of its own returns one of these instead.
    ///
    /// # Errors
    /// The function always returns an error, so that the body can return this error.
    pub fn abort<T>(&self) -> Result<T, Error> {
        Err(Error::own_abort())
    }

    /// The engine's transaction, which names tables and columns by their numbers. [`Transaction::explain`] turns its
    /// failures into errors of this crate.
    #[inline]
    pub fn engine(&mut self) -> &mut engine::Transaction<'c> {
        &mut self.inner
    }

    #[inline]
    pub(crate) fn inner(&self) -> &engine::Transaction<'c> {
        &self.inner
    }

    /// Returns the error for a failure of the engine's transaction that this transaction has just seen.
    #[cold]
    pub fn explain(&self, failure: Failure) -> Error {
        Error::explained(failure, || self.inner.explanation(failure))
    }
}
