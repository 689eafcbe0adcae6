//! Copies units whose lock is in a compute node, under that lock.
//!
//! Invariant: what is not the same at the primary and at the copy is read again and written under a lock for
//! reading, which is secured before the WRITE: so nobody who writes the unit is under way, and whoever writes it next does so
//! behind the copier. What is the same needs no lock, whenever either was read: bytes that nobody writes stay the same, and
//! those that somebody writes come to both. (For the lock-first protocol of Hu et al., "LOTUS: Optimizing Disaggregated
//! Transactions with Disaggregated Locks"; the paper's copies are filled while the cluster rests.)

use super::unit::{Kind, Unit, word};
use super::{Copier, Copy, Stop};
use crate::catalog::Table;
use crate::context::Context;
use crate::layout::KEY_AT;
use crate::lock::name::{LockMode, LockName};
use crate::lock::set::LockSet;
use crate::outcome::Failure;
use crate::recovery::Wish;
use crate::shard_map::{ShardId, shard_of, shard_of_address};
use tarn_fabric::address::Address;

/// Locks of a copier, until it is dropped.
struct Locks<'a> {
    cx: &'a Context,
    held: LockSet,
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        self.held.release(self.cx, None);
    }
}

/// A unit as it was read: at the primary, and at the copy.
struct Compared {
    unit: Unit,
    images: Vec<Vec<u8>>,
    copies: Vec<Vec<u8>>,
}

impl Compared {
    fn is_equal(&self) -> bool {
        self.images == self.copies
    }

    /// What is to be locked so that nobody writes it. Of a slot without a key: its bucket, which who takes it locks.
    fn lock(&self, table: &Table) -> (LockName, ShardId) {
        let of_bucket = |at: Address| (LockName::bucket(table.id.0, at), shard_of_address(at));
        match self.unit.kind {
            Kind::Header | Kind::Directory => of_bucket(self.unit.guard),
            Kind::Slot { bucket } if table.slot.is_free(&self.images[0]) => of_bucket(bucket),
            Kind::Slot { .. } => {
                let key = word(&self.images[0], KEY_AT);
                (LockName::row(table.id.0, key), shard_of(table, key))
            }
            Kind::Node => (LockName::node(0, self.unit.guard), shard_of_address(self.unit.guard)),
        }
    }
}

impl Copier<'_> {
    /// Copies units until each was equal at both, or written under its lock. All that a batch needs is asked for
    /// together; if any of it is refused, each by itself.
    pub(super) async fn copy_locked(
        &mut self,
        table: &Table,
        units: Vec<Unit>,
    ) -> Result<Vec<Copy>, Stop> {
        let (mut pending, mut done, mut together) = (units, Vec::new(), true);
        loop {
            let read = self.compare(table, pending).await?;
            let (equal, mut differing): (Vec<_>, Vec<_>) =
                read.into_iter().partition(Compared::is_equal);
            done.extend(equal.into_iter().map(|it| (it.unit, it.images)));
            let mut later = Vec::new();
            while !differing.is_empty() {
                let batch = match together {
                    true => std::mem::take(&mut differing),
                    false => vec![differing.swap_remove(0)],
                };
                later.extend(self.write_locked(table, batch, &mut done).await?);
            }
            if later.is_empty() {
                return Ok(done);
            }
            self.done.again += later.len() as u64;
            (pending, together) = (later, false);
            self.go_on()?;
            self.cx.port.yield_now().await;
        }
    }

    /// Reads units at the primary and at the copy, with all that their images lead to.
    async fn compare(&mut self, table: &Table, units: Vec<Unit>) -> Result<Vec<Compared>, Failure> {
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

    /// Writes to the copy, under their locks, units that differ; which are to be looked at once more.
    async fn write_locked(
        &mut self,
        table: &Table,
        batch: Vec<Compared>,
        done: &mut Vec<Copy>,
    ) -> Result<Vec<Unit>, Failure> {
        let cx = self.cx;
        let mut locks = Locks { cx, held: LockSet::default() };
        for (name, shard) in batch.iter().map(|it| it.lock(table)) {
            locks.held.ask(cx, name, shard, LockMode::Read);
        }
        let anew = |it: Unit| Unit { spans: vec![it.spans[0]], ..it };
        let names: Vec<_> = batch.iter().map(|it| it.lock(table)).collect();
        let units: Vec<Unit> = batch.into_iter().map(|it| anew(it.unit)).collect();
        if let Err(failure) = locks.held.collect(cx, cx.next_tag()).await {
            return if failure.is_retryable() { Ok(units) } else { Err(failure) };
        }
        let read = self.compare(table, units).await?;
        if locks.held.secure(cx).is_err() {
            return Ok(read.into_iter().map(|it| anew(it.unit)).collect());
        }
        let (mut later, mut wishes, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for (it, name) in read.into_iter().zip(names) {
            // A slot that came to be used, or was given up, is another lock's by now.
            match it.lock(table) == name {
                true => written.push(it),
                false => later.push(anew(it.unit)),
            }
        }
        for it in &written {
            let differing = wishes.len();
            // What a slot leads to comes before it.
            for (&(at, _), (image, copy)) in
                it.unit.spans.iter().zip(it.images.iter().zip(&it.copies)).rev()
            {
                if image != copy {
                    self.done.bytes += image.len() as u64;
                    wishes.push(Wish::Write(at.at(self.to), image.clone()));
                }
            }
            self.done.written += u64::from(wishes.len() > differing);
        }
        self.write(wishes).await?;
        done.extend(written.into_iter().map(|it| (it.unit, it.images)));
        Ok(later)
    }
}
