//! Tests of the writes of a split, with memory modelled as a map of words: a split loses nothing, and an undone split
//! leaves no trace.
//!
//! Invariant: the tests change the modelled memory only by pieces, as a commit and an undo would.

use super::*;
use crate::transaction::lock::{HeldAs, Lock, LockKind};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tarn_fabric::address::{GroupId, Incarnation, NodeId, NodeSlot};
use tarn_store::ids::OwnerTag;
use tarn_store::log::undo::LoggedRecord;
use tarn_store::placement::catalog::{Catalog, Options};
use tarn_store::schema::{ColumnType, TableSchema};

const DEPTH: u8 = 2;

/// A model of memory: a map from each address to a word.
type Memory = BTreeMap<u64, u64>;

fn catalog(payload: u16) -> Catalog {
    let schema = TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload));
    Catalog::plan(&[schema], &Options::default(), 1).expect("a plan")
}

fn block(number: usize) -> Address {
    Address::new(GroupId(0), (number as u64 + 1) << 20)
}

/// Copies a block from the model of memory into the transaction's buffer.
fn read(txn: &mut Txn, table: &Table, memory: &Memory, at: Address) -> BufferOffset {
    let bytes = table.geometry.bucket_bytes;
    let image = txn.round.reserve_lines(bytes);
    for offset in (0..bytes).step_by(8) {
        let word = memory.get(&(at.to_word() + offset as u64)).copied().unwrap_or(0);
        txn.round.set_word(image.plus(offset), word);
    }
    image
}

/// Returns the key, version and body of every record, and every body pointer. The result contains a record's body
/// only if the table stores rows outside their slots.
fn contents(
    table: &Table,
    memory: &Memory,
    blocks: &[Address],
) -> (BTreeMap<u64, (u64, u64)>, Vec<u64>) {
    let (mut records, mut bodies) = (BTreeMap::new(), Vec::new());
    for at in blocks {
        for slot in 0..table.geometry.slots {
            let start = at.plus(DIRECTORY_BYTES + slot * table.slot.slot_bytes).to_word();
            let word = |offset: usize| memory.get(&(start + offset as u64)).copied().unwrap_or(0);
            let version = Version::from_word(word(VERSION_AT));
            let body = table.slot.body_at.map_or(0, word);
            bodies.extend((body != 0).then_some(body));
            if version.is_present() {
                let twice = records.insert(word(KEY_AT), (version.word(), word(24)));
                assert_eq!(twice, None, "a key in two slots");
            }
        }
    }
    bodies.sort_unstable();
    (records, bodies)
}

/// Plans a split of the model `memory` and performs it. Returns the model of memory after the split and the addresses
/// of all blocks.
fn split(table: &Table, memory: &Memory, chain: usize) -> (Memory, Vec<Address>) {
    let node = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
    let mut txn = Txn::new(OwnerTag::new(node, 0, 1), 0);
    let mut relocation = Relocation::default();
    let mut blocks = Vec::new();
    for number in 0..chain + 2 {
        let image = read(&mut txn, table, memory, block(number));
        let side = if number == 1 { Side::New } else { Side::Old };
        let kind = (side, number > 1);
        relocation.add_block(table, &txn.round, (block(number), image), kind, DEPTH);
        blocks.push(block(number));
    }
    for _ in 0..relocation.blocks_wanted(table) {
        let fresh = block(blocks.len());
        let image = read(&mut txn, table, memory, fresh);
        let kind = (Side::New, true);
        relocation.add_block(table, &txn.round, (fresh, image), kind, DEPTH);
        blocks.push(fresh);
    }
    assert!(relocation.plan());
    assert!(relocation.still_holds(&txn.round));
    for slot in relocation.changed() {
        txn.locks.push(Lock {
            granted: true,
            ..Lock::unasked(slot.address, LockKind::Record, HeldAs::Exclusive)
        });
    }
    relocation.write(table, &mut txn, 0);
    let mut after = memory.clone();
    for piece in &txn.pieces {
        assert_eq!(piece.len_bytes % 8, 0);
        for offset in (0..piece.len_bytes as usize).step_by(8) {
            let word = txn.round.word(piece.new.plus(offset));
            after.insert(piece.address.to_word() + offset as u64, word);
        }
    }
    for lock in &txn.locks {
        let at = lock.address.plus(VERSION_AT).to_word();
        let before = memory.get(&at).copied().unwrap_or(0);
        assert_eq!(lock.old_version.word(), before);
        assert_eq!(lock.new_version.word(), after[&at]);
        assert!(lock.new_version.counter() > lock.old_version.counter());
        let (address, old_version, new_version) =
            (lock.address, lock.old_version, lock.new_version);
        let undone = LoggedRecord { address, old_version, new_version, nameless: false };
        let first = |piece: &&PendingWrite| piece.address == lock.address.plus(VERSION_AT);
        let piece = txn.pieces.iter().find(first).expect("its VERSION is written");
        assert_eq!(undone.restored_version(piece.len_bytes as usize), old_version);
    }
    (after, blocks)
}

proptest! {
    #[test]
    fn a_split_changes_places_and_nothing_else(
        payload in prop::sample::select(vec![8u16, 40, 200]),
        chain in 0usize..4,
        slots in prop::collection::vec((0u8..4, 1u64..50, any::<u64>()), 40),
    ) {
        let catalog = catalog(payload);
        let table = &catalog.tables()[0];
        let mut memory = Memory::new();
        let places = (0..chain + 2).filter(|&number| number != 1);
        for (number, at) in places.zip((0..).step_by(8)) {
            for slot in 0..table.geometry.slots {
                let (kind, count, key) = slots[at + slot];
                let offset = DIRECTORY_BYTES + slot * table.slot.slot_bytes;
                let start = block(number).plus(offset).to_word();
                let present = Version::NEVER.present_after(Version::from_word(count));
                let version = match kind {
                    0 => Version::NEVER,
                    1 => present.absent_after(),
                    _ => present,
                };
                memory.insert(start + VERSION_AT as u64, version.word());
                if kind > 0 {
                    memory.insert(start + KEY_AT as u64, key);
                    memory.insert(start + 24, start | 1 << 47);
                }
            }
        }
        let old: Vec<Address> = (0..chain + 2).map(block).collect();
        let before = contents(table, &memory, &old);
        let (memory, blocks) = split(table, &memory, chain);
        let after = contents(table, &memory, &blocks);
        prop_assert_eq!(&before.0, &after.0);
        if table.slot.is_out_of_line() {
            prop_assert_eq!(&before.1, &after.1);
        }
        for (number, at) in blocks.iter().enumerate() {
            let of_new = number == 1 || number >= chain + 2;
            let (records, _) = contents(table, &memory, std::slice::from_ref(at));
            for key in records.keys() {
                prop_assert_eq!(growth_bit(table, *key, DEPTH), of_new);
            }
        }
    }
}
