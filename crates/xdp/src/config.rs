//! The sizes of a program's maps, its view and its key; and a lock as one word.
//!
//! Invariant: a config that is [`Config::checked`] fits the program's words: 14 bits of machine, 48 bits of count.
//!
//! | bits of a lock's word | |
//! |---|---|
//! | 0..48 | the count |
//! | 48..62 | the machine of the agent; 0 is free |
//! | 62 | exclusive |
//! | 63 | bars readers |

use tarn_locks::decider::{Entry, Held};
use tarn_locks::value::{Machine, Mode, View, Width};
use tarn_locks::wire::Key;

/// The greatest machine of a lock's word.
pub const MACHINES_MAX: u32 = (1 << 14) - 1;
/// The greatest number of locks: 2 GiB of words.
pub const LOCKS_MAX: u32 = 1 << 28;
/// The greatest number of lanes, of 1 KiB each.
pub const LANES_MAX: u32 = 1 << 20;

const MACHINE_SHIFT: u32 = 48;
const EXCLUSIVE: u64 = 1 << 62;
const BARS_READERS: u64 = 1 << 63;

/// How a program is set up. Another view is another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The view.
    pub view: View,
    /// The cluster's key.
    pub key: Key,
    /// The port of UDP on which it answers.
    pub port: u16,
    /// The number of locks.
    pub locks: u32,
    /// The greatest machine.
    pub machines: u32,
    /// Lanes of a machine.
    pub threads: u32,
}

/// A value of a config that the program's maps cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The least value that is allowed.
    pub least: u64,
    /// The greatest value that is allowed.
    pub greatest: u64,
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OutOfRange { field, value, least, greatest } = self;
        write!(f, "{field} = {value}: allowed are {least} to {greatest}")
    }
}

/// The bytes of a config in the program's memory.
pub const CONFIG_BYTES: usize = 40;

impl Config {
    /// The number of lanes.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.machines * self.threads
    }

    /// The same config, if the program's maps can hold it.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn checked(self) -> Result<Config, OutOfRange> {
        let in_range = |field, value: u32, greatest: u32| match (1..=greatest).contains(&value) {
            true => Ok(()),
            false => {
                let (value, greatest) = (u64::from(value), u64::from(greatest));
                Err(OutOfRange { field, value, least: 1, greatest })
            }
        };
        in_range("port", u32::from(self.port), u32::from(u16::MAX))?;
        in_range("locks", self.locks, LOCKS_MAX)?;
        in_range("machines", self.machines, MACHINES_MAX)?;
        in_range("threads", self.threads, LANES_MAX / self.machines)?;
        Ok(self)
    }

    /// The bytes of the program's `struct config`.
    #[must_use]
    pub fn bytes(&self) -> [u8; CONFIG_BYTES] {
        let mut bytes = [0; CONFIG_BYTES];
        // The key is two numbers, little-endian in the format; the program reads them in its own order.
        for (half, to) in self.key.0.chunks_exact(8).zip([0, 8]) {
            let half = half.try_into().map_or(0, u64::from_le_bytes);
            bytes[to..to + 8].copy_from_slice(&half.to_ne_bytes());
        }
        let port = u32::from(self.port);
        let numbers = [self.view.0, self.locks, self.machines, self.threads, port];
        for (at, number) in numbers.into_iter().enumerate() {
            let at = 16 + 4 * at;
            bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }
}

/// The word of an entry.
#[must_use]
pub fn word_of(entry: Entry) -> u64 {
    let held = entry.held.map_or(0, |held| {
        u64::from(held.agent.0) << MACHINE_SHIFT
            | if held.mode == Mode::Exclusive { EXCLUSIVE } else { 0 }
            | if held.bars_readers { BARS_READERS } else { 0 }
    });
    Width::WIDE.cut(entry.count) | held
}

/// The entry of a word.
#[must_use]
pub fn entry_of(word: u64) -> Entry {
    let agent = Machine((word >> MACHINE_SHIFT) as u16 & MACHINES_MAX as u16);
    let mode = if word & EXCLUSIVE == 0 { Mode::Shared } else { Mode::Exclusive };
    let held = Held { agent, mode, bars_readers: word & BARS_READERS != 0 };
    Entry { count: Width::WIDE.cut(word), held: (agent.0 != 0).then_some(held) }
}

/// Whether the lock of a word is held.
#[must_use]
pub fn is_held(word: u64) -> bool {
    word >> MACHINE_SHIFT & u64::from(MACHINES_MAX) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config {
        view: View(3),
        key: Key([7; 16]),
        port: 4040,
        locks: 100,
        machines: 8,
        threads: 4,
    };

    #[test]
    fn words_and_entries_are_the_same() {
        for count in [0, 1, (1 << 48) - 1] {
            let free = Entry { count, held: None };
            assert_eq!(entry_of(word_of(free)), free);
            assert!(!is_held(word_of(free)));
            for agent in [1, MACHINES_MAX as u16] {
                for mode in [Mode::Shared, Mode::Exclusive] {
                    for bars_readers in [false, true] {
                        let held = Some(Held { agent: Machine(agent), mode, bars_readers });
                        let entry = Entry { count, held };
                        assert_eq!(entry_of(word_of(entry)), entry);
                        assert!(is_held(word_of(entry)));
                    }
                }
            }
        }
    }

    #[test]
    fn a_config_that_the_maps_cannot_hold_is_refused() {
        assert_eq!(CONFIG.checked(), Ok(CONFIG));
        let refused = |config: Config| config.checked().err().map(|error| error.to_string());
        let machines = Config { machines: 16_384, ..CONFIG };
        assert_eq!(refused(machines).as_deref(), Some("machines = 16384: allowed are 1 to 16383"));
        let locks = Config { locks: 0, ..CONFIG };
        assert_eq!(refused(locks).as_deref(), Some("locks = 0: allowed are 1 to 268435456"));
        let threads = Config { threads: 1 << 18, ..CONFIG };
        assert_eq!(refused(threads).as_deref(), Some("threads = 262144: allowed are 1 to 131072"));
    }
}
