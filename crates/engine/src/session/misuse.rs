//! Mistakes of a transaction's caller, and how the engine reports these mistakes.
//!
//! Invariant: the engine reports every mistake of a caller. Some mistakes show when the caller requests an operation:
//! a key of the wrong kind, another database's table, another transaction's handle. A mistake in a request fails the
//! next fetch. Other mistakes depend on the records that were read: a change of an absent row, an inserted row that
//! is never set. A mistake that depends on records fails the commit before the transaction writes anything, and only
//! if all records that it read are unchanged. Otherwise the body may have seen an impossible state, and the
//! coordinator runs it again.

use crate::protocol::AnyProtocol;
use crate::session::coordinator::Coordinator;
use crate::session::transaction::Transaction;
use crate::site::Context;
use crate::transaction::sequel::{Existed, Wish};
use crate::transaction::working_set::{Entry, Handle, Progress, Txn};
use tarn_store::ids::{Explanation, Failure, Mode};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::{Cells, KeyWidth, TableId};

impl Transaction<'_> {
    /// Returns the answer of [`Transaction::existed`] for the handle of a further operation on a known record.
    #[cold]
    pub(crate) fn existed_for(&self, handle: Handle) -> bool {
        let Coordinator { txn, .. } = &*self.coordinator;
        let Some(wish) = txn.wish_of(handle) else {
            note_foreign_handle(txn, "existed");
            return false;
        };
        let entry = &txn.entries[wish.entry as usize];
        match wish.existed {
            Existed::Unknown => panic!("existed was called before fetch"),
            Existed::AsFound => entry.found,
            Existed::Known(existed) => existed,
        }
    }

    /// Returns the entry that [`Transaction::get`] shows for the handle of a further operation on a known record.
    #[cold]
    pub(crate) fn entry_to_get(&self, handle: Handle) -> Option<&Entry> {
        let txn = &self.coordinator.txn;
        let Some(wish) = txn.wish_of(handle) else {
            note_foreign_handle(txn, "get");
            return None;
        };
        assert!(wish.existed != Existed::Unknown, "get was called before fetch");
        Some(&txn.entries[wish.entry as usize])
    }

    /// Records that the caller intends the inserted row to be all zeros.
    #[cold]
    pub(crate) fn note_zeros(&mut self, handle: Handle) {
        let txn = &mut self.coordinator.txn;
        let place = txn.place_of(handle);
        if let Some(entry) = txn.entries.get_mut(place) {
            entry.dirty = Cells::ALL;
        } else if let Some(wish) = txn.wish_of_mut(handle) {
            wish.zeros = true;
        }
    }

    /// Refuses an operation of the caller: the next fetch fails with `explanation`. The returned handle refers to no
    /// record.
    #[cold]
    pub fn refuse(&mut self, explanation: Explanation) -> Handle {
        let txn = &self.coordinator.txn;
        txn.sequel.note_mistake(&txn.notes, explanation);
        Handle::default()
    }

    /// The number of the database on which the transaction runs: see [`crate::site::Database::number`].
    #[inline]
    pub fn database(&self) -> u64 {
        self.coordinator.cx.database().number()
    }

    #[cold]
    pub(crate) fn note_unfit(&mut self, table: TableId, full: Option<Explanation>) -> Handle {
        let table = self.coordinator.cx.table(table);
        let explanation = full.unwrap_or_else(|| {
            Explanation::usage(
                &format!("key of table {}", table.schema.name),
                "a key of another kind or length",
                &match table.schema.key {
                    KeyWidth::Word => "u64".to_owned(),
                    KeyWidth::Bytes(width) => format!("[u8; {width}]"),
                },
            )
        });
        self.refuse(explanation)
    }

    /// Refuses an insert or delete that follows a waiting scan in the same fetch. The scan must not show this
    /// insert or delete, so the two must not be fetched together.
    #[cold]
    pub(crate) fn note_order(&mut self, table: TableId, mode: Mode) -> Handle {
        let name = &self.coordinator.cx.table(table).schema.name;
        let field = format!("{} of a record of {name}", operation(mode));
        let value = "after a scan that follows another insert or delete, all in one fetch";
        self.refuse(Explanation::usage(&field, value, "a fetch before the scan or after it"))
    }
}

#[cold]
fn note_foreign_handle(txn: &Txn, what: &str) {
    let allowed = "handles that this try of this transaction returned";
    let explanation = Explanation::usage(what, "the handle of another transaction", allowed);
    txn.sequel.note_mistake(&txn.notes, explanation);
}

/// Returns the position of the entry that the handle of a further operation may change, if it may change an entry.
#[cold]
pub(crate) fn place_to_set(cx: &Context, txn: &Txn, handle: Handle) -> Option<usize> {
    let Some(wish) = txn.wish_of(handle) else {
        note_foreign_handle(txn, "set");
        return None;
    };
    assert!(wish.existed != Existed::Unknown, "set was called before fetch");
    assert!(wish.mode != Mode::Read, "set was called on a row that is only read");
    if wish.refuses || wish.mode == Mode::Delete {
        note_nothing_to_set(cx, txn, handle);
        return None;
    }
    Some(wish.entry as usize)
}

fn operation(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Update => "update",
        Mode::Insert => "insert",
        Mode::Delete => "delete",
    }
}

/// Records a `set` that has no effect. An update did not find the row, an insert found it, or the row is deleted.
#[cold]
pub(crate) fn note_nothing_to_set(cx: &Context, txn: &Txn, handle: Handle) {
    let wish = txn.wish_of(handle);
    let entry = &txn.entries[wish.map_or(txn.place_of(handle), |wish| wish.entry as usize)];
    let (mode, table) = (wish.map_or(entry.mode, |wish| wish.mode), cx.table(entry.table));
    let finding = match mode {
        Mode::Insert if entry.void => "whose insert was taken back",
        Mode::Insert => "that the insert found present",
        Mode::Update => "that the update did not find",
        Mode::Read | Mode::Delete => "that is deleted",
    };
    let field = format!("set of a row of {}", table.schema.name);
    let value = format!("{} {finding}", name_of(table, entry));
    let allowed = "a row that its update found, or that its insert did not find (see existed)";
    txn.sequel.note_misuse(&txn.notes, Explanation::usage(&field, value, allowed));
}

fn name_of(table: &Table, entry: &Entry) -> String {
    match table.slot.full_key_bytes {
        0 => format!("the row of key {}", entry.key),
        _ => "a row".to_owned(),
    }
}

/// The result of checking a fetched transaction whose operations left notes about possible mistakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The transaction commits like any other transaction.
    Commit,
    /// The transaction has committed: it needs no validation, write or release.
    Committed,
    /// The caller has made a mistake. The transaction fails with the failure of [`report`], if all records that it
    /// read existed together at one moment.
    Refuse,
}

/// Processes the notes about possible mistakes of a fetched transaction before it commits.
#[inline(never)]
pub(crate) fn look_after(protocol: &AnyProtocol, cx: &Context, txn: &mut Txn) -> Verdict {
    if txn.notes.has_inserts() {
        settle_inserts(cx, txn);
    }
    if txn.notes.is_misused() {
        return Verdict::Refuse;
    }
    match protocol.is_committed(txn) {
        true => Verdict::Committed,
        false => Verdict::Commit,
    }
}

/// Completes the rows that were inserted, and checks that at least one column of each row is set.
fn settle_inserts(cx: &Context, txn: &mut Txn) {
    let Txn { entries, sequel, notes, .. } = txn;
    for (at, entry) in entries.iter_mut().enumerate() {
        let is_new = entry.mode == Mode::Insert && entry.writable;
        if (!is_new && !entry.renewed) || entry.progress != Progress::Done {
            continue;
        }
        let table = cx.table(entry.table);
        let zeros = |wish: &Wish| wish.zeros && wish.entry as usize == at;
        if entry.dirty == Cells::NONE && !sequel.wishes.iter().any(zeros) {
            let field = format!("insert into {}", table.schema.name);
            let value = format!("{} without a column that is set", name_of(table, entry));
            let allowed = "at least one column that is set, or insert_zeros for a row of zeros";
            sequel.note_misuse(notes, Explanation::usage(&field, value, allowed));
        }
        if entry.renewed {
            entry.dirty = Cells(u64::MAX >> (64 - table.schema.columns.len()));
        }
    }
}

/// Fails a transaction because of its caller's mistake. Returns the failure that explains the mistake.
#[cold]
pub(crate) fn report(cx: &Context, txn: &Txn) -> Failure {
    match txn.sequel.mistake() {
        Some(mistake) => cx.explain(mistake.clone()),
        None => Failure::Usage,
    }
}
