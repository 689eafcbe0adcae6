//! A transaction's notes on further operations on records that it has already, and on its caller's mistakes.
//!
//! Invariant: most transactions ask for each record once, set the rows that they insert, and make no mistake.
//! Such a transaction touches nothing here but one byte of [`Notes`], which stays 0. The memory is kept from
//! transaction to transaction.

use std::cell::{Cell, OnceCell};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{Explanation, Mode};
use tarn_store::layout::index_plan::KeyBytes;
use tarn_store::schema::{Cells, IndexId};

/// The matters that a transaction has to look after before it may commit: one bit each.
#[derive(Default, Debug)]
pub struct Notes(Cell<u8>);

impl Notes {
    /// The caller asked for something that is not possible: the next fetch says so.
    const MISTAKEN: u8 = 1;
    /// The caller changed a row that is not there to be changed: the commit says so, once the records read
    /// are validated.
    const MISUSED: u8 = 2;
    /// Operations wait until a fetch has brought their records.
    const WAITING: u8 = 4;
    /// Rows were inserted: each must be set before the commit.
    const INSERTS: u8 = 8;

    /// Whether there is nothing to look after.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.0.get() == 0
    }

    /// Whether the next fetch only sends the rounds of the records that were asked for, and does no more.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.0.get() & (Notes::MISTAKEN | Notes::WAITING) == 0
    }

    /// Whether the next fetch reports a mistake.
    #[inline]
    pub fn is_mistaken(&self) -> bool {
        self.has(Notes::MISTAKEN)
    }

    /// Whether operations wait for a fetch.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.has(Notes::WAITING)
    }

    /// Whether the commit reports a mistake.
    pub(crate) fn is_misused(&self) -> bool {
        self.has(Notes::MISUSED)
    }

    /// Whether rows were inserted.
    pub(crate) fn has_inserts(&self) -> bool {
        self.has(Notes::INSERTS)
    }

    #[inline]
    fn has(&self, bit: u8) -> bool {
        self.0.get() & bit != 0
    }

    fn note(&self, bit: u8) {
        self.0.set(self.0.get() | bit);
    }

    /// Notes that rows are inserted from now on.
    #[inline]
    pub(crate) fn note_insert(&self) {
        self.note(Notes::INSERTS);
    }
}

/// The answer of [`crate::session::transaction::Transaction::existed`] for an operation on a record that the
/// transaction had already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existed {
    /// The answer is not known before a fetch.
    Unknown,
    /// The answer is the database's: the transaction has not changed it.
    AsFound,
    /// The transaction's own operations before it decide.
    Known(bool),
}

/// An operation on a record that the transaction had already, with a handle of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The record's entry.
    pub(crate) entry: u32,
    pub(crate) mode: Mode,
    pub(crate) existed: Existed,
    /// Whether nothing may be set by its handle: it was to update a row that is not there, or to insert a row
    /// that is.
    pub(crate) refuses: bool,
    /// Whether a row of zeros is meant.
    pub(crate) zeros: bool,
}

impl Wish {
    /// An operation on an entry, with the answer to `existed`.
    pub(crate) fn new(entry: usize, mode: Mode, existed: Existed, refuses: bool) -> Wish {
        Wish { entry: entry as u32, mode, existed, refuses, zeros: false }
    }
}

/// Work that waits for the records that a fetch brings.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// This operation, which asks for these cells.
    Wish { wish: u32, cells: Cells },
    /// This entry's row becomes zeros: the transaction deletes it and inserts it again.
    Renewal { entry: u32 },
    /// These cells of this entry, which the transaction has set already, come back from their place in the
    /// buffer.
    OwnCells { entry: u32, payload: BufferOffset, dirty: Cells },
    /// This scan begins.
    Scan(Box<LaterScan>),
}

/// A scan that shows operations that were asked for before it in the same fetch.
#[derive(Clone, Debug)]
pub(crate) struct LaterScan {
    /// Its place among the transaction's scans.
    pub(crate) at: usize,
    pub(crate) index: IndexId,
    pub(crate) range: (KeyBytes, KeyBytes),
    pub(crate) limit: u32,
    pub(crate) backward: bool,
}

/// See the module's text.
#[derive(Default, Debug)]
pub struct Sequel {
    pub(crate) wishes: Vec<Wish>,
    pub(crate) waiting: Vec<Waiting>,
    /// The caller's first mistake.
    mistake: OnceCell<Box<Explanation>>,
}

impl Sequel {
    #[cold]
    fn clear(&mut self) {
        self.wishes.clear();
        self.waiting.clear();
        self.mistake.take();
    }

    /// The caller's first mistake.
    pub(crate) fn mistake(&self) -> Option<&Explanation> {
        self.mistake.get().map(|mistake| &**mistake)
    }

    /// Forgets the transaction before, to which these notes belonged.
    #[inline]
    pub(crate) fn begin(&mut self, notes: &mut Notes) {
        if !notes.is_clear() {
            *notes = Notes::default();
            self.clear();
        }
    }

    /// Adds work to be done when the next fetch has brought its records.
    pub(crate) fn wait(&mut self, notes: &Notes, waiting: Waiting) {
        notes.note(Notes::WAITING);
        self.waiting.push(waiting);
    }

    /// The entry that waiting work is about; `None` for a scan.
    pub(crate) fn entry_of(&self, waiting: &Waiting) -> Option<usize> {
        match *waiting {
            Waiting::Wish { wish, .. } => Some(self.wishes[wish as usize].entry as usize),
            Waiting::Renewal { entry } | Waiting::OwnCells { entry, .. } => Some(entry as usize),
            Waiting::Scan(_) => None,
        }
    }

    /// Whether this scan of the transaction has not begun.
    #[cold]
    pub(crate) fn has_scan(&self, at: usize) -> bool {
        self.waiting.iter().any(|it| matches!(it, Waiting::Scan(scan) if scan.at == at))
    }

    /// Whether any scan of the transaction has not begun.
    #[cold]
    pub(crate) fn has_scans(&self) -> bool {
        self.waiting.iter().any(|it| matches!(it, Waiting::Scan(_)))
    }

    /// Notes that nothing waits any more, if that is so.
    pub(crate) fn is_over(&mut self, notes: &Notes) {
        if self.waiting.is_empty() {
            notes.0.set(notes.0.get() & !Notes::WAITING);
        }
    }

    /// Makes the next fetch fail for this reason.
    #[cold]
    pub(crate) fn note_mistake(&self, notes: &Notes, mistake: Explanation) {
        notes.note(Notes::MISTAKEN);
        let _ = self.mistake.set(Box::new(mistake)); // the first counts
    }

    /// Makes the commit fail for this reason, if the records read so far are still the same.
    #[cold]
    pub(crate) fn note_misuse(&self, notes: &Notes, mistake: Explanation) {
        notes.note(Notes::MISUSED);
        let _ = self.mistake.set(Box::new(mistake));
    }
}
