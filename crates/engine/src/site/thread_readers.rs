//! One thread's state for explicit leases: the node incarnations that may read, and the thread's calls to them.
//!
//! Invariant: the thread looks up the incarnations that may read again whenever this set may have changed. The module
//! `requests::read_lease::explicit` sends questions to these incarnations.
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

/// The number of the handler that tells whether a node reads records.
/// [`crate::requests::read_lease::manager::DELAYS`] has a smaller number.
pub const READERS: HandlerId = HandlerId(10);
/// The number of datagrams that a thread processes in one step.
const DATAGRAMS_A_POLL: usize = 64;

/// Another node's incarnation that may read.
#[derive(Clone)]
pub(crate) struct Other {
    pub(crate) node: NodeId,
    /// The incarnation's counts of readers, if this thread can read them directly.
    pub(crate) readers: Option<Arc<NodeReaders>>,
}

/// The other incarnations that may read.
pub(crate) struct Others {
    /// The number of changes of the set of incarnations that may run, at the time when the thread looked up this set.
    pub(crate) changes: u64,
    /// The other incarnations; `None` if one of them cannot receive questions.
    pub(crate) all: Option<Vec<Other>>,
}

impl Others {
    /// Whether each of these incarnations is known to count its readers. An incarnation that has just joined does not
    /// count its readers for a short time, and the thread then looks it up again.
    fn can_ask(&self, by_messages: bool) -> bool {
        let mut all = self.all.iter().flatten();
        by_messages || all.all(|other| other.readers.is_some())
    }
}

/// The state of one thread for explicit leases.
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

    /// The thread's RPC endpoint. The first use creates the endpoint, because the endpoint receives all datagrams of
    /// the port.
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

    /// Answers the requests that have arrived.
    pub(crate) fn serve(&self, port: &Port) {
        if self.has_messages() {
            let rpc = self.rpc(port);
            while rpc.poll(DATAGRAMS_A_POLL) == DATAGRAMS_A_POLL {}
        }
    }

    /// Looks up the other incarnations that may read, unless the thread knows the present set.
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

/// All incarnations that may read, except `node`. `None` if one of them cannot receive questions.
fn others_than(membership: &dyn Membership, node: NodeId) -> Option<Vec<NodeId>> {
    let running = membership.running();
    let is_whole = membership.unrecovered().is_empty() && running.contains(&node);
    is_whole.then(|| running.into_iter().filter(|it| *it != node).collect())
}
