//! Finds the name of the object at an address: a table's record, a record's lock, a bin, a bucket, or a log.
//!
//! Invariant: the names are derived from the catalog's plan and from the memory after the run. If a record moved or
//! was deleted after the access, the trace names the record's place (bucket and slot) instead of its key.

use super::{Batch, Transaction, VerbSeen};
use std::collections::BTreeMap;
use tarn_engine::site::Context;
use tarn_fabric::address::Address;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_store::layout::Geometry;
use tarn_store::layout::{DIRECTORY_BYTES, KEY_AT, LOCK_AT, RecordLayout, Slot};
use tarn_store::placement::catalog::{Catalog, Table};

/// The place within a table to which an address points.
enum Spot {
    /// A place in a bucket's directory record, `into` bytes after its start.
    Directory { bucket: u64, into: u64 },
    /// A place in a slot, `into` bytes after the slot's start.
    Slot { bucket: u64, slot: u64, head: Address, into: u64 },
}

/// Names the objects that the verbs of `transactions` accessed. The function reads memory with `cx` while no
/// coordinator of the cluster runs.
pub fn name_all(cx: &Context, transactions: &mut [Transaction]) {
    let mut places = Places { cx, catalog: &cx.database().catalog, keys: BTreeMap::new() };
    for txn in transactions {
        let coordinator = txn.coordinator;
        let heads = places.heads(txn);
        for batch in batches_mut(txn) {
            for verb in &mut batch.verbs {
                verb.what = places.name(verb, coordinator, &heads);
            }
        }
    }
}

fn batches_mut(txn: &mut Transaction) -> impl Iterator<Item = &mut Batch> {
    let rounds = txn.tries.iter_mut().flat_map(|it| &mut it.rounds);
    rounds.flat_map(|round| &mut round.batches)
}

struct Places<'a> {
    cx: &'a Context,
    catalog: &'a Catalog,
    /// The keys found so far, by the address of the record's slot.
    keys: BTreeMap<u64, Option<u64>>,
}

impl<'a> Places<'a> {
    /// Returns the slots that a transaction accessed alone. A slot that was accessed alone shows which record of a
    /// bin the transaction wanted.
    fn heads(&self, txn: &Transaction) -> Vec<Address> {
        let batches = txn.rounds().flat_map(|round| &round.batches);
        let mut heads: Vec<Address> = batches
            .flat_map(|batch| &batch.verbs)
            .filter_map(|verb| match self.spot(verb.address)? {
                (table, Spot::Slot { head, .. }) if slots(table, verb) == 1 => Some(head),
                _ => None,
            })
            .collect();
        heads.sort_unstable_by_key(|head| head.to_word());
        heads.dedup();
        heads
    }

    fn name(&mut self, verb: &VerbSeen, coordinator: u32, heads: &[Address]) -> String {
        let Some((table, spot)) = self.spot(verb.address) else {
            return self.outside(verb.address, coordinator);
        };
        let name = &table.schema.name;
        let (bucket, thing) = match spot {
            Spot::Directory { bucket, into } if verb.bytes > DIRECTORY_BYTES => {
                debug_assert!(into == 0);
                return format!("bucket {bucket} of {name}");
            }
            Spot::Directory { bucket, into } => (bucket, act(verb, into, "directory")),
            Spot::Slot { bucket, .. } if slots(table, verb) > Geometry::SLOTS_PER_BIN => {
                return format!("slots of {name} bucket {bucket}");
            }
            Spot::Slot { bucket, slot, head, .. } if slots(table, verb) > 1 => {
                let end = head.to_word() + verb.bytes as u64;
                let own = heads.iter().find(|it| (head.to_word()..end).contains(&it.to_word()));
                return match own.and_then(|own| self.key(*own, &table.slot)) {
                    Some(key) => format!("bin of {name} {key}"),
                    None => format!("bin {bucket}.{} of {name}", slot / BIN),
                };
            }
            Spot::Slot { bucket, slot, head, into } => {
                let thing = act(verb, into, &part(&table.slot, verb, into));
                return match self.key(head, &table.slot) {
                    Some(key) => format!("{thing}{name} {key}"),
                    None => format!("{thing}{name} slot {bucket}.{slot}"),
                };
            }
        };
        format!("{thing}of {name} bucket {bucket}")
    }

    /// Returns the table and the spot of an address, if the address is in a table's first segment.
    fn spot(&self, address: Address) -> Option<(&'a Table, Spot)> {
        let offset = address.offset_bytes();
        let inside = |table: &&Table| {
            let Geometry { first_segment_at, buckets, bucket_bytes, .. } = table.geometry;
            (first_segment_at..first_segment_at + buckets * bucket_bytes as u64).contains(&offset)
        };
        let table = self.catalog.tables().iter().find(inside)?;
        let bucket_bytes = table.geometry.bucket_bytes as u64;
        let from = offset - table.geometry.first_segment_at;
        let (bucket, into) = (from / bucket_bytes, from % bucket_bytes);
        if into < DIRECTORY_BYTES as u64 {
            return Some((table, Spot::Directory { bucket, into }));
        }
        let slot_bytes = table.slot.slot_bytes as u64;
        let (slot, into) = (
            (into - DIRECTORY_BYTES as u64) / slot_bytes,
            (into - DIRECTORY_BYTES as u64) % slot_bytes,
        );
        let head = Address::new(address.group(), offset - into);
        Some((table, Spot::Slot { bucket, slot, head, into }))
    }

    fn outside(&self, address: Address, coordinator: u32) -> String {
        let group = address.group();
        let all = self.catalog.options();
        let from = self.catalog.log(group, 0).offset_bytes();
        let offset = address.offset_bytes();
        let logs = from..from + u64::from(all.coordinators_max) * all.log_bytes;
        if logs.contains(&offset) {
            let whose = (offset - from) / all.log_bytes;
            return match whose == u64::from(coordinator) {
                true => "log".to_owned(),
                false => format!("log of coordinator {whose}"),
            };
        }
        let header = |table: &&Table| {
            let at = table.geometry.header_at;
            (at..at + Geometry::HEADER_BYTES as u64).contains(&offset)
        };
        match self.catalog.tables().iter().find(header) {
            Some(table) => format!("index header of {}", table.schema.name),
            None if offset >= self.catalog.chunk(group, 0).offset_bytes() => {
                format!("heap of group {}", group.0)
            }
            None => format!("plan of group {}", group.0),
        }
    }

    /// Returns the key word of the record in a slot.
    fn key(&mut self, head: Address, slot: &Slot) -> Option<u64> {
        let cx = self.cx;
        *self.keys.entry(head.to_word()).or_insert_with(|| {
            let mut round = Round::new();
            let target = cx.groups.primary(head);
            let image = round.read(target, slot.slot_bytes);
            block_on(cx.port.execute(&mut round)).ok()?;
            let is_free = slot.is_free(round.bytes(image, slot.slot_bytes));
            (!is_free).then(|| round.word(image.plus(KEY_AT)))
        })
    }
}

const BIN: u64 = Geometry::SLOTS_PER_BIN as u64;

/// Returns the number of slots that a READ covers; every other verb covers one slot.
fn slots(table: &Table, verb: &VerbSeen) -> usize {
    if verb.kind == "READ" { verb.bytes.div_ceil(table.slot.slot_bytes).max(1) } else { 1 }
}

/// Names the part of a multi-version slot that a verb accesses; the text is empty if the verb
/// accesses the whole slot.
fn part(slot: &Slot, verb: &VerbSeen, into: u64) -> String {
    let is_all = verb.bytes >= slot.used_bytes();
    if slot.record == RecordLayout::InPlace || is_all || into == LOCK_AT as u64 {
        return String::new();
    }
    format!("{} of", slot.field_at(into as usize))
}

/// Describes the action of a verb, if the verb's kind does not already tell it. The verb's address is `into` bytes
/// after the start of the object `thing`.
fn act(verb: &VerbSeen, into: u64, thing: &str) -> String {
    let lock = into == LOCK_AT as u64;
    let words = match (verb.kind, verb.bytes) {
        ("CAS", _) if lock && verb.swap.1 == 0 => "unlock",
        ("CAS", _) if lock => "lock",
        ("WRITE", 8) if lock => "unlock",
        ("READ", 16) if lock => "lock and version of",
        _ => "",
    };
    let parts: Vec<&str> = [words, thing].into_iter().filter(|word| !word.is_empty()).collect();
    if parts.is_empty() { String::new() } else { format!("{} ", parts.join(" ")) }
}
