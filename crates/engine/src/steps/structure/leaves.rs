//! Changes of ordered indexes: the index entries that a transaction adds and removes at its commit.
//!
//! Invariants: a leaf is locked, and read in the same batch behind the lock. If a scan has shown it before, it must
//! still be the same. Entries are removed before any are added. A slot that was in use when the leaf was read is not
//! filled. So a write into a slot replaces nothing, and only BITMAP, STRAYS and VERSION need their old bytes in the
//! undo log. Slots come before BITMAP, BITMAP before VERSION.

use super::Structure;
use super::trees::padded;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::node_locks::note_grants;
use crate::transaction::ordered::{Change, ChangePlace, Leaf, effects};
use crate::transaction::working_set::{LockKind, NO_LOCK, PendingWrite, Txn};
use std::ops::Range;
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure, Mode};
use tarn_store::index::btree::cache::{Course, Lead, Way};
use tarn_store::index::btree::scan::{Visit, plan_node, request_post, settle_node};
use tarn_store::index::btree::work::{TreeTask, TreeWork};
use tarn_store::layout::Version;
use tarn_store::layout::index_plan::{Index, KeyBytes};
use tarn_store::layout::node::{BITMAP_AT, Bits, Node, NodeShape, STRAYS_AT};

/// Rounds after which a commit gives up: the tree changes faster than it can be followed. Rounds that went along NEXT
/// are not counted.
const ROUNDS_MAX: usize = 24;
/// A delete that leaves less than one in so many slots in use asks for a merge.
const LIGHT: usize = 8;
/// An insert that leaves less than one in so many slots free asks for a split.
const TIGHT: usize = 16;

/// Locks the leaves of all entries that are added or removed, and gathers the writes.
#[inline(never)]
pub(crate) async fn change(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    if gather(cx, txn) {
        Box::pin(change_leaves(protocol, cx, txn)).await?;
    }
    Ok(())
}

/// Gathers the changes. Returns whether there are any.
fn gather(cx: &Context, txn: &mut Txn) -> bool {
    let catalog = &cx.database().catalog;
    let Txn { ordered, round, entries, .. } = txn;
    ordered.changes.clear();
    for (at, entry) in entries.iter().enumerate().filter(|(_, it)| it.mode != Mode::Read) {
        let table = cx.table(entry.table);
        if table.ordered.1 == 0 {
            continue;
        }
        effects(catalog, table, (round, entry), |index, key, adds| {
            ordered.changes.push(Change::new(index.id, key, at as u32, adds));
        });
    }
    ordered.is_used |= !ordered.changes.is_empty();
    !ordered.changes.is_empty()
}

async fn change_leaves(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    let mut rounds = 0;
    while rounds < ROUNDS_MAX {
        txn.round.begin();
        plan(protocol, cx, txn);
        if !txn.round.is_empty() {
            protocol.send(cx, txn).await?;
        }
        let went_on = absorb(protocol, cx, txn)?;
        rounds += usize::from(!went_on);
        // A leaf that another change had locked was read as well: it may not be the leaf of this change.
        let is_placed = |change: &Change| matches!(change.place, ChangePlace::Leaf(_));
        if txn.ordered.changes.iter().all(is_placed) {
            return apply(cx, txn);
        }
    }
    Err(AbortReason::StaleAddress.into())
}

/// Adds the next verbs of every change: a READ of an inner node, or the lock on a leaf and its READ.
fn plan(protocol: &impl Structure, cx: &Context, txn: &mut Txn) {
    let catalog = &cx.database().catalog;
    let (mut cache, mut found) = (cx.trees.borrow_mut(), Vec::new());
    for at in 0..txn.ordered.changes.len() {
        let change = txn.ordered.changes[at];
        let index = catalog.ordered(change.index);
        match change.place {
            ChangePlace::Leaf(_) => continue,
            ChangePlace::Unknown => {
                found.clear();
                let course = only(&change.key[..index.shape.key_bytes]);
                txn.ordered.changes[at].go(cache.locate(index, course, &mut found));
            }
            _ => {}
        }
        txn.ordered.changes[at].place = match txn.ordered.changes[at].place {
            ChangePlace::Inner(address, _) => {
                let bytes = index.shape.node_bytes;
                let image = plan_node(&cx.groups, &mut txn.round, address, bytes);
                ChangePlace::Inner(address, image)
            }
            ChangePlace::At(address) => lock_leaf(protocol, cx, txn, index, address),
            other => other,
        };
    }
}

/// Asks for the lock on a leaf and reads it, unless the transaction has asked already.
fn lock_leaf(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    address: Address,
) -> ChangePlace {
    let version = Version::NEVER;
    let known = txn.ordered.leaf_at(address);
    let at = known.unwrap_or_else(|| txn.ordered.note(index.id, Visit { address, version }, false));
    if txn.ordered.leaves[at].lock == NO_LOCK {
        protocol.enter(cx, Phase::LockLeaf);
        let what = (LockKind::Directory, index.shape.used_bytes(0));
        let (lock, image) = protocol.ask(cx, txn, address, what);
        let leaf = &mut txn.ordered.leaves[at];
        (leaf.lock, leaf.image) = (lock, image);
    }
    ChangePlace::Leaf(at as u32)
}

/// Absorbs the answers of the round: all grants first. Returns whether any change goes on along NEXT. Each such step
/// comes nearer, however long the chain.
fn absorb(protocol: &impl Structure, cx: &Context, txn: &mut Txn) -> Result<bool, AbortReason> {
    note_grants(txn, !protocol.keeps(Rule::ReleaseGranted));
    let mut verdict = Ok(());
    for at in 0..txn.ordered.leaves.len() {
        verdict = verdict.and(absorb_lock(protocol, cx, txn, at));
    }
    verdict?;
    let mut went_on = false;
    for at in 0..txn.ordered.changes.len() {
        went_on |= absorb_change(cx, txn, at)?;
    }
    Ok(went_on)
}

/// Absorbs a leaf whose lock was asked for.
///
/// # Errors
/// The lock was refused, or the leaf is not as it was shown.
fn absorb_lock(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    at: usize,
) -> Result<(), AbortReason> {
    let leaf = txn.ordered.leaves[at];
    if leaf.lock == NO_LOCK || leaf.is_held {
        return Ok(());
    }
    // A transaction that assumes its locks (a switch) has asked for none, but reads the leaf all the same.
    if !protocol.granted(cx, txn, leaf.lock) {
        return Err(AbortReason::LockRefused);
    }
    let shape = &cx.database().catalog.ordered(leaf.index).shape;
    let version = Node::new(shape, txn.round.bytes(leaf.image, shape.used_bytes(0))).version();
    txn.locks[leaf.lock as usize].old_version = version;
    let seen = &mut txn.ordered.leaves[at];
    (seen.version, seen.is_held) = (version, true);
    if leaf.shown && version != leaf.version && protocol.keeps(Rule::ProtectRanges) {
        return Err(AbortReason::IndexChanged);
    }
    protocol.takes_leaf(txn, version)?;
    txn.cover(leaf.address);
    Ok(())
}

/// Absorbs the read of a change's leaf, or of a node on the way to it. Returns whether the change goes on along NEXT.
fn absorb_change(cx: &Context, txn: &mut Txn, at: usize) -> Result<bool, AbortReason> {
    let Txn { ordered, round, tag, .. } = &mut *txn;
    let change = &mut ordered.changes[at];
    let index = cx.database().catalog.ordered(change.index);
    let key = &change.key[..index.shape.key_bytes];
    let (address, node) = match change.place {
        ChangePlace::Leaf(leaf) => {
            let Leaf { address, image, .. } = ordered.leaves[leaf as usize];
            (address, Node::new(&index.shape, round.bytes(image, index.shape.used_bytes(0))))
        }
        ChangePlace::Inner(address, image) => {
            let bytes = index.shape.node_bytes;
            if let Err(met) = settle_node(round, (address, image, bytes), tag.word()) {
                if let Some((address, word)) = met {
                    cx.note_blocking_lock(address, word);
                }
                return Err(AbortReason::ReadLocked);
            }
            (address, Node::new(&index.shape, round.bytes(image, bytes)))
        }
        ChangePlace::Unknown | ChangePlace::At(_) => return Ok(false),
    };
    let is_read = matches!(change.place, ChangePlace::Inner(..));
    let mut cache = cx.trees.borrow_mut();
    let is_mine = index.owns(address, node);
    let beyond = node.high().is_some_and(|high| high <= key);
    let level = node.level();
    if node.is_dead() || !is_mine || (level > 0 && !is_read) || !(beyond || node.covers(key)) {
        cache.forget(index, key, 0);
        return Err(AbortReason::StaleAddress);
    }
    if level > 0 {
        cache.learn(index, address, node);
    }
    if beyond && !change.lead.is_to(node) {
        // Not the node that was meant: it has died, and serves elsewhere. Its NEXT leads elsewhere.
        cache.forget(index, key, 0);
        change.place = ChangePlace::Unknown;
        return Ok(false);
    }
    if beyond {
        request_post(&cx.tree_works, index, node);
        cache.forget_parent(index, key, level + 1);
        change.go_on(node);
    } else if level > 0 {
        // Goes on below this node, not from the root: there may be no parent that leads to it.
        let (course, mut found) = (only(key), Vec::new());
        let way = cache.below(index, address, course, &mut found);
        change.go(way);
    } else if is_read {
        change.place = ChangePlace::At(address);
    }
    Ok(beyond)
}

/// The course to the leaf of one key.
fn only(key: &[u8]) -> Course<'_> {
    Course { key, last: key, backward: false, nodes: 1, level: 0 }
}

impl Change {
    fn go(&mut self, way: Way) {
        (self.place, self.lead) = match way {
            Way::There(lead) => (ChangePlace::At(lead.address), lead),
            Way::Read(lead) => (ChangePlace::Inner(lead.address, BufferOffset::default()), lead),
        };
    }

    /// Goes on from a node that ends before the key. Behind a leaf, most often the leaf is right that was split off
    /// it, and is locked at once. If that leaf ends before the key, too, the parent is read anew. If the parent has
    /// not changed, leaves are read along NEXT before one is locked.
    fn go_on(&mut self, node: Node<'_>) {
        let next = Lead::after(node);
        self.place = match (node.level(), self.hops) {
            (0, 0) => ChangePlace::At(next.address),
            (0, 1) => ChangePlace::Unknown,
            _ => ChangePlace::Inner(next.address, BufferOffset::default()),
        };
        self.lead = next;
        self.hops = self.hops.saturating_add(u8::from(node.level() == 0));
    }
}

/// Makes the new images of all leaves, leaf by leaf, once all are locked. All leaves without room are split before
/// the next try.
fn apply(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let place = |change: &Change| match change.place {
        ChangePlace::Leaf(at) => at,
        _ => u32::MAX,
    };
    txn.ordered.changes.sort_by_key(place);
    let mut from = 0;
    while let Some(first) = txn.ordered.changes.get(from) {
        let at = place(first);
        let its = txn.ordered.changes[from..].iter().take_while(|it| place(it) == at).count();
        apply_to(cx, txn, (at as usize, from..from + its))?;
        from += its;
    }
    match txn.ordered.needs.is_empty() {
        true => Ok(()),
        false => Err(AbortReason::LeafFull.into()),
    }
}

/// Makes the new image of one leaf, with the changes that belong to it.
fn apply_to(
    cx: &Context,
    txn: &mut Txn,
    (at, changes): (usize, Range<usize>),
) -> Result<(), Failure> {
    let Leaf { index, address, image, lock, .. } = txn.ordered.leaves[at];
    let index = cx.database().catalog.ordered(index);
    let (shape, bytes) = (&index.shape, index.shape.used_bytes(0));
    let before = Node::new(shape, txn.round.bytes(image, bytes));
    let (old, mut strays) = (before.bitmap(), before.strays());
    let mut bitmap = old;
    let mine = &txn.ordered.changes[changes.clone()];
    for change in mine.iter().filter(|it| !it.adds) {
        // An entry that is not there cannot be removed; the audit counts missing entries.
        let gone = before.find(&change.key[..shape.key_bytes], bitmap);
        bitmap &= !gone.map_or(0, |slot| 1 << slot);
    }
    let adds = mine.iter().filter(|it| it.adds).count();
    let copy = txn.round.reserve_lines(bytes);
    for each in changes.clone() {
        let change = txn.ordered.changes[each];
        if !change.adds {
            continue;
        }
        let key = &change.key[..shape.key_bytes];
        let known = Node::new(shape, txn.round.bytes(image, bytes)).find(key, bitmap & old);
        let added = Bits(bitmap & !old).any(|slot| {
            let slot = txn.round.bytes(copy.plus(shape.slot_at(0, slot)), shape.key_bytes);
            slot == key
        });
        if known.is_some() || added {
            return Err(AbortReason::UniqueViolation.into());
        }
        let Some((slot, stray)) = shape.place(0, key, bitmap | old) else {
            note_full(txn, index, (at, changes), (&change, adds));
            return Ok(());
        };
        bitmap |= 1 << slot;
        strays |= stray;
        fill(cx, txn, index, &change, copy.plus(shape.slot_at(0, slot)));
    }
    if let Some(task) = reshaping(shape, (old, bitmap), adds) {
        let key = txn.ordered.changes[changes.start].key;
        cx.tree_works.request(TreeWork { index: index.id, task, level: 0, key });
    }
    write_leaf(txn, index, (address, lock), (image, copy), (old, bitmap, strays));
    Ok(())
}

/// Returns the structural change that a leaf needs after the commit, by its slots in use before and after. A leaf
/// without room for as many entries as were added is split, before the next transaction finds it full.
fn reshaping(shape: &NodeShape, (old, new): (u64, u64), adds: usize) -> Option<TreeTask> {
    let (before, after) = (old.count_ones() as usize, new.count_ones() as usize);
    let room = shape.leaf_slots - after;
    if after < shape.leaf_slots / LIGHT && after < before {
        return Some(TreeTask::Merge);
    }
    let is_tight = room < adds.max(shape.leaf_slots / TIGHT);
    // A leaf that is at most half full is not split.
    (adds > 0 && is_tight && after * 2 > shape.leaf_slots).then_some(TreeTask::Split)
}

/// Notes that a leaf has no room for one of its `adds` new entries: it will be split. If two halves might not
/// suffice, it is parted into so many leaves that each is half full, with old and new entries.
#[cold]
fn note_full(
    txn: &mut Txn,
    index: &Index,
    (at, changes): (usize, Range<usize>),
    (change, adds): (&Change, usize),
) {
    let (shape, level) = (&index.shape, 0);
    let half = shape.leaf_slots / 2;
    if adds <= half {
        let (task, key) = (TreeTask::Split, change.key);
        return txn.ordered.needs.push(TreeWork { index: index.id, task, level, key });
    }
    let image = txn.round.bytes(txn.ordered.leaves[at].image, shape.used_bytes(0));
    let leaf = Node::new(shape, image);
    let mut keys: Vec<KeyBytes> = leaf.used().map(|slot| padded(leaf.key(slot))).collect();
    let comes = txn.ordered.changes[changes].iter().filter(|it| it.adds);
    keys.extend(comes.map(|it| it.key));
    keys.sort_unstable();
    let (task, leaves) = (TreeTask::Part, keys.len().div_ceil(half));
    let firsts = (1..leaves).map(|leaf| keys[leaf * keys.len() / leaves]);
    let work = |key| TreeWork { index: index.id, task, level, key };
    txn.ordered.needs.extend(firsts.map(work));
}

/// Writes the entry of a change into a slot's new image.
fn fill(cx: &Context, txn: &mut Txn, index: &Index, change: &Change, to: BufferOffset) {
    let entry = txn.entries[change.entry as usize];
    let len = cx.table(entry.table).slot.full_key_bytes;
    let mut full_key = [0; tarn_store::schema::KEY_BYTES_MAX];
    full_key[..len].copy_from_slice(txn.round.bytes(entry.full_key, len));
    let slot = txn.round.bytes_mut(to, index.shape.slot_bytes(0));
    index.fill_slot(&change.key, (entry.key, &full_key[..len]), slot);
}

/// Adds the writes of a leaf: filled slots, neighbours as one piece, then BITMAP. VERSION is added later, with those
/// of other directory records.
fn write_leaf(
    txn: &mut Txn,
    index: &Index,
    (address, lock): (Address, u32),
    (image, copy): (BufferOffset, BufferOffset),
    (old, new, strays): (u64, u64, u64),
) {
    let shape = &index.shape;
    let mut filled = new & !old;
    while filled != 0 {
        let first = filled.trailing_zeros() as usize;
        let run = (filled >> first).trailing_ones() as usize;
        filled &= !(u64::MAX >> (64 - run) << first);
        let at = shape.slot_at(0, first);
        txn.pieces.push(PendingWrite {
            address: address.plus(at),
            new: copy.plus(at),
            old: image.plus(at),
            len_bytes: (run * shape.slot_bytes(0)) as u32,
            logged: false,
        });
    }
    const { assert!(STRAYS_AT == BITMAP_AT + 8) };
    let before_strays = Node::new(shape, txn.round.bytes(image, shape.used_bytes(0))).strays();
    let words = txn.round.reserve(16);
    txn.round.set_word(words, new);
    txn.round.set_word(words.plus(8), strays);
    txn.pieces.push(PendingWrite {
        address: address.plus(BITMAP_AT),
        new: words,
        old: image.plus(BITMAP_AT),
        len_bytes: if strays == before_strays { 8 } else { 16 },
        logged: true,
    });
    let lock = &mut txn.locks[lock as usize];
    (lock.writes, lock.new_version) = (true, lock.old_version.present_after(Version::NEVER));
    let raised = lock.new_version;
    if let Some(leaf) = txn.ordered.leaf_at(address) {
        txn.ordered.leaves[leaf].new_version = raised;
    }
}
