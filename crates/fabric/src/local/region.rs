//! A replica group's bytes at one node, and line-atomic access to them by many threads.
//!
//! Invariant: a READ never sees half of a WRITE within one aligned 64-byte line. Each line belongs
//! to a *stripe*, a sequence number that a WRITE of more than one word makes odd while it copies
//! and even when it is done; a READ of more than one word copies and starts over if the stripe was
//! odd or changed (a sequence lock: Lameter, "Effective synchronization on Linux/NUMA systems",
//! Gelato 2005; orderings as in Boehm, "Can seqlocks get along with programming language memory
//! models?", MSPC 2012). Verbs of one aligned word go to the hardware directly, so a READ may see
//! two such verbs on different words of one line in either order, which the contract allows.
//! Why this mechanism: docs/design/0002-line-atomicity.md.
//!
//! Every access is through atomics of one size, so that races are defined behaviour: a WRITE of a
//! part of a word merges it into the word with a compare-and-swap.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// How READ and WRITE are kept atomic within a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineAtomicity {
    /// A striped sequence lock with 2^bits stripes a node.
    Striped {
        /// Base-2 logarithm of the number of stripes.
        bits: u32,
    },
    /// Plain copies. **Breaks the contract**; here so that tests prove that they would notice.
    PlantedTorn,
}

/// Gave up waiting for a stripe: its writer died in mid-line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StuckStripe;

/// One group's bytes at one node: a view into a mapping that lives for `'a`.
#[derive(Clone, Copy)]
pub struct Region<'a> {
    words: *const AtomicU64,
    bytes: u64,
    stripes: *const AtomicU32,
    stripe_mask: u64,
    first_line: u64,
    checked: bool,
    memory: PhantomData<&'a AtomicU64>,
}

impl<'a> Region<'a> {
    /// A view of `bytes` from `words` on, whose lines use `stripes`.
    ///
    /// # Safety
    /// `words` is 64-byte aligned and valid for `bytes`, a multiple of 64, `stripes` for `stripe_mask + 1` numbers,
    /// both for as long as any copy of the view is used; `stripe_mask + 1` is a power of two; all
    /// other access to either goes through atomics.
    pub unsafe fn new(
        words: *const AtomicU64,
        bytes: u64,
        stripes: *const AtomicU32,
        stripe_mask: u64,
        first_line: u64,
        checked: bool,
    ) -> Region<'a> {
        Region { words, bytes, stripes, stripe_mask, first_line, checked, memory: PhantomData }
    }

    /// The same view, without the compiler's watch.
    ///
    /// # Safety
    /// The caller keeps the mapping alive while it uses the view.
    pub unsafe fn unbound(self) -> Region<'static> {
        Region { memory: PhantomData, ..self }
    }

    /// A region of no bytes: what a dead node shows.
    pub fn empty() -> Region<'a> {
        let none = std::ptr::null();
        Region {
            words: none,
            bytes: 0,
            stripes: none.cast(),
            stripe_mask: 0,
            first_line: 0,
            checked: true,
            memory: PhantomData,
        }
    }

    /// Size in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `len` bytes from `offset` on lie inside.
    #[inline]
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes)
    }

    /// The aligned word at `offset`.
    ///
    /// # Panics
    /// Outside the region.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        self.check(offset, 8);
        self.word_inside(offset)
    }

    /// Every public access starts here; most callers have just compared the same numbers, so that
    /// the compiler can drop it.
    #[inline]
    fn check(&self, offset: u64, len: u64) {
        assert!(self.contains(offset, len), "an access outside the region");
    }

    #[inline]
    fn word_inside(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && self.contains(offset, 8));
        // SAFETY: public functions check bounds before they come here, and regions consist of
        // whole words; the memory is valid by the contract of `new`.
        unsafe { &*self.words.add((offset / 8) as usize) }
    }

    #[inline]
    fn stripe(&self, offset: u64) -> &AtomicU32 {
        let index = (self.first_line + offset / 64) & self.stripe_mask;
        // SAFETY: the index is masked to the number of stripes, valid by the contract of `new`.
        unsafe { &*self.stripes.add(index as usize) }
    }

    /// Asks the processor to fetch the lines of `len` bytes from `offset` on, and their stripes.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64, to_write: bool) {
        let first = offset / 64;
        let last = (offset + len.max(1) - 1) / 64;
        for line in first..=last {
            let data = self.words.wrapping_add((line * 8) as usize);
            prefetch_line(data.cast(), to_write);
        }
        if len > 8 {
            // Sixteen stripes share a line; runs longer than that are few, and the processor's own
            // prefetcher follows them.
            for line in [first, last] {
                let index = (self.first_line + line) & self.stripe_mask;
                prefetch_line(self.stripes.wrapping_add(index as usize).cast(), to_write);
            }
        }
    }

    /// READ of whole aligned words into `out`.
    ///
    /// # Errors
    /// `StuckStripe`.
    #[inline(always)]
    pub fn read_words(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        debug_assert!(offset.is_multiple_of(8));
        self.check(offset, out.len() as u64 * 8);
        if let Ok(head) = <&mut [u64; 2]>::try_from(&mut *out)
            && self.checked
            && offset % 64 <= 48
        {
            return self.read_two_words(offset, head);
        }
        if !self.checked || !offset.is_multiple_of(64) {
            return self.read_pieces(offset, out);
        }
        let (lines, rest) = out.as_chunks_mut::<8>();
        for (index, line) in lines.iter_mut().enumerate() {
            self.read_whole_line(offset + index as u64 * 64, line)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.read_pieces(offset + lines.len() as u64 * 64, rest)
    }

    #[inline(always)]
    fn read_whole_line(&self, offset: u64, out: &mut [u64; 8]) -> Result<(), StuckStripe> {
        let stripe = self.stripe(offset);
        let before = stripe.load(Ordering::Acquire);
        copy_line(self.word_inside(offset), out);
        fence(Ordering::Acquire);
        if before & 1 == 0 && stripe.load(Ordering::Relaxed) == before {
            return Ok(());
        }
        self.read_line_again(offset, out)
    }

    /// Two words of one line: a record's LOCK and VERSION, say.
    #[inline(always)]
    fn read_two_words(&self, offset: u64, out: &mut [u64; 2]) -> Result<(), StuckStripe> {
        let stripe = self.stripe(offset);
        let before = stripe.load(Ordering::Acquire);
        out[0] = self.word_inside(offset).load(Ordering::Relaxed);
        out[1] = self.word_inside(offset + 8).load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if before & 1 == 0 && stripe.load(Ordering::Relaxed) == before {
            return Ok(());
        }
        self.read_line_again(offset, out)
    }

    /// A WRITE was in the way.
    #[cold]
    fn read_line_again(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        self.read_line(offset, out)
    }

    #[inline(never)]
    fn read_pieces(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        let mut at = offset;
        let mut out = out;
        while !out.is_empty() {
            let in_line = ((64 - at % 64) / 8) as usize;
            let (head, rest) = out.split_at_mut(in_line.min(out.len()));
            if head.len() == 1 {
                // Acquire: a READ comes before the next READ of its batch.
                head[0] = self.word_inside(at).load(Ordering::Acquire);
            } else if !self.checked {
                self.copy_out(at, head);
            } else {
                self.read_line(at, head)?;
            }
            at += head.len() as u64 * 8;
            out = rest;
        }
        Ok(())
    }

    #[inline]
    fn copy_out(&self, offset: u64, out: &mut [u64]) {
        if let Ok(line) = <&mut [u64; 8]>::try_from(&mut *out) {
            return copy_line(self.word_inside(offset), line);
        }
        let first = self.word_inside(offset);
        let _ = self.word_inside(offset + out.len() as u64 * 8 - 8);
        let first: *const AtomicU64 = first;
        for (index, word) in out.iter_mut().enumerate() {
            // SAFETY: the first and the last word are inside the region (checked by public
            // functions, asserted in debug builds), hence all between.
            *word = unsafe { &*first.add(index) }.load(Ordering::Relaxed);
        }
    }

    fn read_line(&self, offset: u64, out: &mut [u64]) -> Result<(), StuckStripe> {
        let stripe = self.stripe(offset);
        let mut patience = Patience::new();
        loop {
            let before = stripe.load(Ordering::Acquire);
            if before & 1 == 0 {
                self.copy_out(offset, out);
                fence(Ordering::Acquire);
                if stripe.load(Ordering::Relaxed) == before {
                    return Ok(());
                }
            }
            patience.wait()?;
        }
    }

    /// READ of any byte range.
    ///
    /// # Errors
    /// `StuckStripe`.
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

    /// WRITE of whole aligned words; `guarded` keeps it atomic within each line.
    ///
    /// # Errors
    /// `StuckStripe`.
    #[inline(always)]
    pub fn write_words(
        &self,
        offset: u64,
        words: &[u64],
        guarded: bool,
    ) -> Result<(), StuckStripe> {
        debug_assert!(offset.is_multiple_of(8));
        self.check(offset, words.len() as u64 * 8);
        let (mut at, mut words) = (offset, words);
        while !words.is_empty() {
            let in_line = ((64 - at % 64) / 8) as usize;
            let (head, rest) = words.split_at(in_line.min(words.len()));
            if head.len() == 1 || !guarded || !self.checked {
                self.store_words(at, head);
            } else {
                self.write_words_of_line(at, head)?;
            }
            at += head.len() as u64 * 8;
            words = rest;
        }
        Ok(())
    }

    #[inline(always)]
    fn store_words(&self, offset: u64, words: &[u64]) {
        for (index, &word) in words.iter().enumerate() {
            // Release: a WRITE comes before the next verb of its batch.
            self.word_inside(offset + index as u64 * 8).store(word, Ordering::Release);
        }
    }

    #[inline(always)]
    fn write_words_of_line(&self, offset: u64, words: &[u64]) -> Result<(), StuckStripe> {
        let stripe = self.stripe(offset);
        let even = self.take_stripe(stripe)?;
        fence(Ordering::Release);
        self.store_words(offset, words);
        stripe.store(even.wrapping_add(2), Ordering::Release);
        Ok(())
    }

    /// Makes a stripe odd; returns what it was.
    #[inline(always)]
    fn take_stripe(&self, stripe: &AtomicU32) -> Result<u32, StuckStripe> {
        let seen = stripe.load(Ordering::Relaxed);
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if seen & 1 == 0
            && stripe.compare_exchange(seen, seen.wrapping_add(1), order.0, order.1).is_ok()
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
            let order = (Ordering::Acquire, Ordering::Relaxed);
            if seen & 1 == 0
                && stripe
                    .compare_exchange_weak(seen, seen.wrapping_add(1), order.0, order.1)
                    .is_ok()
            {
                return Ok(seen);
            }
            patience.wait()?;
        }
    }

    /// WRITE of any byte range.
    ///
    /// # Errors
    /// `StuckStripe`.
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
                // Release: a WRITE comes before the next verb of its batch.
                self.word_inside(at).store(u64::from_ne_bytes(*word), Ordering::Release);
            } else if !self.checked {
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
        fence(Ordering::Release);
        self.copy_in(offset, bytes);
        stripe.store(even.wrapping_add(2), Ordering::Release);
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
            at += 8;
        }
        if !tail.is_empty() {
            self.merge(at, tail);
        }
    }

    /// Stores `bytes`, a part of one word, at once: a READ of that word alone asks no stripe, and
    /// atomics on the word's other bytes must not be lost.
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

/// Spins, then yields the processor, then gives up: a live writer needs nanoseconds, a preempted
/// one milliseconds, a killed one for ever.
struct Patience {
    turns: u32,
}

impl Patience {
    const SPINS: u32 = 1 << 10;
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
            std::thread::yield_now();
        } else {
            return Err(StuckStripe);
        }
        Ok(())
    }
}

/// Copies a whole line that others may be writing; the caller finds out whether they were. In
/// assembly, because the compiler does not join atomic loads and may not tear plain ones.
#[inline(always)]
fn copy_line(line: &AtomicU64, out: &mut [u64; 8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `line` is the first word of a line inside the region (its callers' contract), `out`
    // is as long; SSE2 is part of x86-64; any interleaving of the four loads with other
    // processors' stores yields some bytes, which is all that is promised.
    unsafe {
        std::arch::asm!(
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            from = in(reg) std::ptr::from_ref(line),
            to = in(reg) out.as_mut_ptr(),
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let first = std::ptr::from_ref(line);
        for (index, word) in out.iter_mut().enumerate() {
            // SAFETY: as above: eight words of one line.
            *word = unsafe { &*first.add(index) }.load(Ordering::Relaxed);
        }
    }
}

#[inline(always)]
fn prefetch_line(line: *const u8, to_write: bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory and faults on no address.
        unsafe {
            if to_write {
                _mm_prefetch::<_MM_HINT_ET0>(line.cast());
            } else {
                _mm_prefetch::<_MM_HINT_T0>(line.cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, to_write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_left_odd_ends_in_an_error_and_words_go_on() {
        let words = WordLines([const { AtomicU64::new(0) }; 16]);
        let stripes = [const { AtomicU32::new(0) }; 2];
        // SAFETY: both arrays outlive the view, and have the sizes given.
        let region = unsafe { Region::new(words.0.as_ptr(), 128, stripes.as_ptr(), 1, 0, true) };
        stripes[1].store(1, Ordering::Relaxed); // its writer is gone
        assert_eq!(region.write(60, &[7; 4]), Ok(()));
        assert_eq!(region.write(64, &[7; 16]), Err(StuckStripe));
        assert_eq!(region.read_bytes(56, &mut [0; 24]), Err(StuckStripe));
        assert_eq!(region.write(64, &[7; 8]), Ok(()));
        assert_eq!(region.read_words(64, &mut [0]), Ok(()));
        assert_eq!(region.word(64).load(Ordering::Relaxed), u64::from_ne_bytes([7; 8]));
    }

    #[repr(C, align(64))]
    struct WordLines([AtomicU64; 16]);
}
