//! Executes verbs to one region in a row: most rounds consist of such verbs.
//!
//! Invariant: each verb has the effect that [`Region`]'s own functions would have, with the same
//! checks. Unusual cases (another region, a part of a word, a writer in the way, an error) are left
//! to the caller, which executes them verb by verb. Each condition is one comparison.

use super::copy::{copy_in, copy_out};
use super::preempt::point;
use super::region::{GRANULE_BYTES, Region};
use super::sync::{Ordering, Site, fence_of, full_fence, order};
use crate::round::{Verb, VerbKind};

/// Atomics of x86-64 are full fences themselves.
pub(super) const FENCE_AFTER_ATOMICS: bool = cfg!(not(target_arch = "x86_64"));

impl Region<'_> {
    /// Executes verbs from the front of `verbs`, of which the first is to this region, in order.
    /// Returns their number, and whether a WRITE came since the last full fence; `unfenced` says
    /// whether one had before. The caller executes the next verb.
    #[inline(always)]
    pub(super) fn run(
        &self,
        verbs: &mut [Verb],
        buffer: &mut [u64],
        mut unfenced: bool,
    ) -> (usize, bool) {
        let Some(first) = verbs.first().map(|verb| verb.target) else { return (0, unfenced) };
        // Without stripes nothing is ordinary.
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
            // Bytes `at..at + len` of the buffer, and `offset..offset + len` of the region, exist.
            let local = buffer.as_mut_ptr().wrapping_byte_add(at as usize);
            let in_granule = offset % GRANULE_BYTES + len <= GRANULE_BYTES;
            let settled = if verb.is_plain_read() {
                if unfenced {
                    // A processor may load before its earlier stores are seen; the contract's READ
                    // comes after the WRITE of its batch.
                    full_fence();
                    unfenced = false;
                }
                // SAFETY: both ranges were just compared; they are whole words.
                unsafe { self.read_here(offset, local, len as usize, in_granule) }
            } else if verb.is(VerbKind::Write) {
                unfenced = true;
                let guarded = len > 8 && !verb.has(Verb::PRIVATE);
                // SAFETY: as above.
                unsafe { self.write_here(offset, local, len as usize, (guarded, in_granule)) }
            } else if verb.is(VerbKind::CompareAndSwap) {
                let (order, word) = ((Ordering::SeqCst, Ordering::SeqCst), self.words_at(offset));
                // SAFETY: an aligned word of the region: atomics are 8 bytes long.
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

    /// READ of `len` bytes; returns whether no writer was in the way.
    ///
    /// # Safety
    /// `offset..offset + len` lies inside the region, `to` is valid for `len` bytes; both are whole
    /// words.
    #[inline(always)]
    pub(super) unsafe fn read_here(
        &self,
        offset: u64,
        to: *mut u64,
        len: usize,
        in_granule: bool,
    ) -> bool {
        if !in_granule {
            // SAFETY: this function's contract.
            return unsafe { self.read_across(offset, to, len) };
        }
        let stripe = self.stripe(offset);
        let before = stripe.load(order(Site::StripeRead, Ordering::Acquire));
        point();
        // SAFETY: this function's contract.
        unsafe { copy_out(self.words_at(offset), to, len) };
        fence_of(Site::StripeReadAgain, Ordering::Acquire);
        before & 1 == 0 && stripe.load(Ordering::Relaxed) == before
    }

    /// Like [`Region::read_here`], beyond the end of a granule.
    ///
    /// # Safety
    /// The same as for [`Region::read_here`]; `len` is not 0.
    #[inline(never)]
    unsafe fn read_across(self, offset: u64, to: *mut u64, len: usize) -> bool {
        let (first, last) = (self.stripe(offset), self.stripe(offset + len as u64 - 8));
        if offset % GRANULE_BYTES + len as u64 > 2 * GRANULE_BYTES {
            // SAFETY: this function's contract.
            let out = unsafe { std::slice::from_raw_parts_mut(to, len / 8) };
            return self.read_granules(offset, out).is_ok();
        }
        let acquire = order(Site::StripeRead, Ordering::Acquire);
        let before = (first.load(acquire), last.load(acquire));
        point();
        // SAFETY: this function's contract.
        unsafe { copy_out(self.words_at(offset), to, len) };
        fence_of(Site::StripeReadAgain, Ordering::Acquire);
        let after = (first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
        (before.0 | before.1) & 1 == 0 && before == after
    }

    /// WRITE of `len` bytes; returns whether no other writer was in the way. Otherwise nothing is
    /// written.
    ///
    /// # Safety
    /// The same as for [`Region::read_here`].
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
            // SAFETY: this function's contract.
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
        // SAFETY: this function's contract.
        unsafe { copy_in(from, to, len) };
        stripe.store(even.wrapping_add(2), order(Site::StripeReleased, Ordering::Release));
        true
    }
}
