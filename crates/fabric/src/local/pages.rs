//! Mapped memory for a node: huge pages when they are granted, plain ones with a notice otherwise.
//!
//! Invariant: never a crash and never root. The kind of pages granted is recorded, so that a report
//! can say on which memory it measured. Memory is zero until first written.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Bytes of a huge page.
pub(super) const HUGE_BYTES: usize = 2 << 20;

/// The kind of memory to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backing {
    /// Shared when huge pages are granted for shared memory, private otherwise.
    #[default]
    Auto,
    /// A `memfd`: another process can map it.
    Shared,
    /// Anonymous: this process only, transparent huge pages by `madvise`.
    Private,
}

/// The kind of memory that was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// `memfd` of reserved huge pages.
    SharedExplicitHuge,
    /// `memfd` with transparent huge pages.
    SharedTransparentHuge,
    /// `memfd` of plain pages.
    SharedPlain,
    /// Anonymous memory with transparent huge pages.
    PrivateTransparentHuge,
    /// Anonymous memory of plain pages.
    PrivatePlain,
}

impl Pages {
    /// A phrase for reports.
    pub fn name(self) -> &'static str {
        match self {
            Pages::SharedExplicitHuge => "memfd, explicit 2 MiB pages",
            Pages::SharedTransparentHuge => "memfd, transparent huge pages",
            Pages::SharedPlain => "memfd, plain pages",
            Pages::PrivateTransparentHuge => "private, transparent huge pages",
            Pages::PrivatePlain => "private, plain pages",
        }
    }

    /// Tells the user how to get larger pages; `None` if they are already large.
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

/// A mapping, unmapped when dropped.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    pages: Pages,
    file: Option<File>,
}

// SAFETY: the mapping is plain memory owned by this value; concurrent access to its bytes goes
// through atomics (see `region`).
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself has no interior mutability.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `bytes` of zeroed memory.
    ///
    /// # Errors
    /// The operating system's, when even plain pages are refused.
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
        // SAFETY: the name is a NUL-terminated literal; the result is checked.
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

    /// Maps memory that another process shares, from the path its owner gave.
    ///
    /// # Errors
    /// When the file is gone, or is not readable and writable by this process.
    pub fn open(path: &Path) -> io::Result<Mapping> {
        let file = File::options().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let start = map_file(&file, bytes, libc::MAP_SHARED | libc::MAP_NORESERVE)?;
        let pages = Pages::SharedPlain;
        Ok(Mapping { start, bytes, pages, file: Some(file) })
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the kind of pages that were granted.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Where another process of this user can open the memory; `None` if it is private.
    pub fn path(&self) -> Option<PathBuf> {
        let file = self.file.as_ref()?;
        Some(PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are exactly the values that `mmap` returned to this value,
        // and no reference into the mapping is left: every view keeps the owner alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map_aligned(bytes: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let wide = bytes + HUGE_BYTES;
    let raw = map(wide, flags, -1)?;
    let start = raw.as_ptr() as usize;
    let aligned = start.next_multiple_of(HUGE_BYTES);
    let tail = start + wide - (aligned + bytes);
    // SAFETY: both ranges lie inside the mapping just made and outside the part that is kept.
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
    // SAFETY: a fresh mapping at an address of the kernel's choice; the result is checked.
    let raw = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, descriptor, 0) };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(raw.cast()).ok_or_else(io::Error::last_os_error)
}

fn advise_huge(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the range is a mapping of ours; the advice does not change its contents.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) == 0 }
}

fn transparent_for_shared() -> bool {
    selected("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .is_some_and(|word| word != "never" && word != "deny")
}

fn transparent_for_private() -> bool {
    selected("/sys/kernel/mm/transparent_hugepage/enabled").is_some_and(|word| word != "never")
}

/// The bracketed word of a kernel switch such as `always [madvise] never`.
fn selected(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}
