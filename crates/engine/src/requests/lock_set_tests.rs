//! Tests of a transaction's locks, which its own node and other nodes grant, with every transport.
//!
//! Invariants checked: a request for a held lock is refused, and no other request is refused. All granted locks are
//! released, even if the requester aborts, drops a future while messages are in flight, or dies.

use crate::cluster::membership::{Claim, EmbeddedMembership, ShardChange};
use crate::protocol::{ALL, AnyProtocol};
use crate::services::lock::message::{self, Ask, LOCK, RELEASE, TRANSFER};
use crate::services::lock::name::{LockMode, LockName};
use crate::services::{ServiceOptions, Transport};
use crate::site::{ComputeNode, Context, Database};
use crate::transaction::lock_set::LockSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::local::{LocalConfig, LocalFabric};
use tarn_fabric::rpc::Answer;
use tarn_store::ids::{AbortReason, Failure, Timestamp, TxnId};
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::placement::shard_map::{ShardId, ShardState};
use tarn_store::schema::{ColumnType, TableSchema};

use LockMode::{Read, Write};

/// Creates nodes with one thread each; all of them run on the thread of the test.
pub(crate) fn nodes(count: u16, transport: Transport) -> Vec<Context> {
    let schema = TableSchema::new("t", 10).column("a", ColumnType::U64);
    let options = Options { coordinators_max: 4, spare_bytes: 0, ..Options::default() };
    let protocol = AnyProtocol::by_name(ALL[0].name, "corrected").expect("there is one");
    let catalog = protocol.catalog(&[schema], &options, 1).expect("a plan");
    let config = LocalConfig { group_bytes: catalog.group_bytes(), ..LocalConfig::default() };
    let fabric = LocalFabric::new(&config).expect("a fabric");
    let groups = ReplicaGroups::new(fabric.groups().to_vec());
    let membership = Arc::new(EmbeddedMembership::new(usize::from(count)));
    let database = Arc::new(Database::new(catalog, groups, protocol, membership));
    let join = |slot| database.membership.join(NodeSlot(slot)).expect("a node");
    let ids: Vec<_> = (0..count).map(join).collect();
    database.membership.open_shards(&ids);
    let services = ServiceOptions {
        lock_table_bytes: 1 << 12,
        transport,
        ..ServiceOptions::new(1, usize::from(count))
    };
    let context = |&id| {
        let mut node = ComputeNode::new(Arc::clone(&database), id);
        node.serve_locks(&services).expect("services");
        Context::new(Arc::new(node), fabric.port(id, 0, 7), 0, 0).expect("a thread")
    };
    ids.iter().map(context).collect()
}

/// Returns a lock name and its shard, which node `owner` of `nodes` owns.
fn name(nodes: &[Context], owner: usize, key: u64) -> (LockName, ShardId) {
    let id = nodes[owner].node.id;
    let owned = |shard: &ShardId| {
        nodes[0].database().membership.shard(*shard).is_some_and(|entry| entry.owner == id)
    };
    (LockName::row(owner as u16, key), ShardId::all().find(owned).expect("it owns some"))
}

/// Runs a future to its end, and meanwhile runs the services of all nodes.
pub(crate) fn drive<T>(nodes: &[Context], future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut waiting = Waiting::from_waker(Waker::noop());
    for _ in 0..100_000 {
        nodes.iter().for_each(Context::serve);
        if let Poll::Ready(value) = future.as_mut().poll(&mut waiting) {
            return value;
        }
    }
    panic!("it never ends");
}

/// Runs all nodes until all messages in flight have arrived.
fn calm(nodes: &[Context]) {
    (0..100).for_each(|_| nodes.iter().for_each(Context::serve));
}

/// Requests locks by name from their owners, and collects the replies.
fn lock(
    nodes: &[Context],
    by: usize,
    set: &mut LockSet,
    asks: &[(usize, u64, LockMode)],
) -> (TxnId, Result<(), Failure>) {
    let cx = &nodes[by];
    let id = set.id().unwrap_or_else(|| cx.next_tag());
    for &(owner, key, mode) in asks {
        let (name, shard) = name(nodes, owner, key);
        set.ask(cx, name, shard, mode);
    }
    (id, drive(nodes, set.collect(cx, id)))
}

fn refused(reason: AbortReason) -> Result<(), Failure> {
    Err(Failure::Abort(reason))
}

fn assert_nothing_held(nodes: &[Context]) {
    calm(nodes);
    for cx in nodes {
        let services = cx.node_services();
        assert_eq!((services.locks.held(), services.granted()), (0, 0), "{}", cx.node.id);
        assert!(cx.thread_services().is_idle());
    }
}

const TRANSPORTS: [(u16, Transport); 6] = [
    (1, Transport::Own),
    (2, Transport::Rpc),
    (2, Transport::Near),
    (2, Transport::Direct),
    (3, Transport::Rpc),
    (3, Transport::Near),
];

#[test]
fn a_lock_has_one_writer_or_readers_on_any_node() {
    for (count, transport) in TRANSPORTS {
        let nodes = nodes(count, transport);
        let last = usize::from(count) - 1;
        for owner in [0, last] {
            let (mut a, mut b) = (LockSet::default(), LockSet::default());
            assert!(a.is_empty() && a.is_settled());
            let (_, granted) = lock(&nodes, 0, &mut a, &[(owner, 1, Read), (0, 2, Write)]);
            assert_eq!(granted, Ok(()), "{transport:?}");
            let (it, _) = name(&nodes, owner, 1);
            assert_eq!((a.is_held(it), b.is_held(it)), (Some(Read), None));
            assert_eq!(lock(&nodes, last, &mut b, &[(owner, 1, Read)]).1, Ok(()));
            // The other transaction holds the read lock, so this transaction cannot become the writer. A refusal does
            // not release any earlier lock.
            let conflict = refused(AbortReason::LockRefused);
            assert_eq!(lock(&nodes, 0, &mut a, &[(owner, 1, Write)]).1, conflict);
            b.release(&nodes[last], None);
            assert_eq!(lock(&nodes, last, &mut b, &[(owner, 1, Write)]).1, conflict);
            b.release(&nodes[last], None);
            a.release(&nodes[0], Some(Timestamp(1)));
            assert!(a.is_empty() && b.is_empty());
            assert_nothing_held(&nodes);
        }
    }
}

#[test]
fn a_second_request_keeps_the_lock_and_an_only_reader_becomes_the_writer() {
    for (count, transport) in TRANSPORTS {
        let nodes = nodes(count, transport);
        let owner = usize::from(count) - 1;
        let mut set = LockSet::default();
        for mode in [Read, Read, Write, Read, Write] {
            assert_eq!(lock(&nodes, 0, &mut set, &[(owner, 1, mode)]).1, Ok(()));
        }
        assert_eq!(set.is_held(name(&nodes, owner, 1).0), Some(Write));
        assert_eq!(nodes[owner].node_services().locks.held(), 1);
        set.release(&nodes[0], None);
        assert_nothing_held(&nodes);
    }
}

/// Tests that the owner grants all locks of a message or none. The message requests the first 20 records of the
/// owner.
#[test]
fn a_message_is_granted_as_a_whole_or_not_at_all() {
    let nodes = nodes(3, Transport::Rpc);
    let asks: Vec<_> = (0..20).flat_map(|key| [(1, key, Write), (2, key, Read)]).collect();
    let mut set = LockSet::default();
    assert_eq!(lock(&nodes, 0, &mut set, &asks).1, Ok(()));
    assert_eq!(set.owners().collect::<Vec<_>>(), [nodes[1].node.id, nodes[2].node.id]);
    assert_eq!(nodes.iter().map(|cx| cx.rpc().stats().executed).collect::<Vec<_>>(), [0, 1, 1]);
    let mut other = LockSet::default();
    let beside = [(1, 100, Write), (1, 7, Read), (1, 101, Write)];
    let conflict = refused(AbortReason::LockRefused);
    assert_eq!(lock(&nodes, 2, &mut other, &beside).1, conflict);
    assert_eq!(nodes[1].node_services().locks.held(), 20, "100 is free again");
    assert_eq!(other.owners().count(), 0, "nothing to be given up there");
    other.release(&nodes[2], None);
    set.release(&nodes[0], Some(Timestamp(9)));
    assert_nothing_held(&nodes);
    assert!(nodes[1].node_services().seen.get() >= Timestamp(9), "told with the release");
}

/// Tests two names with the same hash. The two names belong to different tables, and one key is computed from the
/// other.
#[test]
fn names_that_share_a_slot_do_not_refuse_their_own_transaction() {
    let table = crate::services::lock::table::LockTable::new(
        64,
        crate::services::lock::table::Bits::Shared,
    )
    .unwrap();
    let salts = [1u16, 2].map(|table| (u64::from(table) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let names = [LockName::row(1, 5), LockName::row(2, 5 ^ salts[0] ^ salts[1])];
    assert_eq!(names[0].hash(), names[1].hash());
    for (first, second) in [(Read, Write), (Write, Read), (Write, Write), (Read, Read)] {
        let mut holds = crate::services::lock::holds::Holds::default();
        assert!(holds.ask(&table, names[0], first, || {}));
        assert!(holds.ask(&table, names[1], second, || {}));
        assert_eq!(names.map(|name| holds.is_held(name)), [Some(first), Some(second)]);
        let mut other = crate::services::lock::holds::Holds::default();
        let may_read = (first, second) == (Read, Read);
        assert_eq!(other.ask(&table, names[1], Read, || {}), may_read);
        other.release(&table);
        holds.keep_first(&table, 1);
        assert_eq!((holds.len(), table.held()), (1, 1));
        holds.release(&table);
        assert_eq!(table.held(), 0);
    }
}

#[test]
fn a_request_to_the_wrong_node_is_redirected_to_the_owner() {
    for transport in [Transport::Rpc, Transport::Near, Transport::Direct] {
        let nodes = nodes(3, transport);
        let membership = &nodes[0].database().membership;
        let (_, shard) = name(&nodes, 1, 7);
        // All nodes know the first shard map. Then the shard map changes without node 0's knowledge.
        nodes.iter().for_each(Context::serve);
        let open = membership.shard(shard).unwrap();
        let ids = [1, 2].map(|at: usize| nodes[at].node.id);
        let closed = open.next(ids[0], ShardState::Closed);
        assert_eq!(membership.change_shard(ids[0], shard, open, closed), ShardChange::Made);
        let moved = closed.next(ids[1], ShardState::Open);
        assert_eq!(membership.change_shard(ids[0], shard, closed, moved), ShardChange::Made);
        nodes[1].node_services().shards.refresh(&**membership);
        let (mut set, id) = (LockSet::default(), nodes[0].next_tag());
        set.ask(&nodes[0], LockName::row(1, 7), shard, Write);
        let old_owner: Vec<_> = set.remote_owners().collect();
        assert_eq!(old_owner, [ids[0]], "as node 0 knows it");
        let told = drive(&nodes, set.collect(&nodes[0], id));
        assert_eq!(told, refused(AbortReason::WrongOwner));
        set.release(&nodes[0], None);
        set.ask(&nodes[0], LockName::row(1, 7), shard, Write);
        assert_eq!(drive(&nodes, set.collect(&nodes[0], nodes[0].next_tag())), Ok(()));
        assert_eq!(nodes[2].node_services().locks.held(), 1);
        assert_eq!(nodes[2].node_services().granted_of(shard).len(), 1);
        set.release(&nodes[0], None);
        assert_nothing_held(&nodes);
    }
}

#[test]
fn a_dropped_future_loses_no_lock() {
    let nodes = nodes(2, Transport::Rpc);
    for polls in 0..6 {
        let (mut set, id) = (LockSet::default(), nodes[0].next_tag());
        for key in 0..3 {
            let (name, shard) = name(&nodes, 1, key);
            set.ask(&nodes[0], name, shard, Write);
        }
        {
            let mut waiting = Waiting::from_waker(Waker::noop());
            let mut future = pin!(set.collect(&nodes[0], id));
            for poll in 0..polls {
                if future.as_mut().poll(&mut waiting).is_ready() {
                    break;
                }
                nodes[1 - poll % 2].serve();
            }
        }
        set.release(&nodes[0], None);
        assert_nothing_held(&nodes);
    }
}

#[test]
fn grants_of_a_dead_node_stay_until_its_recovery() {
    let nodes = nodes(3, Transport::Rpc);
    let mut set = LockSet::default();
    assert_eq!(lock(&nodes, 0, &mut set, &[(1, 1, Write), (2, 1, Write)]).1, Ok(()));
    let (dead, by) = (nodes[0].node.id, nodes[1].node.id);
    let (membership, others) = (&nodes[1].database().membership, &nodes[1..]);
    membership.expel(dead);
    calm(others);
    let held = |at: usize| others[at].node_services().locks.held();
    assert_eq!((held(0), held(1)), (1, 1), "what it may have written is guarded by them");
    // The dead incarnation gets no further locks.
    let services = others[0].node_services();
    let ask = crate::services::lock::message::Ask {
        name: LockName::row(1, 50),
        mode: Read,
        shard: name(&nodes, 1, 50).1,
        epoch: membership.shard(name(&nodes, 1, 50).1).unwrap().epoch,
    };
    let reply = services.lock(nodes[0].next_tag(), Timestamp(0), [ask].into_iter());
    assert_eq!(reply.verdict, crate::services::lock::message::Verdict::NotMember);
    assert!(matches!(membership.claim_recovery(dead, by), Claim::Granted { .. }));
    assert!(membership.recovered(dead, by));
    calm(others);
    assert_eq!((held(0), held(1)), (0, 0));
}

#[test]
fn a_transaction_with_grants_of_a_lost_node_is_refused_or_awaited() {
    let nodes = nodes(3, Transport::Rpc);
    let [mut before, mut after, mut late] = std::array::from_fn(|_| LockSet::default());
    let ask = |set: &mut LockSet, key| lock(&nodes, 0, set, &[(1, key, Write)]).1;
    assert_eq!([ask(&mut before, 1), ask(&mut after, 2)], [Ok(()), Ok(())]);
    assert_eq!(after.secure(&nodes[0]), Ok(()), "past its commit timestamp");
    let (dead, membership) = (nodes[1].node.id, &nodes[0].database().membership);
    membership.expel(dead);
    let others = [0, 2].map(|at: usize| &nodes[at]);
    let calm = || (0..100).for_each(|_| others.iter().for_each(|cx| cx.serve()));
    calm();
    assert_eq!(membership.lost_acks(dead), [others[1].node.id], "one is on its way at node 0");
    assert_eq!(before.secure(&nodes[0]), refused(AbortReason::OwnerLost));
    before.release(&nodes[0], None);
    calm();
    assert_eq!(membership.lost_acks(dead), [others[1].node.id]);
    after.release(&nodes[0], Some(Timestamp(2)));
    calm();
    assert_eq!(membership.lost_acks(dead), others.map(|cx| cx.node.id));
    // A later request to the dead node is refused immediately, and no code waits for an answer.
    let (name, shard) = name(&nodes, 1, 3);
    late.ask(&nodes[0], name, shard, Write);
    let told = drive(&nodes[..1], late.collect(&nodes[0], nodes[0].next_tag()));
    assert!(matches!(told, Err(Failure::Abort(AbortReason::OwnerLost | AbortReason::WrongOwner))));
    late.release(&nodes[0], None);
    assert!(nodes[0].thread_services().is_idle());
}

/// Two readers that both intend to write refuse one another. If both read first at every try, they would refuse one
/// another for ever.
#[test]
fn a_reader_that_could_not_write_asks_for_the_writers_lock_at_once_the_next_time() {
    for (count, transport) in TRANSPORTS {
        let nodes = nodes(count, transport);
        let last = usize::from(count) - 1;
        for owner in [0, last] {
            let (mut a, mut b) = (LockSet::default(), LockSet::default());
            let both = |a: &mut LockSet, b: &mut LockSet, mode| {
                let one = lock(&nodes, 0, a, &[(owner, 1, mode)]).1;
                (one, lock(&nodes, last, b, &[(owner, 1, mode)]).1)
            };
            let refused = refused(AbortReason::LockRefused);
            assert_eq!(both(&mut a, &mut b, Read), (Ok(()), Ok(())), "{transport:?}");
            assert_eq!(both(&mut a, &mut b, Write), (refused, refused));
            a.release(&nodes[0], None);
            b.release(&nodes[last], None);
            calm(&nodes);
            // Transaction `a` holds the read lock alone, so it can become the writer without a new lock.
            assert_eq!(both(&mut a, &mut b, Read), (Ok(()), refused));
            assert_eq!(lock(&nodes, 0, &mut a, &[(owner, 1, Write)]).1, Ok(()));
            assert_eq!(lock(&nodes, 0, &mut a, &[(owner, 2, Read)]).1, Ok(()), "another lock");
            b.release(&nodes[last], None);
            b.begin();
            assert_eq!(lock(&nodes, last, &mut b, &[(owner, 2, Read)]).1, Ok(()), "is shared");
            a.release(&nodes[0], None);
            b.release(&nodes[last], None);
            calm(&nodes);
            a.begin();
            assert_eq!(both(&mut a, &mut b, Read), (Ok(()), Ok(())), "other transactions");
            a.release(&nodes[0], None);
            b.release(&nodes[last], None);
        }
        assert_nothing_held(&nodes);
    }
}

/// Sends messages as a broken peer would send them, or messages whose words were damaged on their way.
#[test]
fn damaged_messages_do_nothing_and_are_counted() {
    let nodes = nodes(2, Transport::Rpc);
    let (name, shard) = name(&nodes, 1, 7);
    let ask = Ask { name, mode: Write, shard, epoch: 1 };
    let (mut lock, mut release, mut transfer) = (Vec::new(), Vec::new(), Vec::new());
    let id = nodes[0].next_tag();
    message::put_lock(&mut lock, id, Timestamp(3), [ask].into_iter());
    message::put_release(&mut release, id, None);
    message::put_transfer(&mut transfer, shard, Timestamp(3));
    let with = |bytes: &[u8], at: usize, put: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + put.len()].copy_from_slice(put);
        bytes
    };
    let no_life = (id.word() & !(0xfff << 40)).to_le_bytes();
    let cases = [
        // The message names a shard that does not exist: the first number beyond the last shard, and the greatest
        // number.
        (LOCK, with(&lock, 28, &[0, 16])),
        (LOCK, with(&lock, 28, &[0xff, 0xff])),
        (TRANSFER, with(&transfer, 8, &[0, 16])),
        // These messages contain an unknown mode or kind, a name that no transaction has, or a timestamp beyond the
        // last valid timestamp. Other messages are cut short.
        (LOCK, with(&lock, 32, &[2])),
        (LOCK, with(&lock, 33, &[3])),
        (LOCK, with(&lock, 0, &no_life)),
        (RELEASE, with(&release, 0, &no_life)),
        (LOCK, with(&lock, 15, &[0xff])),
        (RELEASE, with(&release, 15, &[0xff])),
        (TRANSFER, with(&transfer, 7, &[0xff])),
        (LOCK, lock[..lock.len() - 1].to_vec()),
        (LOCK, lock[..9].to_vec()),
        (RELEASE, Vec::new()),
        (TRANSFER, vec![0; 11]),
    ];
    let (rpc, peer) = nodes[0].lock_peer(nodes[1].node.id);
    let knew = nodes[1].node_services().seen.get();
    for (count, (handler, bytes)) in cases.iter().enumerate() {
        rpc.notify(peer, *handler, |to| to.extend(bytes)).expect("room for it");
        calm(&nodes);
        let (other, _) = nodes[1].lock_peer(nodes[0].node.id);
        assert_eq!(other.stats().refused, count as u64 + 1, "{handler:?} {bytes:?}");
    }
    assert_eq!(nodes[1].node_services().seen.get(), knew);
    assert_nothing_held(&nodes);
}

#[test]
fn an_empty_reply_counts_as_no_reply() {
    let nodes = nodes(2, Transport::Rpc);
    let (other, _) = nodes[1].lock_peer(nodes[0].node.id);
    for reply in [vec![9; 24], vec![0xff; 24], vec![0; 23], Vec::new()] {
        other.register(LOCK, move |_, bytes| {
            bytes.extend(&reply);
            Answer::Now
        });
        let mut set = LockSet::default();
        let (_, came) = lock(&nodes, 0, &mut set, &[(1, 7, Write)]);
        assert_eq!(came, refused(AbortReason::LockRefused));
        set.release(&nodes[0], None);
        assert_nothing_held(&nodes);
    }
}
