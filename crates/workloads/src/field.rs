//! A field's value consists of the number of writes of the field, and of bytes that agree with this
//! number.
//!
//! Invariant: in a field that was written `n` times, word 0 is `n`, and word `i` is `n + i` times an
//! odd constant. The last word may be cut off. Two versions of a field differ in every word, and in
//! both halves of all words except the first. So in a mixture of two versions some words disagree.

/// The length of the longest field, in bytes.
pub(crate) const FIELD_BYTES_MAX: usize = 150;

/// Returns word number `index` of a field that was written `count` times.
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

/// Returns the number of writes of a field that was read, or `None` if the field is torn. Reads of a
/// line are atomic, and a field lies in at most three lines. So the function need only compare the
/// field's first, middle and last word.
#[inline]
pub(crate) fn count(field: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(*field.first_chunk()?);
    // A field of one word is never torn. The separate test of the length keeps the loop short that
    // reads most fields.
    if field.len() == 8 || agrees_with(count, field) { Some(count) } else { None }
}

/// Returns whether a field's first, middle and last word agree with this number of writes.
#[inline(never)]
fn agrees_with(count: u64, field: &[u8]) -> bool {
    let last = (field.len() - 1) / 8;
    let agrees = |index: usize| {
        let bytes = &field[index * 8..field.len().min(index * 8 + 8)];
        bytes == &word(count, index)[..bytes.len()]
    };
    last == 0 || (agrees(last / 2) && agrees(last))
}

/// Returns the number of writes of a field, if every byte of the field agrees with this number.
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
        // A field of 8 bytes needs no test, because it is one word and lies in one line.
        for len in [40, 100] {
            let (mut old, mut new) = ([0; FIELD_BYTES_MAX], [0; FIELD_BYTES_MAX]);
            fill(&mut old, 41);
            fill(&mut new, 42);
            assert_eq!(count(&new[..len]), Some(42));
            assert_eq!(whole(&new[..len]), Some(42));
            // A line may begin at any multiple of 4 within the field. The test tries each line with
            // its old and with its new contents.
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
