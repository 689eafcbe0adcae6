//! Reads records of one table in one call, as a complete transaction. The caller knows the keys from the start.
//!
//! Invariant: [`Coordinator::multi_get`] does the same as [`Coordinator::transact_read_only`] with a body that reads
//! these records, with the same strict serializability. If the protocol allows, the first try runs without a body.
//! Where memory is near, this try uses loads and no working set ([`crate::steps::access::batch_read`]). Otherwise
//! this try uses a transaction's fetch and commit. If the first try fails, it held no lock. The ordinary transaction
//! that follows has one try less.

use crate::session::coordinator::{Coordinator, Tried};
use crate::session::transaction::Transaction;
use crate::site::Context;
use crate::steps::access::batch_read::{self, BatchOutcome, TOGETHER_MAX};
use crate::steps::recorder;
use crate::transaction::working_set::{Added, Entry, Intent, Progress};
use std::pin::Pin;
use tarn_fabric::backend::Cost;
use tarn_fabric::round::BufferOffset;
use tarn_store::history::RecordedOutcome;
use tarn_store::ids::{Failure, Mode};
use tarn_store::index::hash_of;
use tarn_store::placement::catalog::Table;
use tarn_store::schema::row::Row;
use tarn_store::schema::{Cells, TableId};

/// A guard that marks a try as running. Until the guard is dropped, its thread adopts no other configuration.
struct Inside<'a>(&'a Context);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Returns the future behind a pointer. A future that is seldom needed should not enlarge the caller's future.
fn apart<'a, R>(future: impl Future<Output = R> + 'a) -> Pin<Box<dyn Future<Output = R> + 'a>> {
    Box::pin(future)
}

impl Coordinator {
    /// Reads the records of these keys at one moment, as a transaction of its own. Then this function calls `see`
    /// with each key's position and record, in the order of the keys. The record is `None` if the key is absent. Keys
    /// may repeat. The function calls `see` after the commit, once for each key, and passes only committed values.
    ///
    /// # Errors
    /// The same errors as [`Coordinator::transact_read_only`], with tries counted in the same way. After an error
    /// `see` was not called.
    ///
    /// # Panics
    /// If the table's keys are not words: this is a bug of the caller that no input can cause.
    #[inline]
    pub async fn multi_get(
        &mut self,
        table: TableId,
        keys: impl ExactSizeIterator<Item = u64> + Clone,
        mut see: impl FnMut(usize, Option<Row<'_>>),
    ) -> Result<(), Failure> {
        // Where memory is near, reading the clock would take as long as reading a record. The try itself takes less
        // time than a pause between two tries.
        let mut tried = if self.cx.is_near { None } else { Some(self.untried()) };
        if self.may_read_together(table, keys.len()) && self.begin_together(table, keys.clone()) {
            let came = match self.cx.is_near {
                true => self.read_together().await,
                false => apart(self.fetch_together(table, keys.clone())).await,
            };
            match came {
                BatchOutcome::Done => {
                    self.end_together(table, see);
                    return Ok(());
                }
                BatchOutcome::Refused(reason) => {
                    self.cx.metrics.aborted(reason);
                    let so_far = tried.get_or_insert_with(|| self.untried());
                    so_far.tries += 1;
                    let next = self.before_next(Failure::Abort(reason), *so_far);
                    Box::pin(next).await?;
                }
                BatchOutcome::Asked | BatchOutcome::Unusual => {}
            }
        }
        let tried = tried.unwrap_or_else(|| self.untried());
        Box::pin(self.get_as_any((table, keys.collect()), tried, &mut see)).await
    }

    /// Makes one try where memory is near: the try reads the records by loads.
    #[inline]
    async fn read_together(&mut self) -> BatchOutcome {
        let Coordinator { cx, txn, protocol, together, .. } = &mut *self;
        let _inside = Inside(cx);
        let mut is_again = false;
        loop {
            let Some(near) = cx.port.near() else { break BatchOutcome::Unusual };
            near.travel().await;
            let to = (&mut *together, &mut txn.round);
            match protocol.read_together(cx, to, (near, is_again)) {
                BatchOutcome::Asked => is_again = true,
                came => break came,
            }
        }
    }

    /// Makes one try where memory is far, by a transaction's fetch and commit. The try is refused if a key repeats,
    /// because a transaction has only one record for a repeated key.
    #[inline]
    async fn fetch_together(
        &mut self,
        table: TableId,
        keys: impl Iterator<Item = u64>,
    ) -> BatchOutcome {
        let Coordinator { cx, txn, protocol, .. } = &mut *self;
        let (_inside, table) = (Inside(cx), cx.table(table));
        txn.begin(txn.tag);
        for key in keys {
            let hash = hash_of(table, key);
            if txn.note_again(hash) && txn.entries.iter().any(|entry| entry.key == key) {
                return BatchOutcome::Unusual;
            }
            let (full_key, mode) = (BufferOffset::default(), Mode::Read);
            protocol.add(cx, txn, table, Added { key, full_key, hash, mode, cells: Cells::ALL });
        }
        let came = match protocol.fetch(cx, txn).await {
            Ok(()) if !protocol.is_committed(txn) => protocol.commit(cx, txn).await,
            came => came,
        };
        if cx.port.charges() {
            cx.port.charge(Cost::Together { records: txn.entries.len() as u32 });
        }
        match came {
            Ok(()) => BatchOutcome::Done,
            Err(Failure::Abort(reason)) => BatchOutcome::Refused(reason),
            Err(_) => BatchOutcome::Unusual,
        }
    }

    /// Reads the records by an ordinary transaction.
    #[cold]
    async fn get_as_any(
        &mut self,
        (table, keys): (TableId, Vec<u64>),
        tried: Tried,
        see: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> Result<(), Failure> {
        let mut handles = Vec::with_capacity(keys.len());
        let body = async |tx: &mut Transaction<'_>| {
            handles.clear();
            tx.read_each(table, keys.iter().copied(), Cells::ALL, |handle| handles.push(handle));
            tx.fetch().await
        };
        self.transact_on(Intent::ReadOnly, tried, body).await?;
        // The values of the records stay in the coordinator's buffer until the next transaction begins.
        let seen = Transaction { coordinator: self };
        for (at, &handle) in handles.iter().enumerate() {
            see(at, seen.get(handle));
        }
        Ok(())
    }

    /// Whether the coordinator may make a try without a body for these records.
    #[inline]
    fn may_read_together(&self, table: TableId, count: usize) -> bool {
        let cx = &*self.cx;
        (1..=TOGETHER_MAX).contains(&count)
            && !self.has_to_get_ready()
            && batch_read::reads(cx, cx.table(table))
            && self.protocol.reads_together(cx)
    }

    /// Begins a try without a body, and marks the try as running ([`Inside`]). Where memory is near, the function
    /// prefetches the cache lines of all home buckets. Returns whether the try began.
    #[inline]
    fn begin_together(&mut self, table: TableId, keys: impl ExactSizeIterator<Item = u64>) -> bool {
        if self.is_recording() {
            self.begin_record_if_any();
        }
        let Coordinator { cx, txn, together, .. } = self;
        if !cx.enter() {
            return false;
        }
        // The caller's iterator may panic. In that case, dropping the guard ends the try.
        let inside = Inside(cx);
        txn.begin_without_records(cx.next_tag());
        if let Some(near) = cx.port.near() {
            together.ask((cx, near), (cx.table(table), keys), (txn.tag, &mut txn.round));
        }
        // The functions that make the try hold a guard of their own, so this guard must not run its drop code.
        std::mem::forget(inside);
        true
    }

    /// Ends a try that has committed.
    #[inline]
    fn end_together(&mut self, table: TableId, mut see: impl FnMut(usize, Option<Row<'_>>)) {
        self.cx.metrics.committed();
        if self.is_recording() {
            self.record_together(table);
        }
        let Coordinator { cx, txn, together, .. } = self;
        let Table { schema, slot, .. } = cx.table(table);
        let row = |payload| Row::new(schema, txn.round.bytes(payload, slot.payload_bytes));
        match cx.is_near {
            true => (together.wanted().iter().enumerate())
                .for_each(|(at, wanted)| see(at, Some(row(wanted.payload)))),
            false => (txn.entries.iter().enumerate())
                .for_each(|(at, entry)| see(at, entry.found.then(|| row(entry.payload)))),
        }
    }

    /// Records in the history all records that the try read.
    #[cold]
    fn record_together(&mut self, table: TableId) {
        let Coordinator { cx, txn, together, .. } = self;
        if cx.is_near {
            txn.entries.clear();
            txn.forget_many();
            txn.ordered.clear();
        }
        for wanted in together.wanted().iter().filter(|_| cx.is_near) {
            if txn.entries.iter().any(|entry| entry.key == wanted.key) {
                continue; // a key that repeats is recorded once
            }
            let mut entry = Entry::new(table, wanted.key, Mode::Read, Cells::ALL, Progress::Done);
            (entry.found, entry.version) = (true, wanted.version);
            entry.payload = wanted.payload;
            txn.entries.push(entry);
        }
        recorder::enter(cx, txn, RecordedOutcome::Committed);
    }
}
