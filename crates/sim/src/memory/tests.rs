//! Compares simulated memory with plain memory.

use super::*;
use rand::RngExt as _;
use tarn_fabric::rng::{mix, seeded};

/// Initial contents in which every third page has words that are not zero.
struct Planted;

impl InitialContents for Planted {
    fn fill(&self, group: GroupId, offset_bytes: u64, page: &mut [u64; PAGE_WORDS]) {
        let number = offset_bytes / PAGE_BYTES as u64;
        if number.is_multiple_of(3) {
            for (at, word) in page.iter_mut().enumerate().step_by(2) {
                *word = mix(number ^ u64::from(group.0) << 32 ^ (at as u64) << 48);
            }
        }
    }
}

const BYTES: u64 = 16 * PAGE_BYTES as u64;

fn replica(group: u16, index: u16) -> Replica {
    Replica { group: GroupId(group), index }
}

fn plain() -> Vec<Vec<u8>> {
    let of_group = |group: u16| -> Vec<u8> {
        (0..16u64)
            .flat_map(|page| {
                let mut words = [0; PAGE_WORDS];
                Planted.fill(GroupId(group), page * PAGE_BYTES as u64, &mut words);
                words.into_iter().flat_map(u64::to_ne_bytes)
            })
            .collect()
    };
    [0, 1].into_iter().flat_map(|group| [of_group(group), of_group(group)]).collect()
}

/// Runs random reads and writes of any range on two groups of two replicas.
#[test]
fn simulated_memory_agrees_with_plain_memory() {
    for seed in 0..30 {
        let mut rng = seeded(seed, 1);
        let mut memory = Memory::new(2, 2, BYTES, Box::new(Planted));
        let mut model = plain();
        for step in 0..2_000 {
            if step == 500 {
                memory.end_loading();
            }
            let (group, index) = (rng.random_range(0..2u16), rng.random_range(0..2u16));
            let from = rng.random_range(0..BYTES as usize);
            let len = rng.random_range(0..(BYTES as usize - from).min(1_500) + 1);
            let which = usize::from(group * 2 + index);
            if rng.random_range(0..2) == 0 {
                let fill = [0, rng.random_range(0..=255u8)][rng.random_range(0..2usize)];
                let bytes = vec![fill; len];
                memory.write(replica(group, index), from as u64, &bytes);
                model[which][from..from + len].copy_from_slice(&bytes);
                if memory.is_loading() {
                    model[which ^ 1][from..from + len].copy_from_slice(&bytes);
                }
            }
            let mut seen = vec![1; len];
            memory.read(replica(group, index), from as u64, &mut seen);
            assert_eq!(seen, model[which][from..from + len], "seed {seed}, step {step}");
        }
    }
}

#[test]
fn replicas_share_until_they_are_written() {
    let mut memory = Memory::new(1, 3, BYTES, Box::new(Zeros));
    memory.set_word(replica(0, 2), 640, 7);
    memory.end_loading();
    assert_eq!([0, 1, 2].map(|index| memory.word(replica(0, index), 640)), [7; 3]);
    assert_eq!(memory.usage().copies, 0);
    memory.set_word(replica(0, 1), 648, 8);
    assert_eq!([0, 1, 2].map(|index| memory.word(replica(0, index), 648)), [0, 8, 0]);
    assert_eq!(memory.usage().copies, 1);
    memory.set_word(replica(0, 1), 640, 9);
    assert_eq!((memory.usage().copies, memory.usage().copy_bytes), (1, 64));
}

/// A million accounts in the layout of SmallBank (24 of 64 bytes are used, and every second slot is
/// free) must use less than a fifth of the memory that one plain copy needs.
#[test]
fn an_image_of_records_is_small() {
    let accounts = 1_000_000u64;
    let mut memory = Memory::new(1, 3, accounts * 128, Box::new(Zeros));
    let before = memory.usage();
    for account in 0..accounts {
        let record = [0, 1, account + 1, 1_000_000 + account];
        let bytes: &[u8] = bytemuck::cast_slice(&record);
        memory.write(replica(0, 0), mix(account) % accounts * 128, bytes);
    }
    let usage = memory.usage();
    assert!(usage.page_bytes - before.page_bytes < accounts * 128 / 5, "{usage:?}");
    assert!(usage.table_bytes < accounts * 128 / 15, "{usage:?}");
}
