//! The locks that one transaction holds in compute nodes, and the work on locks that continues after a transaction.
//!
//! Invariant: this module only keeps state. [`crate::requests::lock_set`] and `crate::requests::closing` request
//! and release the locks.

use crate::services::lock::holds::Holds;
use crate::services::lock::message::Ask;
use crate::services::lock::name::{LockMode, LockName};
use crate::services::shard_drain::Period;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Detached;
use tarn_fabric::rpc::CallFuture;
use tarn_locks::value::LockId;
use tarn_store::ids::{AbortReason, Timestamp, TxnId};

/// A lock that this transaction noted, requested or was granted at another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) owner: NodeId,
    pub(crate) ask: Ask,
}

/// A lock that this transaction requested from a lock service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) name: LockName,
    pub(crate) mode: LockMode,
    /// The lock's number in the service. Names with the same number share a lock.
    pub(crate) number: LockId,
    /// The request's name in one word; 0: another entry's request counts for this number.
    pub(crate) request: u64,
}

/// A message to another node whose reply has not been processed.
pub(crate) struct Sent {
    pub(crate) owner: NodeId,
    pub(crate) call: CallFuture,
}

/// The locks that one transaction holds or requests, on any node.
#[derive(Default)]
pub struct LockSet {
    pub(crate) own: Holds,
    /// The period since the transaction first held a lock of its own node, if the shards of such locks can move.
    pub(crate) period: Option<Period>,
    /// The locks of this transaction at other nodes. The locks before position `granted` in the list `remote` are
    /// granted.
    pub(crate) remote: Vec<Remote>,
    pub(crate) granted: usize,
    /// The locks of this transaction at a lock service. The first `served_granted` of them are granted.
    pub(crate) served: Vec<Served>,
    pub(crate) served_granted: usize,
    /// The nodes that may have granted locks to this transaction.
    pub(crate) owners: Vec<NodeId>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) refused: Option<AbortReason>,
    /// The hashes of names whose read lock could not be upgraded to a write lock, in this try or an earlier try.
    pub(crate) not_upgraded: Vec<u64>,
    /// Whether the transaction was refused because it fills the lock table of its own node.
    pub(crate) fills_table: bool,
    /// The name under which other nodes know the transaction.
    pub(crate) id: Option<TxnId>,
    /// Whether a change of the owner nodes can no longer remain unnoticed: see [`LockSet::secure`].
    pub(crate) secured: bool,
}

/// Work that continues after its transaction has ended.
pub(crate) enum Closing {
    /// Writes that no coroutine awaits, with the locks that protect them.
    Writing {
        /// The writes that no coroutine awaits.
        writes: Detached,
        /// The locks that protect the writes.
        held: LockSet,
        /// The commit time of the transaction.
        committed: Timestamp,
        /// The transaction, and the number of its coordinator.
        whose: (TxnId, u32),
        /// Whether the coordinator of the transaction was dropped. The number of a dropped coordinator stays in use
        /// until the writes are done.
        is_orphan: bool,
    },
    /// Former bytes are being written back under the locks, with one batch for each memory node. The coordinator's
    /// number stays in use until the former bytes are written back.
    Restoring {
        /// The batches that write back the former bytes. A batch that ends in an error was sent to a memory node that
        /// is down.
        writes: Vec<Detached>,
        /// The locks that protect the writes.
        held: LockSet,
        /// The transaction, and the number of its coordinator.
        whose: (TxnId, u32),
    },
    /// A message to another node asks that node to release locks that it had granted.
    Releasing {
        /// The node that granted the locks.
        owner: NodeId,
        /// The transaction that held the locks.
        txn: TxnId,
        /// The commit time of the transaction, if it committed.
        committed: Option<Timestamp>,
        /// The call to the node that granted the locks, if the call is on its way.
        call: Option<CallFuture>,
    },
}
