//! One transaction, as data: its records, locks, writes and part in ordered indexes.
//!
//! Invariant: nothing here sends anything; the work of a transaction is in `steps` and the protocols.

pub(crate) mod chain;
pub(crate) mod in_doubt;
pub mod lock_set;
pub mod ordered;
pub mod sequel;
pub mod working_set;

use std::cell::RefCell;
use std::rc::Rc;
use tarn_store::history::RecordedTxn;

/// Where coordinators of one thread enter their transactions. It outlives them.
pub type HistorySink = Rc<RefCell<Vec<RecordedTxn>>>;
