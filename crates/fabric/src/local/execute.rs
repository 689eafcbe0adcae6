//! Executes rounds for the local backend. The backend prefetches a round's lines when the round is posted, and
//! executes the round's verbs when the caller completes the round.
//!
//! Invariant: verbs take effect in the order in which they were added. A full fence separates a WRITE from a later
//! READ. A full fence also comes before the end of a round that wrote, unless another round follows.

use super::hold::Hold;
use super::region::{Region, StuckStripe};
use super::run::FENCE_AFTER_ATOMICS;
use super::sync::{Ordering, full_fence};
use crate::address::{LINE_BYTES, Target};
use crate::error::FabricError;
use crate::round::{Round, Verb, VerbKind};

/// If a round has at least this number of verbs, its lines are compared with each other before they are prefetched.
const MANY_VERBS: usize = 8;

/// The reason why a verb was not executed.
enum Stop {
    Outside,
    Stuck,
}

impl Hold {
    /// Prefetches the lines of a posted round. Sixteen stripes share a line, so the function prefetches only the line
    /// of a verb's first stripe. Verbs whose stripes lie in several lines are few, and the processor's own prefetcher
    /// fetches the other lines.
    #[inline(always)]
    pub(super) fn fetch_ahead(&self, round: &Round) {
        match round.verbs().len() {
            0..MANY_VERBS => self.gather::<false>(round),
            _ => self.gather_many(round),
        }
    }

    #[inline(never)]
    fn gather_many(&self, round: &Round) {
        self.gather::<true>(round);
    }

    /// In a round of many verbs, a verb often accesses only the line in which the previous verb began. In a round of
    /// many verbs, comparing each line with the previous line saves more time than it costs. `COMPARED` switches
    /// these comparisons on.
    #[inline(always)]
    fn gather<const COMPARED: bool>(&self, round: &Round) {
        let Some(mut first) = round.verbs().first().map(|verb| verb.target) else { return };
        let Some(mut region) = self.region(first) else { return };
        let ahead = &self.ahead;
        let mut before = u64::MAX;
        for verb in round.verbs() {
            let mut offset = verb.target.offset_beside(first);
            if offset >= region.bytes() {
                let Some(other) = self.region(verb.target) else { continue };
                (first, region) = (verb.target, other);
                offset = verb.target.offset_beside(first);
                before = u64::MAX;
            }
            if COMPARED {
                let last = offset.wrapping_add(verb.len_bytes() as u64).wrapping_sub(1);
                if (offset ^ before) | (last ^ before) < LINE_BYTES as u64 {
                    continue;
                }
                before = offset;
            }
            let (line, stripe) = region.places(offset);
            ahead.add(line, verb.len_bytes(), stripe, !verb.is(VerbKind::Read));
        }
        ahead.posted(self.in_flight.get());
    }

    /// Executes the round's verbs in order. The error is boxed, so that a successful result fits into a register.
    pub(super) fn execute(&self, round: &mut Round) -> Result<(), Box<FabricError>> {
        let _inside = self.enter();
        let followed = round.is_followed();
        let (verbs, buffer) = round.parts_mut();
        let mut wrote = self.unfenced.get();
        let mut outcome = Ok(());
        let mut next = 0;
        while let Some(verb) = verbs.get(next) {
            let Some(region) = self.region(verb.target) else {
                outcome = Err(self.refusal(verb.target));
                break;
            };
            let done;
            (done, wrote) = region.run(&mut verbs[next..], buffer, wrote);
            next += done;
            if done > 0 {
                continue;
            }
            let verb = &mut verbs[next];
            if let Err(stop) = execute_one(region, verb, buffer, &mut wrote) {
                outcome = Err(self.stopped(verb.target, stop));
                break;
            }
            next += 1;
        }
        // If another round follows, the missing fence is executed later: before the next READ, or at the end of a
        // round that is not followed. An atomic is itself a full fence.
        self.unfenced.set(wrote && followed);
        if wrote && !followed {
            full_fence();
        }
        outcome
    }

    #[cold]
    fn stopped(&self, target: Target, stop: Stop) -> Box<FabricError> {
        match stop {
            Stop::Outside => self.refusal(target),
            Stop::Stuck => Box::new(FabricError::TornLine(target)),
        }
    }
}

/// Executes any verb, even an unusual one. The region is passed as a copy, so that the compiler can keep the region's
/// fields in registers.
///
/// # Errors
/// The reason why the verb was not executed.
#[inline(never)]
fn execute_one(
    region: Region<'_>,
    verb: &mut Verb,
    buffer: &mut [u64],
    unfenced: &mut bool,
) -> Result<(), Stop> {
    let offset = verb.target.address().offset_bytes();
    if !region.contains(offset, verb.len_bytes() as u64) {
        return Err(Stop::Outside);
    }
    match verb.kind() {
        VerbKind::Read => {
            if std::mem::take(unfenced) {
                full_fence(); // as in `Region::run`
            }
            read(&region, offset, verb, buffer)
        }
        VerbKind::Write => {
            *unfenced = true;
            write(&region, offset, verb, buffer)
        }
        _ => {
            atomic(&region, offset, verb, buffer);
            *unfenced = FENCE_AFTER_ATOMICS;
            Ok(())
        }
    }
    .map_err(|StuckStripe| Stop::Stuck)
}

fn read(region: &Region, offset: u64, verb: &Verb, buffer: &mut [u64]) -> Result<(), StuckStripe> {
    let (at, len) = (verb.buffer().0 as usize, verb.len_bytes());
    if (offset | at as u64 | len as u64).is_multiple_of(8) {
        return region.read_words(offset, &mut buffer[at / 8..(at + len) / 8]);
    }
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(buffer);
    region.read_bytes(offset, &mut bytes[at..at + len])
}

fn write(region: &Region, offset: u64, verb: &Verb, buffer: &[u64]) -> Result<(), StuckStripe> {
    let (at, len) = (verb.buffer().0 as usize, verb.len_bytes());
    if (offset | at as u64 | len as u64).is_multiple_of(8) {
        let words = &buffer[at / 8..(at + len) / 8];
        return region.write_words(offset, words, !verb.has(Verb::PRIVATE));
    }
    let bytes: &[u8] = bytemuck::cast_slice(buffer);
    region.write(offset, &bytes[at..at + len])
}

fn atomic(region: &Region, offset: u64, verb: &mut Verb, buffer: &[u64]) {
    let (word, order) = (region.word(offset), (Ordering::SeqCst, Ordering::SeqCst));
    if verb.is(VerbKind::CompareAndSwap) {
        let swapped = word.compare_exchange(verb.expected, verb.value, order.0, order.1);
        verb.value = swapped.unwrap_or_else(|found| found);
        return;
    }
    if verb.is(VerbKind::FetchAndAdd) {
        verb.value = word.fetch_add(verb.expected, Ordering::SeqCst);
        return;
    }
    let at = verb.buffer().0 as usize / 8;
    let (compare_mask, swap_mask) = (buffer[at], buffer[at + 1]);
    let swap = |old: u64| {
        let equal = old & compare_mask == verb.expected & compare_mask;
        equal.then_some((old & !swap_mask) | (verb.value & swap_mask))
    };
    let outcome = word.fetch_update(order.0, order.1, swap);
    verb.value = outcome.unwrap_or_else(|found| {
        full_fence(); // nothing was swapped, so nothing has fenced
        found
    });
}
