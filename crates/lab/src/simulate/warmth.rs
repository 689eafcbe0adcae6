//! The addresses that threads remember when a phase begins, as in the middle of a run that is longer than can be simulated.
//!
//! Invariant: nothing is known that such a run would not know. Its transactions are drawn as the phase draws them, and each
//! runs where it would run. The thread that runs it remembers where the records lie whose keys its input says. Only loading
//! tells addresses, and an address is a guess ([`tarn_store::memory::address_cache`]). Nodes that grant locks remember the
//! version tables of those of these records whose locks are theirs. After a run without end all threads know all that was
//! loaded.

use rand::RngExt as _;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use tarn::memory::caches_bytes;
use tarn_engine::site::Context;
use tarn_fabric::address::{Address, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::rng::seeded;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::UsageError;
use tarn_store::memory::address_cache::AddressCache;
use tarn_store::placement::routing::Router;
use tarn_store::schema::TableId;
use tarn_workloads::Workload;
use tarn_workloads::routes::Routes;

/// The stream of the generator that draws the run before the phase.
const STREAM: u64 = u64::MAX - 1;
/// Entries of a direct-mapped cache for each address that it may come to hold: few displace one another.
const ROOM: u64 = 4;
/// The same where all are known: of them hardly any is to be displaced.
const ROOM_FOR_ALL: u64 = 16;
/// READs of one round, at rest.
const READS_AT_ONCE: usize = 64;

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Warmth {
    /// Whether the threads of a node remember together, or each by itself.
    pub by_node: bool,
    /// Transactions before the phase, for each record of the database; infinite: so many that all records were met.
    pub transactions_per_record: f64,
}

impl Warmth {
    fn knows_all(&self) -> bool {
        self.transactions_per_record.is_infinite()
    }

    fn transactions(&self, records: u64) -> u64 {
        (self.transactions_per_record * records as f64).round() as u64
    }

    /// Entries of one cache, of so many.
    fn entries(&self, records: u64, caches: usize) -> usize {
        if self.knows_all() {
            return self.atlas_entries(records);
        }
        // A thread that remembers alone has seen its part of the transactions at the most.
        let seen = self.transactions(records).div_ceil(caches as u64);
        let seen = if self.by_node { records } else { seen.min(records) };
        (seen * ROOM) as usize
    }

    /// Refuses more addresses than this machine has memory for.
    ///
    /// # Errors
    /// Names how many would be remembered.
    pub(super) fn check(
        &self,
        records: u64,
        nodes: usize,
        threads: usize,
    ) -> Result<(), UsageError> {
        let caches = if self.by_node { nodes } else { nodes * threads };
        let own = caches_bytes(self.entries(records, caches), caches);
        let wanted = own.saturating_add(caches_bytes(self.atlas_entries(records), 1));
        match tarn::memory::available_bytes() {
            Some(available) if wanted > available => Err(UsageError {
                field: "records whose addresses are remembered".into(),
                value: format!("{records}, {:.1} GiB", gib(wanted)),
                allowed: format!("what this machine has available, {:.1} GiB", gib(available)),
            }),
            _ => Ok(()),
        }
    }

    fn atlas_entries(&self, records: u64) -> usize {
        let room = if self.knows_all() { ROOM_FOR_ALL } else { 2 * ROOM };
        (records * room) as usize
    }

    /// A cache with room for all records, which loading fills.
    pub(super) fn atlas(&self, records: u64) -> AddressCache {
        AddressCache::new(self.atlas_entries(records))
    }

    /// Gives each of these threads the addresses that it remembers.
    pub(super) fn warm<W: Workload>(
        &self,
        workload: &W,
        contexts: &mut [Context],
        (router, is_routed, seed): (&Router<'_>, bool, u64),
        atlas: &AddressCache,
    ) -> Result<(), Box<FabricError>> {
        let mut by_node: BTreeMap<NodeSlot, Vec<usize>> = BTreeMap::new();
        for (at, cx) in contexts.iter().enumerate() {
            by_node.entry(cx.node.id.slot).or_default().push(at);
        }
        let caches = if self.by_node { by_node.len() } else { contexts.len() };
        let entries = self.entries(workload.records(), caches);
        let fresh = || {
            let cache = if self.knows_all() { atlas.clone() } else { AddressCache::new(entries) };
            Rc::new(RefCell::new(cache))
        };
        for threads in by_node.values() {
            let shared = fresh();
            for at in threads {
                contexts[*at].cache = if self.by_node { Rc::clone(&shared) } else { fresh() };
                contexts[*at].remembers = true;
            }
        }
        if self.knows_all() {
            return Ok(());
        }
        let mut recent: Vec<Vec<(TableId, u64, Address)>> = vec![Vec::new(); contexts.len()];
        let (mut rng, routes) = (seeded(seed, STREAM), Routes::of(workload));
        let nodes: Vec<&Vec<usize>> = by_node.values().collect();
        for _ in 0..self.transactions(workload.records()) {
            let input = workload.draw(&mut rng);
            let (read_only, first) = routes.of_input::<W>(&input);
            let threads = match is_routed {
                true => &by_node[&router.place(read_only, first, &mut rng)],
                false => nodes[rng.random_range(0..nodes.len())],
            };
            let thread = threads[rng.random_range(0..threads.len())];
            let mut see = |table: TableId, key: u64| {
                let Some((slot, body)) = atlas.get(table, key) else { return };
                contexts[thread].cache.borrow_mut().put(table, key, slot, body);
                // The first thread of a node keeps account.
                recent[threads[0]].push((table, key, slot));
            };
            if let Some((table, key)) = first {
                see(table, key);
            }
            W::further_keys(&input, &mut see);
        }
        for threads in by_node.values() {
            let cx = &contexts[threads[0]];
            if cx.has_services() {
                remember_versions(cx, &recent[threads[0]])?;
            }
        }
        Ok(())
    }
}

/// Has a compute node remember the version tables of records of its own shards that its transactions began with, the
/// last ones last: as many as it has room for.
fn remember_versions(
    cx: &Context,
    seen: &[(TableId, u64, Address)],
) -> Result<(), Box<FabricError>> {
    let room = cx.node_services().options().version_cache_entries;
    let mut known = HashSet::new();
    let mut last: Vec<_> = seen
        .iter()
        .rev()
        .filter(|(table, key, _)| cx.may_remember(*table, *key) && known.insert((*table, *key)))
        .take(room)
        .collect();
    last.reverse();
    let mut round = Round::new();
    for some in last.chunks(READS_AT_ONCE) {
        round.begin();
        round.clear();
        let read = |&&(table, _, slot): &&(TableId, u64, Address)| {
            round.read(cx.groups.primary(slot), cx.table(table).slot.slot_bytes)
        };
        let images: Vec<BufferOffset> = some.iter().map(read).collect();
        block_on(cx.port.execute(&mut round))?;
        for (&&(table, key, slot), image) in some.iter().zip(images) {
            let words = cx.table(table).slot.used_bytes().div_ceil(8);
            cx.remember_at_rest(table, key, slot, round.words(image, words));
        }
    }
    Ok(())
}
