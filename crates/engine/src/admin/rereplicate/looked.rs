//! Copies units whose lock is in the memory node. The copier does not take the lock.
//!
//! Invariant: the copier reads a unit unlocked at version v, writes it to the copy, and reads LOCK and VERSION again.
//! If the unit is still unlocked at version v, the copy is correct. Otherwise the copier repeats all these steps. A
//! writer holds LOCK until every copy has acknowledged its WRITE. So if a transaction's WRITE reached the joining
//! copy before the copier's WRITE, the second read shows the lock or a new version. A transaction's WRITE that
//! arrives after the copier's WRITE is newer. LOCK words are not copied, because they are zero at backups.

use super::unit::{Unit, word};
use super::{Copier, Copy, Stop};
use crate::steps::settle::{Wish, is_stray};
use tarn_fabric::address::Address;
use tarn_store::ids::Failure;
use tarn_store::layout::{LOCK_AT, VERSION_AT};
use tarn_store::placement::catalog::Table;

/// The result of reading a unit at the primary and at the copy.
enum Seen {
    /// The unit is unlocked. The first images come from the primary and show one moment. The second images come from
    /// the copy.
    Free(Vec<Vec<u8>>, Vec<Vec<u8>>),
    /// A transaction holds the unit with this LOCK word, or has changed the unit while the copier read it.
    Busy(u64),
}

impl Seen {
    /// Classifies a unit by its images. The first line is always a snapshot of one moment. If `is_steady` is true,
    /// all lines of the unit are a snapshot of the same moment.
    fn of(is_steady: bool, images: Vec<Vec<u8>>, copies: Vec<Vec<u8>>) -> Seen {
        match word(&images[0], LOCK_AT) {
            0 if is_steady => Seen::Free(images, copies),
            lock => Seen::Busy(lock),
        }
    }
}

/// Groups units into runs, so that one READ covers each run. A run consists of adjacent units of one line each,
/// because a READ of many lines returns each line as of one moment. Any other unit forms a run of its own.
fn runs(units: &[Unit]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let follows = index.checked_sub(1).is_some_and(|before| {
            let (at, bytes) = units[before].spans[0];
            let is_next = unit.spans[0] == (at.plus(bytes), bytes);
            is_next && units[before].is_one_line() && unit.is_one_line()
        });
        match runs.last_mut().filter(|_| follows) {
            Some(run) => run.end = index + 1,
            None => runs.push(index..index + 1),
        }
    }
    runs
}

impl Copier<'_> {
    /// Copies units until each unit is equal at both nodes, or was unlocked at the same version before and after
    /// its WRITE. Returns the units with the images that were copied.
    pub(super) async fn copy_looked(
        &mut self,
        table: &Table,
        units: Vec<Unit>,
    ) -> Result<Vec<Copy>, Stop> {
        let (mut pending, mut done) = (units, Vec::new());
        while !pending.is_empty() {
            let (mut later, mut written) = (Vec::new(), Vec::new());
            let (mut wishes, mut strays) = (Vec::new(), Vec::new());
            for (mut unit, read) in self.read_units(pending).await? {
                let (images, copies) = match read {
                    Seen::Free(images, copies) => (images, copies),
                    Seen::Busy(lock) => {
                        strays.extend(is_stray(self.cx, lock).then_some((unit.guard, lock)));
                        later.push(unit);
                        continue;
                    }
                };
                let spans = unit.spans_of(table, &images);
                if spans != unit.spans {
                    unit.spans = spans;
                    later.push(unit);
                    continue;
                }
                let count = wishes.len();
                self.add_writes(&unit, (&images, &copies), &mut wishes);
                match wishes.len() > count {
                    true => written.push((unit, images)),
                    false => done.push((unit, images)),
                }
            }
            // The transaction that took such a lock has ended, because its node's incarnation was recovered. The
            // remaining lock would prevent the copying of its record for ever.
            let free = |(guard, lock): (Address, u64)| {
                Wish::Clear(self.cx.groups.primary(guard.plus(LOCK_AT)), lock)
            };
            wishes.extend(strays.into_iter().map(free));
            self.write(wishes).await?;
            let looks: Vec<Wish> = written.iter().map(|(unit, _)| self.look_at(unit)).collect();
            let heads = self.read(&looks).await?;
            for ((unit, images), head) in written.into_iter().zip(heads) {
                match head[..] == images[0][..16] {
                    true => done.push((unit, images)),
                    false => later.push(unit),
                }
            }
            self.done.again += later.len() as u64;
            pending = later;
        }
        Ok(done)
    }

    /// Returns a READ of a unit's LOCK and VERSION at the primary.
    fn look_at(&self, unit: &Unit) -> Wish {
        Wish::Read(self.cx.groups.primary(unit.guard.plus(LOCK_AT)), 16)
    }

    /// Reads the images of units at the primary and at the copy.
    async fn read_units(&mut self, units: Vec<Unit>) -> Result<Vec<(Unit, Seen)>, Failure> {
        let (mut wishes, runs) = (Vec::new(), runs(&units));
        let primary = |address: Address| self.cx.groups.primary(address);
        for run in &runs {
            let (first, bytes) = units[run.start].spans[0];
            match &units[run.clone()] {
                [unit] if !unit.is_one_line() => {
                    let spans = || unit.spans.iter();
                    wishes.push(self.look_at(unit));
                    wishes.extend(spans().map(|&(at, bytes)| Wish::Read(primary(at), bytes)));
                    wishes.push(self.look_at(unit));
                    wishes.extend(spans().map(|&(at, bytes)| Wish::Read(at.at(self.to), bytes)));
                }
                run => {
                    wishes.push(Wish::Read(primary(first), bytes * run.len()));
                    wishes.push(Wish::Read(first.at(self.to), bytes * run.len()));
                }
            }
        }
        let mut found = self.read(&wishes).await?.into_iter();
        let mut next = |count: usize| -> Vec<Vec<u8>> { found.by_ref().take(count).collect() };
        let (mut read, mut units) = (Vec::with_capacity(units.len()), units.into_iter());
        for run in runs {
            let (count, first) = (run.len(), units.next().expect("a unit of the run"));
            if !first.is_one_line() {
                let before = next(1).swap_remove(0);
                let mut images = next(first.spans.len());
                let after = next(1).swap_remove(0);
                let copies = next(first.spans.len());
                images[0][..16].copy_from_slice(&before);
                let seen = Seen::of(before == after, images, copies);
                read.push((first, seen));
                continue;
            }
            let (image, copy) = (next(1).swap_remove(0), next(1).swap_remove(0));
            let bytes = first.spans[0].1;
            let parts = image.chunks_exact(bytes).zip(copy.chunks_exact(bytes));
            let run = std::iter::once(first).chain(units.by_ref().take(count - 1));
            read.extend(run.zip(parts).map(|(unit, (image, copy))| {
                (unit, Seen::of(true, vec![image.to_vec()], vec![copy.to_vec()]))
            }));
        }
        Ok(read)
    }

    /// Adds WRITEs of the spans in which a unit differs, without the LOCK word. The WRITE of the span with VERSION
    /// comes last. The lines of one span may be written in any order.
    fn add_writes(
        &mut self,
        unit: &Unit,
        (images, copies): (&[Vec<u8>], &[Vec<u8>]),
        wishes: &mut Vec<Wish>,
    ) {
        let mut written = 0;
        for (index, &(address, _)) in unit.spans.iter().enumerate().rev() {
            let skip = if index == 0 { VERSION_AT } else { 0 };
            let (image, copy) = (&images[index][skip..], &copies[index][skip..]);
            if image != copy {
                written += image.len() as u64;
                wishes.push(Wish::Write(address.plus(skip).at(self.to), image.to_vec()));
            }
        }
        self.done.bytes += written;
        self.done.written += u64::from(written > 0);
    }
}
