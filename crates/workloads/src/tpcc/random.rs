//! TPC-C's random numbers and texts: clauses 2.1.6, 4.3.2 and 4.3.3.
//!
//! Invariant: loaded values are functions only of keys. The random draws of a run come from the run's
//! generator.

use super::tables::LAST_BYTES;
use crate::distribution::Dice;
use tarn_fabric::rng::mix;

/// Returns dice from a hash of a row's key. Different values of `about` give different dice.
pub(super) fn noise(key: u64, about: u64) -> Dice {
    Dice::from_word(mix(key ^ mix(about + 0x7bcc)))
}

/// NURand(A, x, y): non-uniform numbers from x to y (clause 2.1.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nurand {
    /// The constant A of NURand.
    spread: u64,
    /// The constant C of NURand.
    constant: u64,
    /// The smallest possible result, x.
    from: u64,
    /// The number of possible results, y - x + 1.
    range: u64,
}

impl Nurand {
    /// Creates a NURand for a range of any size. A is 2^k - 1, where 2^k is the largest power of two
    /// up to `range * 1000 / per_thousand`. So the ratio of A to the range is about the specified
    /// ratio. C is `constant`, reduced to a value below A.
    pub(super) fn scaled(from: u64, range: u32, per_thousand: u64, constant: u64) -> Nurand {
        let about = (u64::from(range) * 1_000 / per_thousand).max(1);
        let spread = (1 << about.ilog2()) - 1;
        Nurand { spread, constant: constant & spread, from, range: range.into() }
    }

    /// Returns A.
    #[cfg(test)]
    pub(super) fn spread(&self) -> u64 {
        self.spread
    }

    /// Draws a number by NURand.
    #[inline]
    pub(super) fn draw(&self, dice: &mut Dice) -> u32 {
        let low = dice.roll(self.spread + 1);
        let uniform = self.from + dice.roll(self.range);
        (((low | uniform) + self.constant) % self.range + self.from) as u32
    }
}

/// The constant C for last names while loading. The constant C of a run differs from this one by 100.
/// Clause 2.1.6.1 allows a difference of 65 to 119, except 96 and 112.
pub(super) const NAME_CONSTANT_LOAD: u64 = 123;
pub(super) const NAME_CONSTANT_RUN: u64 = NAME_CONSTANT_LOAD + 100;

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// Returns the padded last name for a number from 0 to 999. The name has one syllable for each digit
/// of the number.
#[inline]
pub(super) fn last_name(number: u32) -> [u8; LAST_BYTES] {
    let mut name = [0; LAST_BYTES];
    let mut at = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        name[at..at + syllable.len()].copy_from_slice(syllable);
        at += syllable.len();
    }
    name
}

/// A source of random text of any length. The source takes a new word for its dice whenever the old
/// word is used up.
pub(super) struct Text {
    state: u64,
    dice: Dice,
    left: u32,
}

const SYMBOLS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The number of symbols that are drawn from one word. Seven symbols are possible because 62^7 is
/// below 2^44.
const SYMBOLS_A_WORD: u32 = 7;

impl Text {
    /// Creates the source of random text for a row. Different values of `about` give different texts.
    pub(super) fn new(key: u64, about: u64) -> Text {
        Text { state: mix(key ^ mix(about + 0x7e87)), dice: Dice::from_word(0), left: 0 }
    }

    #[inline]
    fn roll(&mut self, sides: u64) -> u64 {
        if self.left == 0 {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            (self.dice, self.left) = (Dice::from_word(mix(self.state)), SYMBOLS_A_WORD);
        }
        self.left -= 1;
        self.dice.roll(sides)
    }

    /// Draws a number from `least..=most`.
    pub(super) fn number(&mut self, least: u64, most: u64) -> u64 {
        // This draw uses a new word, because the number of sides may be large.
        self.left = 0;
        let number = least + self.roll(most - least + 1);
        self.left = 0;
        number
    }

    /// Returns true with the probability 1 / `sides`.
    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        self.number(1, sides) == 1
    }

    /// Fills the start of `into` with random letters and digits (an a-string of TPC-C). The length is random, from
    /// `least` to the length of `into`. Returns the length.
    pub(super) fn letters(&mut self, into: &mut [u8], least: usize) -> usize {
        let len = self.number(least as u64, into.len() as u64) as usize;
        into[..len].fill_with(|| SYMBOLS[self.roll(62) as usize]);
        into[len..].fill(0);
        len
    }

    /// Draws a text of `least` to `N` letters and digits, padded to `N` bytes.
    pub(super) fn text<const N: usize>(&mut self, least: usize) -> [u8; N] {
        let mut text = [0; N];
        self.letters(&mut text, least);
        text
    }

    /// Draws `N` digits (an n-string of TPC-C).
    pub(super) fn digits<const N: usize>(&mut self) -> [u8; N] {
        let mut digits = [0; N];
        digits.fill_with(|| b'0' + self.roll(10) as u8);
        digits
    }

    /// Draws a text of 26 to 50 letters and digits. One text in ten contains ORIGINAL.
    pub(super) fn data(&mut self) -> [u8; 50] {
        let mut data = [0; 50];
        let len = self.letters(&mut data, 26);
        if self.one_in(10) {
            let at = self.number(0, (len - ORIGINAL.len()) as u64) as usize;
            data[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        }
        data
    }

    /// Draws a zip code: four digits and 11111.
    pub(super) fn zip(&mut self) -> [u8; 9] {
        let [a, b, c, d] = self.digits();
        [a, b, c, d, b'1', b'1', b'1', b'1', b'1']
    }
}

const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Returns whether the text contains ORIGINAL.
#[inline]
pub(super) fn is_original(text: &[u8]) -> bool {
    // The code compares words, because a comparison of slices would be a function call.
    let wanted = u64::from_le_bytes(*ORIGINAL);
    text.windows(8).any(|part| part.try_into().is_ok_and(|part| u64::from_le_bytes(part) == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::rng::seeded;

    #[test]
    fn last_names_are_those_of_the_specification() {
        let text = |number| {
            let name = last_name(number);
            String::from_utf8(name.into_iter().filter(|&byte| byte != 0).collect())
        };
        assert_eq!(text(371).as_deref(), Ok("PRICALLYOUGHT"));
        assert_eq!(text(0).as_deref(), Ok("BARBARBAR"));
        assert_eq!(text(777).as_deref(), Ok("CALLYCALLYCALLY"));
    }

    /// Compares clause 2.1.6 with its own definition, number by number.
    #[test]
    fn nurand_has_the_specified_distribution() {
        const DRAWS: u32 = 2_000_000;
        let (spread, constant, from, range) = (63, 9, 1, 300);
        let it = Nurand { spread, constant, from, range };
        let mut expected = vec![0f64; range as usize + 1];
        for low in 0..=spread {
            for uniform in from..from + range {
                let number = ((low | uniform) + constant) % range + from;
                expected[number as usize] += 1.0 / ((spread + 1) * range) as f64;
            }
        }
        let (mut rng, mut counts) = (seeded(5, 5), vec![0u32; range as usize + 1]);
        for _ in 0..DRAWS {
            counts[it.draw(&mut Dice::new(&mut rng)) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        for (count, share) in counts.iter().zip(&expected) {
            let expected = share * f64::from(DRAWS);
            let off = (f64::from(*count) - expected).abs();
            assert!(off <= 5.0 * expected.sqrt() + 1.0, "{count}, {expected} expected");
        }
    }

    #[test]
    fn texts_have_their_lengths_and_one_in_ten_is_original() {
        let (mut lengths, mut originals) = ([0u32; 51], 0);
        for key in 0..10_000 {
            let data = Text::new(key, 1).data();
            let len = data.iter().filter(|&&byte| byte != 0).count();
            lengths[len] += 1;
            originals += u32::from(is_original(&data));
            assert!(data[len..].iter().all(|&byte| byte == 0));
        }
        assert!(lengths[..26].iter().all(|&count| count == 0));
        assert!(lengths[26..].iter().all(|&count| count.abs_diff(400) < 120), "{lengths:?}");
        assert!(originals.abs_diff(1_000) < 150, "{originals}");
        assert_eq!(&Text::new(3, 3).zip()[4..], b"11111");
    }
}
