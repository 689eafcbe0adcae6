//! Reads and writes of simulated memory.
//!
//! Invariant: a read uses the replica's own line, if the replica has one, and otherwise the shared
//! image. A replica's first write to a line copies the line, and then changes the copy. Nearly all
//! verbs access whole words in one line, and for these verbs the code has a short path.

use super::lines::{self, LINE_WORDS};
use super::own::OwnLines;
use super::place::Place;
use super::{LINE_BYTES, Memory, PAGE_BYTES, PAGE_LINES, packed};

type Line = [u64; LINE_WORDS];

impl Memory {
    /// Copies whole words out of the memory.
    #[inline(always)]
    pub(crate) fn read_words(&mut self, place: Place, out: &mut [u64]) {
        if out.len() > place.words_left() {
            return self.read_lines(place, out);
        }
        self.read_in_line(place, out);
    }

    #[inline(always)]
    fn read_in_line(&mut self, place: Place, out: &mut [u64]) {
        match self.own(place).get(place.line()) {
            Some(index) => {
                let line = lines::line(&self.chunks, index);
                copy_words(out, &line[place.word()..][..out.len()]);
            }
            None => self.read_image(place, out),
        }
    }

    #[inline(never)]
    fn read_image(&mut self, place: Place, out: &mut [u64]) {
        if self.began_empty(place) {
            return out.fill(0);
        }
        let image = self.image(place);
        packed::unpack_words(&self.chunks, image, place.at() / 8, out);
    }

    #[inline(never)]
    fn read_lines(&mut self, mut place: Place, mut out: &mut [u64]) {
        while !out.is_empty() {
            let (piece, others) = out.split_at_mut(out.len().min(place.words_left()));
            self.read_in_line(place, piece);
            place = place.plus(piece.len() * 8, self.stride);
            out = others;
        }
    }

    /// Copies bytes out of the memory, at any alignment.
    pub(crate) fn read_bytes(&mut self, mut place: Place, mut out: &mut [u8]) {
        while !out.is_empty() {
            let (piece, others) = out.split_at_mut(out.len().min(LINE_BYTES - place.in_line()));
            let mut line: Line = [0; LINE_WORDS];
            let start = place.minus(place.in_line());
            self.read_in_line(start, &mut line);
            let bytes: &[u8] = bytemuck::cast_slice(&line);
            piece.copy_from_slice(&bytes[place.in_line()..][..piece.len()]);
            (place, out) = (place.plus(piece.len(), self.stride), others);
        }
    }

    /// Copies whole words into the memory.
    #[inline(always)]
    pub(crate) fn write_words(&mut self, place: Place, words: &[u64]) {
        if self.loading || words.len() > place.words_left() {
            return self.write_lines(place, words);
        }
        self.write_in_line(place, words, words.len());
    }

    /// Writes words into one line. The caller is about to write `run` words from `place` on.
    #[inline(always)]
    fn write_in_line(&mut self, place: Place, words: &[u64], run: usize) {
        let index = match self.own(place).get(place.line()) {
            Some(index) => index,
            None => self.first_write(place, words.len() * 8, run * 8),
        };
        let line = lines::line_mut(&mut self.chunks, index);
        copy_words(&mut line[place.word()..][..words.len()], words);
    }

    /// Writes several lines. The function writes lines that are adjacent in the replica's run
    /// together. Lines that were first written together are adjacent.
    #[inline(never)]
    fn write_lines(&mut self, mut place: Place, mut words: &[u64]) {
        if self.loading {
            return self.load(place, bytemuck::cast_slice(words));
        }
        while !words.is_empty() {
            let whole = words.len().min((PAGE_BYTES - place.at()) / 8);
            let last = (place.at() + whole * 8 - 1) / LINE_BYTES;
            let piece = if let Some(index) = self.own(place).get_all(place.line(), last) {
                let lines = lines::lines_mut(&mut self.chunks, index, last - place.line() + 1);
                lines[place.word()..][..whole].copy_from_slice(&words[..whole]);
                whole
            } else {
                let piece = whole.min(place.words_left());
                self.write_in_line(place, &words[..piece], whole);
                piece
            };
            (place, words) = (place.plus(piece * 8, self.stride), &words[piece..]);
        }
    }

    /// Copies bytes into the memory, at any alignment.
    pub(crate) fn write_bytes(&mut self, mut place: Place, mut bytes: &[u8]) {
        if self.loading {
            debug_assert!(!self.began_empty(place), "spare nodes are not loaded");
            return self.load(place, bytes);
        }
        while !bytes.is_empty() {
            let (piece, others) = bytes.split_at(bytes.len().min(LINE_BYTES - place.in_line()));
            let index = match self.own(place).get(place.line()) {
                Some(index) => index,
                None => self.first_write(place, piece.len(), bytes.len()),
            };
            let line: &mut [u8] =
                bytemuck::cast_slice_mut(lines::line_mut(&mut self.chunks, index));
            line[place.in_line()..][..piece.len()].copy_from_slice(piece);
            (place, bytes) = (place.plus(piece.len(), self.stride), others);
        }
    }

    /// Replaces an aligned word by the value that `change` returns, if `change` returns a value.
    /// Returns the word's old value.
    #[inline(always)]
    pub(crate) fn change_word(&mut self, place: Place, change: impl Fn(u64) -> Option<u64>) -> u64 {
        let Some(index) = self.own(place).get(place.line()) else {
            let found = self.word_of_image(place);
            if let Some(new) = change(found) {
                self.write_word(place, new);
            }
            return found;
        };
        let word = &mut lines::line_mut(&mut self.chunks, index)[place.word()];
        let found = *word;
        if let Some(new) = change(found) {
            *word = new;
        }
        found
    }

    #[inline(never)]
    fn word_of_image(&mut self, place: Place) -> u64 {
        let mut word = [0];
        self.read_image(place, &mut word);
        word[0]
    }

    #[inline(never)]
    fn write_word(&mut self, place: Place, word: u64) {
        self.write_words(place, &[word]);
    }

    #[inline(always)]
    fn own(&self, place: Place) -> OwnLines {
        OwnLines(self.table.as_slice()[place.own()])
    }

    /// Creates the replica's own line at `place`. The caller is about to write `written` bytes of this
    /// line, and `run` bytes in all from `place` on.
    #[inline(never)]
    fn first_write(&mut self, place: Place, written: usize, run: usize) -> u32 {
        let last = (place.at() + run - 1).min(PAGE_BYTES - 1) / LINE_BYTES;
        let index = self.make_line(place, last);
        if written < LINE_BYTES {
            let mut line = [0; LINE_WORDS];
            self.read_image(place.minus(place.in_line()), &mut line);
            *lines::line_mut(&mut self.chunks, index) = line;
        }
        index
    }

    /// Makes room for one more line of a page in the replica's run. The caller is about to write the
    /// lines up to `last`.
    #[inline(always)]
    fn make_line(&mut self, place: Place, last: usize) -> u32 {
        self.copies += 1;
        let (mut own, line) = (self.own(place), place.line());
        let mut count = 0;
        if own.0 == 0 && line == last {
            own = own.moved(self.lines.allocate(&mut self.chunks, 0), 0);
        } else {
            count = own.count();
            own = self.make_room(own, count, line, last);
        }
        self.table.as_mut_slice()[place.own()] = own.with(line, count).0;
        own.run() + count
    }

    /// Makes room for one line after the `count` existing lines, and for the further lines that the
    /// caller will write.
    #[inline]
    fn make_room(&mut self, own: OwnLines, count: u32, line: usize, last: usize) -> OwnLines {
        if count != 0 && count < 1 << own.class() {
            return own;
        }
        let wanted = (last - line + 1) as u32 - own.count_in(line, last);
        let class = (count + wanted).next_power_of_two().trailing_zeros();
        let run = self.lines.allocate(&mut self.chunks, class);
        if count > 0 {
            self.lines.move_run(&mut self.chunks, own.run(), run, own.class());
        }
        own.moved(run, class)
    }
}

/// Copies the words of a line, or some of these words. A function call would cost more than the copy of
/// so few words.
#[inline(always)]
fn copy_words(to: &mut [u64], from: &[u64]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<LINE_WORDS>(), from.first_chunk()) {
        *to = *from;
        return;
    }
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

const _: () = assert!(PAGE_LINES == 8, "a page's lines have one word of the table");
