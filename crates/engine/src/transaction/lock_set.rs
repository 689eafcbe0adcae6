//! The locks of one transaction in compute nodes, and locks that outlive their transaction.
//!
//! Invariant: state alone. How locks are asked for and given up: [`crate::requests::lock_set`] and `crate::requests::closing`.

use crate::services::lock::holds::Holds;
use crate::services::lock::message::Ask;
use crate::services::shard_drain::Period;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Detached;
use tarn_fabric::rpc::CallFuture;
use tarn_store::ids::{AbortReason, Timestamp, TxnId};

/// A lock of another node: asked for, noted to be, or granted.
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

/// What one transaction has locked and asks for, wherever the locks are.
#[derive(Default)]
pub struct LockSet {
    pub(crate) own: Holds,
    /// Since when it holds any of its own node's, if their shards can move.
    pub(crate) period: Option<Period>,
    /// Those before `granted` are.
    pub(crate) remote: Vec<Remote>,
    pub(crate) granted: usize,
    /// Nodes that may have granted anything.
    pub(crate) owners: Vec<NodeId>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) refused: Option<AbortReason>,
    /// Hashes of names whose readers' lock could not become a writer's, in this try or an earlier one.
    pub(crate) not_upgraded: Vec<u64>,
    /// Whether it was refused because it fills the table of its own node.
    pub(crate) fills_table: bool,
    /// Under which name other nodes know the transaction.
    pub(crate) id: Option<TxnId>,
    /// Whether its owners may not change any more unnoticed: see [`LockSet::secure`].
    pub(crate) secured: bool,
}

/// One thing that still runs.
pub(crate) enum Closing {
    /// Writes that nobody awaits, and the locks that guard them.
    Writing {
        /// The writes.
        writes: Detached,
        /// What guards them.
        held: LockSet,
        /// When the transaction committed.
        committed: Timestamp,
        /// Which it is, and its coordinator's number.
        whose: (TxnId, u32),
        /// Its coordinator is no more: the number is held until then.
        is_orphan: bool,
    },
    /// What was there before is written back, each batch to a memory node of its own, under the locks. The coordinator's
    /// number is held until then.
    Restoring {
        /// The batches: one that ends in an error ends at a node that is gone.
        writes: Vec<Detached>,
        /// What guards them.
        held: LockSet,
        /// Which it is, and its coordinator's number.
        whose: (TxnId, u32),
    },
    /// Another node is to take locks back.
    Releasing {
        /// Which.
        owner: NodeId,
        /// Whose.
        txn: TxnId,
        /// When the transaction committed, if it did.
        committed: Option<Timestamp>,
        /// The call, if one is on its way.
        call: Option<CallFuture>,
    },
}
