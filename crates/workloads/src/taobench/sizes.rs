//! The distribution of the number of operations of a TAOBench transaction.
//!
//! Invariant: all sizes within one range are equally likely. The shares are those of the benchmark's
//! public workload files (`read_txn_sizes`, `write_txn_sizes`), which the authors counted in
//! production. Each size up to 20 (26 for writes) has a share of its own. Larger sizes form ranges
//! within which the counts change little. A reading transaction has 19.2 operations on average (19.18
//! by the file) and at most 500. A writing transaction has 5.30 operations on average and at most
//! 103. The median of reading transactions and the median of writing transactions are both 4.

use tarn_fabric::rng::Rng;
use crate::distribution::Dice;

/// The largest number of operations of a transaction.
pub const OPERATIONS_MAX: usize = 500;
/// The largest number of operations of a transaction that writes.
pub(super) const WRITES_MAX: usize = 103;

/// The first and the last size of a range, and the number of transactions that had one of these
/// sizes.
type Range = (u16, u16, u32);

/// The distribution of sizes of transactions that read.
pub(super) const READS: &[Range] = &[
    (2, 2, 553_162),
    (3, 3, 311_751),
    (4, 4, 166_458),
    (5, 5, 106_694),
    (6, 6, 80_485),
    (7, 7, 62_975),
    (8, 8, 53_430),
    (9, 9, 33_268),
    (10, 10, 27_819),
    (11, 11, 36_732),
    (12, 12, 21_447),
    (13, 13, 18_031),
    (14, 14, 15_122),
    (15, 15, 14_191),
    (16, 16, 12_506),
    (17, 17, 10_894),
    (18, 18, 10_053),
    (19, 19, 9_326),
    (20, 20, 8_482),
    (21, 22, 14_941),
    (23, 24, 13_038),
    (25, 26, 11_977),
    (27, 29, 15_872),
    (30, 32, 18_943),
    (33, 36, 17_657),
    (37, 40, 16_645),
    (41, 45, 17_651),
    (46, 50, 15_376),
    (51, 56, 16_540),
    (57, 63, 15_352),
    (64, 70, 14_537),
    (71, 78, 14_796),
    (79, 89, 16_228),
    (90, 100, 16_708),
    (101, 110, 11_091),
    (111, 120, 7_794),
    (121, 140, 11_407),
    (141, 160, 10_771),
    (161, 180, 10_678),
    (181, 200, 9_579),
    (201, 220, 4_790),
    (221, 250, 5_559),
    (251, 280, 3_697),
    (281, 320, 3_514),
    (321, 360, 2_874),
    (361, 400, 2_646),
    (401, 450, 2_443),
    (451, 500, 1_899),
];

/// The distribution of sizes of transactions that write.
pub(super) const WRITES: &[Range] = &[
    (4, 4, 340_601),
    (3, 3, 283_626),
    (7, 7, 107_888),
    (2, 2, 104_440),
    (21, 21, 51_871),
    (5, 5, 43_853),
    (26, 26, 20_160),
    (6, 6, 5_878),
    (8, 9, 1_536),
    (10, 12, 840),
    (13, 16, 911),
    (17, 20, 804),
    (22, 25, 47),
    (27, 41, 64),
    (42, 103, 16),
];

/// Draws the number of operations of a transaction.
#[inline]
pub(super) fn draw(ranges: &[Range], rng: &mut Rng) -> u16 {
    let mut dice = Dice::new(rng);
    let total = ranges.iter().map(|&(_, _, count)| u64::from(count)).sum();
    let mut at = dice.roll(total);
    for &(from, to, count) in ranges {
        let count = u64::from(count);
        if at < count {
            return from + dice.roll(u64::from(to - from) + 1) as u16;
        }
        at -= count;
    }
    unreachable!("a roll below the sum of all counts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::rng::seeded;

    #[test]
    fn sizes_agree_with_counted_ones() {
        // For each of the two public files: the mean, the median, the ninth decile, the 99th
        // percentile, and the largest size.
        let files = [(READS, 19.18, [4, 49, 241], 500), (WRITES, 5.30, [4, 7, 26], 103)];
        for (ranges, mean, quantiles, most) in files {
            let mut rng = seeded(3, 1);
            let mut drawn: Vec<u16> = (0..200_000).map(|_| draw(ranges, &mut rng)).collect();
            drawn.sort_unstable();
            let found = drawn.iter().map(|&size| f64::from(size)).sum::<f64>() / 200_000.0;
            assert!((found / mean - 1.0).abs() < 0.02, "{found}, counted {mean}");
            for (share, quantile) in [50, 90, 99].into_iter().zip(quantiles) {
                let found = drawn[drawn.len() * share / 100];
                assert!(found.abs_diff(quantile) * 50 <= quantile + 25, "{found} at {share} %");
            }
            assert!(drawn[0] == 2 && drawn[drawn.len() - 1] <= most);
        }
    }
}
