//! The locks of one transaction in compute nodes, and locks that outlive their transaction.
//!
//! Invariant: state alone. Locks are asked for and given up in [`crate::requests::lock_set`] and
//! `crate::requests::closing`.

use crate::services::lock::holds::Holds;
use crate::services::lock::message::Ask;
use crate::services::shard_drain::Period;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Detached;
use tarn_fabric::rpc::CallFuture;
use tarn_store::ids::{AbortReason, Timestamp, TxnId};

/// A lock of another node: noted, asked for, or granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) owner: NodeId,
    pub(crate) ask: Ask,
}

/// A message whose reply has not been looked at.
pub(crate) struct Sent {
    pub(crate) owner: NodeId,
    pub(crate) call: CallFuture,
}

/// The locks that one transaction has and asks for, wherever they are.
#[derive(Default)]
pub struct LockSet {
    pub(crate) own: Holds,
    /// Since when it holds any lock of its own node, if their shards can move.
    pub(crate) period: Option<Period>,
    /// Locks of other nodes. Those before `granted` are granted.
    pub(crate) remote: Vec<Remote>,
    pub(crate) granted: usize,
    /// Nodes that may have granted locks.
    pub(crate) owners: Vec<NodeId>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) refused: Option<AbortReason>,
    /// Hashes of names whose readers' lock could not become a writer's, in this try or an earlier one.
    pub(crate) not_upgraded: Vec<u64>,
    /// Whether it was refused because it fills the table of its own node.
    pub(crate) fills_table: bool,
    /// The name under which other nodes know the transaction.
    pub(crate) id: Option<TxnId>,
    /// Whether its owners cannot change unnoticed any more: see [`LockSet::secure`].
    pub(crate) secured: bool,
}

/// Work that outlives its transaction.
pub(crate) enum Closing {
    /// Writes that no coroutine awaits, and the locks that guard them.
    Writing {
        /// The writes.
        writes: Detached,
        /// The locks that guard them.
        held: LockSet,
        /// When the transaction committed.
        committed: Timestamp,
        /// The transaction, and its coordinator's number.
        whose: (TxnId, u32),
        /// Whether its coordinator exists no more: the number is held until the writes are done.
        is_orphan: bool,
    },
    /// Former bytes are written back, each batch to a memory node of its own, under the locks. The
    /// coordinator's number is held until then.
    Restoring {
        /// The batches. A batch that ends in an error was for a node that is gone.
        writes: Vec<Detached>,
        /// The locks that guard them.
        held: LockSet,
        /// The transaction, and its coordinator's number.
        whose: (TxnId, u32),
    },
    /// Another node must take locks back.
    Releasing {
        /// The node.
        owner: NodeId,
        /// The transaction that held the locks.
        txn: TxnId,
        /// When the transaction committed, if it did.
        committed: Option<Timestamp>,
        /// The call, if one is on its way.
        call: Option<CallFuture>,
    },
}
