//! The history of a run: the reads and writes of each transaction, in a form that a checker can use.
//!
//! Invariant: recording does not change any action of a transaction. The order of each record's versions is known.
//! All times come from one observer's clock, so the times of two nodes can be compared. The read of an absent key is
//! recorded with the version of the key's directory record. The key was absent at that version.

use crate::ids::{COUNT_MAX, OwnerTag, Resolution, TxnId};
use crate::schema::TableId;
use std::collections::BTreeMap;
use tarn_fabric::clock::Nanos;

/// The completion time of a transaction whose caller was never told the outcome.
const NEVER: Nanos = Nanos(u64::MAX / 2);

/// How a recorded transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordedOutcome {
    /// The transaction committed, and its caller was told so.
    Committed,
    /// The transaction was rolled back.
    Aborted,
    /// The transaction's own body or a unique index rolled the transaction back because of the records that it had
    /// read. All records that the transaction had read existed together at one moment. A checker treats this
    /// transaction as a read-only transaction.
    GaveUp,
    /// The outcome is not known yet.
    Unknown,
    /// The entry describes the undo of another transaction's write. The undo has created a version only if the undo
    /// found the other transaction's write. The checker treats the outcome as unknown. If a later transaction read
    /// the undo's version, the version exists.
    MayBeThere,
}

/// The version that a record or an index node has after a write to the record or node was undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undone {
    /// The counter of the version.
    pub version: u64,
    /// Whether the undo writes the new version only if it finds the write or the mark that the write left. If
    /// `only_if_found` is false, the undo always writes the new version.
    pub only_if_found: bool,
}

impl Undone {
    /// Describes a version that the undo always writes.
    pub const fn always(version: u64) -> Undone {
        Undone { version, only_if_found: false }
    }

    /// Describes a version that the undo writes only if it finds the write or the mark that the write left.
    pub const fn if_found(version: u64) -> Undone {
        Undone { version, only_if_found: true }
    }
}

/// One read of a record, as the history stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedRead {
    /// The table of the record that was read.
    pub table: TableId,
    /// The key word of the record that was read.
    pub key: u64,
    /// The counter of the record's version. If the record is absent, this field is the counter of the version of the
    /// key's directory record.
    pub version: u64,
    /// Whether the record existed when it was read.
    pub present: bool,
    /// The hash of the record's whole payload. The hash is 0 if the transaction read only some cells.
    pub fingerprint: u64,
}

/// The kind of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// The write inserts the record.
    Insert,
    /// The write changes some cells of the record.
    Update,
    /// The write deletes the record.
    Delete,
}

/// One write of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedWrite {
    /// The table of the record that was written.
    pub table: TableId,
    /// The key word of the record that was written.
    pub key: u64,
    /// The counter of the new version.
    pub version: u64,
    /// The kind of the write.
    pub kind: WriteKind,
    /// The hash of the record's whole new payload. The hash is 0 if only some cells are known.
    pub fingerprint: u64,
    /// The version that an undo of this write leaves. `None` means that an undo of this write leaves no version that
    /// a reader can see.
    pub undone: Option<Undone>,
}

/// One try of one transaction, as the history records it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedTxn {
    /// The transaction's name.
    pub id: TxnId,
    /// The number of the coordinator that ran the try.
    pub coordinator: u32,
    /// The time when the try began.
    pub invoked: Nanos,
    /// The time when the caller learned the outcome.
    pub completed: Nanos,
    /// How the try ended.
    pub outcome: RecordedOutcome,
    /// The records that the try read.
    pub reads: Vec<RecordedRead>,
    /// The records that the try wrote.
    pub writes: Vec<RecordedWrite>,
}

impl RecordedTxn {
    /// Returns the effects of undoing this transaction, as separate transactions. Each returned transaction writes
    /// the old values of records, with the versions that the protocol gives to undone records
    /// (`protocol::ProtocolInfo::undone` of the engine). The first returned transaction has all writes that the undo
    /// always makes. For each write that the undo makes only if it finds something to undo, one more transaction
    /// follows.
    pub fn undone(&self, mut name: impl FnMut() -> TxnId, completed: Nanos) -> Vec<RecordedTxn> {
        let mut undoing = |outcome, writes| RecordedTxn {
            id: name(),
            coordinator: self.coordinator,
            invoked: self.invoked,
            completed,
            outcome,
            reads: Vec::new(),
            writes,
        };
        let mut always = undoing(RecordedOutcome::Committed, Vec::new());
        let mut open = Vec::new();
        for write in &self.writes {
            let Some(Undone { version, only_if_found }) = write.undone else { continue };
            let restored = RecordedWrite { version, fingerprint: 0, undone: None, ..*write };
            match only_if_found {
                true => open.push(undoing(RecordedOutcome::MayBeThere, vec![restored])),
                false => always.writes.push(restored),
            }
        }
        open.insert(0, always);
        open
    }
}

/// The result of [`enter`]: counts of the transactions in doubt by their decision.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Entered {
    /// The number of transactions in doubt that were decided to have committed.
    pub committed: u64,
    /// The number of transactions in doubt that were undone.
    pub undone: u64,
    /// The number of transactions in doubt that needed no decision because they have written nothing.
    pub nothing_written: u64,
    /// One line for each decision that contradicts the caller's answer or another decision.
    pub contradictions: Vec<String>,
}

/// Enters into a history the decisions about transactions whose outcome was unknown (transactions in doubt). Suppose
/// that `is_over` is true for a transaction in doubt without a decision. The transaction in doubt has then written
/// nothing. If `is_over` is false, a transaction without a decision stays in doubt.
pub fn enter(
    history: &mut Vec<RecordedTxn>,
    decided: impl IntoIterator<Item = (TxnId, Resolution)>,
    is_over: impl Fn(&RecordedTxn) -> bool,
) -> Entered {
    let mut entered = Entered::default();
    let mut decisions: BTreeMap<TxnId, Resolution> = BTreeMap::new();
    for (id, resolution) in decided {
        if *decisions.entry(id).or_insert(resolution) != resolution {
            entered.contradictions.push(format!("{id} was decided twice, with different outcomes"));
        }
    }
    let (mut undone, mut further) = (Vec::new(), COUNT_MAX - history.len() as u64);
    for (index, txn) in history.iter_mut().enumerate() {
        let mut contradicts =
            |what: &str| entered.contradictions.push(format!("{} {what}", txn.id));
        match (txn.outcome, decisions.get(&txn.id)) {
            (RecordedOutcome::Committed, Some(Resolution::Aborted)) => {
                contradicts("was acknowledged and undone");
            }
            (RecordedOutcome::Aborted, Some(Resolution::Committed)) => {
                contradicts("was aborted and resolved as committed");
            }
            (RecordedOutcome::Unknown, Some(Resolution::Committed)) => {
                (txn.outcome, txn.completed) = (RecordedOutcome::Committed, NEVER);
                entered.committed += 1;
            }
            (RecordedOutcome::Unknown, Some(Resolution::Aborted)) => {
                txn.outcome = RecordedOutcome::Aborted;
                // The names of undo transactions use counts near the maximum. No transaction of the same thread has
                // reached these counts.
                let mut count = COUNT_MAX - index as u64;
                let name = || {
                    let name = OwnerTag::new(txn.id.node(), txn.id.thread(), count);
                    (count, further) = (further, further - 1);
                    name
                };
                undone.extend(txn.undone(name, NEVER));
                entered.undone += 1;
            }
            (RecordedOutcome::Unknown, None) if is_over(txn) => {
                txn.outcome = RecordedOutcome::Aborted;
                entered.nothing_written += 1;
            }
            _ => {}
        }
    }
    history.extend(undone);
    entered
}

/// The hash of a payload for [`RecordedRead::fingerprint`]. The hash is never 0.
pub fn fingerprint(payload: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in payload {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

    fn txn(count: u64, outcome: RecordedOutcome) -> RecordedTxn {
        let node = NodeId { slot: NodeSlot(1), incarnation: Incarnation(1) };
        let write = RecordedWrite {
            table: TableId(0),
            key: 7,
            version: 3,
            kind: WriteKind::Update,
            fingerprint: 5,
            undone: Some(Undone::always(4)),
        };
        RecordedTxn {
            id: OwnerTag::new(node, 0, count),
            coordinator: 0,
            invoked: Nanos(1),
            completed: Nanos(2),
            outcome,
            reads: Vec::new(),
            writes: vec![write],
        }
    }

    #[test]
    fn unknown_outcomes_are_settled_and_every_contradiction_is_named() {
        use RecordedOutcome::{Aborted, Committed, MayBeThere, Unknown};
        let outcomes = [Committed, Aborted, Unknown, Unknown, Unknown, Committed];
        let numbered = outcomes.into_iter().enumerate();
        let mut history: Vec<RecordedTxn> =
            numbered.map(|(at, outcome)| txn(at as u64 + 1, outcome)).collect();
        let ids: Vec<TxnId> = history.iter().map(|txn| txn.id).collect();
        let decided = [
            (ids[0], Resolution::Aborted),
            (ids[1], Resolution::Committed),
            (ids[2], Resolution::Committed),
            (ids[3], Resolution::Aborted),
            (ids[5], Resolution::Committed),
            (ids[5], Resolution::Aborted),
        ];
        let entered = enter(&mut history, decided, |_| true);
        assert_eq!((entered.committed, entered.undone, entered.nothing_written), (1, 1, 1));
        let words = entered.contradictions.join("; ");
        for part in ["decided twice", "acknowledged and undone", "resolved as committed"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert_eq!(entered.contradictions.len(), 3, "{words}");
        let outcomes: Vec<RecordedOutcome> = history.iter().map(|txn| txn.outcome).collect();
        assert_eq!(
            outcomes,
            [Committed, Aborted, Committed, Aborted, Aborted, Committed, Committed]
        );
        assert_eq!(history[6].writes[0].version, 4, "the undoing");
        let mut marked = vec![txn(1, Unknown)];
        marked[0].writes[0].undone = Some(Undone::if_found(4));
        let decided = [(marked[0].id, Resolution::Aborted)];
        enter(&mut marked, decided, |_| true);
        let [_, certain, open] = &marked[..] else { panic!("{marked:?}") };
        assert!(certain.outcome == Committed && certain.writes.is_empty());
        assert_eq!((open.outcome, open.writes[0].version), (MayBeThere, 4));
        assert_ne!(certain.id, open.id);
        let mut open = vec![txn(1, Unknown)];
        assert_eq!(enter(&mut open, [], |_| false), Entered::default());
        assert_eq!(open[0].outcome, Unknown);
    }
}
