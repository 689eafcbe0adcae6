//! Decides strict serializability and snapshot isolation from recorded histories. The crate knows
//! neither the engine nor the fabric. A history says which versions each transaction read and wrote,
//! and when the transaction ran. The checker derives everything else from these facts.
//!
//! Invariant: a verdict is a function of the history alone, byte for byte the same on every run.
//!
//! The map:
//! - `history`: the model of a history. `format`, `file`, `error`: the history file and its possible
//!   faults.
//! - [`check()`]: `index` sorts all operations by record and version, and `unknown` settles
//!   transactions of unknown outcome. `versions` sweeps over the records and finds anomalies and
//!   edges. `graph` adds real time and snapshots. `scc`, `cycle` and `search` find short cycles.
//! - `anomaly`, `findings`, `display`, `report`: the contents of a report, and its text.
//! - [`elle`]: exports a history for an independent checker.
//! - [`WholeFile`]: a file that appears under its name only when it is complete. All tools of this
//!   project write their files this way.
//!
//! ```
//! use tarn_check::{History, Isolation, RecordId, Transaction, WriteKind::Update, check};
//!
//! // Write skew: each transaction reads the version that the other transaction overwrites.
//! let (x, y) = (RecordId::new(0, 1), RecordId::new(0, 2));
//! let mut history = History { tables: vec!["savings".into()], ..History::default() };
//! history.transactions = vec![
//!     Transaction::committed(1, 0, 0, 1_000_000).read(x, 7).write(y, 8, Update),
//!     Transaction::committed(2, 1, 0, 1_000_000).read(y, 7).write(x, 8, Update),
//! ];
//! let report = check(&history, Isolation::Serializable);
//! assert!(!report.is_accepted());
//! assert_eq!(
//!     report.anomalies[0].to_string(),
//!     "cycle G2 of 2 transactions:\n    \
//!      T1 (coordinator 0, 0.000–1.000 ms) -rw-> T2: savings[1] T1 read version 7, T2 wrote version 8\n    \
//!      T2 (coordinator 1, 0.000–1.000 ms) -rw-> T1: savings[2] T2 read version 7, T1 wrote version 8"
//! );
//! ```

mod anomaly;
mod check;
mod cycle;
mod display;
pub mod elle;
mod error;
mod file;
mod findings;
mod format;
mod graph;
mod history;
mod index;
mod report;
mod scc;
mod search;
mod unknown;
mod versions;
mod whole_file;

pub use anomaly::{
    Anomaly, AnomalyKind, CycleClass, CyclePhenomenon, Dependency, LongerCycle, Party, RecordName,
    Seen, Step,
};
pub use check::{Isolation, check};
pub use elle::ElleModel;
pub use error::{HistoryError, Problem};
pub use file::HistoryWriter;
pub use findings::LISTED_PER_KIND;
pub use format::{FORMAT, FieldProblem};
pub use history::{
    History, NEVER_NS, Outcome, Read, RecordId, Transaction, TxnId, Version, Write, WriteKind,
};
pub use report::{Counts, EdgeCounts, Report, Verdict};
pub use whole_file::{WholeFile, remove_partial_files};
