//! A scan of an ordered index as a state machine: it plans READs into the caller's round, and processes their
//! results.
//!
//! Invariant: a scan accepts a leaf only if the leaf's LOCK was free. Also, the leaf's LOCK and VERSION must be the
//! same before and after the READ of its slots. An accepted leaf must also be alive, belong to this tree, and cover
//! the key that the scan has reached. So the accepted leaves cover the scan's range without a gap, from the beginning
//! to the last entry that the scan returns. If a transaction validates or locks these leaves, no phantom is possible
//! in its scan. The scan does not trust the pointers of inner nodes. If a node of any level ends before the key, the
//! scan follows the node's NEXT. If the node is wrong for any other reason, the scan begins again at the root. If the
//! scan has read an inner node that covers the key, it continues at the node's child (Lehman and Yao, TODS 1981). The
//! scan does not read the level above again, because that level may not have the node's separator yet.

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

/// The data of a thread that its scans use.
#[derive(Clone, Copy)]
pub struct Near<'a> {
    /// The map of replica groups to memory nodes.
    pub groups: &'a ThreadGroups,
    /// The requests to change a tree's shape.
    pub works: &'a TreeWorks,
    /// Whether a scan checks by the leaf's fences that the cached path was right. If the scan does not check the
    /// fences, this is a planted bug.
    pub checks_fences: bool,
}

/// A leaf that a scan or look-up has read and accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The address of the leaf's LOCK word.
    pub address: Address,
    /// The version of the leaf when it was read.
    pub version: Version,
}

/// A change of an index that a transaction itself has made and not yet committed. The scans of a transaction include
/// its own changes.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The id of the index that the transaction has changed.
    pub index: IndexId,
    /// The key of the entry.
    pub key: KeyBytes,
    /// The position of the new entry's slot in the round's buffer. `None` means that the transaction removes the
    /// entry.
    pub slot: Option<BufferOffset>,
}

/// The state of a scan after a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The scan is not finished: the caller must plan its next round.
    More,
    /// The scan has found all its entries.
    Done,
    /// A node is locked or was being changed, so the transaction must abort. The field is the address and the word of
    /// the node's lock, if the scan has seen a lock.
    Unstable(Option<(Address, u64)>),
    /// The tree changes faster than the scan can follow, so the transaction must abort.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    /// The scan must find the address of the leaf that covers the cursor.
    #[default]
    Locate,
    /// The scan knows the addresses of the leaf that covers the cursor and of the leaves after it, and must read
    /// them.
    Found(Lead),
    /// The scan must read this inner node, or the root.
    Inner(Lead),
    /// The scan must read this leaf.
    Leaf(Lead),
}

/// A READ of a node in the round.
#[derive(Clone, Copy, Debug)]
struct Planned {
    address: Address,
    at: BufferOffset,
    bytes: usize,
}

/// One scan of an ordered index. A scan of the next transaction reuses the memory of this value.
pub struct ScanState {
    /// The number of the index that is scanned.
    pub index: u16,
    /// The entries found so far, as positions of leaf slots in the round's buffer, in the order of the scan.
    pub items: Vec<BufferOffset>,
    /// Whether the scan has found all its entries.
    pub is_done: bool,
    backward: bool,
    limit: usize,
    /// The cursor: the key that the next leaf must cover.
    cursor: KeyBytes,
    /// The last key of the range in the direction of the scan. The range includes this key.
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

/// Adds the READs of a node to the round: first its first line, then its other lines, then LOCK and VERSION again.
/// Returns the position of the node's image in the buffer.
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

/// Checks that a node read by [`plan_node`] was free, or locked by `me`, and that the node did not change during the
/// READs.
///
/// # Errors
/// If the node was locked or changed. The error contains the address and the word of the node's lock, if the lock was
/// not free.
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

    /// Adds the next READs of the scan to the round.
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

    /// Uses `way` to find the addresses of the leaf that covers the cursor and of the leaves after it.
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

    /// Processes the results of the planned READs. `own` contains the transaction's own changes, sorted by index and
    /// key. `absorb` adds the leaves that the scan accepts to `visits`.
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
                // An inner node lies at a leaf's address, so the cached node that led the scan to this address is out
                // of date.
                return match matches!(self.step, Step::Inner(_)) {
                    true => self.absorb_inner(near, index, cache, (address, node)),
                    false => self.detour(index, cache),
                };
            }
            match self.accepts(index, node) || !near.checks_fences {
                true => self.hops = 0,
                // One of the later leaves has changed since the scan found its address. So the scan finds the
                // addresses of the later leaves again.
                false if at > 0 => break,
                false => return self.pass(near, index, cache, node),
            }
            // If a scan does not check fences, it could walk in a circle for ever. So the function counts the steps
            // of a scan that does not check fences.
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

    /// Whether `node` is the intended node and ends before the cursor. If the intended node ends before the cursor,
    /// the nodes along NEXT cover the keys that it once covered beyond its end.
    fn goes_on(&self, index: &Index, node: Node<'_>) -> bool {
        let key = &self.cursor[..index.shape.key_bytes];
        let meant = match self.step {
            Step::Found(lead) | Step::Inner(lead) | Step::Leaf(lead) => lead.is_to(node),
            Step::Locate => false,
        };
        meant && node.high().is_some_and(|high| high <= key) && !node.next().is_null()
    }

    /// Continues the scan after a leaf that does not cover the cursor. The scan follows NEXT or begins again at the
    /// root.
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
        // The leaf that the scan has read was split. The leaf's parent has no separator for the new half yet, or the
        // cached image of the parent is old. After one such leaf, the scan reads the parent again. After two such
        // leaves in a row, the scan follows NEXT until a leaf covers the cursor.
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
        // A step along NEXT is not counted as a detour, because every step along NEXT comes nearer to the key.
        self.step = Step::Inner(Lead::after(node));
        Answer::More
    }

    /// The scan was led to a wrong node, so it forgets the cached path and begins again at the root.
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

    /// Adds a leaf's entries between the cursor and the end of the range to the scan's entries. The transaction's own
    /// new entries are added at their places.
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

    /// Moves the cursor to the first key behind the leaf, in the direction of the scan. Returns whether the cursor
    /// has reached the end of the range.
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
            // An accepted leaf ends behind the cursor, so the second comparison fails only for a scan that
            // does not check fences.
            Some(high) if high <= &self.last[..len] && *high > self.cursor[..len] => {
                self.cursor[..len].copy_from_slice(high);
                false
            }
            _ => true,
        }
    }
}

/// Requests a check of the level above `node`, because that level may lack the separator of the node after `node`.
pub fn request_post(works: &TreeWorks, index: &Index, node: Node<'_>) {
    let Some(high) = node.high() else { return };
    let mut key = [0; INDEX_KEY_BYTES_MAX];
    key[..high.len()].copy_from_slice(high);
    let level = node.level();
    works.request(TreeWork { index: index.id, task: TreeTask::Post, level, key });
}
