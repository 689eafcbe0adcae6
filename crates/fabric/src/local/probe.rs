//! Functions for measurements of tests and examples. These functions need unsafe code.
//!
//! Invariant: no other module of this crate uses this module.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// An allocator that uses the system's allocator and counts allocations. A test declares this allocator as its
/// `#[global_allocator]`.
pub struct CountingAllocator;

/// Returns the number of allocations and reallocations of this thread. Without [`CountingAllocator`], the number is
/// 0.
pub fn allocations_of_this_thread() -> u64 {
    ALLOCATIONS.get()
}

fn count() {
    // A thread that ends may allocate memory after its counter was destroyed.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is passed unchanged to the system's allocator. Counting allocates no memory, because the counter
// is initialised by a constant and needs no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller guarantees the conditions that `System` demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

/// One cache line, for [`wide_load`] and [`wide_store`].
#[derive(Default)]
#[repr(C, align(64))]
pub struct WideLine(pub [AtomicU64; 8]);

/// Whether this processor has 512-bit loads and stores.
pub fn has_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx512f")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Executes one 512-bit load. No vendor guarantees that a 512-bit load is atomic, so use this function only to
/// measure whether it is.
#[inline]
pub fn wide_load(line: &WideLine) -> [u64; 8] {
    assert!(has_wide());
    #[cfg(target_arch = "x86_64")]
    {
        let mut out = [0; 8];
        // SAFETY: the processor has AVX-512F, and both pointers are valid for 64 bytes. Other threads may access the
        // line at the same time, so the access is in assembly, outside the language's memory model.
        unsafe { wide_copy(line.0.as_ptr().cast(), out.as_mut_ptr()) };
        out
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{:p}: no wide loads here", line)
}

/// Executes one 512-bit store: see [`wide_load`].
#[inline]
pub fn wide_store(line: &WideLine, value: &[u64; 8]) {
    assert!(has_wide());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `wide_load`. The line consists of atomics, so a store through a shared reference is allowed.
    unsafe {
        wide_copy(value.as_ptr(), line.0.as_ptr().cast_mut().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{:p} {value:?}: no wide stores here", line)
}

/// Copies 64 bytes with one load and one store.
///
/// # Safety
/// `from` and `to` must be valid for 64 bytes, and the processor must have AVX-512F.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn wide_copy(from: *const u64, to: *mut u64) {
    // SAFETY: the caller guarantees the conditions of this function. The instructions access no other memory.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 zmm0, [{from}]",
            "vmovdqu64 [{to}], zmm0",
            from = in(reg) from,
            to = in(reg) to,
            out("xmm0") _, // names the whole register
            options(nostack, preserves_flags),
        );
    }
}
