//! A transaction's notes on further operations on records that it already has, and on mistakes of its caller.
//!
//! Invariant: most transactions request each record once, set the rows that they insert, and make no mistake. A
//! transaction without inserts, further operations and mistakes uses only one byte of this module: [`Notes`], which
//! stays 0. The vectors keep their capacity from transaction to transaction.

use std::cell::{Cell, OnceCell};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{Explanation, Mode};
use tarn_store::layout::index_plan::KeyBytes;
use tarn_store::schema::{Cells, IndexId};

/// The matters that a transaction must process before it may commit: one bit for each matter.
#[derive(Default, Debug)]
pub struct Notes(Cell<u8>);

impl Notes {
    /// The caller requested something that is not possible. The next fetch reports this mistake of the caller.
    const MISTAKEN: u8 = 1;
    /// The caller changed a row that cannot be changed. The commit reports this mistake of the caller, after it has
    /// validated the records that were read.
    const MISUSED: u8 = 2;
    /// Some operations wait until a fetch has brought the records that they need.
    const WAITING: u8 = 4;
    /// The transaction has inserted rows. The caller must set each inserted row before the commit.
    const INSERTS: u8 = 8;

    /// Whether the transaction has no notes to process.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.0.get() == 0
    }

    /// Whether the next fetch only sends the rounds for the requested records, and has no other work.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.0.get() & (Notes::MISTAKEN | Notes::WAITING) == 0
    }

    /// Whether the next fetch reports a mistake of the caller.
    #[inline]
    pub fn is_mistaken(&self) -> bool {
        self.has(Notes::MISTAKEN)
    }

    /// Whether some operations wait for records that a fetch will bring.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.has(Notes::WAITING)
    }

    /// Whether the commit reports a mistake of the caller.
    pub(crate) fn is_misused(&self) -> bool {
        self.has(Notes::MISUSED)
    }

    /// Whether the transaction has inserted rows.
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

    /// Notes that the transaction inserts rows.
    #[inline]
    pub(crate) fn note_insert(&self) {
        self.note(Notes::INSERTS);
    }
}

/// The answer of [`crate::session::transaction::Transaction::existed`] for an operation on a record that the
/// transaction already had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existed {
    /// Only a fetch can tell whether the record existed.
    Unknown,
    /// The database decides whether the record existed, because the transaction has not changed the record's
    /// existence.
    AsFound,
    /// The transaction's own earlier operations decide whether the record existed.
    Known(bool),
}

/// An operation, with its own handle, on a record that the transaction already had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The position of the record's entry.
    pub(crate) entry: u32,
    pub(crate) mode: Mode,
    pub(crate) existed: Existed,
    /// Whether the handle of this operation allows no column to be set. The operation was to update an absent row, or
    /// to insert a row that already exists.
    pub(crate) refuses: bool,
    /// Whether the caller intends the inserted row to be all zeros.
    pub(crate) zeros: bool,
}

impl Wish {
    /// Creates a further operation on an entry, with the answer that `existed` will give.
    pub(crate) fn new(entry: usize, mode: Mode, existed: Existed, refuses: bool) -> Wish {
        Wish { entry: entry as u32, mode, existed, refuses, zeros: false }
    }
}

/// Work that waits for records that a fetch brings.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// This further operation waits until a fetch has brought these cells of its record.
    Wish { wish: u32, cells: Cells },
    /// The row of this entry becomes all zeros, because the transaction deletes the row and inserts it again.
    Renewal { entry: u32 },
    /// The transaction has already set these cells of this entry. After the fetch, these cells are copied back from
    /// the position `payload` in the buffer.
    OwnCells { entry: u32, payload: BufferOffset, dirty: Cells },
    /// This scan begins after the next fetch.
    Scan(Box<LaterScan>),
}

/// A scan that must show the operations that the caller requested before the scan in the same fetch.
#[derive(Clone, Debug)]
pub(crate) struct LaterScan {
    /// The scan's position among the transaction's scans.
    pub(crate) at: usize,
    pub(crate) index: IndexId,
    pub(crate) range: (KeyBytes, KeyBytes),
    pub(crate) limit: u32,
    pub(crate) backward: bool,
}

/// The further operations of a transaction, the work that waits for a fetch, and the first mistake of the caller.
#[derive(Default, Debug)]
pub struct Sequel {
    pub(crate) wishes: Vec<Wish>,
    pub(crate) waiting: Vec<Waiting>,
    /// The caller's first mistake, as an explanation for the caller.
    mistake: OnceCell<Box<Explanation>>,
}

impl Sequel {
    #[cold]
    fn clear(&mut self) {
        self.wishes.clear();
        self.waiting.clear();
        self.mistake.take();
    }

    /// The caller's first mistake, as an explanation for the caller.
    pub(crate) fn mistake(&self) -> Option<&Explanation> {
        self.mistake.get().map(|mistake| &**mistake)
    }

    /// Clears the notes of the previous transaction.
    #[inline]
    pub(crate) fn begin(&mut self, notes: &mut Notes) {
        if !notes.is_clear() {
            *notes = Notes::default();
            self.clear();
        }
    }

    /// Adds work that waits until the next fetch has brought the records that it needs.
    pub(crate) fn wait(&mut self, notes: &Notes, waiting: Waiting) {
        notes.note(Notes::WAITING);
        self.waiting.push(waiting);
    }

    /// The position of the entry that this waiting work concerns. Returns `None` if the waiting work is a scan.
    pub(crate) fn entry_of(&self, waiting: &Waiting) -> Option<usize> {
        match *waiting {
            Waiting::Wish { wish, .. } => Some(self.wishes[wish as usize].entry as usize),
            Waiting::Renewal { entry } | Waiting::OwnCells { entry, .. } => Some(entry as usize),
            Waiting::Scan(_) => None,
        }
    }

    /// Whether this scan of the transaction still waits to begin.
    #[cold]
    pub(crate) fn has_scan(&self, at: usize) -> bool {
        self.waiting.iter().any(|it| matches!(it, Waiting::Scan(scan) if scan.at == at))
    }

    /// Whether any scan of the transaction still waits to begin.
    #[cold]
    pub(crate) fn has_scans(&self) -> bool {
        self.waiting.iter().any(|it| matches!(it, Waiting::Scan(_)))
    }

    /// Clears the bit `WAITING`, if no work waits for a fetch any more.
    pub(crate) fn is_over(&mut self, notes: &Notes) {
        if self.waiting.is_empty() {
            notes.0.set(notes.0.get() & !Notes::WAITING);
        }
    }

    /// Makes the next fetch fail with this explanation of the caller's mistake.
    #[cold]
    pub(crate) fn note_mistake(&self, notes: &Notes, mistake: Explanation) {
        notes.note(Notes::MISTAKEN);
        let _ = self.mistake.set(Box::new(mistake)); // only the first mistake is kept
    }

    /// Makes the commit fail with this explanation of the caller's mistake, if the records that were read so far have
    /// not changed.
    #[cold]
    pub(crate) fn note_misuse(&self, notes: &Notes, mistake: Explanation) {
        notes.note(Notes::MISUSED);
        let _ = self.mistake.set(Box::new(mistake));
    }
}
