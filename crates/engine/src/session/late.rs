//! Explains a deadline that has passed: the work that was not done in time.
//!
//! Invariant: the explanation names only tables of the transaction whose deadline has passed. The working set of the
//! last try stays as it was until the next try begins.

use crate::session::coordinator::Coordinator;
use tarn_store::ids::{Explanation, Failure};

/// The number of tables that an explanation names.
const TABLES_NAMED: usize = 4;

impl Coordinator {
    /// Explains that the deadline passed, and returns the failure. The caller has dropped the future of the
    /// coordinator's transaction, perhaps while its body ran.
    #[cold]
    pub fn deadline_passed(&self, is_in_body: bool) -> Failure {
        self.late(self.txn.tries_before + 1, is_in_body)
    }

    /// Explains that the deadline passed after this many tries, and returns the failure.
    #[cold]
    pub(crate) fn late(&self, tries: u32, is_in_body: bool) -> Failure {
        let entries = &self.txn.entries;
        let open = &entries[self.txn.fetched.min(entries.len())..];
        let mut waited = match (open.len(), entries.len()) {
            (0, _) if is_in_body => "in the body, outside of Tarn".to_owned(),
            (0, 0) => "between two tries".to_owned(),
            (0, all) => format!("committing records ({all}) of {}", self.tables_of(0)),
            (open, all) => format!("fetching records ({open}) of {}", self.tables_of(all - open)),
        };
        if let (Some(reason), false) = (self.last_abort, is_in_body && tries == 1) {
            waited.push_str("; the last abort: ");
            waited.push_str(reason.name());
        }
        self.cx.explain(Explanation::DeadlineExceeded { tries, waited })
    }

    /// The names of the tables of the entries from this position on.
    fn tables_of(&self, from: usize) -> String {
        let mut names: Vec<&str> = Vec::new();
        for entry in &self.txn.entries[from..] {
            let name = self.cx.table(entry.table).schema.name.as_str();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = if names.len() > TABLES_NAMED { ", ..." } else { "" };
        names.truncate(TABLES_NAMED);
        format!("{}{more}", names.join(", "))
    }
}
