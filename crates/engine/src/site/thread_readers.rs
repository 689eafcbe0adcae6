//! One thread's state for explicit leases: the lives that may read, and its calls.
//!
//! Invariant: the lives that may read are looked up anew whenever they may have changed.
//! `requests::read_lease::explicit` asks them.
//!
//! ```text
//! request   {name u64}*                  reply   whether any transaction reads one of them u8
//! ```

use crate::cluster::membership::Membership;
use crate::services::Transport;
use crate::services::lease_desk::LeaseDesk;
use crate::services::readers::{NodeReaders, RecordName};
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Cost;
use tarn_fabric::port::Port;
use tarn_fabric::rpc::{Answer, HandlerId, Rpc};

/// Names the handler that says whether a node reads records. [`crate::requests::read_lease::manager::DELAYS`] is below.
pub const READERS: HandlerId = HandlerId(10);
/// Datagrams that a thread takes at a time.
const DATAGRAMS_A_POLL: usize = 64;

/// Another life that may read.
#[derive(Clone)]
pub(crate) struct Other {
    pub(crate) node: NodeId,
    /// Its counts of readers, if this thread can look at them.
    pub(crate) readers: Option<Arc<NodeReaders>>,
}

/// The other lives that may read.
pub(crate) struct Others {
    /// The number of changes of that set when it was looked up.
    pub(crate) changes: u64,
    /// `None` if a life among them cannot be asked.
    pub(crate) all: Option<Vec<Other>>,
}

impl Others {
    /// Whether each of them is known to count its readers. A life that has just joined does not count for a moment, and
    /// is looked up again.
    fn can_ask(&self, by_messages: bool) -> bool {
        let mut all = self.all.iter().flatten();
        by_messages || all.all(|other| other.readers.is_some())
    }
}

/// One thread's state for explicit leases.
pub(crate) struct ThreadReaders {
    pub(crate) node: Arc<NodeReaders>,
    pub(crate) rpc: OnceCell<Rpc>,
    pub(crate) others: RefCell<Option<Others>>,
}

impl ThreadReaders {
    pub(crate) fn new(node: &Arc<NodeReaders>) -> ThreadReaders {
        let (rpc, others) = (OnceCell::new(), RefCell::new(None));
        ThreadReaders { node: Arc::clone(node), rpc, others }
    }

    /// Whether the thread has messages to answer.
    pub(crate) fn has_messages(&self) -> bool {
        self.node.transport == Transport::Rpc
    }

    /// The thread's calls. They are made when first needed, since they take all datagrams of the port.
    pub(crate) fn rpc(&self, port: &Port) -> &Rpc {
        self.rpc.get_or_init(|| {
            let rpc = Rpc::new(port.clone(), self.node.rpc);
            let (its, port) = (Arc::clone(&self.node), port.clone());
            rpc.register(READERS, move |request, reply| {
                let (names, _) = request.bytes.as_chunks::<8>();
                if port.charges() {
                    (0..=names.len()).for_each(|_| port.charge(Cost::LocalLookup));
                }
                let names = names.iter().map(|name| RecordName(u64::from_le_bytes(*name)));
                reply.push(u8::from(its.reads_any(names)));
                Answer::Now
            });
            rpc
        })
    }

    /// Answers the requests that have come.
    pub(crate) fn serve(&self, port: &Port) {
        if self.has_messages() {
            let rpc = self.rpc(port);
            while rpc.poll(DATAGRAMS_A_POLL) == DATAGRAMS_A_POLL {}
        }
    }

    /// Looks up the other lives that may read, unless they are known.
    pub(crate) fn look_around(&self, membership: &dyn Membership, desk: &LeaseDesk) {
        let changes = membership.roster_changes();
        let others = &mut *self.others.borrow_mut();
        let by_messages = self.has_messages();
        let is_known = |others: &Others| others.changes == changes && others.can_ask(by_messages);
        if others.as_ref().is_some_and(is_known) {
            return;
        }
        let find = |node| Other { node, readers: desk.readers(node) };
        let all = others_than(membership, self.node.id);
        *others = Some(Others { changes, all: all.map(|all| all.into_iter().map(find).collect()) });
    }
}

/// All lives that may read except `node`; `None` if one of them cannot be asked.
fn others_than(membership: &dyn Membership, node: NodeId) -> Option<Vec<NodeId>> {
    let running = membership.running();
    let is_whole = membership.unrecovered().is_empty() && running.contains(&node);
    is_whole.then(|| running.into_iter().filter(|it| *it != node).collect())
}
