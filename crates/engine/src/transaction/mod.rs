//! One transaction, as data: its records, locks, writes, and its scans and changes of ordered indexes.
//!
//! Invariant: this folder sends no messages and no verbs. The work of a transaction is in `steps` and in the
//! protocols.

pub(crate) mod chain;
pub(crate) mod in_doubt;
pub mod lock;
pub mod lock_set;
pub mod ordered;
pub mod sequel;
pub mod working_set;

use std::cell::RefCell;
use std::rc::Rc;
use tarn_store::history::RecordedTxn;

/// A list in which coordinators of one thread record their transactions. The list of recorded transactions outlives
/// the coordinators.
pub type HistorySink = Rc<RefCell<Vec<RecordedTxn>>>;
