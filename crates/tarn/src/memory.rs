//! The memory of this machine: how much memory a program can get, how much of it a database may use, and whether the
//! rest suffices for the caches that threads keep in addition to the database.
//!
//! A database reserves address space for all memory that it may use. The operating system gives a page when it is
//! first written.
//!
//! Invariant: the checks come before the database is laid out. The check of caches counts every thread, and first
//! subtracts the bytes of the expected records. So the range in its error contains only values that the check would
//! accept.

use crate::cluster::ClusterConfig;
use tarn_engine::protocol::AnyProtocol;
use tarn_fabric::address::GROUP_BYTES_MAX;
use tarn_fabric::local::Backing;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Catalog;
use tarn_store::schema::TableSchema;

/// The most memory that a database may use.
///
/// ```
/// use tarn::cluster::{ClusterConfig, MemoryMax};
///
/// let config = ClusterConfig { memory_max: MemoryMax::HalfOfMachine, ..ClusterConfig::default() };
/// # assert_eq!(ClusterConfig::default().memory_max, MemoryMax::Expected);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryMax {
    /// The memory that the expected records need, and no more.
    #[default]
    Expected,
    /// Half of the machine's memory, or the memory that the expected records need, if that is more.
    HalfOfMachine,
    /// This number of bytes, over all memory nodes and copies.
    Bytes(u64),
}

/// The number of bytes of one cached record address: table, key, slot, body.
const ADDRESS_BYTES: u64 = 32;

/// The number of bytes that a program could get now without swapping. `None` if the operating system does not say.
pub fn available_bytes() -> Option<u64> {
    Some(meminfo("MemAvailable:")? * 1024)
}

/// The number of bytes of this machine's memory, or of the control group's memory if that is less. `None` if the
/// operating system does not say.
pub fn machine_bytes() -> Option<u64> {
    let whole = meminfo("MemTotal:")? * 1024;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok());
    Some(limit.map_or(whole, |limit: u64| whole.min(limit)))
}

/// The number of bytes of the huge pages that the operating system has set aside and that are free.
fn huge_bytes() -> u64 {
    let pages = meminfo("HugePages_Free:").unwrap_or(0);
    pages.saturating_mul(meminfo("Hugepagesize:").unwrap_or(0) * 1024)
}

/// The number on a line of the kernel's report about memory.
fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The number of bytes of a memory node beside its groups, and of the rounding to huge pages, is less than this.
const NODE_BYTES: u64 = 8 << 20;

/// Plans the database with a heap that takes all the memory that the database may use. `expected` is the plan for the
/// expected records.
///
/// # Errors
/// If the memory that the expected records need is more than the program allows.
pub(crate) fn plan_to_grow(
    expected: Catalog,
    protocol: &AnyProtocol,
    schemas: &[TableSchema],
    config: &mut ClusterConfig,
) -> Result<Catalog, UsageError> {
    let copies = (config.memory_nodes as u64).saturating_mul(config.replicas as u64).max(1);
    let wanted = expected.group_bytes().saturating_mul(copies);
    let machine = machine_bytes().unwrap_or(u64::MAX);
    let max = match config.memory_max {
        MemoryMax::Expected => return Ok(expected),
        MemoryMax::HalfOfMachine => machine / 2,
        MemoryMax::Bytes(bytes) if (wanted..=machine).contains(&bytes) => bytes,
        MemoryMax::Bytes(bytes) => {
            return Err(UsageError {
                field: "memory_max".into(),
                value: format!("{bytes} bytes"),
                allowed: format!(
                    "{wanted} bytes, for the expected records, the logs of sessions_max and \
                     spare_bytes, to {machine} bytes, the memory of this machine"
                ),
            });
        }
    };
    // Explicit huge pages are set aside when they are mapped. If they suffice for the expected records, the database
    // takes no more than there are.
    let huge = huge_bytes().saturating_sub(NODE_BYTES.saturating_mul(config.memory_nodes as u64));
    let max = match config.backing {
        Backing::Auto | Backing::Shared if huge >= wanted => max.min(huge),
        _ => max,
    };
    let more = (max / copies).min(GROUP_BYTES_MAX).saturating_sub(expected.group_bytes());
    // Each chunk also has an owner word outside of the heap, and areas are rounded to pages.
    let chunk = config.options.chunk_bytes;
    let chunks = (more / (chunk + 8)).saturating_sub(2);
    if chunks == 0 {
        return Ok(expected);
    }
    config.options.spare_bytes = config.options.spare_bytes.max(4 * chunk) + chunks * chunk;
    let grown = protocol.catalog(schemas, &config.options, config.memory_nodes)?;
    debug_assert!(grown.group_bytes() <= (max / copies).max(expected.group_bytes()));
    Ok(grown)
}

/// Returns the number of bytes of the address caches of `threads` threads. The number of entries of a cache is a
/// power of two.
pub fn caches_bytes(entries: usize, threads: usize) -> u64 {
    if entries == 0 {
        return 0;
    }
    let entries = (entries as u64).checked_next_power_of_two().unwrap_or(u64::MAX);
    entries.saturating_mul(ADDRESS_BYTES).saturating_mul(threads as u64)
}

/// Refuses address caches that need more than `available` bytes minus `taken` bytes.
///
/// # Errors
/// The error names the largest size that the check would accept.
pub fn check_caches(
    entries: usize,
    threads: usize,
    taken: u64,
    available: u64,
) -> Result<(), UsageError> {
    let left = available.saturating_sub(taken);
    if caches_bytes(entries, threads) <= left {
        return Ok(());
    }
    let most = match left / ADDRESS_BYTES.saturating_mul(threads.max(1) as u64) {
        0 => 0,
        most => 1 << most.ilog2(),
    };
    let (gib, many) = (left as f64 / f64::from(1 << 30), if threads == 1 { "" } else { "s" });
    Err(UsageError {
        field: "address_cache".into(),
        value: entries.to_string(),
        allowed: format!(
            "0 to {most} ({threads} thread{many}, {ADDRESS_BYTES} bytes an address, in the {gib:.1} GiB \
             that this machine has available beside the database)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_named_range_is_accepted_and_no_size_beyond_it() {
        for (threads, taken, most) in [(1, 0, 1_usize << 25), (3, GIB / 2, 1 << 22)] {
            let ask = |entries| check_caches(entries, threads, taken, GIB);
            assert!(ask(0).is_ok() && ask(most).is_ok(), "{threads}");
            let error = ask(most + 1).expect_err("refused");
            assert_eq!(error.field, "address_cache");
            assert!(error.allowed.starts_with(&format!("0 to {most} (")), "{}", error.allowed);
        }
    }

    #[test]
    fn a_machine_that_is_full_has_room_for_none() {
        assert!(check_caches(0, 4, 2 * GIB, GIB).is_ok());
        let error = check_caches(1, 4, 2 * GIB, GIB).expect_err("refused");
        assert!(error.allowed.starts_with("0 to 0 ("), "{}", error.allowed);
        assert!(check_caches(usize::MAX, usize::MAX, 0, u64::MAX - 1).is_err());
    }
}
