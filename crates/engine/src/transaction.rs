//! A transaction as its body sees it: records to read and to change, in execution blocks.
//!
//! Invariant: one entry a record, whatever is asked of it and how often: what was written is read
//! back, a get and a later put are one record. Values are buffered; nothing is visible before the
//! commit. Mistakes of the caller (a key of the wrong kind, too large a working set) surface at the
//! next `fetch`, as an error that names them.

use crate::catalog::Table;
use crate::context::Context;
use crate::coordinator::Coordinator;
use crate::index::hash::{Lookup, home};
use crate::index::hash_of;
use crate::outcome::{Explanation, Failure};
use crate::row::{Row, Value};
use crate::schema::{Cells, ColumnId, Key, KeyWidth, TableId};
use crate::working_set::{ENTRIES_MAX, Entry, Handle, Mode, NO_LOCK, Progress, Txn};
use tarn_fabric::round::{BufferOffset, Round};

/// A transaction in progress; see [`Coordinator::transact`].
pub struct Transaction<'c> {
    pub(crate) coordinator: &'c mut Coordinator,
}

/// One execution block of a transaction: the unit after which a protocol may give up local locks.
/// It derefs to the transaction.
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
    /// Runs one execution block: adds records, fetches them, computes, changes them.
    ///
    /// # Errors
    /// The body's, or the protocol's.
    pub async fn block<R>(
        &mut self,
        body: impl AsyncFnOnce(&mut Block<'_, 'c>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut block = Block { transaction: self };
        let result = body(&mut block).await?;
        self.fetch().await?;
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        cx.database().protocol.close_block(cx, txn).await?;
        Ok(result)
    }

    /// Adds a record whose `cells` will be read.
    #[inline]
    pub fn read<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>, cells: Cells) -> Handle {
        self.add(table, key.into(), Mode::Read, cells)
    }

    /// Adds a record of which `cells` will be read or changed.
    #[inline]
    pub fn update<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>, cells: Cells) -> Handle {
        self.add(table, key.into(), Mode::Update, cells)
    }

    /// Adds a record to be inserted. After the fetch [`Transaction::existed`] says whether it is
    /// there already (then it is only read); otherwise its columns are zero until set.
    #[inline]
    pub fn insert<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>) -> Handle {
        self.add(table, key.into(), Mode::Insert, Cells::ALL)
    }

    /// Adds a record to be deleted. After the fetch [`Transaction::existed`] says whether it was
    /// there.
    #[inline]
    pub fn delete<'k>(&mut self, table: TableId, key: impl Into<Key<'k>>) -> Handle {
        self.add(table, key.into(), Mode::Delete, Cells::NONE)
    }

    /// Brings every record that was added since the last fetch: locks what will be written, reads.
    ///
    /// # Errors
    /// An abort, the fabric's, or the caller's mistakes since the last fetch.
    #[inline]
    pub fn fetch(&mut self) -> impl Future<Output = Result<(), Failure>> {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        cx.node.database.protocol.fetch(cx, txn)
    }

    /// Whether the record was there when the transaction fetched it.
    #[inline]
    pub fn existed(&self, handle: Handle) -> bool {
        self.entry(handle).found
    }

    /// The record as this transaction sees it: `None` if there is none.
    ///
    /// # Panics
    /// If the record was not fetched, or none of its cells was asked for: bugs of the caller's that
    /// no input can cause.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<Row<'_>> {
        let entry = self.entry(handle);
        assert!(entry.progress == Progress::Done, "fetch before get");
        let visible = match entry.mode {
            Mode::Read | Mode::Update => entry.found,
            Mode::Insert => !entry.void,
            Mode::Delete => false,
        };
        if !visible {
            return None;
        }
        assert!(entry.cells != Cells::NONE, "no cell was asked for");
        let table = self.coordinator.cx.table(entry.table);
        let bytes = self.coordinator.txn.round.bytes(entry.payload, table.slot.payload_bytes);
        Some(Row::new(&table.schema, bytes))
    }

    /// Sets a column of a record that was added for update or insert, and exists (or will).
    ///
    /// # Panics
    /// If the record was not fetched, or was added for reading: a bug of the caller's that no
    /// input can cause.
    #[inline]
    pub fn set(&mut self, handle: Handle, column: ColumnId, value: impl Value) {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let entry = &mut txn.entries[handle.0 as usize];
        assert!(entry.progress == Progress::Done, "fetch before set");
        assert!(entry.mode != Mode::Read, "added for reading");
        if entry.lock == NO_LOCK || entry.mode == Mode::Delete {
            return; // there is no such record to change
        }
        assert!(entry.cells.contains(column), "the cell was not asked for");
        let column_schema = &cx.table(entry.table).schema.columns[usize::from(column.0)];
        let width = column_schema.column_type.width_bytes();
        let at = entry.payload.plus(column_schema.offset_bytes);
        entry.dirty = entry.dirty.union(Cells::one(column));
        value.store(txn.round.bytes_mut(at, width));
    }

    /// Sugar: one record's whole row, fetched now.
    ///
    /// # Errors
    /// As [`Transaction::fetch`].
    pub async fn get_row<'k>(
        &mut self,
        table: TableId,
        key: impl Into<Key<'k>>,
    ) -> Result<Option<Row<'_>>, Failure> {
        let handle = self.read(table, key, Cells::ALL);
        self.fetch().await?;
        Ok(self.get(handle))
    }

    /// Gives up: everything is rolled back, and `transact` does not try again.
    ///
    /// # Errors
    /// Always.
    pub fn abort<R>(&self) -> Result<R, Failure> {
        Err(Failure::user_abort())
    }

    #[inline]
    fn entry(&self, handle: Handle) -> &Entry {
        &self.coordinator.txn.entries[handle.0 as usize]
    }

    #[inline]
    fn add(&mut self, table_id: TableId, key: Key<'_>, mode: Mode, cells: Cells) -> Handle {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let table = cx.table(table_id);
        if let Key::Word(word) = key
            && table.slot.is_plain()
            && matches!(mode, Mode::Read | Mode::Update)
        {
            let hash = hash_of(table, word);
            if !txn.hashes.contains(&hash) && txn.entries.len() < ENTRIES_MAX {
                return add_plain(cx, txn, table, (word, hash), mode, cells);
            }
        }
        self.add_rarer(table_id, key, mode, cells)
    }

    /// Inserts, deletes, long keys, slots of several lines, wishes for a record that is there.
    #[inline(never)]
    fn add_rarer(&mut self, table_id: TableId, key: Key<'_>, mode: Mode, cells: Cells) -> Handle {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let table = cx.table(table_id);
        let (word, full_key) = match key {
            Key::Word(word) => (word, &[][..]),
            Key::Bytes(bytes) => (key_word(bytes), bytes),
        };
        let width_fits = match table.schema.key {
            KeyWidth::Word => matches!(key, Key::Word(_)),
            KeyWidth::Bytes(width) => full_key.len() == usize::from(width),
        };
        if !width_fits || txn.entries.len() >= ENTRIES_MAX {
            return self.note_mistake(table_id, width_fits);
        }
        if let Some(index) = find(txn, table, word, full_key) {
            if let Some(mistake) = fuse(cx, txn, index, mode, cells, table) {
                cx.explain(mistake);
                txn.mistaken = true;
            }
            return Handle(index as u32);
        }
        let hash = hash_of(table, word);
        let handle = add_plain(cx, txn, table, (word, hash), mode, cells);
        if !full_key.is_empty() {
            let round = &mut txn.round;
            let mut at = round.reserve(full_key.len().max(8));
            if at == BufferOffset::default() {
                at = round.reserve(full_key.len().max(8)); // 0 means none
            }
            round.bytes_mut(at, full_key.len()).copy_from_slice(full_key);
            txn.entries[handle.0 as usize].full_key = at;
        }
        if txn.entries[handle.0 as usize].progress == Progress::Home {
            let wants_bucket = matches!(mode, Mode::Insert | Mode::Delete);
            if wants_bucket || !table.slot.is_plain() {
                ask_index(cx, txn, handle.0 as usize, wants_bucket);
            }
        }
        handle
    }

    /// The handle given back names an absent record; the mistake surfaces at the fetch.
    #[cold]
    fn note_mistake(&mut self, table: TableId, width_fits: bool) -> Handle {
        let Coordinator { cx, txn, .. } = &mut *self.coordinator;
        let table = cx.table(table);
        txn.mistaken = true;
        cx.explain(match width_fits {
            true => Explanation::usage(
                "records of one transaction",
                ENTRIES_MAX + 1,
                &format!("at most {ENTRIES_MAX}"),
            ),
            false => Explanation::usage(
                &format!("key of table {}", table.schema.name),
                "another kind or length",
                &format!("{:?}", table.schema.key),
            ),
        });
        if txn.entries.is_empty() {
            let absent = Entry::new(table.id, 0, Mode::Read, Cells::NONE, Progress::Done);
            txn.entries.push(absent);
            txn.hashes.push(0);
        }
        Handle(txn.entries.len() as u32 - 1)
    }
}

/// A long key's word: its hash.
pub(crate) fn key_word(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = tarn_fabric::rng::mix(hash.rotate_left(5) ^ u64::from_le_bytes(word));
    }
    hash
}

fn find(txn: &Txn, table: &Table, word: u64, full_key: &[u8]) -> Option<usize> {
    txn.entries.iter().position(|entry| {
        entry.key == word
            && entry.table == table.id
            && (full_key.is_empty() || txn.round.bytes(entry.full_key, full_key.len()) == full_key)
    })
}

/// Adds a record that is looked for where it was last seen, or at its home.
#[inline(always)]
fn add_plain(
    cx: &Context,
    txn: &mut Txn,
    table: &Table,
    (key, hash): (u64, u64),
    mode: Mode,
    cells: Cells,
) -> Handle {
    let mut entry = Entry::new(table.id, key, mode, cells, Progress::Home);
    match cx.cache.borrow().get(table.id, key) {
        Some((slot, body)) if matches!(mode, Mode::Read | Mode::Update) => {
            (entry.address, entry.body) = (slot, body);
            entry.progress = Progress::Direct;
        }
        _ => entry.address = home(cx.surroundings(), table, hash),
    }
    let handle = Handle(txn.entries.len() as u32);
    txn.entries.push(entry);
    txn.hashes.push(hash);
    handle
}

/// From here on the entry asks the index; an insert or delete needs the bucket's directory record
/// in any case.
pub(crate) fn ask_index(cx: &Context, txn: &mut Txn, index: usize, at_bucket: bool) {
    let Txn { entries, lookups, .. } = txn;
    let entry = &mut entries[index];
    let mut lookup = Lookup::start(cx.surroundings(), cx.table(entry.table), entry.key);
    if at_bucket {
        lookup.restart_at_bucket();
    }
    (entry.progress, entry.lookup) = (Progress::Locate, lookups.len() as u32);
    lookups.push(lookup);
}

/// Another wish for a record that the transaction already has.
#[cold]
fn fuse(
    cx: &Context,
    txn: &mut Txn,
    index: usize,
    mode: Mode,
    cells: Cells,
    table: &Table,
) -> Option<Explanation> {
    let entry = &mut txn.entries[index];
    if entry.progress != Progress::Done && entry.mode != mode {
        return fuse_unfetched(entry, mode, cells, table);
    }
    let wish = Wish {
        mode,
        fetched: entry.progress == Progress::Done,
        more: !entry.cells.covers(cells) && table.slot.is_out_of_line(),
    };
    if mode != Mode::Delete {
        entry.cells = entry.cells.union(cells);
    }
    let mistake = match fuse_fetched(txn, index, wish, table) {
        Fused::Mistake(mistake) => return Some(mistake),
        Fused::AskIndex => {
            ask_index(cx, txn, index, true);
            None
        }
        Fused::Done => None,
    };
    if txn.entries[index].progress != Progress::Done {
        txn.fetched = txn.fetched.min(index);
    }
    mistake
}

/// What is asked of a record that the transaction has.
#[derive(Clone, Copy)]
struct Wish {
    mode: Mode,
    /// Whether the record is fetched.
    fetched: bool,
    /// Whether it asks for cells that are not.
    more: bool,
}

/// What becomes of it.
enum Fused {
    Done,
    /// The bucket has to be looked at.
    AskIndex,
    Mistake(Explanation),
}

/// Not fetched yet: the stronger wish decides, and a mixture of wishes waits its turn.
fn fuse_unfetched(
    entry: &mut Entry,
    mode: Mode,
    cells: Cells,
    table: &Table,
) -> Option<Explanation> {
    let before = entry.mode;
    entry.cells = entry.cells.union(cells);
    match (before, mode) {
        (Mode::Read, Mode::Update) => entry.mode = Mode::Update,
        (Mode::Update, Mode::Read) => {}
        _ => {
            return Some(Explanation::usage(
                &format!(
                    "two wishes for one record of {} without a fetch between",
                    table.schema.name
                ),
                format!("{before:?} then {mode:?}"),
                "fetch the first before the second",
            ));
        }
    }
    None
}

fn fuse_fetched(txn: &mut Txn, index: usize, wish: Wish, table: &Table) -> Fused {
    let Txn { entries, round, .. } = txn;
    let entry = &mut entries[index];
    let Wish { mode, fetched, more } = wish;
    match (entry.mode, mode) {
        (Mode::Read, Mode::Read) if fetched && more && entry.found => {
            entry.progress = Progress::Direct;
        }
        (Mode::Read | Mode::Insert, Mode::Update) if entry.found => {
            (entry.mode, entry.progress) = (Mode::Update, Progress::Lock);
        }
        (Mode::Read, Mode::Update) => entry.mode = Mode::Update,
        (Mode::Read | Mode::Update, Mode::Insert) if !entry.found => {
            entry.mode = Mode::Insert;
            return Fused::AskIndex;
        }
        (Mode::Read, Mode::Insert) => {
            entry.mode = Mode::Insert; // it is there: only read, and nothing is set
            if fetched && more {
                entry.progress = Progress::Direct;
            }
        }
        (Mode::Update, Mode::Update | Mode::Read) if fetched && more && entry.lock != NO_LOCK => {
            return Fused::Mistake(Explanation::usage(
                &format!("cells of an updated record of {}", table.schema.name),
                "more than at its first fetch",
                "name all cells at the first update",
            ));
        }
        (Mode::Insert, Mode::Delete) if entry.lock != NO_LOCK => entry.void = true,
        (Mode::Insert, Mode::Insert) if entry.void => {
            entry.void = false;
            round.bytes_mut(entry.payload, table.slot.payload_bytes).fill(0);
        }
        (Mode::Read | Mode::Update | Mode::Insert, Mode::Delete) if entry.found => {
            entry.mode = Mode::Delete;
            return Fused::AskIndex;
        }
        (Mode::Delete, Mode::Insert) if entry.lock != NO_LOCK => {
            return replace_deleted(round, entry, table);
        }
        (Mode::Delete, Mode::Insert) => {
            entry.mode = Mode::Insert;
            return Fused::AskIndex;
        }
        _ => {}
    }
    Fused::Done
}

/// Deleted and inserted again by one transaction: an update of every cell.
fn replace_deleted(round: &mut Round, entry: &mut Entry, table: &Table) -> Fused {
    if table.slot.is_out_of_line() {
        return Fused::Mistake(Explanation::usage(
            &format!("insert into {}", table.schema.name),
            "a record that this transaction deletes",
            "update it instead",
        ));
    }
    let columns = table.schema.columns.len();
    let whole = if columns == 64 { u64::MAX } else { (1 << columns) - 1 };
    (entry.mode, entry.dirty, entry.found) = (Mode::Update, Cells(whole), true);
    round.bytes_mut(entry.payload, table.slot.payload_bytes).fill(0);
    Fused::Done
}
