//! What each transaction read and wrote, in the terms that a checker needs.
//!
//! Invariant: recording changes nothing that a transaction does; per record the order of versions
//! is known; times are an observer's, so that those of two nodes can be compared. An absent read carries its directory's version: the key was absent as of it.

use crate::ids::{COUNT_MAX, OwnerTag, Resolution, TxnId};
use crate::schema::TableId;
use std::collections::BTreeMap;
use tarn_fabric::clock::Nanos;

/// When a transaction was over whose caller was never told.
const NEVER: Nanos = Nanos(u64::MAX / 2);

/// How a recorded transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordedOutcome {
    /// Acknowledged.
    Committed,
    /// Rolled back.
    Aborted,
    /// Rolled back by its own body or by a unique index, on the ground of what it had read: all of that was there at one
    /// moment. To a checker it is a transaction that only read.
    GaveUp,
    /// Nobody knows yet.
    Unknown,
    /// Stands for the undo of another transaction's write. Its version exists only if the undo found that write. The checker
    /// takes the outcome as unknown: a read of the version shows that it exists.
    MayBeThere,
}

/// The version that a record or a node has once a write of it was undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undone {
    /// Its counter.
    pub version: u64,
    /// The undo writes this version only where it finds the write or its mark. If false, the undo always writes it.
    pub only_if_found: bool,
}

impl Undone {
    /// Given in any case.
    pub const fn always(version: u64) -> Undone {
        Undone { version, only_if_found: false }
    }

    /// Given where the write, or its mark, is found.
    pub const fn if_found(version: u64) -> Undone {
        Undone { version, only_if_found: true }
    }
}

/// A record that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedRead {
    /// Its table.
    pub table: TableId,
    /// Its key word.
    pub key: u64,
    /// Its version's counter; for an absent record its directory's.
    pub version: u64,
    /// Whether it was there.
    pub present: bool,
    /// Hash of the whole payload; 0 if only some cells were read.
    pub fingerprint: u64,
}

/// What a write did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// The record exists from now on.
    Insert,
    /// It has new cells.
    Update,
    /// It exists no more.
    Delete,
}

/// A record that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedWrite {
    /// Its table.
    pub table: TableId,
    /// Its key word.
    pub key: u64,
    /// Its new version's counter.
    pub version: u64,
    /// What was done.
    pub kind: WriteKind,
    /// Hash of the whole payload; 0 if only some cells are known.
    pub fingerprint: u64,
    /// What the record has if this is undone; `None` if nothing that anybody sees.
    pub undone: Option<Undone>,
}

/// One try of one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedTxn {
    /// Its name.
    pub id: TxnId,
    /// Which coordinator ran it.
    pub coordinator: u32,
    /// When it began.
    pub invoked: Nanos,
    /// When its caller learned the outcome.
    pub completed: Nanos,
    /// How it ended.
    pub outcome: RecordedOutcome,
    /// What it read.
    pub reads: Vec<RecordedRead>,
    /// What it wrote.
    pub writes: Vec<RecordedWrite>,
}

impl RecordedTxn {
    /// What undoing this transaction did, as transactions of their own: records have their old values under
    /// the versions that its protocol gives them (`protocol::ProtocolInfo::undone` of the engine). One for all that has them in any
    /// case, then one for each that has it only if something was found to undo.
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

/// What entering decisions into a history came to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Entered {
    /// Transactions in doubt that were decided to have committed.
    pub committed: u64,
    /// Transactions in doubt that were undone.
    pub undone: u64,
    /// Transactions in doubt about which nobody had to decide: they have written nothing.
    pub nothing_written: u64,
    /// What contradicts what a caller was told, or another decision.
    pub contradictions: Vec<String>,
}

/// Enters into a history what was decided about transactions whose callers were told nothing. One about
/// which nobody has decided has written nothing, if it `is_over`: else it stays in doubt.
pub fn enter(
    history: &mut Vec<RecordedTxn>,
    decided: impl IntoIterator<Item = (TxnId, Resolution)>,
    is_over: impl Fn(&RecordedTxn) -> bool,
) -> Entered {
    let mut entered = Entered::default();
    let mut decisions: BTreeMap<TxnId, Resolution> = BTreeMap::new();
    for (id, resolution) in decided {
        if *decisions.entry(id).or_insert(resolution) != resolution {
            entered.contradictions.push(format!("{id} was decided twice, and not alike"));
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
                // Names that no transaction of that thread has come to.
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

/// A payload's hash for [`RecordedRead::fingerprint`]: never 0.
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
    fn doubts_are_settled_and_every_contradiction_is_told() {
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
