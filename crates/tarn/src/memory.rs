//! The memory of this machine: how much memory a program can get, and whether it suffices for the caches that threads
//! keep in addition to the database.
//!
//! Invariant: the check comes before the database is laid out. The check counts every thread, and first subtracts the
//! database's own bytes. So the range in its error contains only values that the check would accept.

use tarn_store::ids::UsageError;

/// The number of bytes of one cached record address: table, key, slot, body.
const ADDRESS_BYTES: u64 = 32;

/// The number of bytes that a program could get now without swapping. `None` if the operating system does not say.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
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
