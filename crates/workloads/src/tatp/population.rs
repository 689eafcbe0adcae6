//! TATP's population: the subscribers and their rows. Each row is a function of the subscriber's id.
//!
//! Invariant: a subscriber's rows are computed only from the subscriber's id. So loaders agree
//! without communication, and a check can compute the loaded rows again.

use super::tables::{ACCESS_INFO, CALL_FORWARDING, SPECIAL_FACILITY, START_TIMES, SUBSCRIBER, SUBSCRIBERS_MAX, SUBSCRIBER_NUMBER, bits, byte2, data1, data2, data3, data4, data_a, data_b, digits, end_time, error_control, forwarded_to, forwarding, hex, is_active, msc_location, number, numberx, s_id, sub_nbr, typed, vlr_location};
use crate::distribution::Dice;
use tarn_engine::admin::load::Loader;
use tarn_store::ids::{Failure, UsageError};
use tarn_fabric::rng::mix;

/// The subscribers with the ids 1 to `subscribers`, and their rows.
pub(super) struct Population {
    pub(super) subscribers: u64,
    /// The numbers of loaded subscribers, access rights, facilities and forwardings.
    pub(super) counts: [u64; 4],
    /// The benchmark's constant A for a population of this size.
    spread: u64,
}

/// The rows of one subscriber. Bit `type - 1` of a mask is set for each type that the subscriber has.
#[derive(Clone, Copy)]
pub(super) struct Belongings {
    pub(super) access_types: u8,
    pub(super) facility_types: u8,
    /// For each facility type, a mask of start times.
    pub(super) forwardings: [u8; 4],
}

/// Returns dice from a hash of a subscriber's id. Different values of `about` give different dice.
fn noise(id: u64, about: u64) -> Dice {
    Dice::from_word(mix(id ^ mix(about + 0x7a79)))
}

/// Draws a random subset of `of` elements, as a mask. The subset has `least` to `least + 3` members,
/// and each of these sizes is equally likely (selection sampling: Knuth, The Art of Computer
/// Programming, vol. 2, §3.4.2, algorithm S).
fn subset(mut dice: Dice, of: u64, least: u64) -> u8 {
    let count = least + dice.roll(4);
    let (mut mask, mut chosen) = (0, 0);
    for index in 0..of {
        if dice.roll(of - index) < count - chosen {
            mask |= 1 << index;
            chosen += 1;
        }
    }
    mask
}

/// Computes the rows that a subscriber has when the tables are loaded.
pub(super) fn belongings(id: u64) -> Belongings {
    let facility_types = subset(noise(id, 1), 4, 1);
    let mut forwardings = [0; 4];
    for (index, mask) in forwardings.iter_mut().enumerate() {
        if facility_types & (1 << index) != 0 {
            *mask = subset(noise(id, 8 + index as u64), START_TIMES.len() as u64, 0);
        }
    }
    Belongings { access_types: subset(noise(id, 0), 4, 1), facility_types, forwardings }
}

impl Belongings {
    fn counts(&self) -> [u64; 4] {
        let forwardings: u32 = self.forwardings.iter().map(|mask| mask.count_ones()).sum();
        let (access, facilities) = (self.access_types, self.facility_types);
        [1, access.count_ones().into(), facilities.count_ones().into(), forwardings.into()]
    }
}

/// Returns the types in a mask.
pub(super) fn types(mask: u8) -> impl Iterator<Item = u8> {
    (1..=4).filter(move |of_type| mask & (1 << (of_type - 1)) != 0)
}

/// Returns the columns of a subscriber that no transaction changes.
pub(super) fn fixed_columns(id: u64) -> ([u8; 5], [u8; 10], u64) {
    let (mut hex, mut byte2) = ([0; 5], [0; 10]);
    let (mut low, mut high) = (noise(id, 2), noise(id, 3));
    hex.fill_with(|| low.roll(256) as u8);
    byte2[..5].fill_with(|| high.roll(256) as u8);
    let mut rest = noise(id, 4);
    byte2[5..].fill_with(|| rest.roll(256) as u8);
    (hex, byte2, noise(id, 5).roll(1 << 32))
}

impl Population {
    pub(super) fn new(subscribers: u64) -> Result<Population, UsageError> {
        if subscribers == 0 || subscribers > SUBSCRIBERS_MAX {
            let (field, value) = ("records".into(), subscribers.to_string());
            let allowed = format!("1 to {SUBSCRIBERS_MAX} subscribers");
            return Err(UsageError { field, value, allowed });
        }
        let mut counts = [0; 4];
        for id in 1..=subscribers {
            let of_one = belongings(id).counts();
            counts.iter_mut().zip(of_one).for_each(|(all, one)| *all += one);
        }
        let spread = match subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        Ok(Population { subscribers, counts, spread })
    }

    /// Returns the number of rows of all tables. For each subscriber, the table of numbers has one
    /// more row.
    pub(super) fn records(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.subscribers
    }

    /// Draws the benchmark's non-uniform key: the bitwise "or" of two uniform draws, modulo the
    /// number of subscribers.
    #[inline]
    pub(super) fn non_uniform(&self, word: u64) -> (u64, Dice) {
        let mut dice = Dice::from_word(word);
        let low = dice.roll(self.spread + 1);
        // One word of the generator is too short for another large draw, so the small draws use a
        // word of their own.
        let uniform = 1 + dice.roll(self.subscribers);
        let id = (low | uniform) % self.subscribers + 1;
        (id, Dice::from_word(mix(word)))
    }

    pub(super) async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        for id in 1..=self.subscribers {
            load_subscriber(loader, id).await?;
            let own = belongings(id);
            for ai_type in types(own.access_types) {
                load_access_info(loader, id, ai_type).await?;
            }
            for sf_type in types(own.facility_types) {
                load_facility(loader, id, sf_type).await?;
                load_forwardings(loader, id, sf_type, own.forwardings[usize::from(sf_type) - 1])
                    .await?;
            }
        }
        Ok(())
    }
}

async fn load_subscriber(loader: &mut Loader<'_>, id: u64) -> Result<(), Failure> {
    let (fixed_hex, fixed_byte2, msc) = fixed_columns(id);
    loader
        .insert(SUBSCRIBER, id, |row| {
            let mut dice = noise(id, 6);
            row.set(number(), &digits(sub_nbr(id)));
            row.set(bits(), dice.roll(1 << 10));
            row.set(hex(), &fixed_hex);
            row.set(byte2(), &fixed_byte2);
            row.set(msc_location(), msc);
            row.set(vlr_location(), dice.roll(1 << 32));
        })
        .await?;
    loader.insert(SUBSCRIBER_NUMBER, sub_nbr(id), |row| row.set(s_id(), id)).await
}

/// Draws capital letters.
fn letters<const N: usize>(dice: &mut Dice) -> [u8; N] {
    let mut letters = [0; N];
    letters.fill_with(|| b'A' + dice.roll(26) as u8);
    letters
}

async fn load_access_info(loader: &mut Loader<'_>, id: u64, ai_type: u8) -> Result<(), Failure> {
    let mut dice = noise(id, 16 + u64::from(ai_type));
    loader
        .insert(ACCESS_INFO, typed(id, ai_type), |row| {
            row.set(data1(), dice.roll(256));
            row.set(data2(), dice.roll(256));
            row.set(data3(), &letters::<3>(&mut dice));
            row.set(data4(), &letters::<5>(&mut dice));
        })
        .await
}

async fn load_facility(loader: &mut Loader<'_>, id: u64, sf_type: u8) -> Result<(), Failure> {
    let mut dice = noise(id, 24 + u64::from(sf_type));
    loader
        .insert(SPECIAL_FACILITY, typed(id, sf_type), |row| {
            row.set(is_active(), u64::from(dice.roll(100) < 85));
            row.set(error_control(), dice.roll(256));
            row.set(data_a(), dice.roll(256));
            row.set(data_b(), &letters::<5>(&mut dice));
        })
        .await
}

async fn load_forwardings(
    loader: &mut Loader<'_>,
    id: u64,
    sf_type: u8,
    start_times: u8,
) -> Result<(), Failure> {
    for (index, &start_time) in START_TIMES.iter().enumerate() {
        if start_times & (1 << index) == 0 {
            continue;
        }
        let key = forwarding(id, sf_type, start_time);
        let end = start_time + 1 + noise(key, 32).roll(8) as u8;
        loader
            .insert(CALL_FORWARDING, key, |row| {
                row.set(end_time(), u64::from(end));
                row.set(numberx(), &forwarded_to(key, end));
            })
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belongings_have_the_specified_shares() {
        const SUBSCRIBERS: u64 = 100_000;
        let (mut access, mut types_seen, mut forwardings) = ([0u32; 5], [0u32; 4], [0u32; 4]);
        for id in 1..=SUBSCRIBERS {
            let own = belongings(id);
            access[own.access_types.count_ones() as usize] += 1;
            for sf_type in types(own.facility_types) {
                types_seen[usize::from(sf_type) - 1] += 1;
                let mask = own.forwardings[usize::from(sf_type) - 1];
                forwardings[mask.count_ones() as usize] += 1;
            }
        }
        let near = |count: u32, expected: f64| (f64::from(count) / expected - 1.0).abs() < 0.03;
        assert_eq!(access[0], 0);
        assert!(access[1..].iter().all(|&count| near(count, 25_000.0)), "{access:?}");
        assert!(types_seen.iter().all(|&count| near(count, 62_500.0)), "{types_seen:?}");
        assert!(forwardings.iter().all(|&count| near(count, 62_500.0)), "{forwardings:?}");
    }

    #[test]
    fn keys_come_apart_as_they_were_packed() {
        use crate::tatp::tables::parts;
        let key = forwarding(3_000_000, 4, 16);
        assert_eq!(parts(key), (3_000_000, 4, 16));
        assert_eq!(parts(typed(7, 1)), (7, 1, 0));
        assert_eq!(&digits(1234), b"000000000001234");
    }
}
