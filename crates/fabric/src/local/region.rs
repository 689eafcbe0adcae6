//! A replica group's bytes at one node, and line-atomic access to them by many threads.
//!
//! Invariant: a READ never sees half of a WRITE within one aligned 64-byte line. Each granule of four lines belongs
//! to a *stripe*, a sequence number. A WRITE of more than one word makes the stripe odd before it copies, and even
//! after it has copied. A READ of more than one word copies the words. If the stripe was odd or has changed, the READ
//! copies again. (A stripe is a sequence lock: Lameter, "Effective synchronization on Linux/NUMA systems", Gelato
//! 2005; the memory orderings follow Boehm, "Can seqlocks get along with programming language memory models?", MSPC
//! 2012.)
//!
//! A verb of one aligned word is a single access of the hardware and does not use the stripe. So a READ of several
//! words does not detect such verbs. A READ takes the words of a line in ascending order. The reasons for this
//! mechanism are in docs/design/0002-line-atomicity.md.
//!
//! Every access uses atomics of one size, so that races are defined behaviour. A WRITE of a part of a word merges the
//! new bytes into the word with a compare-and-swap.

use super::ahead::prefetch_line;
use super::copy::copy_out;
use super::preempt::point;
use super::sync::{self, AtomicU32, AtomicU64, Ordering, Site, fence_of, order, yield_now};
use std::marker::PhantomData;

/// The method that keeps READs and WRITEs atomic within a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineAtomicity {
    /// A striped sequence lock with 2^bits stripes per node.
    Striped {
        /// The base-2 logarithm of the number of stripes.
        bits: u32,
    },
    /// Plain copies without stripes. **Breaks the contract**: the variant exists so that tests can prove that they
    /// detect torn lines.
    PlantedTorn,
}

/// The number of adjacent bytes that share a stripe. A granule is larger than a line because a READ often covers
/// several adjacent lines. So one stripe serves a READ of a whole bin, and the stripes stay in the processor's
/// nearest caches.
pub(super) const GRANULE_BYTES: u64 = 256;

/// The error for a stripe that stayed odd, because its writer died while it wrote a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StuckStripe;

/// The bytes of one group at one node, as a view into a mapping that exists for `'a`.
#[derive(Clone, Copy)]
pub struct Region<'a> {
    words: *const AtomicU64,
    bytes: u64,
    stripes: *const AtomicU32,
    stripe_mask: u64,
    first_granule: u64,
    /// The value of `checked` is 1 if stripes keep lines atomic, and otherwise 0. `checked` is a whole word because
    /// views are copied in every round. If the field were a byte with padding behind it, the copy would use
    /// overlapping stores, which the processor cannot forward to later loads.
    checked: u64,
    memory: PhantomData<&'a AtomicU64>,
}

impl<'a> Region<'a> {
    /// Creates a view of `bytes` bytes from `words` on, whose lines use `stripes`.
    ///
    /// # Safety
    /// `words` must be 64-byte aligned and valid for `bytes` bytes, and `bytes` must be a multiple of 64. `stripes`
    /// must be valid for `stripe_mask + 1` numbers, which must be a power of two. Both pointers must stay valid for
    /// as long as any copy of the view is used. All other accesses to both memories must be atomic.
    pub unsafe fn new(
        words: *const AtomicU64,
        bytes: u64,
        stripes: *const AtomicU32,
        stripe_mask: u64,
        first_granule: u64,
        checked: bool,
    ) -> Region<'a> {
        let (checked, memory) = (u64::from(checked), PhantomData);
        Region { words, bytes, stripes, stripe_mask, first_granule, checked, memory }
    }

    /// Returns the same view with the lifetime `'static`, which the compiler does not check.
    ///
    /// # Safety
    /// The caller must keep the mapping alive for as long as it uses the view.
    pub unsafe fn unbound(self) -> Region<'static> {
        Region { memory: PhantomData, ..self }
    }

    /// Creates a region of no bytes, which replaces the regions of a dead node.
    pub fn empty() -> Region<'a> {
        let none = std::ptr::null();
        Region {
            words: none,
            bytes: 0,
            stripes: none.cast(),
            stripe_mask: 0,
            first_granule: 0,
            checked: 1,
            memory: PhantomData,
        }
    }

    /// The size of the region in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `len` bytes from `offset` on lie inside the region.
    #[inline]
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes)
    }

    /// Returns the aligned word at `offset`.
    ///
    /// # Panics
    /// If the word lies outside the region.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        self.check(offset, 8);
        self.word_inside(offset)
    }

    /// Checks that an access lies inside the region. Every public access calls this function first. Most callers have
    /// already compared the same numbers, so the compiler can remove this check.
    #[inline]
    fn check(&self, offset: u64, len: u64) {
        assert!(self.contains(offset, len), "an access outside the region");
    }

    /// Whether stripes keep lines atomic.
    #[inline(always)]
    pub(super) fn is_checked(&self) -> bool {
        self.checked != 0
    }

    /// Returns a pointer to the words from `offset` on. A caller may use the pointer only for words inside the
    /// region.
    #[inline(always)]
    pub(super) fn words_at(&self, offset: u64) -> *const AtomicU64 {
        sync::word_at(self.words, offset)
    }

    #[inline]
    fn word_inside(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && self.contains(offset, 8));
        // SAFETY: public functions check bounds before they call this function, and regions consist of whole words.
        // The memory is valid by the contract of `new`.
        unsafe { &*self.words.add((offset / 8) as usize) }
    }

    #[inline(always)]
    pub(super) fn stripe(&self, offset: u64) -> &AtomicU32 {
        let index = (self.first_granule + offset / GRANULE_BYTES) & self.stripe_mask;
        // SAFETY: the mask keeps the index below the number of stripes, which are valid by the contract of `new`.
        unsafe { &*self.stripes.add(index as usize) }
    }

    /// Prefetches the line at `offset`.
    #[inline(always)]
    pub fn prefetch_line(&self, offset: u64, to_write: bool) {
        prefetch_line(self.words.cast::<u8>().wrapping_add(offset as usize), to_write);
    }

    /// Prefetches the stripe of the line at `offset`.
    #[inline(always)]
    pub fn prefetch_stripe(&self, offset: u64, to_write: bool) {
        let index = (self.first_granule + offset / GRANULE_BYTES) & self.stripe_mask;
        prefetch_line(self.stripes.wrapping_add(index as usize).cast(), to_write);
    }

    /// Returns the addresses of the line at `offset` and of the stripe that guards it, so that the caller can
    /// prefetch both.
    #[inline(always)]
    pub(super) fn places(&self, offset: u64) -> (*const u8, *const u8) {
        let index = (self.first_granule + offset / GRANULE_BYTES) & self.stripe_mask;
        let line = self.words.cast::<u8>().wrapping_add(offset as usize);
        (line, self.stripes.wrapping_add(index as usize).cast())
    }

    /// Executes a READ of whole aligned words into `out`.
    ///
    /// # Errors
    /// `StuckStripe` if a stripe stayed odd, because its writer died.
    #[inline(always)]
    pub fn read_words(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        debug_assert!(offset.is_multiple_of(8));
        self.check(offset, out.len() as u64 * 8);
        let to_granule_end = GRANULE_BYTES - offset % GRANULE_BYTES;
        if out.len() as u64 * 8 <= to_granule_end {
            self.read_in_granule(offset, out)
        } else {
            self.read_granules(offset, out)
        }
    }

    #[inline(never)]
    pub(super) fn read_granules(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        let (mut at, mut out) = (offset, out);
        while !out.is_empty() {
            let in_granule = ((GRANULE_BYTES - at % GRANULE_BYTES) / 8) as usize;
            let (head, rest) = out.split_at_mut(in_granule.min(out.len()));
            self.read_in_granule(at, head)?;
            at += head.len() as u64 * 8;
            out = rest;
        }
        Ok(())
    }

    #[inline(always)]
    fn read_in_granule(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        if let [word] = out {
            // The load has acquire order, because a READ comes before the next READ of its batch.
            *word = self.word_inside(offset).load(Ordering::Acquire);
            return Ok(());
        }
        if !self.is_checked() {
            self.copy_out_torn(offset, out);
            return Ok(());
        }
        let stripe = self.stripe(offset);
        let before = stripe.load(order(Site::StripeRead, Ordering::Acquire));
        point();
        if let [first, second] = out {
            // A READ of two words is usually a READ of LOCK and VERSION. The words are read in ascending order, as in
            // every READ: see `crate::round`.
            *first = self.word_inside(offset).load(Ordering::Acquire);
            *second = self.word_inside(offset + 8).load(Ordering::Acquire);
        } else {
            self.copy_out(offset, out);
        }
        fence_of(Site::StripeReadAgain, Ordering::Acquire);
        if before & 1 == 0 && stripe.load(Ordering::Relaxed) == before {
            return Ok(());
        }
        self.read_again(offset, out)
    }

    /// Reads again after a WRITE changed the words during the first READ.
    #[cold]
    fn read_again(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        let stripe = self.stripe(offset);
        let mut patience = Patience::new();
        loop {
            let before = stripe.load(order(Site::StripeRead, Ordering::Acquire));
            if before & 1 == 0 {
                self.copy_out(offset, out);
                fence_of(Site::StripeReadAgain, Ordering::Acquire);
                if stripe.load(Ordering::Relaxed) == before {
                    return Ok(());
                }
            }
            patience.wait()?;
        }
    }

    /// Copies words that other threads may be writing. The caller must check whether another thread wrote them.
    #[inline(always)]
    fn copy_out(&self, offset: u64, out: &mut [u64]) {
        debug_assert!(self.contains(offset, out.len() as u64 * 8));
        // SAFETY: public functions check bounds before they call this function. `out` has the length of the copied
        // range.
        unsafe { copy_out(self.words_at(offset), out.as_mut_ptr(), out.len() * 8) };
    }

    /// Copies word by word, so that lines can tear.
    #[inline(never)]
    fn copy_out_torn(&self, offset: u64, out: &mut [u64]) {
        for (index, word) in out.iter_mut().enumerate() {
            *word = self.word_inside(offset + index as u64 * 8).load(Ordering::Relaxed);
            point();
        }
    }

    /// Executes a READ of any byte range.
    ///
    /// # Errors
    /// `StuckStripe` if a stripe stayed odd, because its writer died.
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), StuckStripe> {
        self.check(offset, out.len() as u64);
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let first_word = at & !7;
            let line_end = (at | 63) + 1;
            let take = (line_end - at).min((out.len() - done) as u64) as usize;
            let words = ((at + take as u64).next_multiple_of(8) - first_word) as usize / 8;
            let mut line = [0u64; 8];
            self.read_words(first_word, &mut line[..words])?;
            let bytes: &[u8] = bytemuck::cast_slice(&line);
            let skip = (at - first_word) as usize;
            out[done..done + take].copy_from_slice(&bytes[skip..skip + take]);
            done += take;
        }
        Ok(())
    }

    /// Executes a WRITE of whole aligned words. If `guarded` is true, the WRITE is atomic within each line.
    ///
    /// # Errors
    /// `StuckStripe` if a stripe stayed odd, because its writer died.
    #[inline(always)]
    pub fn write_words(
        &self,
        offset: u64,
        words: &[u64],
        guarded: bool,
    ) -> Result<(), StuckStripe> {
        debug_assert!(offset.is_multiple_of(8));
        self.check(offset, words.len() as u64 * 8);
        if words.len() == 1 || !guarded || !self.is_checked() {
            self.store_words(offset, words);
            return Ok(());
        }
        if words.len() as u64 * 8 <= GRANULE_BYTES - offset % GRANULE_BYTES {
            return self.write_words_in_granule(offset, words);
        }
        self.write_granules(offset, words)
    }

    #[inline(never)]
    fn write_granules(&self, offset: u64, words: &[u64]) -> Result<(), StuckStripe> {
        let (mut at, mut words) = (offset, words);
        while !words.is_empty() {
            let in_granule = ((GRANULE_BYTES - at % GRANULE_BYTES) / 8) as usize;
            let (head, rest) = words.split_at(in_granule.min(words.len()));
            self.write_words_in_granule(at, head)?;
            at += head.len() as u64 * 8;
            words = rest;
        }
        Ok(())
    }

    #[inline(always)]
    fn store_words(&self, offset: u64, words: &[u64]) {
        debug_assert!(self.contains(offset, words.len() as u64 * 8));
        let mut to = self.words_at(offset);
        for &word in words {
            // SAFETY: the word is inside the region, because public functions check bounds before they call this
            // function. The store has release order, because a WRITE comes before the next verb of its batch.
            unsafe {
                (*to).store(word, Ordering::Release);
                to = to.add(1);
            }
            point();
        }
    }

    #[inline(always)]
    fn write_words_in_granule(&self, offset: u64, words: &[u64]) -> Result<(), StuckStripe> {
        let stripe = self.stripe(offset);
        let even = self.take_stripe(stripe)?;
        fence_of(Site::StripeTaken, Ordering::Release);
        point();
        self.store_words(offset, words);
        stripe.store(even.wrapping_add(2), order(Site::StripeReleased, Ordering::Release));
        Ok(())
    }

    /// Makes a stripe odd, so that this thread is its writer. Returns the stripe's former value.
    #[inline(always)]
    fn take_stripe(&self, stripe: &AtomicU32) -> Result<u32, StuckStripe> {
        let seen = stripe.load(Ordering::Relaxed);
        let orders = (Ordering::Acquire, Ordering::Relaxed);
        if seen & 1 == 0
            && stripe.compare_exchange(seen, seen.wrapping_add(1), orders.0, orders.1).is_ok()
        {
            return Ok(seen);
        }
        self.wait_for_stripe(stripe)
    }

    #[cold]
    fn wait_for_stripe(&self, stripe: &AtomicU32) -> Result<u32, StuckStripe> {
        let mut patience = Patience::new();
        loop {
            let seen = stripe.load(Ordering::Relaxed);
            let orders = (Ordering::Acquire, Ordering::Relaxed);
            if seen & 1 == 0
                && stripe
                    .compare_exchange_weak(seen, seen.wrapping_add(1), orders.0, orders.1)
                    .is_ok()
            {
                return Ok(seen);
            }
            patience.wait()?;
        }
    }

    /// Executes a WRITE of any byte range.
    ///
    /// # Errors
    /// `StuckStripe` if a stripe stayed odd, because its writer died.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StuckStripe> {
        self.check(offset, bytes.len() as u64);
        let mut at = offset;
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let in_line = (64 - at % 64) as usize;
            let (head, rest) = bytes.split_at(in_line.min(bytes.len()));
            if let ([word], []) = head.as_chunks::<8>()
                && at.is_multiple_of(8)
            {
                // The store has release order, because a WRITE comes before the next verb of its batch.
                self.word_inside(at).store(u64::from_ne_bytes(*word), Ordering::Release);
            } else if !self.is_checked() {
                self.copy_in(at, head);
            } else {
                self.write_line(at, head)?;
            }
            at += head.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    #[inline]
    fn write_line(&self, offset: u64, bytes: &[u8]) -> Result<(), StuckStripe> {
        let stripe = self.stripe(offset);
        let even = self.take_stripe(stripe)?;
        fence_of(Site::StripeTaken, Ordering::Release);
        point();
        self.copy_in(offset, bytes);
        stripe.store(even.wrapping_add(2), order(Site::StripeReleased, Ordering::Release));
        Ok(())
    }

    #[inline]
    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        let head = ((8 - offset % 8) % 8) as usize;
        let (head, body) = bytes.split_at(head.min(bytes.len()));
        let (words, tail) = body.as_chunks::<8>();
        let mut at = offset;
        if !head.is_empty() {
            self.merge(at, head);
            at += head.len() as u64;
        }
        for &word in words {
            self.word_inside(at).store(u64::from_ne_bytes(word), Ordering::Relaxed);
            point();
            at += 8;
        }
        if !tail.is_empty() {
            self.merge(at, tail);
        }
    }

    /// Stores `bytes`, which are a part of one word, by a compare-and-swap of the whole word. A plain store is not
    /// enough, because a READ of this word alone ignores the stripe. A plain store could also undo atomics on the
    /// word's other bytes.
    fn merge(&self, offset: u64, bytes: &[u8]) {
        let at = (offset % 8) as usize;
        let (mut mask, mut value) = ([0; 8], [0; 8]);
        mask[at..at + bytes.len()].fill(0xff);
        value[at..at + bytes.len()].copy_from_slice(bytes);
        let (mask, value) = (u64::from_ne_bytes(mask), u64::from_ne_bytes(value));
        let word = self.word_inside(offset & !7);
        let swap = |old: u64| Some((old & !mask) | value);
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, swap);
    }
}

/// Waits for a writer: first by spinning, then by yielding the processor, until it returns an error. A running writer
/// needs nanoseconds, a preempted writer needs milliseconds, and a killed writer never finishes.
struct Patience {
    turns: u32,
}

impl Patience {
    const SPINS: u32 = if cfg!(loom) { 0 } else { 1 << 10 };
    const YIELDS: u32 = 1 << 20;

    fn new() -> Patience {
        Patience { turns: 0 }
    }

    #[cold]
    fn wait(&mut self) -> Result<(), StuckStripe> {
        self.turns += 1;
        if self.turns < Patience::SPINS {
            std::hint::spin_loop();
        } else if self.turns < Patience::YIELDS {
            yield_now();
        } else {
            return Err(StuckStripe);
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_left_odd_ends_in_an_error_and_words_go_on() {
        let words = WordLines([const { AtomicU64::new(0) }; 64]);
        let stripes = [const { AtomicU32::new(0) }; 2];
        // SAFETY: both arrays exist longer than the view, and have the sizes that the call passes.
        let region = unsafe { Region::new(words.0.as_ptr(), 512, stripes.as_ptr(), 1, 0, true) };
        stripes[1].store(1, Ordering::Relaxed); // the stripe's writer no longer exists
        assert_eq!(region.write(252, &[7; 4]), Ok(()));
        assert_eq!(region.write(256, &[7; 16]), Err(StuckStripe));
        assert_eq!(region.read_bytes(248, &mut [0; 24]), Err(StuckStripe));
        assert_eq!(region.write(256, &[7; 8]), Ok(()));
        assert_eq!(region.read_words(256, &mut [0]), Ok(()));
        assert_eq!(region.word(256).load(Ordering::Relaxed), u64::from_ne_bytes([7; 8]));
    }

    #[repr(C, align(64))]
    struct WordLines([AtomicU64; 64]);
}
