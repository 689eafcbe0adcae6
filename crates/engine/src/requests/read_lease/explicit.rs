//! Explicit leases: how a node counts its readers, and how a writer asks other nodes about readers. If all nodes are
//! in one process, the writer reads their counts directly. If nodes are in different processes, the writer sends
//! messages.
//!
//! Invariants: a writer asks about readers only after it holds all of its locks. The writer concludes that there are
//! no readers only when every node incarnation that may read has said so. The incarnations that may read are all
//! running members. The writer looks up the running members after it has taken its locks, while every ended
//! incarnation is recovered. An incarnation that does not answer counts as reading, and the writer waits until its
//! lease has ended. Incarnations that join later find the writer's locks.
//!
//! ```text
//! request   {name u64}*                  reply   whether any transaction reads one of them u8
//! ```

use crate::services::Transport;
use crate::services::readers::{NodeReaders, Reading, RecordName};
use crate::site::Context;
use crate::site::thread_readers::{Other, READERS, ThreadReaders};
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::Txn;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tarn_fabric::backend::{Cost, LOCAL_PARTS, LocalPart};
use tarn_fabric::clock::Nanos;
use tarn_fabric::rpc::Peer;
use tarn_store::ids::Mode;

/// The part of a node's state to which a counter of readers belongs. The explorer of every order needs this part.
fn part(readers: &NodeReaders, place: usize) -> LocalPart {
    LocalPart { node: readers.id.slot, number: (place % usize::from(LOCAL_PARTS)) as u16 }
}

impl Context {
    /// Whether the node counts its readers, so that writers can ask about them.
    #[inline]
    pub(crate) fn counts_readers(&self) -> bool {
        self.readers.is_some()
    }

    /// Counts the transaction at all records that it reads and at which it is not yet counted. The caller calls this
    /// function before it sends the READs.
    pub(crate) fn enter_reading(&self, txn: &mut Txn) {
        let Some(its) = &self.readers else { return };
        let (node, Txn { entries, reading, .. }) = (&its.node, txn);
        let first = std::mem::replace(&mut reading.entries, entries.len());
        reading.fetches += 1;
        reading.late |= reading.fetches > 1 && first < entries.len();
        for entry in entries[first..].iter().filter(|entry| entry.mode == Mode::Read) {
            self.count_in(node, reading, node.place(RecordName::of(entry.table, entry.key)));
        }
        node.told();
    }

    /// Counts the transaction at the nodes of ordered indexes that its next round reads.
    pub(crate) fn enter_nodes(&self, txn: &mut Txn) {
        let Some(its) = &self.readers else { return };
        let (node, Txn { ordered, reading, .. }) = (&its.node, txn);
        let before = reading.places.len();
        for address in ordered.planned() {
            self.count_in(node, reading, node.place(RecordName::of_node(address)));
        }
        if reading.places.len() > before {
            reading.late |= reading.fetches > 1 || reading.nodes;
            reading.nodes = true;
        }
        node.told();
    }

    #[inline]
    fn count_in(&self, node: &NodeReaders, reading: &mut Reading, place: usize) {
        node.enter(place);
        self.counted_in(node, place);
        reading.places.push(place as u32);
    }

    /// Removes a transaction from the counts of readers, because its window has closed or will never close.
    #[inline]
    pub(crate) fn leave_reading(&self, txn: &mut Txn) {
        if !txn.reading.places.is_empty() {
            self.count_out(&mut txn.reading);
        }
    }

    fn count_out(&self, reading: &mut Reading) {
        let Some(its) = &self.readers else { return };
        let node = &its.node;
        for place in reading.places.drain(..) {
            node.leave(place as usize);
            self.counted_in(node, place as usize);
        }
    }

    /// Reports the change of a count to the explorer, and charges virtual time for the change.
    #[inline]
    fn counted_in(&self, node: &NodeReaders, place: usize) {
        if node.transport == Transport::Direct {
            self.port.looked_at(part(node, place), 0, true);
        }
        if self.port.charges() {
            self.port.charge(Cost::LocalAtomic);
        }
    }

    /// Asks other nodes about readers, if nodes communicate by messages. The caller holds all of its locks, and has
    /// time until it writes. The thread repeats a message for at most the time `within`, which is the length of the
    /// lease. After that time the writer needs no answer.
    pub(crate) fn ask_readers(&self, txn: &mut Txn, within: Nanos) {
        let Some(its) = self.readers.as_ref().filter(|its| its.has_messages()) else { return };
        its.look_around(&*self.database().membership, &self.database().lease_desk);
        let others = its.others.borrow();
        let Some(all) = others.as_ref().and_then(|others| others.all.as_ref()) else { return };
        txn.reading.has_asked = true;
        let (rpc, thread) = (its.rpc(&self.port), self.port.endpoint().thread);
        for Other { node, .. } in all {
            let names = written(txn);
            let fill =
                |bytes: &mut Vec<u8>| names.for_each(|name| bytes.extend(name.0.to_le_bytes()));
            let peer = Peer { node: *node, thread };
            let call = rpc.call_within(peer, READERS, within, fill);
            txn.reading.asked.push(call);
        }
    }

    /// Whether no transaction reads the records that this transaction has locked and will write next. A node that
    /// does not answer counts as reading.
    pub(crate) async fn nobody_reads(&self, txn: &mut Txn) -> bool {
        let Some(its) = &self.readers else { return false };
        its.look_around(&*self.database().membership, &self.database().lease_desk);
        let is_whole = its.others.borrow().as_ref().is_some_and(|others| others.all.is_some());
        if !is_whole || self.reads_here(&its.node, txn) {
            txn.reading.asked.clear();
            return false;
        }
        match its.node.transport {
            Transport::Own | Transport::Near | Transport::Direct => self.looked_around(its, txn),
            // A node may have been unable to receive a question, and may have left since. Then the writer sent no
            // question to any node.
            Transport::Rpc if !txn.reading.has_asked => false,
            Transport::Rpc => self.all_deny(its, &mut txn.reading).await,
        }
    }

    /// Reads each other node's counts. Returns whether none of these nodes has a reader.
    fn looked_around(&self, its: &ThreadReaders, txn: &Txn) -> bool {
        let others = its.others.borrow();
        let mut all = others.iter().flat_map(|others| &others.all).flatten();
        let reads = |other: &Other| match &other.readers {
            Some(readers) => self.reads_here(readers, txn),
            None => true,
        };
        !all.any(reads)
    }

    /// Whether any of the records has a reader on a node whose counts this thread can read directly.
    fn reads_here(&self, readers: &NodeReaders, txn: &Txn) -> bool {
        if self.port.charges() {
            written(txn).for_each(|_| self.port.charge(Cost::LocalLookup));
        }
        if readers.transport != Transport::Direct {
            return readers.reads_any(written(txn));
        }
        let mut places = written(txn).map(|name| readers.place(name));
        readers.about_to_look();
        places.any(|place| {
            let is_read = readers.is_read(place);
            self.port.looked_at(part(readers, place), u64::from(is_read), false);
            is_read
        })
    }

    /// Processes the answers of other nodes until one answer reports a reader. Returns whether no answer reports a
    /// reader.
    async fn all_deny(&self, its: &ThreadReaders, reading: &mut Reading) -> bool {
        poll_fn(|waiting| {
            // A coroutine that waits must itself process messages, because the thread's service may not run before
            // the wait ends.
            its.serve(&self.port);
            let mut is_any = false;
            reading.asked.retain_mut(|call| match Pin::new(call).poll(waiting) {
                Poll::Pending => true,
                Poll::Ready(Ok(answer)) => {
                    is_any |= *answer != [0];
                    false
                }
                Poll::Ready(Err(_)) => {
                    is_any = true;
                    false
                }
            });
            if is_any {
                reading.asked.clear();
            }
            if reading.asked.is_empty() { Poll::Ready(!is_any) } else { Poll::Pending }
        })
        .await
    }
}

/// The records and leaves that a transaction writes, or may write. Leaves are locked in the same way as directory
/// records.
fn written(txn: &Txn) -> impl Iterator<Item = RecordName> {
    let written = txn.entries.iter().filter(|entry| entry.mode != Mode::Read);
    let records = written.map(|entry| RecordName::of(entry.table, entry.key));
    let nodes = txn.locks.iter().filter(|lock| lock.kind == LockKind::Directory);
    records.chain(nodes.map(|lock| RecordName::of_node(lock.address)))
}
