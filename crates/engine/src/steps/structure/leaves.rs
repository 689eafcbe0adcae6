//! Changes the leaves of ordered indexes: adds and removes index entries when a transaction commits.
//!
//! Invariants: the transaction locks a leaf, and then reads the leaf in the same batch. If an earlier scan of the
//! transaction has read the leaf, the leaf must not have changed since. The transaction removes index entries from a
//! leaf before it adds index entries to the leaf. The transaction fills no slot of a leaf that was in use when it
//! read the leaf. So a write into a slot replaces no index entry, and the undo log needs only the old bytes of
//! BITMAP, STRAYS and VERSION. The transaction writes the slots of a leaf before BITMAP, and BITMAP before VERSION.

use super::Structure;
use super::trees::padded;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::node_locks::note_grants;
use crate::transaction::lock::LockKind;
use crate::transaction::ordered::{Change, ChangePlace, Leaf, effects};
use crate::transaction::working_set::{NO_LOCK, PendingWrite, Txn};
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

/// The maximum number of rounds in which a commit searches its leaves. After this number of rounds, the commit
/// aborts, because the tree changes faster than the search can follow. The limit does not count rounds in which a
/// search followed a NEXT pointer.
const ROUNDS_MAX: usize = 24;
/// If a delete leaves less than one in this number of a leaf's slots in use, it requests a merge of the leaf.
const LIGHT: usize = 8;
/// If an insert leaves less than one in this number of a leaf's slots free, it requests a split of the leaf.
const TIGHT: usize = 16;

/// Locks the leaves to which the transaction adds index entries or from which it removes index entries, and gathers
/// the writes.
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

/// Gathers the index entries that the transaction adds and removes. Returns whether the transaction adds or removes
/// any index entry.
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
        // A change may rely on a leaf that another change of this transaction has locked. The other change locked the
        // leaf before any read of the leaf, so the leaf may be wrong for this change.
        let is_placed = |change: &Change| matches!(change.place, ChangePlace::Leaf(_));
        if txn.ordered.changes.iter().all(is_placed) {
            return apply(cx, txn);
        }
    }
    Err(AbortReason::StaleAddress.into())
}

/// Adds the next verbs of every change: either a READ of an inner node, or a CAS that locks a leaf and a READ of that
/// leaf.
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

/// Requests the lock on a leaf and reads the leaf, unless the transaction has already requested this lock.
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

/// Handles the answers of the round that [`plan`] has planned. The function first handles the answers to all requests
/// for locks. Returns whether the search of any change continues along a NEXT pointer. Each step along a NEXT pointer
/// comes closer to the leaf, even if the chain of nodes is long.
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

/// Handles the answer for a leaf whose lock was requested.
///
/// # Errors
/// The leaf's lock was refused, or the leaf has changed since a scan read it.
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
    // If the transaction only assumes its locks (a switch), it has requested no lock, but it still reads the leaf.
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

/// Handles the read of a change's leaf, or of a node on the path to this leaf. Returns whether the change's search
/// continues along a NEXT pointer.
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
        // This node is not the node that the search expected. The expected node was removed, and its memory is now
        // used for another node. The NEXT pointer of this other node leads elsewhere.
        cache.forget(index, key, 0);
        change.place = ChangePlace::Unknown;
        return Ok(false);
    }
    if beyond {
        request_post(&cx.tree_works, index, node);
        cache.forget_parent(index, key, level + 1);
        change.go_on(node);
    } else if level > 0 {
        // The search continues below this node instead of at the root, because possibly no parent leads to this node
        // yet.
        let (course, mut found) = (only(key), Vec::new());
        let way = cache.below(index, address, course, &mut found);
        change.go(way);
    } else if is_read {
        change.place = ChangePlace::At(address);
    }
    Ok(beyond)
}

/// Returns the search path to the leaf of one key.
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

    /// Continues the search after a node that ends before the key. After a leaf, the right leaf is usually the leaf
    /// that was split off from it, so the transaction locks that next leaf immediately. If the next leaf also ends
    /// before the key, the search reads the parent again. If the parent has not changed, the search then reads leaves
    /// along the NEXT pointers before it locks a leaf.
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

/// Makes the new image of each leaf, after the transaction has locked all leaves. If some leaves have no room, all of
/// these leaves are split before the transaction is tried again.
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

/// Makes the new image of one leaf from the changes of index entries that belong to this leaf.
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
        // If the index entry to remove is missing, the function removes nothing; the audit counts missing index
        // entries.
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
            return Err(cx.duplicate(index));
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

/// Returns the structural change that a leaf needs after the commit, given its slots in use before and after the
/// commit. If a leaf has no room for as many entries as this commit added, a split is requested before the next
/// transaction finds the leaf full.
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

/// Notes that a leaf has no room for one of the leaf's `adds` new entries, so that the leaf is split. If two leaves
/// might not have enough room, the split makes more leaves, so that old and new entries fill each leaf by half.
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

/// Writes the index entry that a change adds into the new image of a slot.
fn fill(cx: &Context, txn: &mut Txn, index: &Index, change: &Change, to: BufferOffset) {
    let entry = txn.entries[change.entry as usize];
    let len = cx.table(entry.table).slot.full_key_bytes;
    let mut full_key = [0; tarn_store::schema::KEY_BYTES_MAX];
    full_key[..len].copy_from_slice(txn.round.bytes(entry.full_key, len));
    let slot = txn.round.bytes_mut(to, index.shape.slot_bytes(0));
    index.fill_slot(&change.key, (entry.key, &full_key[..len]), slot);
}

/// Adds the writes of a leaf: first the filled slots (one piece for neighbouring slots), then BITMAP. The transaction
/// adds the write of the leaf's VERSION later, together with the VERSIONs of other directory records.
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
