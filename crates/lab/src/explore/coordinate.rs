//! A coordinator of a litmus as a coroutine. The coordinator runs its transactions one after another,
//! with the engine.
//!
//! Invariant: each transaction has a limited number of tries, so every execution ends. A row holds the same number in
//! every word of its payload, so a row with two different numbers is torn.

use super::cluster::{Cluster, TABLE};
use super::desk::Desk;
use super::oracle::Ended;
use super::ranges::{Entry, INDEX, work};
use super::recovery::LOOK_AGAIN;
use super::script::{Base, Content, Expression, Op, RecordIndex, Saw, Script};
use crate::harness::in_words;
use crate::harness::layout::fill;
use std::rc::Rc;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_engine::transaction::HistorySink;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::error::FabricError;
use tarn_sim::explore::ExploreFabric;
use tarn_store::ids::{AbortReason, Explanation, Failure, Resolution, TxnId};
use tarn_store::schema::range::ScanHandle;
use tarn_store::schema::{Cells, Key};

/// The engine makes no pause between tries, because the scheduler chooses when each try happens.
const RETRY: Retry = Retry {
    deadline: None,
    tries_max: 0,
    pause_first_ns: 1,
    pause_max_ns: 1,
    patient_tries: 1_000,
};

/// The part of a litmus that one coordinator runs.
pub struct Part {
    /// The database's plan.
    pub cluster: Rc<Cluster>,
    /// The explored cluster.
    pub fabric: ExploreFabric,
    /// The desk: the shared place where the coordinator puts the results of its transactions.
    pub desk: Rc<Desk>,
    /// The number of the coordinator in the litmus.
    pub number: usize,
    /// The position of the coordinator's first transaction among all transactions of the litmus.
    pub first: usize,
    /// The sink that receives the coordinator's history.
    pub sink: HistorySink,
    /// The number of tries of each transaction.
    pub tries: u32,
}

impl Part {
    /// Runs the transactions of the coordinator.
    pub async fn run(self, cx: Rc<Context>) {
        let litmus = Rc::clone(&self.cluster.litmus);
        let succeeds = litmus.coordinators[self.number].succeeds;
        if let Some(of) = succeeds {
            // A coordinator number is never taken from a node that is still a member, so the node is
            // expelled first.
            let node = self.cluster.node(litmus.coordinators[of].node);
            cx.database().membership.expel(node);
        }
        let scripts = &litmus.coordinators[self.number].transactions;
        // A transaction of one call has no body that could stop the tries, so the engine counts them.
        let is_calling = scripts.iter().any(|script| script.gets().is_some());
        let tries_max = if is_calling { self.tries } else { 0 };
        let number = succeeds.unwrap_or(self.number) as u32;
        let mut by = Coordinator::new(cx, number, Retry { tries_max, ..RETRY });
        by.record_history_in(Rc::clone(&self.sink));
        for (at, script) in scripts.iter().enumerate() {
            self.fabric.begin().await;
            let goes_on = self.transaction(&mut by, self.first + at, script).await;
            self.fabric.end();
            if !goes_on {
                return;
            }
        }
    }

    /// Runs one transaction. Returns whether the coordinator can continue.
    async fn transaction(&self, by: &mut Coordinator, index: usize, script: &Script) -> bool {
        self.desk.begins(self.number, index, by.context().port.observed());
        for op in &script.ops {
            if let Op::Reshape(task, value) = *op {
                by.context().tree_works.request(work(task, value));
            }
        }
        let mut once = Once::new(&self.cluster, script);
        let (mut tries, most) = (0, self.tries);
        let body = async |tx: &mut Transaction<'_>| {
            tries += 1;
            if tries > most { tx.abort() } else { once.run(tx).await }
        };
        let result = match script.gets() {
            Some(records) => once.get(by, &records).await,
            None if script.only_reads() => by.transact_read_only(body).await,
            None => by.transact(body).await,
        };
        let (ended, goes_on) = self.end_of(by, result, &once).await;
        let committed = matches!(ended, Ended::Committed(_));
        if once.torn && committed {
            self.desk.left.borrow_mut().torn.push(index);
        }
        if ended != Ended::Unknown {
            self.desk.told(index, by.context().port.observed(), ended);
        }
        goes_on
    }

    async fn end_of(
        &self,
        by: &mut Coordinator,
        result: Result<(), Failure>,
        once: &Once<'_>,
    ) -> (Ended, bool) {
        let failure = match result {
            Ok(()) => return (Ended::Committed(once.seen.clone()), true),
            Err(failure) if failure == Failure::user_abort() => return (Ended::Without, true),
            Err(Failure::Abort(AbortReason::UniqueViolation)) => return (Ended::Refused, true),
            // An abort reaches this point only if it ended the last allowed try of the transaction.
            Err(Failure::Abort(_)) => return (Ended::Without, true),
            Err(failure) => failure,
        };
        match (failure, by.context().explanation(failure)) {
            (Failure::CommitUnknown, Some(Explanation::Unknown(id))) => {
                match resolve(by, id).await {
                    Some(Resolution::Committed) => (Ended::Committed(once.seen.clone()), true),
                    Some(Resolution::Aborted) => (Ended::Without, true),
                    None => (Ended::Unknown, false),
                }
            }
            (
                Failure::Fabric,
                Some(Explanation::Fabric(FabricError::NodeDown(_) | FabricError::Fenced)),
            ) => (Ended::Without, false),
            (failure, explanation) => {
                let text = format!("a transaction failed: {}", in_words(failure, explanation));
                self.desk.left.borrow_mut().failures.push(text);
                (Ended::Unknown, false)
            }
        }
    }
}

/// Returns how a transaction in doubt ended. If a node is down, the answer depends on the next configuration. So the
/// function asks again as long as a coroutine repairs the configuration.
async fn resolve(by: &mut Coordinator, id: TxnId) -> Option<Resolution> {
    loop {
        match by.resolve(id).await {
            Ok(resolution) => return Some(resolution),
            Err(_) => {
                let cx = by.context();
                let is_down = matches!(cx.port.last_error(), Some(FabricError::NodeDown(_)));
                if !is_down || !cx.database().configurations.is_mended() {
                    return None;
                }
                cx.port.clone().sleep(LOOK_AGAIN).await;
            }
        }
    }
}

/// The state of one transaction that is tried repeatedly.
struct Once<'a> {
    cluster: &'a Cluster,
    script: &'a Script,
    /// The results of the reads of the last try.
    seen: Vec<Saw>,
    /// The scans of the last try, by step.
    scans: Vec<(usize, ScanHandle)>,
    /// The number of entries that the last scan of the try saw.
    count: usize,
    /// Whether a row of the last try was torn.
    torn: bool,
}

impl<'a> Once<'a> {
    fn new(cluster: &'a Cluster, script: &'a Script) -> Once<'a> {
        Once { cluster, script, seen: Vec::new(), scans: Vec::new(), count: 0, torn: false }
    }

    async fn run(&mut self, tx: &mut Transaction<'_>) -> Result<(), Failure> {
        self.seen.clear();
        self.scans.clear();
        self.torn = false;
        let mut known: Vec<Option<Handle>> = vec![None; self.cluster.litmus.records.len()];
        let mut asked = 0;
        let ops = &self.script.ops;
        for at in 0..=ops.len() {
            let op = ops.get(at).copied().unwrap_or(Op::Fetch);
            if let Some(record) = op.record() {
                known[record.0] = Some(self.ask(tx, op, record));
                continue;
            }
            if let Op::Scan(range) = op {
                self.scans.push((at, tx.scan(INDEX, range.scan())));
            }
            if op.is_ordered() {
                continue;
            }
            tx.fetch().await?;
            for step in asked..at {
                self.take(tx, step, &known);
            }
            asked = at;
            if op == Op::Abort {
                return tx.abort();
            }
        }
        Ok(())
    }

    /// Runs the transaction as one call of the engine, which reads all requested records.
    async fn get(&mut self, by: &mut Coordinator, records: &[RecordIndex]) -> Result<(), Failure> {
        let keys: Vec<u64> = records.iter().map(|&record| self.cluster.key(record)).collect();
        let (seen, torn) = (&mut self.seen, &mut self.torn);
        by.multi_get(TABLE, keys.into_iter(), |_, row| {
            let said = row.map(|row| row_says(row.payload()));
            *torn |= said.is_some_and(|(_, is_whole)| !is_whole);
            seen.push(Saw::Content(said.map(|(value, _)| value)));
        })
        .await
    }

    fn ask(&self, tx: &mut Transaction<'_>, op: Op, record: RecordIndex) -> Handle {
        let key = self.cluster.key(record);
        match op {
            Op::Update(..) => tx.update(TABLE, key, Cells::ALL),
            Op::Insert(..) => tx.insert(TABLE, key),
            Op::Delete(_) => tx.delete(TABLE, key),
            _ => tx.read(TABLE, key, Cells::ALL),
        }
    }

    /// Processes the fetched rows in the order of the transaction's steps.
    fn take(&mut self, tx: &mut Transaction<'_>, step: usize, known: &[Option<Handle>]) {
        let handle = |record: RecordIndex| known[record.0].expect("it was asked for");
        match self.script.ops[step] {
            Op::Read(record) => {
                let content = self.content(tx, handle(record));
                self.seen.push(Saw::Content(content));
            }
            Op::Scan(_) => {
                let scan = self.scans.iter().find(|(at, _)| *at == step);
                let (_, scan) = *scan.expect("it was asked for");
                let entries: Vec<Entry> =
                    tx.scanned(scan).map(|entry| self.entry(entry.key, entry.record)).collect();
                self.count = entries.len();
                self.seen.push(Saw::Entries(entries));
            }
            Op::Update(record, it) => {
                if self.content(tx, handle(record)).is_some() {
                    let value = self.value(tx, it, known);
                    write(tx, handle(record), value);
                }
            }
            Op::Insert(record, it) => {
                if !tx.existed(handle(record)) {
                    let value = self.value(tx, it, known);
                    write(tx, handle(record), value);
                }
            }
            Op::Get(_) | Op::Delete(_) | Op::Reshape(..) | Op::Fetch | Op::Abort => {}
        }
    }

    /// Converts an entry of the index to the litmus's terms: the first part of the key, and the record.
    fn entry(&self, key: &[u8], record: Key<'_>) -> Entry {
        let value = u64::from_be_bytes(*key.first_chunk().expect("a number"));
        let holder = match record {
            Key::Word(word) => self.cluster.holder(word, value),
            Key::Bytes(_) => unreachable!("keys are words"),
        };
        (value, holder)
    }

    fn value(&mut self, tx: &Transaction<'_>, it: Expression, known: &[Option<Handle>]) -> u64 {
        let content = match it.base {
            Base::Record(record) => {
                let handle = known[record.0].expect("scripts ask before they use");
                self.content(tx, handle)
            }
            Base::Zero | Base::Count => None,
        };
        it.value(|_| content, self.count)
    }

    fn content(&mut self, tx: &Transaction<'_>, handle: Handle) -> Content {
        let (value, is_whole) = row_says(tx.get(handle)?.payload());
        self.torn |= !is_whole;
        Some(value)
    }
}

/// Writes the same number in every word of a row.
pub(super) fn write(tx: &mut Transaction<'_>, handle: Handle, value: u64) {
    if let Some(row) = tx.get(handle) {
        let bytes = row.payload().len();
        fill(tx, handle, bytes, value);
    }
}

/// Returns the number in the first word of a row, and whether every word of the row has this number.
pub fn row_says(payload: &[u8]) -> (u64, bool) {
    let (words, _) = payload.as_chunks::<8>();
    (u64::from_le_bytes(words[0]), words.iter().all(|word| *word == words[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_one_thing_or_is_torn() {
        assert_eq!(row_says(&[7, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]), (7, true));
        assert!(!row_says(&[7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]).1);
    }
}
