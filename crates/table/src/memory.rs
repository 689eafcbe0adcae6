//! Memory of zeros for the bins and lines of an index: mapped pages for a large index, the heap for a small one.
//!
//! Invariant: memory that was handed out stays readable and writable until its `Memory` is dropped. `give_back` returns
//! the pages of a large region to the system, and keeps the addresses. A later read finds either the old content, or
//! lines whose first word is the given one. The caller gives the header of a moved bin. So a late operation finds its
//! bin moved, as before, and no operation has to announce which index it uses.
//!
//! A new region takes no time in proportion to its size, because the system fills a page with zeros at the first touch.

use std::alloc::{Layout, alloc_zeroed, dealloc};
#[cfg(all(target_os = "linux", not(miri)))]
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

/// The alignment of bins and lines.
const LINE_BYTES: usize = 64;
/// The smallest region that is mapped. A huge page of Linux on `x86-64` and `aarch64` has this size.
pub(crate) const MAPPED_MIN_BYTES: usize = 2 << 20;

/// A region is overlaid with a file of this share of its size, mapped many times.
#[cfg(all(target_os = "linux", not(miri)))]
const PATTERN_SHARE: usize = 64;
#[cfg(all(target_os = "linux", not(miri)))]
const PATTERN_MIN_BYTES: usize = 64 << 10;
#[cfg(all(target_os = "linux", not(miri)))]
const PATTERN_MAX_BYTES: usize = 64 << 20;

/// A region of memory.
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// The mapping around the region; none if the region is on the heap.
    mapping: Option<Mapping>,
}

/// An address range that the system gave.
struct Mapping {
    #[cfg_attr(
        not(all(target_os = "linux", not(miri))),
        expect(dead_code, reason = "no system call is made")
    )]
    start: NonNull<u8>,
    #[cfg_attr(
        not(all(target_os = "linux", not(miri))),
        expect(dead_code, reason = "no system call is made")
    )]
    bytes: usize,
}

// SAFETY: the region belongs to this value alone, and its address has no relation to a thread.
unsafe impl Send for Memory {}
// SAFETY: the methods that take `&self` only return the address or make a system call.
unsafe impl Sync for Memory {}

impl Memory {
    /// Returns a region of zeros, or nothing if the system has no memory.
    pub(crate) fn zeroed(bytes: usize, huge_pages: bool) -> Option<Self> {
        if bytes >= MAPPED_MIN_BYTES
            && let Some(memory) = Self::mapped(bytes, huge_pages)
        {
            return memory;
        }
        let layout = Layout::from_size_align(bytes.max(LINE_BYTES), LINE_BYTES).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, bytes: layout.size(), mapping: None })
    }

    /// Returns the first address of the region.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the pages of a mapped region to the system. Afterwards each line of the region begins with `head`, and is
    /// otherwise zero. The region keeps its content if the system refuses.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn give_back(&self, head: u64) {
        if self.mapping.is_none() {
            return;
        }
        let pattern_bytes = (self.bytes / PATTERN_SHARE)
            .next_multiple_of(PATTERN_MIN_BYTES)
            .clamp(PATTERN_MIN_BYTES, PATTERN_MAX_BYTES);
        let Some(pattern) = pattern(pattern_bytes, head) else {
            return;
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
        for at in (0..self.bytes).step_by(pattern_bytes) {
            let piece = pattern_bytes.min(self.bytes - at);
            // SAFETY: the piece lies inside of this value's mapping, which has one huge page more than the region. No
            // reference to plain data points into it: all accesses are atomic. The system replaces the pages under its
            // own lock, so that no access meets a hole.
            let mapped = unsafe {
                let address = self.start.as_ptr().add(at).cast();
                libc::mmap(address, piece, protection, flags, pattern.as_raw_fd(), 0)
            };
            if mapped == libc::MAP_FAILED {
                return;
            }
        }
    }

    /// Keeps the content: this system has no call for it.
    #[cfg(not(all(target_os = "linux", not(miri))))]
    pub(crate) fn give_back(&self, _head: u64) {}

    /// Maps pages. The outer `None` says that this system has no such call, the inner one that memory is short.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn mapped(bytes: usize, huge_pages: bool) -> Option<Option<Self>> {
        let Some(mapped_bytes) = bytes.checked_add(MAPPED_MIN_BYTES) else {
            return Some(None);
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping touches no memory that exists.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Some(None);
        }
        let mapped = NonNull::new(address.cast::<u8>())?;
        let padding = mapped.as_ptr().align_offset(MAPPED_MIN_BYTES);
        // SAFETY: the mapping is longer than the region by one huge page, and the padding is shorter than that.
        let start = unsafe { mapped.add(padding) };
        if huge_pages {
            // A refusal only costs time: the region then has small pages.
            // SAFETY: the range is inside of the new mapping.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        let mapping = Some(Mapping { start: mapped, bytes: mapped_bytes });
        Some(Some(Self { start, bytes, mapping }))
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn mapped(_bytes: usize, _huge_pages: bool) -> Option<Option<Self>> {
        None
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &self.mapping {
            None => {
                // SAFETY: `zeroed` allocated the region with this layout, which was valid there.
                unsafe {
                    let layout = Layout::from_size_align_unchecked(self.bytes, LINE_BYTES);
                    dealloc(self.start.as_ptr(), layout);
                }
            }
            Some(_mapping) => {
                #[cfg(all(target_os = "linux", not(miri)))]
                // SAFETY: `mapped` made the mapping with these numbers, and nothing uses it after the drop.
                unsafe {
                    libc::munmap(_mapping.start.as_ptr().cast(), _mapping.bytes);
                }
            }
        }
    }
}

/// Makes a file of lines that begin with a word and are otherwise zero. The file has no name.
#[cfg(all(target_os = "linux", not(miri)))]
fn pattern(bytes: usize, head: u64) -> Option<std::fs::File> {
    use std::io::Write;
    // SAFETY: the name ends with a zero byte.
    let descriptor = unsafe { libc::memfd_create(c"tarn-table".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor is new, and this file alone owns it.
    let mut file = unsafe { std::fs::File::from_raw_fd(descriptor) };
    let mut block = vec![0_u8; PATTERN_MIN_BYTES];
    for line in block.chunks_exact_mut(LINE_BYTES) {
        line[..size_of::<u64>()].copy_from_slice(&head.to_ne_bytes());
    }
    for _ in 0..bytes / PATTERN_MIN_BYTES {
        file.write_all(&block).ok()?;
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_zero(memory: &Memory, bytes: usize) -> bool {
        // SAFETY: the region has at least this many initialised bytes, and this thread alone uses it.
        unsafe { std::slice::from_raw_parts(memory.start(), bytes) }.iter().all(|byte| *byte == 0)
    }

    #[test]
    fn regions_are_aligned_and_zero() {
        let large = if cfg!(miri) { 4096 } else { MAPPED_MIN_BYTES };
        for bytes in [0, 64, 4096, large, large + 64] {
            let memory = Memory::zeroed(bytes, true).expect("memory");
            assert_eq!(memory.start() as usize % LINE_BYTES, 0);
            assert!(is_zero(&memory, bytes));
        }
    }

    #[test]
    fn memory_that_was_given_back_reads_as_moved() {
        const HEAD: u64 = 0x1234_5678;
        let bytes = if cfg!(miri) { 4096 } else { 3 * MAPPED_MIN_BYTES + LINE_BYTES };
        let memory = Memory::zeroed(bytes, false).expect("memory");
        memory.give_back(HEAD);
        for line in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: the words are inside of the region, and this thread alone uses it.
            let [head, rest] = unsafe { memory.start().add(line).cast::<[u64; 2]>().read() };
            let expected = if memory.mapping.is_some() { HEAD } else { 0 };
            assert_eq!((head, rest), (expected, 0));
        }
        // SAFETY: the byte is inside of the region.
        unsafe { memory.start().write(8) };
    }

    #[test]
    fn too_much_memory_is_refused() {
        assert!(Memory::zeroed(usize::MAX, false).is_none());
        #[cfg(all(target_os = "linux", not(miri)))]
        assert!(Memory::zeroed(1 << 60, false).is_none());
    }
}
