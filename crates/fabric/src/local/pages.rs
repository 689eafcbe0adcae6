//! Mapped memory for a node. If the operating system does not grant huge pages, the memory has plain pages, and the
//! user gets a notice.
//!
//! Invariant: mapping memory never crashes the process because huge pages are missing, and never needs root. The
//! mapping records the kind of pages that were granted, so that a report can state the memory of its measurements.
//! Memory contains zeros until it is written.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// The number of bytes of a huge page.
pub(super) const HUGE_BYTES: usize = 2 << 20;

/// The kind of memory to request from the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backing {
    /// Shared memory if the operating system grants huge pages for shared memory, and otherwise private memory.
    #[default]
    Auto,
    /// A `memfd`, which another process can map.
    Shared,
    /// Anonymous memory, which only this process can use, with transparent huge pages by `madvise`.
    Private,
}

/// The kind of memory that the operating system granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// A `memfd` of reserved huge pages.
    SharedExplicitHuge,
    /// A `memfd` with transparent huge pages.
    SharedTransparentHuge,
    /// A `memfd` of plain pages.
    SharedPlain,
    /// Anonymous memory with transparent huge pages.
    PrivateTransparentHuge,
    /// Anonymous memory of plain pages.
    PrivatePlain,
}

impl Pages {
    /// Returns a phrase that names the kind of pages in reports.
    pub fn name(self) -> &'static str {
        match self {
            Pages::SharedExplicitHuge => "memfd, explicit 2 MiB pages",
            Pages::SharedTransparentHuge => "memfd, transparent huge pages",
            Pages::SharedPlain => "memfd, plain pages",
            Pages::PrivateTransparentHuge => "private, transparent huge pages",
            Pages::PrivatePlain => "private, plain pages",
        }
    }

    /// Whether only this process can use the memory.
    pub fn is_private(self) -> bool {
        matches!(self, Pages::PrivateTransparentHuge | Pages::PrivatePlain)
    }

    /// Returns a notice that tells the user how to get larger pages. Returns `None` if the pages are already large.
    pub fn notice(self) -> Option<&'static str> {
        match self {
            Pages::SharedPlain => Some(
                "shared memory has plain pages; for huge ones set \
                 /sys/kernel/mm/transparent_hugepage/shmem_enabled to `advise` or reserve \
                 vm.nr_hugepages",
            ),
            Pages::PrivatePlain => Some(
                "memory has plain pages; for huge ones set \
                 /sys/kernel/mm/transparent_hugepage/enabled to `madvise`",
            ),
            _ => None,
        }
    }
}

/// A memory mapping of this process. The memory is unmapped when the value is dropped.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    pages: Pages,
    file: Option<File>,
}

// SAFETY: the mapping is plain memory that this value owns. All concurrent accesses to its bytes are atomic (see
// `region`).
unsafe impl Send for Mapping {}
// SAFETY: all concurrent accesses to the mapping's bytes are atomic. `Mapping` itself has no interior mutability.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `bytes` bytes of memory that contains zeros.
    ///
    /// # Errors
    /// The operating system's error if it refuses even plain pages.
    pub fn new(bytes: usize, backing: Backing) -> io::Result<Mapping> {
        let bytes = bytes.next_multiple_of(HUGE_BYTES);
        if backing == Backing::Private {
            return Mapping::private(bytes);
        }
        if let Ok(mapping) = Mapping::shared(bytes, true) {
            return Ok(mapping);
        }
        let transparent = transparent_for_shared();
        if backing == Backing::Auto && !transparent {
            return Mapping::private(bytes);
        }
        Mapping::shared(bytes, false)
    }

    fn private(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = map_aligned(bytes, flags)?;
        let pages = match advise_huge(start, bytes) {
            true if transparent_for_private() => Pages::PrivateTransparentHuge,
            _ => Pages::PrivatePlain,
        };
        Ok(Mapping { start, bytes, pages, file: None })
    }

    fn shared(bytes: usize, explicit_huge: bool) -> io::Result<Mapping> {
        let huge = if explicit_huge { libc::MFD_HUGETLB } else { 0 };
        // SAFETY: the name is a NUL-terminated literal, and the result is checked.
        let descriptor = unsafe { libc::memfd_create(c"tarn".as_ptr(), huge | libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `memfd_create` returned a new descriptor that has no other owner.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(bytes as u64)?;
        let flags = libc::MAP_SHARED | if explicit_huge { 0 } else { libc::MAP_NORESERVE };
        let start = map_file(&file, bytes, flags)?;
        let pages = if explicit_huge {
            Pages::SharedExplicitHuge
        } else if advise_huge(start, bytes) && transparent_for_shared() {
            Pages::SharedTransparentHuge
        } else {
            Pages::SharedPlain
        };
        Ok(Mapping { start, bytes, pages, file: Some(file) })
    }

    /// Maps memory that another process shares. `path` is the path that the owner of the memory returned.
    ///
    /// # Errors
    /// If the file no longer exists, or if this process may not read and write it.
    pub fn open(path: &Path) -> io::Result<Mapping> {
        let file = File::options().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let start = map_file(&file, bytes, libc::MAP_SHARED | libc::MAP_NORESERVE)?;
        let pages = Pages::SharedPlain;
        Ok(Mapping { start, bytes, pages, file: Some(file) })
    }

    /// Returns a pointer to the first byte of the mapping.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the size of the mapping in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the kind of pages that the operating system granted.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Returns the path at which another process of this user can open the memory. Returns `None` if the memory is
    /// private.
    pub fn path(&self) -> Option<PathBuf> {
        let file = self.file.as_ref()?;
        Some(PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` describe exactly the mapping that `mmap` created for this value. No reference
        // into the mapping is left, because every view keeps the owner alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map_aligned(bytes: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let wide = bytes + HUGE_BYTES;
    let raw = map(wide, flags, -1)?;
    let start = raw.as_ptr() as usize;
    let aligned = start.next_multiple_of(HUGE_BYTES);
    let tail = start + wide - (aligned + bytes);
    // SAFETY: both ranges lie inside the new mapping, and outside the part that the function keeps.
    unsafe {
        if aligned > start {
            libc::munmap(raw.as_ptr().cast(), aligned - start);
        }
        if tail > 0 {
            libc::munmap(raw.as_ptr().add(wide - tail).cast(), tail);
        }
        Ok(raw.add(aligned - start))
    }
}

fn map_file(file: &File, bytes: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    map(bytes, flags, file.as_raw_fd())
}

fn map(bytes: usize, flags: libc::c_int, descriptor: libc::c_int) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the call creates a new mapping at an address that the kernel chooses, and the result is checked.
    let raw = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, descriptor, 0) };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(raw.cast()).ok_or_else(io::Error::last_os_error)
}

fn advise_huge(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the range is a mapping of this process, and the advice does not change the contents of the mapping.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) == 0 }
}

fn transparent_for_shared() -> bool {
    selected("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .is_some_and(|word| word != "never" && word != "deny")
}

fn transparent_for_private() -> bool {
    selected("/sys/kernel/mm/transparent_hugepage/enabled").is_some_and(|word| word != "never")
}

/// Returns the word in brackets in the file of a kernel switch, such as `always [madvise] never`.
fn selected(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}
