//! Tells which of two transactions under one coordinator's number came first.
//!
//! Invariant: counts are compared within one thread's life alone, since two other tags have nothing in common that
//! grows.

use super::Asker;
use std::cmp::Ordering;
use tarn_store::ids::{OwnerTag, TxnId};

/// Returns whether a transaction without a log entry may have had one that was replaced. Then nothing can be said of
/// it. `others` are the tags in its coordinator's area.
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
    /// Not known. Each thread counts for itself, and nodes that had the number one after the other have no count in
    /// common.
    Unknown,
}

/// Returns whether `tag` came before `id` or after it. If it came after, `id` was settled before, and its log entry
/// is gone.
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
