//! The cost of an ordered index for threads whose cached paths end at nodes that have died.
//!
//! Invariant checked: a thread whose cached path ends at a dead node abandons the path after a few rounds. The thread
//! does so whether it scans, inserts or splits.

use crate::common::budget::{measure, phase};
use crate::common::*;
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::executor::block_on;
use tarn_store::index::btree::work::{TreeTask, TreeWork};
use tarn_store::schema::TableId;
use tarn_store::schema::range::{IndexKey, Scan};

/// Tests the cost of an ordered index for a thread whose cached paths end at nodes that have died since. Since then,
/// the dead nodes are reused far away in the tree.
///
/// In an earlier version, threads did not check where a node's key range begins. A thread with such a path followed
/// the field NEXT through half of the tree (205 rounds here), and locked each of 202 leaves on its way.
#[test]
fn a_way_to_a_node_that_serves_elsewhere_is_given_up_and_not_gone_along() {
    let table = TableId(0);
    let schema = narrow("t", 40_000).ordered("by_key");
    let world = World::new(&Shape::of(&[schema]).protocol("ford"));
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let mut moving = world.coordinator(0, 0);
    fill(&mut moving, table, (0..6_000).map(|key| key * 2));
    // Each coordinator looks a key up once, and has cached the path after that.
    let probes = [11_650, 11_800];
    let mut old =
        [0, 1, 2].map(|kind| [0, 1].map(|probe| world.coordinator(1 + kind * 2 + probe, 0)));
    let look = |by: &mut Coordinator, from: u64, to: u64| {
        let range = Scan::range(IndexKey::new().u64(from), IndexKey::new().u64(to)).limit(4_000);
        measure(by, false, async |tx| {
            let seen = tx.scan(by_key, range);
            tx.fetch().await?;
            assert!(tx.scanned(seen).count() > 0);
            Ok(())
        })
    };
    for by in old.iter_mut().flatten() {
        look(by, 11_000, 12_000);
    }
    // The last leaves are merged away, and reused where the first leaves are split.
    let before = moving.context().metrics.snapshot();
    for key in (10_000..11_900).step_by(2) {
        block_on(moving.transact(async |tx| {
            tx.delete(table, key);
            tx.fetch().await
        }))
        .unwrap();
    }
    fill(&mut moving, table, (0..600).map(|key| key * 2 + 1));
    fill(&mut moving, table, (5_000..5_950).map(|key| key * 2));
    let spent = moving.context().metrics.snapshot().since(&before);
    assert!(spent.node_merges > 10 && spent.node_splits > 10, "{spent:?}");

    let [scanning, changing, splitting] = &mut old;
    for (at, from) in probes.into_iter().enumerate() {
        let scanned = look(&mut scanning[at], from, from + 10);
        assert!(scanned.rounds <= 8, "{from}: {scanned:?}");
        let by = &mut changing[at];
        let locked = phase(by.context(), "lock_leaf");
        let changed = measure(by, false, async |tx| {
            tx.insert_zeros(table, from + 1);
            tx.fetch().await
        });
        let locked = phase(by.context(), "lock_leaf") - locked;
        assert!(locked <= 2 && changed.rounds <= 10, "{from}: {locked} leaves, {changed:?}");
        // Splits and merges use other code to descend the tree. This code abandoned a path after some nodes even in
        // the earlier version.
        let (by, mut key) = (&mut splitting[at], [0; 64]);
        key[..8].copy_from_slice(&from.to_be_bytes());
        let work = TreeWork { index: by_key, task: TreeTask::Split, level: 0, key };
        let cx = Rc::clone(by.context());
        cx.tree_works.request(work);
        let before = cx.port.counts().rounds;
        fill(by, table, [20_000 + from]);
        let rounds = cx.port.counts().rounds - before;
        assert!(
            rounds <= 12,
            "{from}: {rounds} rounds for a split that is not needed and an insert"
        );
    }
    world.assert_clean();
}
