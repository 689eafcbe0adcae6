//! Records of one table that are read all at once, by loads, where memory is near: a whole transaction that locks nothing, has no
//! working set and makes no round.
//!
//! Invariant: the looks are those of [`super::near`], visit for visit, with the same checks: at each home; at the whole bucket of what is not
//! there, and at the blocks of its chain; at LOCK and VERSION again, where the protocol asks for it. Nothing is locked or changed, so that whatever is unusual (a record that
//! another has locked, one that is in no slot of its bucket, a node that has failed) only ends this, and the transaction runs anew as
//! any other does. What a LOCK word means is the protocol's ([`Access::judge`]), and so is what has to be looked at again.

use super::near::{self, show_homes, show_strays};
use super::sought::{Found, Outcome, Sought, Sum, ask_bins, ask_strays};
use super::validate::Seen;
use super::{Access, Which};
use crate::cluster::lease::LeaseWord;
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::transaction::working_set::LockKind;
use tarn_fabric::address::{Address, LINE_BYTES, NodeSlot, Target};
use tarn_fabric::local::{DirectMemory, EpochSnapshot, Visit};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_fabric::window::Window;
use tarn_store::ids::{AbortReason, OwnerTag};
use tarn_store::index::hash_of;
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT, Version};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::TableId;

/// Most records that are read so: all that they touch is still near when it is looked at again.
pub(crate) const TOGETHER_MAX: usize = 16;

/// A record that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Its key.
    pub(crate) key: u64,
    /// The slots that it is looked for in; its slot, once it is shown.
    at: Target,
    /// The block that is looked through when it is not in its bin: its bucket, then those of the bucket's chain.
    block: Address,
    /// As of which version it is shown.
    pub(crate) version: Version,
    /// Its payload in the round's buffer, once it is shown; before, the image of its place.
    pub(crate) payload: BufferOffset,
    state: State,
}

impl Wanted {
    #[inline(always)]
    fn seek(&mut self, key: u64, bin: Target, bucket: Address) {
        (self.key, self.at, self.block, self.state) = (key, bin, bucket, State::Sought);
    }
}

impl Sought for Wanted {
    fn key(&self) -> u64 {
        self.key
    }

    fn table<'c>(&self, _: &'c Context, at_hand: &'c Table) -> &'c Table {
        at_hand
    }

    fn is_sought(&self) -> bool {
        self.state == State::Sought
    }

    fn home(&self, _: &Context) -> Target {
        self.at
    }

    fn line(&mut self) -> &mut BufferOffset {
        &mut self.payload
    }

    #[inline(always)]
    fn show(&mut self, _: &Context, found: Found, marked: bool) {
        (self.at, self.payload, self.version) = (found.slot, found.payload, found.version);
        self.state = if marked { State::Marked } else { State::Shown };
    }

    fn block(&self, _: &Context, _: &Table) -> Address {
        self.block
    }

    /// A chain grows at its end alone, and none of its blocks is ever used otherwise.
    fn go_on(&mut self, visit: &mut Visit<'_>, block: Target) -> Outcome<bool> {
        let [next, _] = visit.read_words(block.plus(DIRECTORY_NEXT_AT))?;
        self.block = Address::from_word(next);
        Ok(!self.block.is_null())
    }
}

/// How far a record has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It is looked for.
    Sought,
    /// It is shown.
    Shown,
    /// It is shown, and another was about to write it.
    Marked,
}

/// What one coordinator reads together; kept from transaction to transaction.
pub struct BatchRead {
    wanted: [Wanted; TOGETHER_MAX],
    count: usize,
    table: TableId,
    tag: OwnerTag,
    /// A line for each, where memory is near.
    lines: BufferOffset,
    /// In which it is read, under a protocol whose readers have leases.
    pub(crate) window: Option<(Window, LeaseWord)>,
    /// Before its first look, under a protocol whose writers say when they begin to write.
    pub(crate) moment: Option<EpochSnapshot>,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchOutcome {
    /// All is shown, of one moment: the transaction has committed.
    Done,
    /// Lines of further bins were asked for; when they have had time to come, it is to be read again.
    Asked,
    /// Another is in the way.
    Refused(AbortReason),
    /// Something is not where most records are, or has failed.
    Unusual,
}

impl BatchRead {
    /// Nothing yet.
    pub(crate) fn new(tag: OwnerTag) -> BatchRead {
        let none = Wanted {
            key: 0,
            at: Address::NULL.at(NodeSlot(0)),
            block: Address::NULL,
            version: Version::NEVER,
            payload: BufferOffset::default(),
            state: State::Sought,
        };
        let (wanted, lines) = ([none; TOGETHER_MAX], BufferOffset::default());
        BatchRead { wanted, count: 0, table: TableId(0), tag, lines, window: None, moment: None }
    }

    /// Begins anew, in a buffer that is empty: asks for the lines of all homes.
    ///
    /// # Panics
    /// If there are too many keys: our bug.
    #[inline]
    pub(crate) fn ask(
        &mut self,
        (cx, near): (&Context, DirectMemory<'_>),
        (table, keys): (&Table, impl ExactSizeIterator<Item = u64>),
        (tag, round): (OwnerTag, &mut Round),
    ) {
        self.lines = round.reserve_lines(keys.len() * LINE_BYTES);
        self.seek(cx, (table, keys), tag);
        ask_bins(near, table, self.wanted().iter().map(|wanted| wanted.at));
    }

    /// Begins anew: with the bins and buckets of these keys.
    #[inline(always)]
    fn seek(
        &mut self,
        cx: &Context,
        (table, keys): (&Table, impl ExactSizeIterator<Item = u64>),
        tag: OwnerTag,
    ) {
        (self.table, self.tag) = (table.id, tag);
        (self.window, self.moment) = (None, None);
        self.count = keys.len();
        let wanted = &mut self.wanted[..self.count];
        let groups = &cx.groups;
        match cx.node.index_view.ungrown(&cx.database().catalog, table) {
            Some(homes) => {
                let node = groups.primary(homes.home(0));
                for (wanted, key) in wanted.iter_mut().zip(keys) {
                    let (bucket, bin) = homes.place(hash_of(table, key));
                    wanted.seek(key, node.beside(bucket.plus(bin)), bucket);
                }
            }
            None => {
                for (wanted, key) in wanted.iter_mut().zip(keys) {
                    let near = cx.lookup_context();
                    let place = near.view.place(near.catalog, table, hash_of(table, key));
                    let bin = DIRECTORY_BYTES + usize::from(place.bin) * table.geometry.bin_bytes;
                    wanted.seek(key, groups.primary(place.bucket.plus(bin)), place.bucket);
                }
            }
        }
    }

    /// What was wanted.
    #[inline]
    pub(crate) fn wanted(&self) -> &[Wanted] {
        &self.wanted[..self.count]
    }

    /// What is looked at again of what was shown.
    #[inline]
    fn seen(&self, which: Which) -> impl Iterator<Item = Seen<Target>> + Clone + use<'_> {
        let names = move |it: &&Wanted| which == Which::All || it.state == State::Marked;
        self.wanted().iter().filter(names).map(|it| (LockKind::Record, it.at, it.version))
    }

    /// Whether another was about to write any of it.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.wanted().iter().any(|wanted| wanted.state == State::Marked)
    }

    /// Whether a single record was read, which is of one moment by itself.
    #[inline]
    pub(crate) fn is_of_one(&self) -> bool {
        self.count == 1
    }
}

/// Whether records of this table can be read so.
#[inline]
pub(crate) fn reads(cx: &Context, table: &Table) -> bool {
    if cx.is_near {
        return near::reads_table(cx, table);
    }
    // What one READ brings of a slot shows the record whole, or says that it is not.
    let slot = &table.slot;
    let is_at_once = slot.is_one_line() || slot.lined().is_some();
    is_at_once && slot.full_key_bytes == 0 && !slot.is_out_of_line()
}

/// Reads what is still sought: at its home first, then in its bucket, then in the blocks of that one's chain.
#[inline]
pub(crate) fn read(
    access: &impl Access,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (near, is_again): (DirectMemory<'_>, bool),
) -> BatchOutcome {
    let BatchRead { wanted, count, table, tag, lines, .. } = together;
    let (wanted, whose) = (&mut wanted[..*count], (cx, *tag));
    let memory = (near, cx.table(*table));
    let sum = match is_again {
        false => show_homes(access, whose, memory, (wanted, round, *lines)),
        true => show_strays(access, whose, memory, (wanted, round)),
    };
    match sum {
        Err(_) => BatchOutcome::Unusual,
        Ok(Err(reason)) => BatchOutcome::Refused(reason),
        Ok(Ok(Sum { sought: 0, .. })) => BatchOutcome::Done,
        Ok(Ok(Sum { nowhere: true, .. })) => BatchOutcome::Unusual,
        Ok(Ok(_)) => {
            ask_strays(cx, memory, wanted, is_again);
            BatchOutcome::Asked
        }
    }
}

/// Looks again at LOCK and VERSION of what was shown.
#[inline]
pub(crate) fn look_again(
    access: &impl Access,
    cx: &Context,
    (together, near): (&BatchRead, DirectMemory<'_>),
    which: Which,
) -> BatchOutcome {
    if !access.keeps(Rule::ValidateReads) {
        return BatchOutcome::Done;
    }
    let seen = together.seen(which);
    match near::look_again(access, (cx, together.tag), near, seen) {
        Ok(Ok(())) => BatchOutcome::Done,
        Ok(Err(reason)) => BatchOutcome::Refused(reason),
        Err(_) => BatchOutcome::Unusual,
    }
}

/// As [`read`], then again what was shown, as who has no lease must.
#[inline]
pub(crate) fn read_and_look_again(
    access: &impl Access,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (near, is_again): (DirectMemory<'_>, bool),
) -> BatchOutcome {
    match read(access, cx, (&mut *together, round), (near, is_again)) {
        BatchOutcome::Done if together.is_of_one() => BatchOutcome::Done,
        BatchOutcome::Done => look_again(access, cx, (together, near), Which::All),
        step => step,
    }
}
