//! Checks the invariants of the social graph when no transaction runs.
//!
//! Invariant: the check scans both tables. The check uses only the tally's numbers of writes.

use super::graph::{EDGES, OBJECTS, edge_rows, reverse_of, timestamp};
use super::{Tally, TaoBench};
use crate::workload::Invariant;
use std::collections::BTreeMap;
use tarn_engine::site::Context;
use tarn_engine::admin::inspect::scan;
use tarn_store::ids::Failure;
use tarn_store::schema::TableId;

/// The number of rows of a table, the sum of their timestamps, and the number of torn rows.
#[derive(Default)]
struct Seen {
    rows: u64,
    writes: u64,
    wrong: u64,
}

pub(super) async fn check(
    bench: &TaoBench,
    cx: &Context,
    tally: &Tally,
) -> Result<Vec<Invariant>, Failure> {
    let edges = bench.source.edges.records();
    let mut both_ways = BTreeMap::new();
    let objects = seen(cx, OBJECTS, |_, _| ()).await?;
    let links = seen(cx, EDGES, |key, timestamp| {
        if reverse_of(key).is_some() {
            both_ways.insert(key, timestamp);
        }
    })
    .await?;
    let alone = both_ways.iter().filter(|&(&key, timestamp)| {
        reverse_of(key).and_then(|reverse| both_ways.get(&reverse)) != Some(timestamp)
    });
    let alone = alone.count();
    Ok(vec![
        rows("no object's update lost", &objects, 2 * edges, tally, 0),
        rows("no edge's update lost", &links, edge_rows(edges), tally, 1),
        Invariant {
            name: "edge and reverse edge agree",
            ok: alone == 0,
            detail: format!("{} edges that go both ways, {alone} without an equal reverse edge", both_ways.len()),
            of_memory: true,
        },
        Invariant {
            name: "reads were whole",
            ok: tally.torn == 0,
            detail: format!("{} torn or missing rows", tally.torn),
            of_memory: false,
        },
    ])
}

async fn seen(
    cx: &Context,
    table: TableId,
    mut also: impl FnMut(u64, u64),
) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    scan(cx, table, |stored| {
        let timestamp = timestamp(&stored.row);
        seen.rows += 1;
        seen.writes += timestamp.unwrap_or(0);
        seen.wrong += u64::from(timestamp.is_none());
        also(stored.key, timestamp.unwrap_or(0));
    })
    .await?;
    Ok(seen)
}

fn rows(name: &'static str, seen: &Seen, loaded: u64, tally: &Tally, table: usize) -> Invariant {
    let (added, updated) = (tally.written.added[table], tally.written.updated[table]);
    let (adds, updates) = (tally.untold_added[table], tally.untold_updated[table]);
    let is_there = adds.admits(seen.rows as i64, (loaded + added) as i64);
    let is_counted = updates.admits(seen.writes as i64, updated as i64);
    Invariant {
        name,
        ok: is_there && is_counted && seen.wrong == 0,
        detail: format!(
            "{} rows, {loaded} loaded and {added} added{adds}; {} writes found, {updated} made{updates}; {} not \
             whole",
            seen.rows, seen.writes, seen.wrong
        ),
        of_memory: false,
    }
}
