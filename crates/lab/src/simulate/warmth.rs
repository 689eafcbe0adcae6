//! Determines the addresses that threads already know when a phase begins. So a phase can represent the middle of a
//! run that is too long to simulate.
//!
//! Invariant: threads know only addresses that they would know in such a long run. The transactions of the long run
//! are drawn in the same way as the transactions of the phase. Each transaction is assigned to the thread that would
//! run it. The thread that runs a transaction remembers the addresses of the records whose keys the transaction's
//! input contains. All addresses come from loading, and an address is only a guess
//! ([`tarn_store::memory::address_cache`]). Nodes that grant locks also cache the version tables of those records
//! whose locks they grant. After an infinitely long run, all threads know the addresses of all loaded records.

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

/// The random generator's stream that draws the transactions before the phase.
const STREAM: u64 = u64::MAX - 1;
/// The number of entries in a direct-mapped cache for each address that the cache is to hold. With this many entries,
/// few addresses displace one another.
const ROOM: u64 = 4;
/// The number of entries per address in a cache that is to hold all addresses. With this many entries, hardly any
/// address displaces another.
const ROOM_FOR_ALL: u64 = 16;
/// The largest number of READs in one round that reads version tables for a node's cache.
const READS_AT_ONCE: usize = 64;

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// The rule that determines the addresses that threads already know when a phase begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Warmth {
    /// Whether the threads of a node share their known addresses, or each thread knows only its own
    /// addresses.
    pub by_node: bool,
    /// The number of transactions before the phase, for each record of the database. An infinite
    /// number means that the transactions accessed all records.
    pub transactions_per_record: f64,
}

impl Warmth {
    /// Each node knows the addresses of all records.
    pub const ALL: Warmth = Warmth { by_node: true, transactions_per_record: f64::INFINITY };

    fn knows_all(&self) -> bool {
        self.transactions_per_record.is_infinite()
    }

    fn transactions(&self, records: u64) -> u64 {
        (self.transactions_per_record * records as f64).round() as u64
    }

    /// Returns the number of entries of one cache, if the cluster has `caches` caches.
    fn entries(&self, records: u64, caches: usize) -> usize {
        if self.knows_all() {
            return self.atlas_entries(records);
        }
        // If each thread has its own cache, a thread has run at most its share of the transactions.
        let seen = self.transactions(records).div_ceil(caches as u64);
        let seen = if self.by_node { records } else { seen.min(records) };
        (seen * ROOM) as usize
    }

    /// Returns an error if the known addresses need more memory than this machine has.
    ///
    /// # Errors
    /// The error names the number of addresses that would be cached.
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

    /// Makes a cache with space for the addresses of all records. Loading fills this cache.
    pub(super) fn atlas(&self, records: u64) -> AddressCache {
        AddressCache::new(self.atlas_entries(records))
    }

    /// Gives each of these threads the addresses that the thread would know.
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
                // The records of the whole node are collected in the list of the node's first thread.
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

/// Makes a compute node cache version tables. The node caches the tables of those records of its own shards that were
/// the first records of its transactions. The node caches as many version tables as it has space for, and adds the
/// tables of the most recently used records last.
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
