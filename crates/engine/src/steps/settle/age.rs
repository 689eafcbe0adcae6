//! Decides which of two transactions under one coordinator's number came first.
//!
//! Invariant: this module compares transactions' counts only within one thread of one node's incarnation, because
//! counts of different threads are unrelated.

use super::Asker;
use std::cmp::Ordering;
use tarn_store::ids::{OwnerTag, TxnId};

/// Returns whether a transaction without a log entry may have had a log entry that a later transaction replaced. If
/// the function returns true, the outcome of the transaction without a log entry cannot be known. `others` are the
/// tags of the log entries in the log area of this transaction's coordinator.
pub(crate) fn is_gone(mut others: impl Iterator<Item = OwnerTag>, id: TxnId, asker: Asker) -> bool {
    match asker {
        Asker::Itself => others.any(|tag| age(tag, id) == Age::Later),
        Asker::Another => others.any(|tag| age(tag, id) != Age::Earlier),
    }
}

/// The order of two transactions under one coordinator's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Age {
    Earlier,
    Later,
    /// The order of the two transactions is not known. Each thread counts its own transactions. So counts cannot be
    /// compared if they come from two threads, or from two nodes that had the coordinator's number one after the
    /// other.
    Unknown,
}

/// Returns whether the transaction `tag` came before or after the transaction `id`. If `tag` came after `id`, then
/// `id` was settled before, and its log entry no longer exists.
fn age(tag: OwnerTag, id: TxnId) -> Age {
    let (node, other) = (tag.node(), id.node());
    let lives = node.incarnation.0.cmp(&other.incarnation.0);
    let order = match (node.slot == other.slot, tag.thread() == id.thread()) {
        (true, true) => lives.then(tag.count().cmp(&id.count())),
        (true, false) => lives,
        (false, _) => Ordering::Equal,
    };
    match order {
        Ordering::Less => Age::Earlier,
        Ordering::Greater => Age::Later,
        Ordering::Equal => Age::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

    #[test]
    fn counts_are_compared_within_a_thread_alone() {
        let tag = |(slot, life): (u16, u16), thread, count| {
            let node = NodeId { slot: NodeSlot(slot), incarnation: Incarnation(life) };
            OwnerTag::new(node, thread, count)
        };
        let id = tag((1, 2), 3, 50);
        assert_eq!(age(tag((1, 2), 3, 51), id), Age::Later);
        assert_eq!(age(tag((1, 2), 3, 49), id), Age::Earlier);
        assert_eq!(age(tag((1, 2), 4, 51), id), Age::Unknown);
        assert_eq!(age(tag((1, 2), 2, 49), id), Age::Unknown);
        assert_eq!(age(tag((1, 3), 0, 1), id), Age::Later);
        assert_eq!(age(tag((1, 1), 4, 90), id), Age::Earlier);
        assert_eq!(age(tag((2, 9), 3, 90), id), Age::Unknown);
    }
}
