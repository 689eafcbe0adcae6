//! A field's value: how often the field was written, and bytes that agree with that number.
//!
//! Invariant: word 0 of a field written `n` times is `n`, and word `i` is `n + i` times an odd
//! constant; the last word may be cut off. Two versions of a field differ in every word, and in
//! both halves of all words but the first. So a mixture of them has words that disagree.

/// Longest field.
pub(crate) const FIELD_BYTES_MAX: usize = 150;

/// Word `index` of a field written `count` times.
#[inline]
fn word(count: u64, index: usize) -> [u8; 8] {
    let factor = if index == 0 { 1 } else { 0x9e37_79b9_7f4a_7c15 };
    count.wrapping_add(index as u64).wrapping_mul(factor).to_le_bytes()
}

/// Fills a field with the value of its `count`-th write.
#[inline]
pub(crate) fn fill(field: &mut [u8], count: u64) {
    for (index, bytes) in field.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&word(count, index)[..bytes.len()]);
    }
}

/// Returns the count of a field that was read; `None` if the field is torn. Lines are atomic. So
/// for a field that lies across up to three lines it is enough to look at its first, middle and
/// last word.
#[inline]
pub(crate) fn count(field: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(*field.first_chunk()?);
    // A field of one word is whole. Most fields are read in a loop that should be short.
    if field.len() == 8 || agrees_with(count, field) { Some(count) } else { None }
}

/// Whether a field's first, middle and last word agree with this count.
#[inline(never)]
fn agrees_with(count: u64, field: &[u8]) -> bool {
    let last = (field.len() - 1) / 8;
    let agrees = |index: usize| {
        let bytes = &field[index * 8..field.len().min(index * 8 + 8)];
        bytes == &word(count, index)[..bytes.len()]
    };
    last == 0 || (agrees(last / 2) && agrees(last))
}

/// Returns the count of a field if every byte of it agrees with the count.
pub(crate) fn whole(field: &[u8]) -> Option<u64> {
    let count = count(field)?;
    let mut expected = [0; FIELD_BYTES_MAX];
    fill(&mut expected[..field.len()], count);
    (field == &expected[..field.len()]).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_tear_at_a_line_shows() {
        // (A field of 8 bytes is a word and lies in one line.)
        for len in [40, 100] {
            let (mut old, mut new) = ([0; FIELD_BYTES_MAX], [0; FIELD_BYTES_MAX]);
            fill(&mut old, 41);
            fill(&mut new, 42);
            assert_eq!(count(&new[..len]), Some(42));
            assert_eq!(whole(&new[..len]), Some(42));
            // Lines begin at any multiple of 4 within the field: each line old or new.
            for first_line in (4..=64).step_by(4) {
                for mask in 0..8u32 {
                    let line = |at: usize| (at + 64 - first_line) / 64;
                    let lines = line(len - 1) + 1;
                    if mask >> lines != 0 || mask == 0 || mask + 1 == 1 << lines {
                        continue;
                    }
                    let torn: Vec<u8> = (0..len)
                        .map(|at| if mask >> line(at) & 1 == 1 { new[at] } else { old[at] })
                        .collect();
                    assert_eq!(count(&torn), None, "{len} {first_line} {mask}");
                    assert_eq!(whole(&torn), None);
                }
            }
        }
    }
}
