//! Writes slots to the copy whose locks a service beside memory grants. The copier holds a slot's shared lock meanwhile.
//!
//! Invariant: LOCK words of slots are always 0 here, so they tell nothing about writers. Each transaction that writes a
//! slot holds the slot's exclusive lock from before its READ until all copies have acknowledged its WRITEs, and the
//! locks of a dead incarnation stay held until it is recovered. So under the shared lock, the bytes of the primary do
//! not change. The copier reads them under the lock, and releases the lock when its WRITEs are acknowledged. It waits
//! for a short time only: it would wait for transactions that wait for it.

use super::locked::{Compared, anew};
use super::unit::Unit;
use super::{Copier, Copy};
use crate::site::Context;
use std::collections::BTreeMap;
use tarn_fabric::address::Address;
use tarn_locks::client::Outcome;
use tarn_locks::value::{LockId, Mode, RequestId};
use tarn_store::ids::Failure;
use tarn_store::placement::catalog::Table;

/// The number of slots that the copier locks together. While it holds them, it makes two rounds.
const SLOTS_AT_ONCE: usize = 32;
/// The copier's patience, in units of the time after which mail is sent again: twice the longest patience of a
/// transaction without the turn. So in a deadlock the transaction gives up first, and the copier gets its locks. The
/// copier gives up before a transaction with the turn does.
const PATIENCE: u64 = 16;

/// The locks that the copier has requested. Dropping this value ends the requests.
struct Granted<'a> {
    cx: &'a Context,
    requests: BTreeMap<LockId, RequestId>,
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        for (lock, request) in &self.requests {
            self.cx.end_lock(*request, *lock);
        }
        self.cx.serve_locks();
    }
}

impl Granted<'_> {
    /// Requests the locks of these units. Two slots whose addresses have the same number share a lock.
    fn ask(&mut self, units: &[Unit]) -> Result<(), Failure> {
        for unit in units {
            let lock = self.cx.lock_of(unit.guard);
            if !self.requests.contains_key(&lock) {
                let request = self.cx.ask_lock(lock, Mode::Shared);
                self.requests.insert(lock, request.ok_or_else(|| self.cx.no_such_lock(lock))?);
            }
        }
        Ok(())
    }

    fn holds(&self, slot: Address) -> bool {
        let lock = self.cx.lock_of(slot);
        let request = self.requests.get(&lock);
        let outcome = request.and_then(|request| self.cx.lock_outcome(*request, lock));
        matches!(outcome, Some(Outcome::Holds(_)))
    }

    /// Waits until all locks are granted, or the copier's patience has ended.
    async fn wait(&self, units: &[Unit]) {
        let since = self.cx.port.now();
        let patience = self.cx.locks_resend_after().0.saturating_mul(PATIENCE);
        loop {
            self.cx.serve_locks();
            let is_over = (self.cx.port.now() - since).0 > patience;
            if is_over || self.cx.locks_at_once() || units.iter().all(|it| self.holds(it.guard)) {
                return;
            }
            self.cx.port.yield_now().await;
        }
    }
}

impl Copier<'_> {
    /// Writes differing slots to the copy, under their locks. Returns the slots that must be compared again, because
    /// their locks were not granted in time.
    pub(super) async fn write_granted(
        &mut self,
        table: &Table,
        slots: Vec<Compared>,
        done: &mut Vec<Copy>,
    ) -> Result<Vec<Unit>, Failure> {
        let mut later = Vec::new();
        let mut slots = slots.into_iter().map(|it| anew(it.unit)).peekable();
        while slots.peek().is_some() {
            let units: Vec<Unit> = slots.by_ref().take(SLOTS_AT_ONCE).collect();
            let mut locks = Granted { cx: self.cx, requests: BTreeMap::new() };
            locks.ask(&units)?;
            locks.wait(&units).await;
            let (held, refused): (Vec<Unit>, Vec<Unit>) =
                units.into_iter().partition(|unit| locks.holds(unit.guard));
            later.extend(refused);
            let compared = self.compare(table, held).await?;
            self.write_compared(&compared).await?;
            done.extend(compared.into_iter().map(Compared::copied));
        }
        Ok(later)
    }
}
