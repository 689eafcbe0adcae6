//! Tests a copier beside a transaction that writes, under locks of a service. The test brings the race to one exact
//! moment.
//!
//! Invariant checked: a transaction's WRITE has reached the joining copy, and not yet the primary. The copier then
//! writes no old bytes over it. No LOCK word shows the writer, and VERSION at the primary does not change meanwhile.

use crate::common::race::*;
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::pin::pin;
use tarn_engine::admin::rereplicate::copy;
use tarn_engine::recovery::Pace;
use tarn_engine::site::Context;
use tarn_fabric::address::{Address, GroupId, NodeSlot};
use tarn_fabric::round::Round;
use tarn_store::placement::catalog::Placement;

const PRIMARY: NodeSlot = NodeSlot(0);
const BACKUP: NodeSlot = NodeSlot(1);
const JOINING: NodeSlot = NodeSlot(2);
/// The copier's walk takes fewer steps.
const WALK_STEPS: usize = 5_000;

fn cluster(variant: &str) -> WeakFabric {
    let shape = Shape::of(&[narrow("narrow", 8)]).nodes(2, 2);
    let mut shape = shape.protocol("2pl/fisslock").variant(variant);
    shape.options.placement = Placement::Table;
    (shape.options.log_bytes, shape.options.coordinators_max) = (1024, 4);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
    let fabric = WeakFabric::with_spares(&shape, 5, 1);
    fabric.database.configurations.add_spare(JOINING);
    fabric.calm();
    fabric
}

/// The buckets of the table as a memory node has them.
fn buckets(fabric: &WeakFabric, by: &Context, node: NodeSlot) -> Vec<u8> {
    let geometry = &fabric.database.catalog.table(TABLE).geometry;
    let bytes = geometry.buckets as usize * geometry.bucket_bytes;
    let mut round = Round::new();
    let start = Address::new(GroupId(0), geometry.first_segment_at);
    let at = round.read(start.at(node), bytes);
    fabric.block_on(by.port.execute(&mut round)).expect("the node lives");
    round.bytes(at, bytes).to_vec()
}

/// Copies while a transaction's WRITE to the primary is held back. Returns whether the copier ended meanwhile, and
/// whether both copies are equal in the end.
fn copy_beside_a_write(variant: &str) -> (bool, bool) {
    let fabric = cluster(variant);
    let (writer, copier) = (fabric.context(0, 0), fabric.context(1, 0));
    let mut by = coordinator(&writer, 0);
    fabric.block_on(put(&mut by, 1)).expect("room");
    fabric.fail_node(BACKUP);
    fabric.database.configurations.report(BACKUP);
    change_once(&fabric, &copier);
    let joining = fabric.database.configurations.open().groups.joining(GroupId(0)).to_vec();
    assert_eq!(joining, [JOINING]);
    let before = writes(&writer);
    let (early, is_equal) = {
        let mut updating = pin!(update(&mut by, 2));
        let ended = drive(&fabric, &mut updating, STEPS_MAX, || writes(&writer) > before);
        assert_eq!(ended, None, "the data are on their way");
        fabric.hold(writer.node.id, PRIMARY);
        (0..500).for_each(|_| fabric.step());
        assert_ne!(buckets(&fabric, &copier, PRIMARY), buckets(&fabric, &copier, JOINING));
        let mut copying = pin!(copy(&copier, (GroupId(0), JOINING), Pace::UNPACED, &|| true));
        let early = drive(&fabric, &mut copying, WALK_STEPS, || false);
        fabric.land(writer.node.id, PRIMARY);
        fabric.block_on(updating).expect("both nodes live");
        let is_early = early.is_some();
        let copied = match early {
            Some(copied) => copied,
            None => fabric.block_on(copying),
        };
        assert!(copied.expect("both nodes live").is_some(), "nothing breaks the walk off");
        (0..500).for_each(|_| fabric.step());
        let of = |node| buckets(&fabric, &copier, node);
        (is_early, of(PRIMARY) == of(JOINING))
    };
    fabric.end();
    (early, is_equal)
}

#[test]
fn a_copier_waits_for_the_lock_of_a_record_that_is_being_written() {
    assert_eq!(copy_beside_a_write("corrected"), (false, true));
    let without = copy_beside_a_write("corrected,-copy-under-locks");
    assert_eq!(without, (true, false), "old bytes have replaced new ones at the copy");
}
