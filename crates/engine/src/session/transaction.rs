//! The view that a body has of its transaction: the body reads and changes records, in execution blocks.
//!
//! Invariant: one record has one entry, however many operations use the record. A transaction reads back the values
//! that it wrote: a `get` and a later `set` use the same entry. Values are buffered, and no other transaction sees a
//! change before the commit. The next `fetch` reports mistakes of the caller (a key of the wrong kind, too large a
//! working set), in an error that names the mistake.

use crate::protocol::merge_access::merge_access;
use crate::session::coordinator::Coordinator;
use crate::session::misuse::{note_nothing_to_set, place_to_set};
use crate::site::Context;
use crate::steps::access::near;
use crate::steps::index::widened;
use crate::transaction::working_set::{
    Added, BUFFERED_MAX, Entry, FEW, Handle, Progress, ROOM_STEP, Txn,
};
use tarn_fabric::rng::mix;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{Explanation, Failure, Mode};
use tarn_store::index::hash_of;
use tarn_store::placement::catalog::Table;
pub use tarn_store::schema::range::{IndexKey, Scan, ScanEntry, ScanHandle};
use tarn_store::schema::row::{Row, Value};
use tarn_store::schema::{Cells, ColumnId, ColumnType, Key, KeyWidth, TableId};

/// A transaction in progress; see [`Coordinator::transact`].
pub struct Transaction<'c> {
    pub(crate) coordinator: &'c mut Coordinator,
}

/// One execution block of a transaction. A protocol may release local locks after each block. A `Block` dereferences
/// to its `Transaction`.
pub struct Block<'t, 'c> {
    transaction: &'t mut Transaction<'c>,
}

impl<'c> std::ops::Deref for Block<'_, 'c> {
    type Target = Transaction<'c>;
    fn deref(&self) -> &Transaction<'c> {
        self.transaction
    }
}

impl<'c> std::ops::DerefMut for Block<'_, 'c> {
    fn deref_mut(&mut self) -> &mut Transaction<'c> {
        self.transaction
    }
}

impl<'c> Transaction<'c> {
    /// Runs one execution block: the block adds records, fetches them, computes, and changes them.
    ///
    /// # Errors
    /// An error of the body or of the protocol.
    pub async fn block<R>(
        &mut self,
        body: impl AsyncFnOnce(&mut Block<'_, 'c>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut block = Block { transaction: self };
        let result = body(&mut block).await?;
        self.fetch().await?;
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        let closed = protocol.close_block(cx, txn).await;
        self.keep(closed)?;
        Ok(result)
    }

    /// Returns the same transaction for a shorter time.
    #[inline]
    pub fn reborrow(&mut self) -> Transaction<'_> {
        Transaction { coordinator: self.coordinator }
    }

    /// The failure after which this try of the transaction can only end: the failure of a fetch, or a mistake of the
    /// caller that the next fetch would report. A caller whose body has error types of its own can so tell the
    /// body's decision from a failure that ended the body.
    pub fn failure(&self) -> Option<Failure> {
        let txn = &self.coordinator.txn;
        if txn.notes.is_mistaken() { Some(Failure::Usage) } else { txn.failed }
    }

    /// The explanation of a failure that this try has just returned. The caller must call this function before another
    /// coordinator of the thread runs.
    #[cold]
    pub fn explanation(&self, failure: Failure) -> Option<Explanation> {
        let Coordinator { cx, txn, .. } = &*self.coordinator;
        // The coordinator reports a mistake only when the try ends.
        let mistake = txn.sequel.mistake().filter(|_| failure == Failure::Usage);
        mistake.cloned().or_else(|| cx.explanation(failure))
    }

    /// Remembers the failure of a step other than a fetch.
    fn keep(&mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = outcome {
            self.coordinator.txn.failed = Some(failure);
        }
        outcome
    }

    /// Adds a record from which the transaction will read `cells`.
    #[inline]
    pub fn read<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>, cells: Cells) -> Handle {
        self.add(table, key.into(), Mode::Read, cells)
    }

    /// Adds records from which the transaction will read `cells`, by the words of their keys. This function does the
    /// same as repeated calls of [`Transaction::read`], but looks up the table only once. `take` gets the handle of
    /// each record, in the order of the keys.
    #[inline]
    pub fn read_each(
        &mut self,
        table: TableId,
        keys: impl IntoIterator<Item = u64>,
        cells: Cells,
        mut take: impl FnMut(Handle),
    ) {
        let mut keys = keys.into_iter();
        self.note_each(table, &mut keys, cells, &mut take);
        keys.for_each(|key| take(self.add(table, Key::Word(key), Mode::Read, cells)));
    }

    /// Records keys whose records the transaction will read without a round because memory is near. This function
    /// stops at the first record that cannot be read in this way, and adds that record as an entry.
    #[inline(always)]
    fn note_each(
        &mut self,
        table_id: TableId,
        keys: &mut impl Iterator<Item = u64>,
        cells: Cells,
        take: &mut impl FnMut(Handle),
    ) {
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        let table = cx.table(table_id);
        if table.slot.full_key_bytes != 0 || !protocol.notes_reads(cx, txn, table) {
            return;
        }
        let homes = cx.node.index_view.ungrown(&cx.database().catalog, table);
        let (mut left, before) = (None, txn.noted);
        for key in keys {
            let hash = hash_of(table, key);
            if txn.entries.len() >= txn.room || txn.may_have(hash) {
                left = Some(key);
                break;
            }
            txn.note(hash);
            let full_key = BufferOffset::default();
            let added = Added { key, full_key, hash, mode: Mode::Read, cells };
            take(near::note_read(cx, txn, (table, homes), added));
        }
        protocol.note_looks(cx, txn.noted - before);
        if let Some(key) = left {
            take(self.add(table_id, Key::Word(key), Mode::Read, cells));
        }
    }

    /// Adds a record from which the transaction will read `cells`, or in which it will change them.
    #[inline]
    pub fn update<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>, cells: Cells) -> Handle {
        self.add(table, key.into(), Mode::Update, cells)
    }

    /// Adds a record that the transaction will insert. After the fetch [`Transaction::existed`] tells whether the
    /// record already exists. The transaction only reads an existing record. Otherwise the caller should set the
    /// record's columns; columns that are not set are zero. The caller makes a mistake if no column is set when the
    /// transaction commits, unless the record was added by [`Transaction::insert_zeros`].
    #[inline]
    pub fn insert<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>) -> Handle {
        self.add(table, key.into(), Mode::Insert, Cells::ALL)
    }

    /// Does the same as [`Transaction::insert`], for a row of zeros. The caller may still set columns of the row.
    #[inline]
    pub fn insert_zeros<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>) -> Handle {
        let handle = self.insert(table, key);
        self.note_zeros(handle);
        handle
    }

    /// Adds a record that the transaction will delete. After the fetch [`Transaction::existed`] tells whether the
    /// record existed.
    #[inline]
    pub fn delete<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>) -> Handle {
        self.add(table, key.into(), Mode::Delete, Cells::NONE)
    }

    /// Fetches every record that was added since the last fetch. The fetch locks the records that the transaction
    /// will write, and reads all added records.
    ///
    /// # Errors
    /// An abort, an error of the fabric, or the caller's mistakes since the last fetch.
    #[inline]
    pub fn fetch(&mut self) -> impl Future<Output = Result<(), Failure>> {
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        protocol.fetch(cx, txn)
    }

    /// Does the same as [`Transaction::fetch`], and then validates all records that the transaction has read. If the
    /// function returns `Ok`, all these records existed together at one moment. This validation costs one more round
    /// trip if the protocol does not lock reads, and it does not make the commit cheaper. `fetch_validated` is
    /// intended for bodies that must not continue with an impossible state: see [`Coordinator::transact`].
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`]. An abort if a record has changed; the coordinator then runs the
    /// body again.
    pub async fn fetch_validated(&mut self) -> Result<(), Failure> {
        self.fetch().await?;
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        let valid = protocol.validate(cx, txn).await;
        self.keep(valid)
    }

    /// Whether the record existed for the operation of this handle. The record may exist in the database or through
    /// an earlier operation of the same transaction.
    #[inline]
    pub fn existed(&self, handle: Handle) -> bool {
        let txn = &self.coordinator.txn;
        match txn.entries.get(txn.place_of(handle)) {
            Some(entry) => entry.found,
            None => self.existed_for(handle),
        }
    }

    /// Returns the record as this transaction sees it, or `None` if the record does not exist.
    ///
    /// # Panics
    /// If the record was not fetched, or none of its cells was requested. Each of these mistakes is a bug of the
    /// caller that no input can cause.
    #[inline(always)]
    pub fn get(&self, handle: Handle) -> Option<Row<'_>> {
        let txn = &self.coordinator.txn;
        let entry = match txn.entries.get(txn.place_of(handle)) {
            Some(entry) => entry,
            None => self.entry_to_get(handle)?,
        };
        let plain = entry.progress == Progress::Done
            && entry.found
            && matches!(entry.mode, Mode::Read | Mode::Update)
            && entry.cells != Cells::NONE;
        if !plain && !is_visible(entry) {
            return None;
        }
        let table = self.coordinator.cx.table(entry.table);
        let bytes = txn.round.bytes(entry.payload, table.slot.payload_bytes);
        Some(Row::new(&table.schema, bytes))
    }

    /// Sets a column of a record. The record must have been added for update and exist, or have been added for insert
    /// and not exist before. [`Transaction::existed`] tells whether the record existed. If the record does not fulfil
    /// this condition, the column cannot be set, and the commit fails with an explanation.
    ///
    /// # Panics
    /// If the record was not fetched, or was added only for reading. Each of these mistakes is a bug of the caller
    /// that no input can cause.
    #[inline]
    pub fn set(&mut self, handle: Handle, column: ColumnId, value: impl Value) {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let place = txn.place_of(handle);
        let entry = match txn.entries.get_mut(place) {
            Some(entry) => entry,
            None => match place_to_set(cx, txn, handle) {
                Some(place) => &mut txn.entries[place],
                None => return,
            },
        };
        assert!(entry.progress == Progress::Done, "set was called before fetch");
        assert!(entry.mode != Mode::Read, "set was called on a row that is only read");
        if !entry.writable || entry.mode == Mode::Delete {
            return note_nothing_to_set(cx, txn, handle);
        }
        assert!(
            entry.cells.contains(column),
            "set was called on a column that the operation did \
                                               not name"
        );
        let column_schema = &cx.table(entry.table).schema.columns[usize::from(column.0)];
        let width = match column_schema.column_type {
            ColumnType::U64 | ColumnType::I64 => 8, // most columns have one of these two types
            other => other.width_bytes(),
        };
        let at = entry.payload.plus(column_schema.offset_bytes);
        entry.dirty = entry.dirty.union(Cells::one(column));
        value.store(txn.round.bytes_mut(at, width));
    }

    /// Sets all columns of a record at once: `fill` writes the bytes of all columns. The same conditions hold as for
    /// [`Transaction::set`]. If they do not hold, `fill` is not called.
    ///
    /// # Panics
    /// If the record was not fetched, was added only for reading, or without some of its columns. Each of these
    /// mistakes is a bug of the caller that no input can cause.
    #[inline]
    pub fn set_row(&mut self, handle: Handle, fill: impl FnOnce(&mut [u8])) {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let place = txn.place_of(handle);
        let entry = match txn.entries.get_mut(place) {
            Some(entry) => entry,
            None => match place_to_set(cx, txn, handle) {
                Some(place) => &mut txn.entries[place],
                None => return,
            },
        };
        assert!(entry.progress == Progress::Done, "set was called before fetch");
        assert!(entry.mode != Mode::Read, "set was called on a row that is only read");
        if !entry.writable || entry.mode == Mode::Delete {
            return note_nothing_to_set(cx, txn, handle);
        }
        let table = cx.table(entry.table);
        let all = Cells(u64::MAX >> (64 - table.schema.columns.len()));
        assert!(
            entry.cells.covers(all),
            "set was called on columns that the operation did not name"
        );
        entry.dirty = all;
        fill(txn.round.bytes_mut(entry.payload, table.slot.payload_bytes));
    }

    /// A shorthand that fetches the whole row of one record immediately.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn get_row<'k>(
        &mut self,
        table: TableId,
        key: impl Into<Key<'k>>,
    ) -> Result<Option<Row<'_>>, Failure> {
        let handle = self.read(table, key, Cells::ALL);
        self.fetch().await?;
        Ok(self.get(handle))
    }

    /// Aborts the transaction: all its changes are rolled back, and `transact` does not try again. The transaction
    /// ends in this way if all records that the body has read existed together at one moment. Otherwise the body saw
    /// an impossible state, and the coordinator runs it again as after any abort.
    ///
    /// # Errors
    /// The function always returns an error, so that the body can return this error.
    pub fn abort<R>(&self) -> Result<R, Failure> {
        Err(Failure::user_abort())
    }

    #[inline(always)]
    fn add(&mut self, table: TableId, key: Key<'_>, mode: Mode, cells: Cells) -> Handle {
        match key {
            Key::Word(word) if matches!(mode, Mode::Read | Mode::Update) => {
                self.add_word(table, word, mode, cells)
            }
            _ => self.add_rarer(table, key, mode, cells),
        }
    }

    /// Adds a record of the most common kind: the record has a key of one word, and is read or updated.
    fn add_word(&mut self, table_id: TableId, word: u64, mode: Mode, cells: Cells) -> Handle {
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        let table = cx.table(table_id);
        let hash = hash_of(table, word);
        let cells = widened(table, mode, cells);
        if table.slot.full_key_bytes != 0 || txn.entries.len() >= txn.room {
            return self.add_rarer(table_id, Key::Word(word), mode, cells);
        }
        if txn.note_again(hash) && find(txn, table, word, &[]).is_some() {
            return self.add_rarer(table_id, Key::Word(word), mode, cells);
        }
        let added = Added { key: word, full_key: BufferOffset::default(), hash, mode, cells };
        protocol.add(cx, txn, table, added)
    }

    /// Adds a record of the rarer kinds: inserts, deletes, long keys, further operations on a record that the
    /// transaction has already.
    #[inline(never)]
    fn add_rarer(&mut self, table_id: TableId, key: Key<'_>, mode: Mode, cells: Cells) -> Handle {
        let Coordinator { cx, txn, protocol, .. } = &mut *self.coordinator;
        let table = cx.table(table_id);
        let (word, full_key) = match key {
            Key::Word(word) => (word, &[][..]),
            Key::Bytes(bytes) => (key_word(bytes), bytes),
        };
        let width_fits = match table.schema.key {
            KeyWidth::Word => matches!(key, Key::Word(_)),
            KeyWidth::Bytes(width) => full_key.len() == usize::from(width),
        };
        if !width_fits {
            return self.note_unfit(table_id, None);
        }
        let cells = widened(table, mode, cells);
        let hash = hash_of(table, word);
        // Most keys are new to the transaction. For a new key, the function does not search the entries.
        let known = match txn.may_have(hash) {
            true => find(txn, table, word, full_key),
            false => None,
        };
        if known.is_none() && txn.entries.len() >= txn.room {
            let full = make_room(cx, txn);
            if full.is_some() {
                return self.note_unfit(table_id, full);
            }
        }
        if mode == Mode::Insert {
            txn.notes.note_insert();
        }
        let comes_or_goes = matches!(mode, Mode::Insert | Mode::Delete);
        if comes_or_goes && known.is_none() && txn.notes.is_waiting() && txn.sequel.has_scans() {
            return self.note_order(table_id, mode);
        }
        if let Some(index) = known {
            return merge_access(cx, txn, index, (mode, cells), table);
        }
        txn.note(hash);
        let full_key = keep_key(&mut txn.round, full_key);
        let added = Added { key: word, full_key, hash, mode, cells };
        protocol.add(cx, txn, table, added)
    }
}

/// Allows the transaction to have more records. Returns an explanation if the transaction already has the maximum
/// number of records.
#[cold]
fn make_room(cx: &Context, txn: &mut Txn) -> Option<Explanation> {
    let (catalog, records) = (&cx.database().catalog, txn.entries.len());
    let most = catalog.options().records_max as usize;
    if records >= most {
        let allowed = format!("at most {most} (records_max)");
        return Some(Explanation::usage("records of one transaction", records + 1, &allowed));
    }
    // Records that are not fetched yet will take bytes of the buffer when they are fetched.
    let unread = (records - txn.fetched + ROOM_STEP) * 2 * catalog.record_bytes_max();
    let bytes = txn.round.buffered_bytes() + unread;
    if bytes > BUFFERED_MAX {
        let allowed = format!("at most {BUFFERED_MAX}");
        return Some(Explanation::usage("bytes of one transaction's records", bytes, &allowed));
    }
    (txn.has_many, txn.room) = (true, (records + ROOM_STEP).min(most));
    None
}

/// Whether the caller sees a record in this entry.
///
/// # Panics
/// If the entry was not fetched, or none of its cells was requested.
#[inline(never)]
fn is_visible(entry: &Entry) -> bool {
    assert!(entry.progress == Progress::Done, "get was called before fetch");
    let visible = match entry.mode {
        Mode::Read | Mode::Update => entry.found,
        Mode::Insert => !entry.void,
        Mode::Delete => false,
    };
    assert!(
        !visible || entry.cells != Cells::NONE,
        "get was called on a row of which no column \
                                                     was asked for"
    );
    visible
}

/// The key word of a long key: its hash.
pub(crate) fn key_word(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash.rotate_left(5) ^ u64::from_le_bytes(word));
    }
    hash
}

fn find(txn: &mut Txn, table: &Table, word: u64, full_key: &[u8]) -> Option<usize> {
    if txn.entries.len() > FEW {
        return find_among_many(txn, table, word, full_key);
    }
    txn.entries.iter().position(|entry| is_of(&txn.round, entry, table, word, full_key))
}

fn is_of(round: &Round, entry: &Entry, table: &Table, word: u64, full_key: &[u8]) -> bool {
    entry.key == word
        && entry.table == table.id
        && (full_key.is_empty() || round.bytes(entry.full_key, full_key.len()) == full_key)
}

#[inline(never)]
fn find_among_many(txn: &mut Txn, table: &Table, word: u64, full_key: &[u8]) -> Option<usize> {
    let Txn { entries, round, by_key, has_many, .. } = txn;
    *has_many = true;
    let hash = |table: TableId, word: u64| mix(word ^ u64::from(table.0) << 48);
    let hash_at = |&at: &u32| hash(entries[at as usize].table, entries[at as usize].key);
    for at in by_key.len()..entries.len() {
        by_key.insert_unique(hash_at(&(at as u32)), at as u32, hash_at);
    }
    let is_it = |&at: &u32| is_of(round, &entries[at as usize], table, word, full_key);
    by_key.find(hash(table.id, word), is_it).map(|&at| at as usize)
}

/// Stores a long key in the round's buffer. Returns the key's position, or position 0 if the key is empty.
fn keep_key(round: &mut Round, full_key: &[u8]) -> BufferOffset {
    if full_key.is_empty() {
        return BufferOffset::default();
    }
    let mut at = round.reserve(full_key.len().max(8));
    if at == BufferOffset::default() {
        at = round.reserve(full_key.len().max(8)); // position 0 means that there is no key
    }
    round.bytes_mut(at, full_key.len()).copy_from_slice(full_key);
    at
}
