//! Places letters on a line of a drawing for terminals.
//!
//! Invariant: a letter takes one column; letters that do not fit on a line are omitted.

/// Puts `text` on a line, from column `at` on.
pub(crate) fn put(line: &mut [char], at: usize, text: &str) {
    line.iter_mut().skip(at).zip(text.chars()).for_each(|(place, letter)| *place = letter);
}

/// Returns the line without the spaces at its end.
pub(crate) fn trimmed(line: &[char]) -> String {
    line.iter().collect::<String>().trim_end().to_owned()
}

/// Returns `text`, cut to at most `most` letters; the last letter is an ellipsis if the text was
/// cut.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
