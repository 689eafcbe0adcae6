//! One memory node's memory: a header, the stripes, and the regions of the groups that the node replicates.
//!
//! Invariant: the header describes the rest of the memory by offsets only. So another process that maps the file
//! finds all parts without help from the process that created the file.
//!
//! ```text
//! byte 0        header, 4 KiB: magic | version | stripes | regions n | n × {group, start, bytes}
//! byte 4096     stripes: u32 × 2^bits
//! 2 MiB-aligned region of the first group, then the next …
//! ```

use super::pages::{Backing, Mapping, Pages};
use super::region::{GRANULE_BYTES, LineAtomicity, Region};
use super::sync::{AtomicU64, Ordering};
use crate::address::{GROUPS_MAX, GroupId, LINE_BYTES};
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: u64 = u64::from_le_bytes(*b"TARNMEM1");
const VERSION: u64 = 2;
const HEADER_BYTES: usize = 4096;
const HEADER_WORDS: usize = 4;
const REGIONS_MAX: usize = (HEADER_BYTES / 8 - HEADER_WORDS) / 3;
const REGION_ALIGN: usize = 2 << 20;
const STRIPE_BITS_MAX: u32 = 28;

/// A memory node's mapped memory.
pub struct NodeMemory {
    mapping: Mapping,
    checked: bool,
}

impl NodeMemory {
    /// Creates the memory of a node that hosts `groups`. Each group has its size in bytes, which is rounded up to
    /// whole lines.
    ///
    /// # Errors The operating system's errors, or an error if the header has no room for this number of groups.
    pub fn create(
        groups: &[(GroupId, u64)],
        backing: Backing,
        atomicity: LineAtomicity,
    ) -> io::Result<NodeMemory> {
        if groups.len() > REGIONS_MAX {
            let text =
                format!("groups of one node = {}; allowed: at most {REGIONS_MAX}", groups.len());
            return Err(io::Error::other(text));
        }
        let (bits, checked) = match atomicity {
            LineAtomicity::Striped { bits } => (bits, true),
            LineAtomicity::PlantedTorn => (0, false),
        };
        if bits > STRIPE_BITS_MAX {
            let text = format!("stripe bits = {bits}; allowed: at most {STRIPE_BITS_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let stripes = 1usize << bits;
        let mut end = (HEADER_BYTES + stripes * 4).next_multiple_of(REGION_ALIGN);
        let mut table = Vec::with_capacity(groups.len());
        for &(group, bytes) in groups {
            let bytes = bytes.next_multiple_of(LINE_BYTES as u64);
            table.push((group, end as u64, bytes));
            end = (end + bytes as usize).next_multiple_of(REGION_ALIGN);
        }
        let memory = NodeMemory { mapping: Mapping::new(end, backing)?, checked };
        for (index, (group, start, bytes)) in table.into_iter().enumerate() {
            let at = HEADER_WORDS + index * 3;
            memory.header_word(at).store(u64::from(group.0), Ordering::Relaxed);
            memory.header_word(at + 1).store(start, Ordering::Relaxed);
            memory.header_word(at + 2).store(bytes, Ordering::Relaxed);
        }
        memory.header_word(1).store(VERSION, Ordering::Relaxed);
        memory.header_word(2).store(stripes as u64, Ordering::Relaxed);
        memory.header_word(3).store(groups.len() as u64, Ordering::Relaxed);
        memory.header_word(0).store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// Maps the memory of a node that another process has created.
    ///
    /// # Errors
    /// The operating system's errors, or an error if the file is not the memory of a node.
    pub fn open(path: &Path) -> io::Result<NodeMemory> {
        let memory = NodeMemory { mapping: Mapping::open(path)?, checked: true };
        if memory.mapping.bytes() < HEADER_BYTES
            || memory.header_word(0).load(Ordering::Acquire) != MAGIC
        {
            return Err(io::Error::other(format!("{} is not Tarn memory", path.display())));
        }
        let version = memory.header_word(1).load(Ordering::Relaxed);
        if version != VERSION {
            let text =
                format!("{}: layout version = {version}; allowed: {VERSION}", path.display());
            return Err(io::Error::other(text));
        }
        let regions = memory.header_word(3).load(Ordering::Relaxed);
        let stripes = memory.header_word(2).load(Ordering::Relaxed);
        let sound = stripes.is_power_of_two()
            && regions <= REGIONS_MAX as u64
            && (0..regions as usize).all(|index| {
                let (_, start, bytes) = memory.table(index);
                start.checked_add(bytes).is_some_and(|end| end <= memory.mapping.bytes() as u64)
                    && start >= HEADER_BYTES as u64 + stripes * 4
                    && start.is_multiple_of(64)
                    && bytes.is_multiple_of(64)
            });
        if !sound {
            return Err(io::Error::other(format!("{}: the header is damaged", path.display())));
        }
        Ok(memory)
    }

    fn header_word(&self, index: usize) -> &AtomicU64 {
        assert!(index < HEADER_BYTES / 8);
        // SAFETY: the mapping is at least as long as the header and is aligned to a page. All code accesses it only
        // through atomics.
        unsafe { &*self.mapping.start().as_ptr().cast::<AtomicU64>().add(index) }
    }

    fn table(&self, index: usize) -> (u64, u64, u64) {
        let word =
            |field| self.header_word(HEADER_WORDS + index * 3 + field).load(Ordering::Relaxed);
        (word(0), word(1), word(2))
    }

    /// Returns views of the node's regions, one for each group. If the node does not host a group, the group's region
    /// is empty.
    pub fn regions(&self, groups: usize) -> Vec<Region<'_>> {
        assert!(groups <= GROUPS_MAX);
        let mut regions = vec![Region::empty(); groups];
        let stripes = self.header_word(2).load(Ordering::Relaxed);
        for index in 0..self.header_word(3).load(Ordering::Relaxed) as usize {
            let (group, start, bytes) = self.table(index);
            let Some(region) = regions.get_mut(group as usize) else { continue };
            let base = self.mapping.start().as_ptr();
            // SAFETY: the table describes ranges inside the mapping, because `create` wrote it or `open` checked it.
            // Regions are line-aligned, the stripes follow the header, and the number of stripes is a power of two.
            *region = unsafe {
                Region::new(
                    base.add(start as usize).cast(),
                    bytes,
                    base.add(HEADER_BYTES).cast(),
                    stripes - 1,
                    start / GRANULE_BYTES,
                    self.checked,
                )
            };
        }
        regions
    }

    /// Returns the kind of pages that the operating system granted.
    pub fn pages(&self) -> Pages {
        self.mapping.pages()
    }

    /// Returns the path at which another process of this user can open the memory. Returns `None` if the memory is
    /// private.
    pub fn path(&self) -> Option<PathBuf> {
        self.mapping.path()
    }
}
