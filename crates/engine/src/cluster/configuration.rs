//! Configurations: the map of replica groups that transactions use, and how one configuration follows another.
//!
//! Invariant: a transaction runs in one configuration, and no two configurations run at the same time. A member first
//! announces a change. From then on no transaction begins anywhere. A member opens the next configuration when every
//! thread of every member is quiet and every expelled incarnation is recovered. A thread is quiet if it runs no
//! transaction and has no transaction in doubt. So no older transaction contradicts the LOCK words of the new
//! primaries. See docs/design/0013-memory-node-recovery.md.
//!
//! The number of a configuration belongs to exactly one map. Each opened configuration has the number after the
//! previous configuration's number. If a change of the configuration is called off, map and number stay the same.
//! Timestamps of the pool, lists of dead index nodes and cached trees depend on the number alone. Each change has a
//! ticket of its own, which no other change shares. The ticket tells which change may open the next map.
//!
//! On the hot path, each try of a transaction loads the announced number once. A thread that begins to work makes one
//! store to its own [`ThreadSlot`]. A node that changes the configuration must see this store before it checks the
//! slots. Because busy threads announce themselves, the node need not ask idle threads. At present all this state is
//! memory of one process. A service over a network would have the same four messages: announce, quiet, open, report.

use crate::cluster::membership::{Membership, Standing};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tarn_fabric::address::{GroupId, NodeId, NodeSlot};
use tarn_fabric::backend::Endpoint;
use tarn_store::ids::{ConfigurationNumber, ViewNumber};
use tarn_store::placement::replica_groups::ReplicaGroups;

/// A configuration: a map on which transactions run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// The number of the configuration.
    pub number: ConfigurationNumber,
    /// The map of replica groups: which nodes hold the copies of each group.
    pub groups: ReplicaGroups,
}

/// The state of one thread, as the node that changes the configuration sees it.
#[derive(Debug)]
pub struct ThreadSlot {
    node: NodeId,
    busy: AtomicBool,
}

impl ThreadSlot {
    /// Marks the thread as busy. The thread calls this function before it loads the announced number.
    #[inline]
    pub(crate) fn occupy(&self) {
        self.busy.store(true, Ordering::SeqCst);
    }

    /// Marks the thread as quiet: it runs no transaction and has none in doubt.
    #[inline]
    pub(crate) fn vacate(&self) {
        self.busy.store(false, Ordering::Release);
    }
}

/// The right to open the next configuration. If the node that has this right dies, another node takes the right over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    number: ConfigurationNumber,
    ticket: Ticket,
}

/// Distinguishes changes, even if two of them would open the same number. Each announced change has a greater ticket
/// than the change before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticket(u64);

impl Change {
    /// The number of the configuration that this change would open.
    pub fn number(self) -> ConfigurationNumber {
        self.number
    }
}

/// The thread that fills joining copies, and its node's incarnation.
pub type CopierId = (NodeId, Endpoint);

/// While this value exists, it counts one coroutine that handles dead nodes.
pub struct Repairing<'a>(&'a AtomicU32);

impl Drop for Repairing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The open configuration, the change under way and the threads at work; see the module's text.
pub struct Configurations {
    announced: AtomicU64,
    repairers: AtomicU32,
    copies_wanted: Vec<usize>,
    state: Mutex<State>,
}

struct State {
    open: Arc<Configuration>,
    changing: Option<NodeId>,
    /// The ticket of the change that was announced last.
    ticket: Ticket,
    copying: Option<CopierId>,
    thread_slots: Vec<Arc<ThreadSlot>>,
    down: BTreeSet<NodeSlot>,
    spares: Vec<NodeSlot>,
    settled: u64,
}

impl Configurations {
    /// Creates the state with the first configuration open.
    pub fn new(groups: ReplicaGroups) -> Configurations {
        let number = ConfigurationNumber::FIRST;
        let copies = (0..groups.count()).map(|group| groups.replicas(GroupId(group as u16)));
        let copies_wanted = copies.collect();
        let state = State {
            open: Arc::new(Configuration { number, groups }),
            changing: None,
            ticket: Ticket(0),
            copying: None,
            thread_slots: Vec::new(),
            down: BTreeSet::new(),
            spares: Vec::new(),
            settled: 0,
        };
        Configurations {
            announced: AtomicU64::new(number.0),
            repairers: AtomicU32::new(0),
            copies_wanted,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// The number of the configuration in which a transaction must run to begin. Usually the announced number is the
    /// open configuration's number. While a change is announced, the announced number is the number of the next
    /// configuration. No transaction runs in the next configuration yet.
    #[inline]
    pub fn announced(&self) -> ConfigurationNumber {
        ConfigurationNumber(self.announced.load(Ordering::SeqCst))
    }

    /// The configuration that was opened last. Transactions run in the open configuration if its number is the
    /// announced number.
    pub fn open(&self) -> Arc<Configuration> {
        Arc::clone(&self.state().open)
    }

    /// Registers a thread of a node's incarnation.
    pub fn register(&self, node: NodeId) -> Arc<ThreadSlot> {
        let thread_slot = Arc::new(ThreadSlot { node, busy: AtomicBool::new(false) });
        self.state().thread_slots.push(Arc::clone(&thread_slot));
        thread_slot
    }

    /// Unregisters a thread that has ended. If the thread was busy, its slot stays, because only the recovery of the
    /// thread's node settles the thread's transactions.
    pub fn unregister(&self, thread_slot: &Arc<ThreadSlot>) {
        if !thread_slot.busy.load(Ordering::Acquire) {
            self.state().thread_slots.retain(|other| !Arc::ptr_eq(other, thread_slot));
        }
    }

    /// Whether any coroutine handles dead nodes. If so, callers wait for the replacement of a failed memory node.
    pub fn is_mended(&self) -> bool {
        self.repairers.load(Ordering::Acquire) > 0
    }

    /// Registers a coroutine that handles dead nodes.
    pub fn begin_repairing(&self) -> Repairing<'_> {
        self.repairers.fetch_add(1, Ordering::AcqRel);
        Repairing(&self.repairers)
    }

    /// The number of copies that each replica group had at first.
    pub fn copies_wanted(&self) -> &[usize] {
        &self.copies_wanted
    }

    /// Whether this thread may fill joining copies. A thread may fill joining copies if the previous copier has ended
    /// its work. The thread may also fill them if the previous copier's incarnation is recovered, because its access
    /// is then revoked. Otherwise a late WRITE of the previous copier could undo newer writes.
    pub fn claim_copying(&self, me: CopierId, membership: &dyn Membership) -> bool {
        let mut state = self.state();
        let over = |(node, _): CopierId| membership.standing(node) == Standing::Recovered;
        let free = state.copying.is_none_or(|other| other == me || over(other));
        if free {
            state.copying = Some(me);
        }
        free
    }

    /// Records that every WRITE with which this thread filled copies has been acknowledged.
    pub fn end_copying(&self, me: CopierId) {
        let mut state = self.state();
        if state.copying == Some(me) {
            state.copying = None;
        }
    }

    /// Records that a memory node does not answer: a round of verbs to the node ended in `NodeDown`.
    pub fn report(&self, node: NodeSlot) {
        self.state().down.insert(node);
    }

    /// The dead memory nodes that are still in the map of the open configuration.
    pub fn dead(&self) -> Vec<NodeSlot> {
        let state = self.state();
        let named = state.open.groups.nodes();
        named.into_iter().filter(|node| state.down.contains(node)).collect()
    }

    /// Whether a memory node was reported dead.
    pub fn is_down(&self, node: NodeSlot) -> bool {
        self.state().down.contains(&node)
    }

    /// Adds an empty memory node: a spare, or a new incarnation of a dead node, which has a slot of its own.
    pub fn add_spare(&self, node: NodeSlot) {
        self.state().spares.push(node);
    }

    /// The empty memory nodes that are alive.
    pub fn spares(&self) -> Vec<NodeSlot> {
        let state = self.state();
        state.spares.iter().copied().filter(|node| !state.down.contains(node)).collect()
    }

    /// The node that changes the configuration, and the thread that fills copies. Either of them may be dead.
    pub fn at_work(&self) -> (Option<NodeId>, Option<CopierId>) {
        let state = self.state();
        (state.changing, state.copying)
    }

    /// The number of transactions in doubt that were resolved. A copy of a replica group is not trusted if this
    /// number changed while the copy was made.
    pub fn settled(&self) -> u64 {
        self.state().settled
    }

    /// The number of changes announced so far, for code that compares states.
    pub fn changes(&self) -> u64 {
        self.state().ticket.0
    }

    /// Increments the number of transactions in doubt that were resolved.
    pub fn note_settled(&self) {
        self.state().settled += 1;
    }

    /// Announces a change of the configuration, so that no transaction begins any more. Returns `None` if another
    /// living member has announced a change that is not complete.
    pub fn announce(&self, by: NodeId, membership: &dyn Membership) -> Option<Change> {
        let mut state = self.state();
        let busy = |other: NodeId| other != by && membership.is_member(other);
        if state.changing.is_some_and(busy) {
            return None;
        }
        state.changing = Some(by);
        let number = ConfigurationNumber(state.open.number.0 + 1);
        state.ticket = Ticket(state.ticket.0 + 1);
        self.announced.store(number.0, Ordering::SeqCst);
        Some(Change { number, ticket: state.ticket })
    }

    /// Whether a change still belongs to the node that announced it. A change no longer belongs to its node after
    /// another node has taken the change over, or after it was opened or called off.
    pub fn is_announced(&self, change: Change) -> bool {
        self.state().is_announced(change)
    }

    /// The members that are not quiet yet. Each member with a busy thread is listed once.
    pub fn late(&self, membership: &dyn Membership) -> Vec<NodeId> {
        let state = self.state();
        let busy =
            state.thread_slots.iter().filter(|thread_slot| thread_slot.busy.load(Ordering::SeqCst));
        let mut late: Vec<NodeId> = busy.map(|thread_slot| thread_slot.node).collect();
        late.retain(|node| membership.is_member(*node));
        late.sort_unstable();
        late.dedup();
        late
    }

    /// Opens the announced configuration with `groups`, under four conditions. First, the change still belongs to the
    /// caller. Second, the caller is a member. Third, every expelled incarnation is recovered. Fourth, no incarnation
    /// has ended since the caller saw `view`. The function checks all conditions and opens the configuration in one
    /// step. So an incarnation that ends later ends in this configuration, and its recoverer finds this map. Returns
    /// whether the configuration was opened.
    pub fn finish(
        &self,
        change: Change,
        groups: ReplicaGroups,
        (membership, by, view): (&dyn Membership, NodeId, ViewNumber),
    ) -> bool {
        let mut state = self.state();
        if !state.is_announced(change) {
            return false;
        }
        let mut groups = Some(groups);
        membership.while_settled(by, view, &mut || {
            let groups = groups.take().expect("a change calls this function once");
            state.open = Arc::new(Configuration { number: change.number, groups });
            state.changing = None;
        })
    }

    /// Calls a change off, so that transactions begin again in the open configuration. The open configuration keeps
    /// its number, because transactions of threads that were not quiet may still run in it. The function does nothing
    /// if another node took the change over, or the next configuration is open already.
    pub fn call_off(&self, change: Change) {
        let mut state = self.state();
        if state.is_announced(change) {
            state.changing = None;
            self.announced.store(state.open.number.0, Ordering::SeqCst);
        }
    }
}

impl State {
    fn is_announced(&self, change: Change) -> bool {
        change.ticket == self.ticket && change.number != self.open.number && self.changing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::membership::EmbeddedMembership;

    #[test]
    fn a_change_waits_for_busy_threads_and_opens_once() {
        let membership = EmbeddedMembership::new(2);
        let [one, two] = [0, 1].map(|slot| membership.join(NodeSlot(slot)).expect("a life"));
        let groups = ReplicaGroups::new(vec![vec![NodeSlot(0), NodeSlot(1)]]);
        let configurations = Configurations::new(groups.clone());
        let thread_slot = configurations.register(one);
        thread_slot.occupy();
        let change = configurations.announce(two, &membership).expect("nobody is at one");
        assert_eq!(configurations.announce(one, &membership), None);
        assert_eq!(configurations.late(&membership), [one]);
        assert_ne!(configurations.announced(), configurations.open().number);
        thread_slot.vacate();
        assert_eq!(configurations.late(&membership), []);
        let less = groups.without(NodeSlot(0)).expect("a member");
        let by = |by| (&membership as &dyn Membership, by, membership.view());
        assert!(configurations.finish(change, less.clone(), by(two)));
        assert_eq!(configurations.open().groups, less);
        assert_eq!(configurations.announced(), configurations.open().number);
        let again = configurations.announce(two, &membership).expect("nobody is at one");
        assert!(
            !configurations.finish(change, groups.clone(), by(two)),
            "an old right opens nothing"
        );
        configurations.call_off(change);
        assert_ne!(configurations.announced(), configurations.open().number);
        configurations.call_off(again);
        assert_eq!(configurations.announced(), configurations.open().number);
        assert_eq!(configurations.open().groups, less);
        let last = configurations.announce(two, &membership).expect("nobody is at one");
        let seen = by(two);
        membership.expel(one);
        assert!(!configurations.finish(last, groups.clone(), by(two)), "a life is not recovered");
        membership.claim_recovery(one, two);
        assert!(membership.recovered(one, two));
        assert!(!configurations.finish(last, groups.clone(), seen), "the caller has missed it");
        assert!(configurations.finish(last, groups.clone(), by(two)));
        let zombies = configurations.announce(two, &membership).expect("nobody is at one");
        membership.leave(two);
        assert!(!configurations.finish(zombies, less, by(two)), "no member");
    }

    #[test]
    fn a_change_that_is_called_off_keeps_the_number_and_loses_its_right() {
        let membership = EmbeddedMembership::new(2);
        let [one, two] = [0, 1].map(|slot| membership.join(NodeSlot(slot)).expect("a life"));
        let groups = ReplicaGroups::new(vec![vec![NodeSlot(0), NodeSlot(1)]]);
        let configurations = Configurations::new(groups.clone());
        let before = configurations.open();
        let finish = |change, by| {
            let view = membership.view();
            configurations.finish(change, groups.clone(), (&membership, by, view))
        };
        let dropped = configurations.announce(one, &membership).expect("no other change");
        assert_eq!(dropped.number(), ConfigurationNumber(before.number.0 + 1));
        configurations.call_off(dropped);
        assert_eq!(configurations.open(), before, "a thread that was busy still runs in it");
        assert_eq!(configurations.announced(), before.number);
        assert!(!finish(dropped, one), "called off");
        let next = configurations.announce(two, &membership).expect("no other change");
        assert_eq!(next.number(), dropped.number());
        assert!(!finish(dropped, one), "the same number, announced by another");
        configurations.call_off(dropped);
        assert!(configurations.is_announced(next), "not its to call off");
        assert!(finish(next, two));
        assert_eq!(configurations.open().number, next.number());
        assert!(!finish(next, two), "once");
        configurations.call_off(next);
        assert_eq!(configurations.announced(), next.number(), "it has taken place");
    }

    #[test]
    fn a_busy_thread_slot_outlives_its_thread() {
        let membership = EmbeddedMembership::new(1);
        let node = membership.join(NodeSlot(0)).expect("a life");
        let configurations = Configurations::new(ReplicaGroups::new(vec![vec![NodeSlot(0)]]));
        let [idle, busy] = [0, 1].map(|_| configurations.register(node));
        busy.occupy();
        configurations.unregister(&idle);
        configurations.unregister(&busy);
        assert_eq!(configurations.late(&membership), [node]);
    }
}
