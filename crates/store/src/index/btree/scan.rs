//! A scan of an ordered index as a state machine: it plans READs into the caller's round, and processes their
//! results.
//!
//! Invariant: a leaf is accepted if its head was free, and the same before and after its slots were read. An
//! accepted leaf must also be alive, belong to this tree, and cover the key that the scan has reached. So the
//! accepted leaves cover the scan's range without a gap, from the beginning to the last entry that the scan
//! returns. A transaction that protects these leaves excludes phantoms. The scan does not trust the pointers of
//! inner nodes. If a node of any level ends before the key, the scan follows NEXT. Any other mismatch sends the
//! scan back to the root. From an inner node that it has read and that covers the key, the scan goes down (Lehman
//! and Yao, TODS 1981). The scan does not read the level above again, because a node may not be posted there yet.

use super::cache::{Course, Lead, TreeCache, Way};
use super::order::Order;
use super::work::{TreeTask, TreeWork, TreeWorks};
use crate::layout::index_plan::{Index, KeyBytes};
use crate::layout::node::{Node, before};
use crate::layout::{LOCK_AT, VERSION_AT, Version};
use crate::placement::replica_groups::ThreadGroups;
use crate::schema::{INDEX_KEY_BYTES_MAX, IndexId};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, Round};

/// The maximum number of leaves that one round of a scan reads.
const LEAVES_AHEAD: usize = 8;
/// The maximum number of times that a scan returns to the root before it aborts.
const DETOURS_MAX: u8 = 16;
/// The number of bytes of LOCK and VERSION.
pub const HEAD_BYTES: usize = 16;

/// The data that scans use on their thread.
#[derive(Clone, Copy)]
pub struct Near<'a> {
    /// The map of replica groups to memory nodes.
    pub groups: &'a ThreadGroups,
    /// The requests to change a tree's shape.
    pub works: &'a TreeWorks,
    /// Whether a cached path is checked against the leaf's fences. False is a planted bug.
    pub checks_fences: bool,
}

/// A leaf that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The address of the leaf's LOCK word.
    pub address: Address,
    /// The leaf's version.
    pub version: Version,
}

/// A change that the transaction itself has made. The transaction's scans include the changes that the transaction
/// itself has made.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The index.
    pub index: IndexId,
    /// The key of the entry.
    pub key: KeyBytes,
    /// The slot of a new entry in the round's buffer. `None` means that the entry is removed.
    pub slot: Option<BufferOffset>,
}

/// The state of a scan after a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The scan is not finished: the caller plans the next round.
    More,
    /// All entries of the scan were found.
    Done,
    /// A node is locked or was being changed, so the transaction must abort. The field is the node's lock, if a
    /// lock was seen.
    Unstable(Option<(Address, u64)>),
    /// The tree changes faster than the scan can follow, so the transaction must abort.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    /// The leaf that covers the cursor must be located.
    #[default]
    Locate,
    /// The leaf that covers the cursor and the leaves after it were located, and must be read.
    Found(Lead),
    /// This inner node, or the root, must be read.
    Inner(Lead),
    /// This leaf must be read.
    Leaf(Lead),
}

/// A READ of a node in the round.
#[derive(Clone, Copy, Debug)]
struct Planned {
    address: Address,
    at: BufferOffset,
    bytes: usize,
}

/// One scan. Its allocated memory is kept for a scan of the next transaction.
pub struct ScanState {
    /// The index.
    pub index: u16,
    /// The entries found so far, as positions of leaf slots in the round's buffer, in the order of the scan.
    pub items: Vec<BufferOffset>,
    /// Whether all entries of the scan were found.
    pub is_done: bool,
    backward: bool,
    limit: usize,
    /// The key that the next leaf covers.
    cursor: KeyBytes,
    /// The end of the range, inclusive.
    last: KeyBytes,
    step: Step,
    planned: Vec<Planned>,
    found: Vec<Address>,
    order: Order,
    detours: u8,
    /// The number of successive leaves that ended before the cursor.
    hops: u8,
}

impl Default for ScanState {
    fn default() -> ScanState {
        ScanState {
            index: 0,
            items: Vec::new(),
            is_done: true,
            backward: false,
            limit: 0,
            cursor: [0; INDEX_KEY_BYTES_MAX],
            last: [0; INDEX_KEY_BYTES_MAX],
            step: Step::Locate,
            planned: Vec::new(),
            found: Vec::new(),
            order: Order::default(),
            detours: 0,
            hops: 0,
        }
    }
}

/// Adds the READs of a node: first its first line, then its other lines, then LOCK and VERSION again. Returns the
/// position of the image.
pub fn plan_node(
    groups: &ThreadGroups,
    round: &mut Round,
    address: Address,
    bytes: usize,
) -> BufferOffset {
    let (target, at) = (groups.primary(address), round.reserve_lines(bytes + HEAD_BYTES));
    round.read_into(target, at, LINE_BYTES);
    round.read_into(target.plus(LINE_BYTES), at.plus(LINE_BYTES), bytes - LINE_BYTES);
    round.read_into(target, at.plus(bytes), HEAD_BYTES);
    at
}

/// Checks that a node read by [`plan_node`] was free, or locked by `me`, and did not change during the READs.
///
/// # Errors
/// If the node was locked or changed. The error contains the node's lock, if a lock was seen.
pub fn settle_node(
    round: &Round,
    (address, at, bytes): (Address, BufferOffset, usize),
    me: u64,
) -> Result<(), Option<(Address, u64)>> {
    let [lock, version] = *round.array::<2>(at.plus(LOCK_AT));
    let again = *round.array::<2>(at.plus(bytes));
    const { assert!(LOCK_AT == 0 && VERSION_AT == 8) };
    let held = [lock, again[0]].into_iter().find(|&word| word != 0 && word != me);
    match held {
        Some(word) => Err(Some((address, word))),
        None if again != [lock, version] => Err(None),
        None => Ok(()),
    }
}

impl ScanState {
    /// Begins a scan between two keys. The first and the last key belong to the range.
    pub fn start(
        &mut self,
        index: IndexId,
        (from, to): (KeyBytes, KeyBytes),
        limit: u32,
        backward: bool,
    ) {
        (self.index, self.backward, self.limit) = (index.0, backward, limit as usize);
        (self.cursor, self.last) = if backward { (to, from) } else { (from, to) };
        (self.step, self.detours, self.hops) = (Step::Locate, 0, 0);
        self.items.clear();
        self.is_done = limit == 0 || from > to;
    }

    /// Adds the next READs to the round.
    pub fn plan(
        &mut self,
        near: Near<'_>,
        index: &Index,
        cache: &mut TreeCache,
        round: &mut Round,
    ) {
        let shape = &index.shape;
        self.planned.clear();
        if self.step == Step::Locate {
            self.go(index, |course, found| cache.locate(index, course, found));
        }
        let (address, bytes) = match self.step {
            Step::Inner(Lead { address, .. }) => (address, shape.node_bytes),
            Step::Leaf(Lead { address, .. }) => (address, shape.used_bytes(0)),
            Step::Locate | Step::Found(_) => {
                let bytes = shape.used_bytes(0);
                for at in 0..self.found.len() {
                    let address = self.found[at];
                    let at = plan_node(near.groups, round, address, bytes);
                    self.planned.push(Planned { address, at, bytes });
                }
                return;
            }
        };
        let at = plan_node(near.groups, round, address, bytes);
        self.planned.push(Planned { address, at, bytes });
    }

    /// The nodes that the scan reads in the most recently planned round.
    pub fn planned(&self) -> impl Iterator<Item = Address> {
        self.planned.iter().map(|planned| planned.address)
    }

    /// Follows `way` to the leaf that covers the cursor and to the leaves after it.
    #[inline]
    fn go(&mut self, index: &Index, way: impl FnOnce(Course<'_>, &mut Vec<Address>) -> Way) {
        self.found.clear();
        let missing = self.limit - self.items.len();
        let nodes = (missing / (index.shape.leaf_slots / 2) + 1).min(LEAVES_AHEAD);
        let len = index.shape.key_bytes;
        let (key, last) = (&self.cursor[..len], &self.last[..len]);
        let course = Course { key, last, backward: self.backward, nodes, level: 0 };
        self.step = match way(course, &mut self.found) {
            Way::Read(lead) => Step::Inner(lead),
            Way::There(lead) => Step::Found(lead),
        };
    }

    /// Processes the results of the planned READs. `own` contains the transaction's own changes, sorted by index
    /// and key. Accepted leaves are added to `visits`.
    pub fn absorb(
        &mut self,
        near: Near<'_>,
        index: &Index,
        (cache, own): (&mut TreeCache, &[Own]),
        (round, me): (&Round, u64),
        visits: &mut Vec<Visit>,
    ) -> Answer {
        for at in 0..self.planned.len() {
            let Planned { address, at: image, bytes } = self.planned[at];
            if let Err(met) = settle_node(round, (address, image, bytes), me) {
                return Answer::Unstable(met);
            }
            let node = Node::new(&index.shape, round.bytes(image, bytes));
            if node.is_dead() || !index.owns(address, node) {
                return self.detour(index, cache);
            }
            if node.level() > 0 {
                // An inner node lies at a leaf's address, so the node that leads to it is out of date.
                return match matches!(self.step, Step::Inner(_)) {
                    true => self.absorb_inner(near, index, cache, (address, node)),
                    false => self.detour(index, cache),
                };
            }
            match self.accepts(index, node) || !near.checks_fences {
                true => self.hops = 0,
                // A leaf changed after its address was located, so the later leaves are located again.
                false if at > 0 => break,
                false => return self.pass(near, index, cache, node),
            }
            // A scan that does not check fences could walk in a circle for ever, so its steps are counted.
            self.detours = if near.checks_fences { 0 } else { self.detours + 1 };
            if self.detours > DETOURS_MAX {
                return self.detour(index, cache);
            }
            visits.push(Visit { address, version: node.version() });
            self.collect(index, node, image, own);
            if node.count() == 0 && node.high().is_some() {
                let (task, level) = (TreeTask::Merge, 0);
                near.works.request(TreeWork { index: index.id, task, level, key: self.cursor });
            }
            if self.advance(index, node) || self.items.len() == self.limit {
                self.is_done = true;
                return Answer::Done;
            }
        }
        self.step = Step::Locate;
        Answer::More
    }

    /// Whether a leaf covers the key that the scan has reached.
    fn accepts(&self, index: &Index, leaf: Node<'_>) -> bool {
        leaf.covers(&self.cursor[..index.shape.key_bytes])
    }

    /// Whether the node that was read ends before the cursor and is the intended node. If so, the keys that it once
    /// covered beyond its end lie along NEXT.
    fn goes_on(&self, index: &Index, node: Node<'_>) -> bool {
        let key = &self.cursor[..index.shape.key_bytes];
        let meant = match self.step {
            Step::Found(lead) | Step::Inner(lead) | Step::Leaf(lead) => lead.is_to(node),
            Step::Locate => false,
        };
        meant && node.high().is_some_and(|high| high <= key) && !node.next().is_null()
    }

    /// Continues from a leaf that does not cover the cursor: along NEXT, or from the root.
    fn pass(
        &mut self,
        near: Near<'_>,
        index: &Index,
        cache: &mut TreeCache,
        leaf: Node<'_>,
    ) -> Answer {
        if !self.goes_on(index, leaf) {
            return self.detour(index, cache);
        }
        // The leaf was split. Its parent has no separator for the new half yet, or the cached image of the parent
        // is old. After the first such leaf, the parent is read again. After a second one in a row, the scan
        // follows NEXT over leaves that are not posted.
        request_post(near.works, index, leaf);
        cache.forget_parent(index, &self.cursor[..index.shape.key_bytes], 1);
        self.step = match self.hops {
            1 => Step::Locate,
            _ => Step::Leaf(Lead::after(leaf)),
        };
        self.hops = self.hops.saturating_add(1);
        Answer::More
    }

    fn absorb_inner(
        &mut self,
        near: Near<'_>,
        index: &Index,
        cache: &mut TreeCache,
        (address, node): (Address, Node<'_>),
    ) -> Answer {
        let key = &self.cursor[..index.shape.key_bytes];
        if node.covers(key) {
            cache.learn(index, address, node);
            self.go(index, |course, found| cache.below(index, address, course, found));
            return self.count_detour(index, cache);
        }
        if !self.goes_on(index, node) {
            return self.detour(index, cache);
        }
        cache.learn(index, address, node);
        request_post(near.works, index, node);
        cache.forget_parent(index, key, node.level() + 1);
        // This step is not counted as a detour, because every step along NEXT comes nearer to the key.
        self.step = Step::Inner(Lead::after(node));
        Answer::More
    }

    /// The scan was led to a wrong node, so it returns to the root by READs.
    fn detour(&mut self, index: &Index, cache: &mut TreeCache) -> Answer {
        cache.forget(index, &self.cursor[..index.shape.key_bytes], 0);
        self.step = Step::Locate;
        self.count_detour(index, cache)
    }

    fn count_detour(&mut self, index: &Index, cache: &mut TreeCache) -> Answer {
        self.detours += 1;
        if self.detours <= DETOURS_MAX {
            return Answer::More;
        }
        cache.forget(index, &self.cursor[..index.shape.key_bytes], 0);
        Answer::Lost
    }

    /// Adds a leaf's entries between the cursor and the end of the range, together with the transaction's own new
    /// entries.
    fn collect(&mut self, index: &Index, leaf: Node<'_>, image: BufferOffset, own: &[Own]) {
        let len = index.shape.key_bytes;
        let (cursor, last) = (&self.cursor[..len], &self.last[..len]);
        let (from, to) = if self.backward { (last, cursor) } else { (cursor, last) };
        self.order.fill(leaf, from, to);
        let room = self.limit - self.items.len();
        let at = |slot: usize| image.plus(index.shape.slot_at(0, slot));
        if own.is_empty() {
            let slots = self.order.slots();
            match self.backward {
                true => self.items.extend(slots.rev().take(room).map(at)),
                false => self.items.extend(slots.take(room).map(at)),
            }
            return;
        }
        let mine = |it: &&Own| {
            let key = &it.key[..len];
            it.index == index.id && key >= from && key <= to && leaf.covers(key)
        };
        let gone = |key: &[u8]| own.iter().filter(mine).any(|it| it.key[..len] == *key);
        let stays = self.order.slots().filter(|&slot| !gone(leaf.key(slot)));
        let mut all: Vec<(&[u8], BufferOffset)> =
            stays.map(|slot| (leaf.key(slot), at(slot))).collect();
        let added = own.iter().filter(mine);
        all.extend(added.filter_map(|it| Some((&it.key[..len], it.slot?))));
        all.sort_unstable_by(|one, other| one.0.cmp(other.0));
        if self.backward {
            all.reverse();
        }
        self.items.extend(all.iter().take(room).map(|&(_, slot)| slot));
    }

    /// Moves the cursor behind the leaf. Returns whether the cursor has reached the end of the range.
    fn advance(&mut self, index: &Index, leaf: Node<'_>) -> bool {
        let len = index.shape.key_bytes;
        if self.backward {
            if leaf.low() <= &self.last[..len] {
                return true;
            }
            self.cursor = [0; INDEX_KEY_BYTES_MAX];
            self.cursor[..len].copy_from_slice(leaf.low());
            return !before(&mut self.cursor[..len]);
        }
        match leaf.high() {
            // A leaf that was accepted ends behind the cursor.
            Some(high) if high <= &self.last[..len] && *high > self.cursor[..len] => {
                self.cursor[..len].copy_from_slice(high);
                false
            }
            _ => true,
        }
    }
}

/// Requests a check of the level above, because the node after `node` may be missing in it.
pub fn request_post(works: &TreeWorks, index: &Index, node: Node<'_>) {
    let Some(high) = node.high() else { return };
    let mut key = [0; INDEX_KEY_BYTES_MAX];
    key[..high.len()].copy_from_slice(high);
    let level = node.level();
    works.request(TreeWork { index: index.id, task: TreeTask::Post, level, key });
}
