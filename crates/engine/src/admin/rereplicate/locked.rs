//! Copies units whose lock is in the memory of a compute node, or at a lock service. The copier holds that lock while it
//! writes a unit.
//!
//! Invariant: if bytes of the primary and the copy differ, the copier reads and writes these bytes again under a read
//! lock. The copier holds the lock before it posts the WRITE. So no transaction writes the unit during that time, and
//! the next writer's WRITE arrives after the copier's. Equal bytes need no lock, even if the copier read them at
//! different times. Bytes that no transaction writes stay equal, and a writer writes its bytes to both nodes. (This
//! way of copying is for the lock-first protocol of Hu et al., "LOTUS: Optimizing Disaggregated Transactions with
//! Disaggregated Locks"; the paper's system fills copies while the cluster is idle.)

use super::unit::{Kind, Unit, word};
use super::{Copier, Copy, Stop};
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::steps::settle::Wish;
use crate::transaction::lock_set::LockSet;
use std::future::poll_fn;
use std::task::Poll;
use tarn_fabric::address::Address;
use tarn_store::ids::Failure;
use tarn_store::layout::KEY_AT;
use tarn_store::placement::catalog::Table;
use tarn_store::placement::shard_map::{ShardId, shard_of_address};

/// The number of locks that the copier requests in one set. A set is granted or refused as a whole, and a message has
/// room for this many locks.
const LOCKS_AT_ONCE: usize = 32;

/// The units whose locks the copier has requested or holds. Dropping this value releases the locks.
struct Locked<'a> {
    cx: &'a Context,
    held: LockSet,
    units: Vec<Compared>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.held.release(self.cx, None);
    }
}

impl Locked<'_> {
    /// Requests the locks of all units of this value. Returns whether all these locks were granted.
    async fn ask(&mut self, table: &Table) -> Result<bool, Failure> {
        for (name, shard) in self.units.iter().map(|it| it.lock(table)) {
            self.held.ask(self.cx, name, shard, LockMode::Read);
        }
        match self.held.collect(self.cx, self.cx.next_tag()).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_retryable() => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// A unit with the images that the copier read at the primary and at the copy.
pub(super) struct Compared {
    pub(super) unit: Unit,
    images: Vec<Vec<u8>>,
    copies: Vec<Vec<u8>>,
}

impl Compared {
    fn is_equal(&self) -> bool {
        self.images == self.copies
    }

    pub(super) fn copied(self) -> Copy {
        (self.unit, self.images)
    }

    /// The lock that keeps writers away from the unit. A slot without a key is protected by its bucket's lock,
    /// because a transaction that takes a free slot locks the bucket.
    fn lock(&self, table: &Table) -> (LockName, ShardId) {
        let of_bucket = |at: Address| (LockName::bucket(table.id.0, at), shard_of_address(at));
        match self.unit.kind {
            Kind::Header | Kind::Directory => of_bucket(self.unit.guard),
            Kind::Slot { bucket } if table.slot.is_free(&self.images[0]) => of_bucket(bucket),
            Kind::Slot { .. } => {
                let key = word(&self.images[0], KEY_AT);
                (LockName::row(table.id.0, key), table.shard_of(key))
            }
            Kind::Node => (LockName::node(0, self.unit.guard), shard_of_address(self.unit.guard)),
        }
    }
}

impl<'a> Copier<'a> {
    /// Copies units until each unit is equal at both nodes, or the copier has written the unit under its lock.
    pub(super) async fn copy_locked(
        &mut self,
        table: &Table,
        units: Vec<Unit>,
    ) -> Result<Vec<Copy>, Stop> {
        let (mut pending, mut done) = (units, Vec::new());
        loop {
            let read = self.compare(table, pending).await?;
            let (equal, differing): (Vec<_>, Vec<_>) =
                read.into_iter().partition(Compared::is_equal);
            done.extend(equal.into_iter().map(Compared::copied));
            let later = match self.cx.has_services() {
                true => self.write_locked(table, differing, &mut done).await?,
                false => self.write_granted(table, differing, &mut done).await?,
            };
            if later.is_empty() {
                return Ok(done);
            }
            self.done.again += later.len() as u64;
            pending = later;
            self.go_on()?;
            self.cx.port.yield_now().await;
        }
    }

    /// Reads units at the primary and at the copy, including all spans to which their images lead.
    pub(super) async fn compare(
        &mut self,
        table: &Table,
        units: Vec<Unit>,
    ) -> Result<Vec<Compared>, Failure> {
        let none = |unit| Compared { unit, images: Vec::new(), copies: Vec::new() };
        let mut read: Vec<Compared> = units.into_iter().map(none).collect();
        loop {
            let mut wishes = Vec::new();
            for it in &read {
                for &(at, bytes) in &it.unit.spans[it.images.len()..] {
                    wishes.push(Wish::Read(self.cx.groups.primary(at), bytes));
                    wishes.push(Wish::Read(at.at(self.to), bytes));
                }
            }
            if wishes.is_empty() {
                return Ok(read);
            }
            let mut found = self.read(&wishes).await?.into_iter();
            for it in &mut read {
                for _ in it.images.len()..it.unit.spans.len() {
                    it.images.extend(found.next());
                    it.copies.extend(found.next());
                }
                it.unit.spans = it.unit.spans_of(table, &it.images);
            }
        }
    }

    /// Requests the locks of many units in one batch, with `in_one` units in each set. Returns the sets whose locks
    /// were granted, and the remaining units.
    async fn lock(
        &self,
        table: &Table,
        units: Vec<Compared>,
        in_one: usize,
    ) -> Result<(Vec<Locked<'a>>, Vec<Compared>), Failure> {
        let (mut sets, mut units) = (Vec::new(), units.into_iter().peekable());
        while units.peek().is_some() {
            let units = units.by_ref().take(in_one).collect();
            sets.push(Locked { cx: self.cx, held: LockSet::default(), units });
        }
        let mut asking: Vec<_> = sets.iter_mut().map(|set| Box::pin(set.ask(table))).collect();
        let mut answers: Vec<Option<Result<bool, Failure>>> = vec![None; asking.len()];
        poll_fn(|waiting| {
            for (asking, answer) in asking.iter_mut().zip(&mut answers) {
                if answer.is_none()
                    && let Poll::Ready(ended) = asking.as_mut().poll(waiting)
                {
                    *answer = Some(ended);
                }
            }
            if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(asking);
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        for (mut set, answer) in sets.into_iter().zip(answers.into_iter().flatten()) {
            match answer? {
                true => granted.push(set),
                false => refused.append(&mut set.units),
            }
        }
        Ok((granted, refused))
    }

    /// Writes differing units to the copy, under their locks. Returns the units that must be compared again. The
    /// copier requests locks in large sets. If a set is refused, the copier requests its locks one by one.
    async fn write_locked(
        &mut self,
        table: &Table,
        units: Vec<Compared>,
        done: &mut Vec<Copy>,
    ) -> Result<Vec<Unit>, Failure> {
        let cx = self.cx;
        let (mut locked, refused) = self.lock(table, units, LOCKS_AT_ONCE).await?;
        let (alone, refused) = self.lock(table, refused, 1).await?;
        locked.extend(alone);
        let mut later: Vec<Unit> = refused.into_iter().map(|it| anew(it.unit)).collect();
        let counts: Vec<usize> = locked.iter().map(|set| set.units.len()).collect();
        let (mut units, mut names) = (Vec::new(), Vec::new());
        for it in locked.iter_mut().flat_map(|set| set.units.drain(..)) {
            names.push(it.lock(table));
            units.push(anew(it.unit));
        }
        let mut read = self.compare(table, units).await?.into_iter().zip(names);
        let mut written = Vec::new();
        for (set, count) in locked.iter_mut().zip(counts) {
            let holds = set.held.secure(cx).is_ok();
            for (it, name) in read.by_ref().take(count) {
                // If a transaction took or freed the slot meanwhile, another lock protects the slot now. The copier
                // compares such a unit again.
                match holds && it.lock(table) == name {
                    true => written.push(it),
                    false => later.push(anew(it.unit)),
                }
            }
        }
        self.write_compared(&written).await?;
        done.extend(written.into_iter().map(Compared::copied));
        Ok(later)
    }

    /// Writes the spans in which units differ to the copy. The copier holds the locks of these units.
    pub(super) async fn write_compared(&mut self, units: &[Compared]) -> Result<(), Failure> {
        let mut wishes = Vec::new();
        for it in units {
            let before = wishes.len();
            // The copier writes the bodies to which a slot leads before it writes the slot itself.
            let pairs = it.images.iter().zip(&it.copies);
            for (&(at, _), (image, copy)) in it.unit.spans.iter().zip(pairs).rev() {
                if image != copy {
                    self.done.bytes += image.len() as u64;
                    wishes.push(Wish::Write(at.at(self.to), image.clone()));
                }
            }
            self.done.written += u64::from(wishes.len() > before);
        }
        self.write(wishes).await
    }
}

/// The unit without what an earlier image has told about it.
pub(super) fn anew(it: Unit) -> Unit {
    Unit { spans: vec![it.spans[0]], ..it }
}
