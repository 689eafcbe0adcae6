//! Tests of the answers of the membership service in one process.
//!
//! Invariant checked: the state of an incarnation changes in one direction only, and one node recovers an incarnation
//! at a time. If two nodes change one entry of the shard map, the service refuses one of the two changes.

use super::*;

fn three() -> (EmbeddedMembership, [NodeId; 3]) {
    let service = EmbeddedMembership::new(3);
    let ids = [0, 1, 2].map(|slot| service.join(NodeSlot(slot)).expect("a life"));
    (service, ids)
}

/// Tests that incarnations join and end. The service keeps one entry for each ended incarnation, which tells how the
/// incarnation ended.
#[test]
fn the_register_keeps_one_entry_of_ended_lives() {
    let service = EmbeddedMembership::new(2);
    let last = (1..INCARNATIONS_MAX).map(|_| {
        let node = service.join(NodeSlot(0)).expect("a life");
        service.retire(node);
        service.leave(node);
        // If a node retires after its incarnation has ended, the incarnation stays ended.
        service.retire(node);
        node
    });
    let last = last.last();
    let register = service.register();
    assert_eq!((register.members.len(), register.retired.len()), (0, 0));
    assert_eq!(register.ended.len(), INCARNATIONS_MAX - 1);
    assert_eq!(register.ended.keys().last().copied(), last);
}

#[test]
fn a_slot_waits_for_the_recovery_of_its_last_life() {
    let (service, [dead, by, _]) = three();
    let before = service.view();
    assert_eq!(service.claim_recovery(dead, by), Claim::NotExpelled);
    assert!(service.expel(dead) > before);
    assert_eq!(service.expel(dead), service.view(), "idempotent");
    assert_eq!(
        (service.standing(dead), service.renew(dead)),
        (Standing::Expelled, Renewal::Expelled)
    );
    let refused = service.join(dead.slot).expect_err("not recovered").to_string();
    assert!(refused.contains("compute node slot = 0 after life 1"), "{refused}");
    assert_eq!(service.claim_recovery(dead, by), Claim::Granted { before: vec![] });
    assert!(service.recovered(dead, by));
    assert_eq!(service.standing(dead), Standing::Recovered);
    let next = service.join(dead.slot).expect("recovered");
    assert_eq!((next.incarnation.0, service.standing(next)), (2, Standing::Member));
    assert!(service.unrecovered().is_empty());
}

#[test]
fn one_recovers_at_a_time_and_another_takes_over() {
    let (service, [dead, first, second]) = three();
    service.expel(dead);
    assert_eq!(service.claim_recovery(dead, dead), Claim::NotMember);
    assert_eq!(service.claim_recovery(dead, first), Claim::Granted { before: vec![] });
    assert_eq!(service.claim_recovery(dead, second), Claim::Held { by: first });
    service.give_back(dead, second);
    service.give_back(dead, first);
    assert_eq!(service.claim_recovery(dead, second), Claim::Granted { before: vec![] });
    service.give_back(dead, second);
    assert_eq!(service.claim_recovery(dead, first), Claim::Granted { before: vec![] });
    service.expel(first);
    assert_eq!(service.unrecovered(), [dead, first]);
    assert_eq!(service.claim_recovery(dead, second), Claim::Granted { before: vec![first] });
    assert!(!service.recovered(dead, first), "it has lost its claim");
    assert!(service.recovered(dead, second) && service.recovered(dead, second));
    assert_eq!(service.claim_recovery(dead, second), Claim::Done);
}

#[test]
fn a_node_with_an_old_view_changes_nothing() {
    let (service, [dead, by, other]) = three();
    let ran = |by: NodeId, view: ViewNumber| {
        let mut ran = false;
        assert_eq!(service.while_settled(by, view, &mut || ran = true), ran);
        ran
    };
    let before = service.view();
    assert!(ran(by, before));
    service.expel(dead);
    assert!(!ran(by, before) && !ran(by, service.view()), "not recovered");
    assert_eq!(service.claim_recovery(dead, other), Claim::Granted { before: vec![] });
    assert!(service.recovered(dead, other));
    assert!(!ran(by, before), "a life has ended since");
    assert!(ran(by, service.view()));
    service.leave(other);
    assert!(!ran(other, service.view()), "no member");
}

#[test]
fn a_lease_lapses_later_by_the_service_than_by_its_holder() {
    let terms = LeaseTerms { lease_ns: 1_000, renew_every_ns: 300, drift_ppm: 100_000 };
    let service = EmbeddedMembership::with_leases(1, terms);
    let node = service.join(NodeSlot(0)).expect("a life");
    assert_eq!(terms.held_until(Nanos(5_000)), Nanos(5_818));
    assert_eq!(LeaseTerms::ENDLESS.held_until(Nanos(5)), Nanos(u64::MAX));
    assert!(service.tick(Nanos(50)).is_empty(), "counted from here");
    assert!(service.tick(Nanos(1_049)).is_empty());
    assert_eq!(service.tick(Nanos(1_050)), [node]);
    assert!(matches!(service.renew(node), Renewal::Renewed { .. }), "not expelled yet");
    assert!(service.tick(Nanos(9_000)).is_empty(), "renewed since");
    assert_eq!(service.tick(Nanos(10_000)), [node]);
    service.leave(node);
    assert_eq!(service.standing(node), Standing::Recovered);
}

#[test]
fn shards_are_dealt_out_evenly_and_once() {
    let (service, ids) = three();
    assert_eq!(service.shard(ShardId(0)), None);
    service.open_shards(&ids);
    service.open_shards(&ids[..1]);
    let owned = |node| {
        let is_its = |&it: &ShardId| service.shard(it).is_some_and(|it| it.is_served_by(node));
        ShardId::all().filter(is_its).collect::<Vec<_>>()
    };
    let counts = ids.map(|id| owned(id).len());
    assert_eq!(counts.iter().sum::<usize>(), 4096);
    assert!(counts.iter().all(|count| count.abs_diff(1365) <= 1), "{counts:?}");
    // Warehouses 1 to 105 have the first shards. The service distributes these first shards evenly too.
    let low = ids.map(|id| owned(id).iter().filter(|shard| (1..=105).contains(&shard.0)).count());
    assert_eq!(low, [35; 3]);
}

/// Tests that a transfer moves a shard only once, even if it comes twice or races with another change.
#[test]
fn of_two_changers_of_an_entry_one_is_refused() {
    let (service, [owner, second, third]) = three();
    service.open_shards(&[owner]);
    let shard = ShardId(5);
    let open = service.shard(shard).expect("it has an owner");
    let closed = open.next(owner, ShardState::Closed);
    let change = |by, from, to| service.change_shard(by, shard, from, to);
    let refused = ShardChange::Refused(Some(open));
    assert_eq!(change(second, open, closed), refused, "not its own");
    assert_eq!(change(owner, open, open.next(second, ShardState::Open)), refused, "not closed");
    assert_eq!(change(owner, open, closed), ShardChange::Made);
    let [to_second, to_third] = [second, third].map(|to| closed.next(to, ShardState::Open));
    assert_eq!(change(owner, closed, to_second), ShardChange::Made);
    for late in [to_second, to_third, closed.next(owner, ShardState::Open)] {
        assert_eq!(change(owner, closed, late), ShardChange::Refused(Some(to_second)));
    }
    assert_eq!(service.shard_changes(), 4096 + 2);
}

/// Tests that threads race to give each shard to themselves. Each shard belongs to the thread whose change the
/// service accepted.
#[test]
fn racing_changers_make_one_owner_of_each_shard() {
    let (service, [owner, second, third]) = three();
    service.open_shards(&[owner]);
    let take = |to: NodeId| {
        let mut taken = Vec::new();
        for shard in ShardId::all() {
            let from = service.shard(shard).expect("it has an owner");
            let closed = from.next(owner, ShardState::Closed);
            // Both threads close the shard, or find it closed. After that, both threads try to give the same shard
            // away.
            service.change_shard(owner, shard, from, closed);
            let given = closed.next(to, ShardState::Open);
            if service.change_shard(owner, shard, closed, given) == ShardChange::Made {
                taken.push(shard);
            }
        }
        taken
    };
    let [one, other] = std::thread::scope(|scope| {
        let threads = [second, third].map(|to| scope.spawn(move || (to, take(to))));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    for (node, taken) in [&one, &other] {
        let owns = |shard: &ShardId| service.shard(*shard).expect("an owner").owner == *node;
        assert!(taken.iter().all(owns));
    }
    let twice = one.1.iter().filter(|shard| other.1.contains(shard)).count();
    assert_eq!(twice, 0);
    assert_eq!(one.1.len() + other.1.len(), 4096, "one of them gave each away");
}

/// Tests two barriers: the dead incarnation is recovered, and no node relies on locks that it granted any more.
#[test]
fn lost_shards_open_when_all_nodes_have_released_them() {
    let (service, [dead, second, third]) = three();
    service.open_shards(&[dead, second]);
    let shard = ShardId(0);
    service.expel(dead);
    let lost = service.shard(shard).expect("it had an owner");
    assert_eq!((lost.owner, lost.state, lost.epoch), (dead, ShardState::Recovering, 2));
    assert_eq!(service.reopen_shards(dead, Heirs::Owners), Reopening::NotRecovered);
    assert_eq!(service.claim_recovery(dead, third), Claim::Granted { before: vec![] });
    assert!(service.recovered(dead, third));
    let missing = |nodes: &[NodeId]| Reopening::Unacknowledged(nodes.to_vec());
    assert_eq!(service.reopen_shards(dead, Heirs::Owners), missing(&[second, third]));
    service.ack_lost(dead, third);
    // An expelled incarnation may still run, so the service waits for it until it is recovered.
    service.expel(second);
    assert_eq!(service.reopen_shards(dead, Heirs::Owners), missing(&[second]));
    assert_eq!(service.lost_acks(dead), [third]);
    assert_eq!(service.claim_recovery(second, third), Claim::Granted { before: vec![] });
    assert!(service.recovered(second, third));
    assert_eq!(service.reopen_shards(dead, Heirs::One(second)), Reopening::NoHeir);
    let next = service.join(dead.slot).expect("recovered");
    assert_eq!(service.reopen_shards(dead, Heirs::One(next)), missing(&[next]));
    service.ack_lost(dead, next);
    assert_eq!(service.reopen_shards(dead, Heirs::One(next)), Reopening::Done);
    let reopened = service.shard(shard).expect("an owner");
    assert_eq!((reopened.is_served_by(next), reopened.epoch), (true, 3));
    for by in [third, next] {
        service.ack_lost(second, by);
    }
    assert_eq!(service.reopen_shards(second, Heirs::Owners), Reopening::Done);
    let all_open = ShardId::all().all(|it| service.shard(it).expect("an owner").owner == next);
    assert!(all_open, "the only member that owned some");
}

/// Tests that the service does not wait for a member that runs no transactions, and that such a member inherits no
/// shards.
#[test]
fn lost_shards_open_without_idle_nodes_or_for_the_slot_s_next_life() {
    let (service, [dead, second, third]) = three();
    service.open_shards(&[dead]);
    assert_eq!(service.bereaved(), []);
    service.expel(dead);
    assert_eq!(service.bereaved(), [dead]);
    assert_eq!(service.claim_recovery(dead, third), Claim::Granted { before: vec![] });
    assert!(service.recovered(dead, third));
    service.ack_lost(dead, third);
    let missing = Reopening::Unacknowledged(vec![second]);
    assert_eq!(service.reopen_shards(dead, Heirs::NextLife), missing);
    service.retire(second);
    assert_eq!(service.reopen_shards(dead, Heirs::NextLife), Reopening::NoHeir);
    let next = service.join(dead.slot).expect("recovered");
    service.ack_lost(dead, next);
    assert_eq!(service.reopen_shards(dead, Heirs::NextLife), Reopening::Done);
    assert_eq!(service.shard(ShardId(9)).map(|it| it.owner), Some(next));
    service.expel(next);
    assert_eq!(service.claim_recovery(next, third), Claim::Granted { before: vec![] });
    assert!(service.recovered(next, third));
    service.ack_lost(next, third);
    assert_eq!(service.bereaved(), [next]);
    assert_eq!(service.reopen_shards(next, Heirs::Owners), Reopening::Done);
    assert_eq!(service.shard(ShardId(9)).map(|it| it.owner), Some(third), "second runs nothing");
    assert_eq!(service.bereaved(), []);
}

#[test]
fn one_member_gives_out_timestamps_until_it_is_expelled() {
    let (service, [first, second, _]) = three();
    assert_eq!(service.timestamper(), None);
    let Succession::Granted { since, before } = service.succeed_timestamper(first) else {
        panic!("nobody did")
    };
    assert_eq!((before, service.timestamper()), (vec![], Some(Timestamper { node: first, since })));
    assert_eq!(service.succeed_timestamper(second), Succession::Held { by: first });
    service.expel(first);
    assert_eq!(service.succeed_timestamper(first), Succession::NotMember);
    let Succession::Granted { since: later, before } = service.succeed_timestamper(second) else {
        panic!("the first is expelled")
    };
    assert!(later > since && before == [first]);
    assert_eq!(service.timestamper(), Some(Timestamper { node: second, since: later }));
    let again = Succession::Granted { since: later, before: vec![first] };
    assert_eq!(service.succeed_timestamper(second), again);
}
