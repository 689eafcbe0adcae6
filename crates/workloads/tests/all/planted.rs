//! Tests with planted damage: each workload's invariants notice the damage that they must notice.
//!
//! Invariant: each test damages one thing in memory after a run. The damage is done without using the
//! engine, or in a transaction that no tally counts. The test fails if no invariant notices the
//! damage.

use crate::common::{Cluster, Shape, all_ok, small};
use tarn_engine::protocol::ALL;
use tarn_store::schema::{ColumnId, TableId};
use tarn_workloads::Workload;
use tarn_workloads::kvs::Kvs;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::taobench::TaoBench;
use tarn_workloads::tatp::Tatp;
use tarn_workloads::ycsb::Ycsb;

/// Runs the workload, checks that all invariants hold, and damages memory. Returns the names of the
/// invariants that the damage violates.
fn noticed<W: Workload>(profile: &str, damage: impl FnOnce(&Cluster)) -> Vec<&'static str> {
    let workload: W = small(profile, 100);
    let cluster = Cluster::loaded(&workload, Shape::new(ALL[0].name, 1), 3);
    let tally = cluster.run(&workload, 50, 3);
    let before = cluster.check(&workload, &tally);
    assert!(all_ok(&before), "{before:?}");
    damage(&cluster);
    let after = cluster.check(&workload, &tally);
    after.iter().filter(|invariant| !invariant.ok).map(|invariant| invariant.name).collect()
}

#[test]
fn kvs_notices_a_wrong_byte_and_an_unknown_update() {
    let torn = noticed::<Kvs>("mixed", |cluster| {
        cluster.tamper(TableId(0), 5, ColumnId(0), &[0xff; 9]);
    });
    assert!(torn.contains(&"version = 1 + updates, values whole"), "{torn:?}");
    let lost = noticed::<Kvs>("mixed", |cluster| {
        cluster.set(TableId(0), 5, ColumnId(0), &[0; 40]);
    });
    assert!(!lost.is_empty());
    assert!(!noticed::<Kvs>("ro", |cluster| cluster.remove(TableId(0), 5)).is_empty());
}

#[test]
fn smallbank_notices_a_wrong_balance_and_a_lost_account() {
    for table in [TableId(0), TableId(1)] {
        let money = noticed::<SmallBank>("spec", |cluster| {
            cluster.tamper(table, 42, ColumnId(0), &1i64.to_le_bytes());
        });
        assert_eq!(money, ["money is neither made nor lost"]);
        let lost = noticed::<SmallBank>("spec", |cluster| cluster.remove(table, 42));
        assert!(lost.contains(&"every customer has both accounts"), "{lost:?}");
    }
}

#[test]
fn taobench_notices_torn_rows_unknown_updates_and_edges_without_reverse_edges() {
    const TABLES: [TableId; 2] = [TableId(0), TableId(1)];
    let lost = ["no object's update lost", "no edge's update lost"];
    // An edge leads from an object with an even id of 28 bits to the object with the next id. An edge
    // has a type of two bits, and edges of types 1 and 2 go both ways.
    let edge = |cluster: &Cluster, types: &[u64]| {
        let keys = (0..100u64).map(|edge| (2 * edge) << 30 | (2 * edge + 1) << 2);
        let mut keys = keys.flat_map(|key| types.iter().map(move |of_type| key | of_type));
        keys.find(|&key| cluster.exists(TABLES[1], key)).expect("one of a hundred")
    };
    for (table, name) in TABLES.into_iter().zip(lost) {
        let key = |cluster: &Cluster| if table == TABLES[0] { 7 } else { edge(cluster, &[3]) };
        let torn = noticed::<TaoBench>("a", |cluster| {
            cluster.tamper(table, key(cluster), ColumnId(1), b"x");
        });
        assert_eq!(torn, [name]);
        let unknown = noticed::<TaoBench>("a", |cluster| {
            cluster.set(table, key(cluster), ColumnId(0), &1_000u64.to_le_bytes());
        });
        assert_eq!(unknown, [name]);
        let gone = noticed::<TaoBench>("a", |cluster| cluster.remove(table, key(cluster)));
        assert_eq!(gone, [name]);
    }
    let alone = noticed::<TaoBench>("oocc", |cluster| {
        cluster.remove(TABLES[1], edge(cluster, &[1, 2]));
    });
    assert_eq!(alone, [lost[1], "edge and reverse edge agree"]);
}

#[test]
fn tatp_notices_damage_to_every_table() {
    const FIRST_TYPE: u64 = 1 << 40;
    // The first subscriber should have these rows. The test fails if one of these rows does not
    // exist.
    let rows = [
        (TableId(2), "every access right has its subscriber"),
        (TableId(3), "every facility has its subscriber"),
    ];
    for (table, name) in rows {
        let lost = noticed::<Tatp>("spec", |cluster| {
            let types = 1..=4u64;
            let key = types.map(|of_type| 1 | (of_type * FIRST_TYPE));
            let first = key.into_iter().find(|&key| cluster.exists(table, key));
            cluster.remove(table, first.expect("one of each at the least"));
        });
        assert_eq!(lost, [name]);
    }
    let renamed = noticed::<Tatp>("spec", |cluster| {
        cluster.tamper(TableId(0), 7, ColumnId(0), b"000000000000008");
    });
    assert_eq!(renamed, ["subscribers as loaded, reads whole"]);
    let misled = noticed::<Tatp>("spec", |cluster| {
        cluster.tamper(TableId(1), 7, ColumnId(0), &8u64.to_le_bytes());
    });
    assert_eq!(misled, ["every number leads to its subscriber"]);
}

#[test]
fn tatp_notices_torn_or_never_inserted_forwardings() {
    const FORWARDING: TableId = TableId(4);
    let forwarding = |cluster: &Cluster| {
        let keys = (1..=100u64).flat_map(|id| {
            (1..=4u64).flat_map(move |sf| [0, 8, 16].map(|start| id | sf << 40 | start << 44))
        });
        keys.into_iter().find(|&key| cluster.exists(FORWARDING, key)).expect("one of 300")
    };
    let name = "forwardings: loaded + inserted - deleted";
    let lost = noticed::<Tatp>("spec", |cluster| cluster.remove(FORWARDING, forwarding(cluster)));
    assert_eq!(lost, [name]);
    let torn = noticed::<Tatp>("spec", |cluster| {
        cluster.tamper(FORWARDING, forwarding(cluster), ColumnId(1), b"x");
    });
    assert_eq!(torn, [name]);
}

#[test]
fn ycsb_notices_a_torn_field_and_an_unknown_update() {
    // The test damages a field of two or more words, so that one word belongs to another version.
    for (profile, column) in [("a", ColumnId(9)), ("crest-n2", ColumnId(3))] {
        let torn = noticed::<Ycsb>(profile, |cluster| {
            cluster.tamper(TableId(0), 5, column, &77u64.to_le_bytes());
        });
        assert_eq!(torn, ["no field's update lost"], "{profile}");
    }
    let lost = noticed::<Ycsb>("b16", |cluster| {
        cluster.tamper(TableId(0), 5, ColumnId(0), &1_000_000u64.to_le_bytes());
    });
    assert_eq!(lost, ["no field's update lost"]);
    let unknown = noticed::<Ycsb>("b16", |cluster| {
        cluster.set(TableId(0), 5, ColumnId(0), &0u64.to_le_bytes());
    });
    assert!(unknown.contains(&"version = 1 + committed writes"), "{unknown:?}");
}

#[test]
fn the_audit_notices_replicas_that_differ() {
    let bank: SmallBank = small("spec", 100);
    let cluster = Cluster::loaded(&bank, Shape::new(ALL[0].name, 3), 3);
    assert!(cluster.audit().is_clean());
    cluster.tamper_primary_only(TableId(0), 42, ColumnId(0), &1i64.to_le_bytes());
    assert_eq!(cluster.audit().replicas_differ, 2);
}
