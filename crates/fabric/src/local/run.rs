//! Executes a sequence of verbs to one region. Most rounds consist only of verbs to one region.
//!
//! Invariant: each verb has the effect that [`Region`]'s own functions would have, with the same checks. The caller
//! executes the unusual verbs one by one: verbs to another region, to a part of a word, with another writer, or with
//! an error. Each check for an unusual verb is one comparison.

use super::copy::{copy_in, copy_out};
use super::preempt::point;
use super::region::{GRANULE_BYTES, Region};
use super::sync::{Ordering, Site, fence_of, full_fence, order};
use crate::round::{Verb, VerbKind};

/// On x86-64, an atomic is itself a full fence, so no fence is needed after it.
pub(super) const FENCE_AFTER_ATOMICS: bool = cfg!(not(target_arch = "x86_64"));

impl Region<'_> {
    /// Executes the first verbs of `verbs` in order. The very first verb must access this region. Returns the number
    /// of executed verbs, and whether a WRITE was executed after the last full fence. `unfenced` says whether this
    /// was already so before the call. The caller must execute the next verb.
    #[inline(always)]
    pub(super) fn run(
        &self,
        verbs: &mut [Verb],
        buffer: &mut [u64],
        mut unfenced: bool,
    ) -> (usize, bool) {
        let Some(first) = verbs.first().map(|verb| verb.target) else { return (0, unfenced) };
        // If the region has no stripes, every verb is an unusual verb.
        let region_bytes = if self.is_checked() { self.bytes() } else { 0 };
        let buffer_bytes = buffer.len() as u64 * 8;
        let mut done = 0;
        for verb in verbs.iter_mut() {
            point();
            let offset = verb.target.offset_beside(first);
            let (at, len) = (u64::from(verb.buffer().0), verb.len_bytes() as u64);
            let ordinary = offset < region_bytes
                && len <= region_bytes - offset
                && at + len <= buffer_bytes
                && (offset | at | len).is_multiple_of(8);
            if !ordinary {
                break;
            }
            // The checks above show that the bytes `at..at + len` lie in the buffer, and that `offset..offset + len`
            // lies in the region.
            let local = buffer.as_mut_ptr().wrapping_byte_add(at as usize);
            let in_granule = offset % GRANULE_BYTES + len <= GRANULE_BYTES;
            let settled = if verb.is_plain_read() {
                if unfenced {
                    // A processor may execute a load before its earlier stores are visible. By the contract, a READ
                    // comes after an earlier WRITE of its batch.
                    full_fence();
                    unfenced = false;
                }
                // SAFETY: the checks above show that both ranges are valid, and they consist of whole words.
                unsafe { self.read_here(offset, local, len as usize, in_granule) }
            } else if verb.is(VerbKind::Write) {
                unfenced = true;
                let guarded = len > 8 && !verb.has(Verb::PRIVATE);
                // SAFETY: as above, both ranges are valid and consist of whole words.
                unsafe { self.write_here(offset, local, len as usize, (guarded, in_granule)) }
            } else if verb.is(VerbKind::CompareAndSwap) {
                let (order, word) = ((Ordering::SeqCst, Ordering::SeqCst), self.words_at(offset));
                // SAFETY: the checks above show that the word is an aligned word of the region, because an atomic has
                // 8 bytes.
                let swapped = unsafe {
                    (*word).compare_exchange(verb.expected, verb.value, order.0, order.1)
                };
                verb.value = swapped.unwrap_or_else(|found| found);
                unfenced = FENCE_AFTER_ATOMICS;
                true
            } else {
                false
            };
            if !settled {
                break;
            }
            done += 1;
        }
        (done, unfenced)
    }

    /// Executes a READ of `len` bytes. Returns whether no writer changed the bytes during the READ.
    ///
    /// # Safety
    /// `offset..offset + len` must lie inside the region, and `to` must be valid for `len` bytes. Both ranges must
    /// consist of whole words.
    #[inline(always)]
    pub(super) unsafe fn read_here(
        &self,
        offset: u64,
        to: *mut u64,
        len: usize,
        in_granule: bool,
    ) -> bool {
        if !in_granule {
            // SAFETY: the caller guarantees the conditions under `Safety` of this function.
            return unsafe { self.read_across(offset, to, len) };
        }
        let stripe = self.stripe(offset);
        let before = stripe.load(order(Site::StripeRead, Ordering::Acquire));
        point();
        // SAFETY: the caller guarantees the conditions under `Safety` of this function.
        unsafe { copy_out(self.words_at(offset), to, len) };
        fence_of(Site::StripeReadAgain, Ordering::Acquire);
        before & 1 == 0 && stripe.load(Ordering::Relaxed) == before
    }

    /// Does the same as [`Region::read_here`], for a range that crosses the end of a granule.
    ///
    /// # Safety
    /// The same conditions as for [`Region::read_here`]. Also, `len` must not be 0.
    #[inline(never)]
    unsafe fn read_across(self, offset: u64, to: *mut u64, len: usize) -> bool {
        let (first, last) = (self.stripe(offset), self.stripe(offset + len as u64 - 8));
        if offset % GRANULE_BYTES + len as u64 > 2 * GRANULE_BYTES {
            // SAFETY: the caller guarantees the conditions under `Safety` of this function.
            let out = unsafe { std::slice::from_raw_parts_mut(to, len / 8) };
            return self.read_granules(offset, out).is_ok();
        }
        let acquire = order(Site::StripeRead, Ordering::Acquire);
        let before = (first.load(acquire), last.load(acquire));
        point();
        // SAFETY: the caller guarantees the conditions under `Safety` of this function.
        unsafe { copy_out(self.words_at(offset), to, len) };
        fence_of(Site::StripeReadAgain, Ordering::Acquire);
        let after = (first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
        (before.0 | before.1) & 1 == 0 && before == after
    }

    /// Executes a WRITE of `len` bytes. Returns whether no other writer held the stripe. If another writer held the
    /// stripe, the function writes nothing.
    ///
    /// # Safety
    /// The same conditions as for [`Region::read_here`].
    #[inline(always)]
    pub(super) unsafe fn write_here(
        &self,
        offset: u64,
        from: *const u64,
        len: usize,
        (guarded, in_granule): (bool, bool),
    ) -> bool {
        let to = self.words_at(offset);
        if !guarded {
            // SAFETY: the caller guarantees the conditions under `Safety` of this function.
            unsafe { copy_in(from, to, len) };
            return true;
        }
        if !in_granule {
            return false;
        }
        let stripe = self.stripe(offset);
        let even = stripe.load(Ordering::Relaxed);
        let (odd, orders) = (even.wrapping_add(1), (Ordering::Acquire, Ordering::Relaxed));
        if even & 1 != 0 || stripe.compare_exchange(even, odd, orders.0, orders.1).is_err() {
            return false;
        }
        fence_of(Site::StripeTaken, Ordering::Release);
        point();
        // SAFETY: the caller guarantees the conditions under `Safety` of this function.
        unsafe { copy_in(from, to, len) };
        stripe.store(even.wrapping_add(2), order(Site::StripeReleased, Ordering::Release));
        true
    }
}
