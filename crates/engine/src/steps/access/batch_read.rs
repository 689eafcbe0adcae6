//! A batch of reads from one table, by loads, where memory is near: a whole transaction that locks nothing, has no
//! working set and makes no round.
//!
//! Invariant: the records are read as in [`super::near`], visit for visit, with the same checks: each home; then the bucket of each record
//! that is not at home, and the blocks of its chain; then LOCK and VERSION again, where the protocol asks for it. Nothing is locked or
//! changed. So anything unusual only ends the batch, and the transaction runs anew like any other: a record that another transaction has
//! locked, a record in no slot of its bucket, a node that has failed. The protocol says the meaning of a LOCK word ([`Access::judge`]), and
//! which records have to be looked at again.

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

/// The most records of a batch: all lines that they touch are still near when they are looked at again.
pub(crate) const TOGETHER_MAX: usize = 16;

/// A record that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Its key.
    pub(crate) key: u64,
    /// The slots that it is looked for in; its slot, once it is shown.
    at: Target,
    /// The block to look through if it is not in its bin: its bucket first, then each block of the bucket's chain.
    block: Address,
    /// The version in which it is shown.
    pub(crate) version: Version,
    /// Its payload in the round's buffer, once it is shown; before that, its line.
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

/// A coordinator's batch, whose memory is kept from transaction to transaction.
pub struct BatchRead {
    wanted: [Wanted; TOGETHER_MAX],
    count: usize,
    table: TableId,
    tag: OwnerTag,
    /// A line for each record.
    lines: BufferOffset,
    /// The window in which it reads, under a protocol whose readers have leases.
    pub(crate) window: Option<(Window, LeaseWord)>,
    /// The moment before its first look, under a protocol whose writers say when they begin to write.
    pub(crate) moment: Option<EpochSnapshot>,
}

/// How far a batch has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchOutcome {
    /// All records are shown, as of one moment: the transaction has committed.
    Done,
    /// Lines of further bins were asked for. When they have had time to come, the batch is to be read again.
    Asked,
    /// Another transaction is in the way.
    Refused(AbortReason),
    /// Something is not where most records are, or has failed.
    Unusual,
}

impl BatchRead {
    /// Returns an empty batch.
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

    /// Begins a new batch, in an empty buffer, and asks for the lines of all homes.
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

    /// Begins a new batch, with the bins and buckets of these keys.
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

    /// Returns the records.
    #[inline]
    pub(crate) fn wanted(&self) -> &[Wanted] {
        &self.wanted[..self.count]
    }

    /// Returns the shown records that are looked at again.
    #[inline]
    fn seen(&self, which: Which) -> impl Iterator<Item = Seen<Target>> + Clone + use<'_> {
        let names = move |it: &&Wanted| which == Which::All || it.state == State::Marked;
        self.wanted().iter().filter(names).map(|it| (LockKind::Record, it.at, it.version))
    }

    /// Returns whether another transaction was about to write any of the records.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.wanted().iter().any(|wanted| wanted.state == State::Marked)
    }

    /// Returns whether it is of a single record, which is of one moment by itself.
    #[inline]
    pub(crate) fn is_of_one(&self) -> bool {
        self.count == 1
    }
}

/// Returns whether records of this table can be read by one call.
#[inline]
pub(crate) fn reads(cx: &Context, table: &Table) -> bool {
    if cx.is_near {
        return near::reads_table(cx, table);
    }
    // One READ of a slot brings the whole record, or says that it does not.
    let slot = &table.slot;
    let is_at_once = slot.is_one_line() || slot.lined().is_some();
    is_at_once && slot.full_key_bytes == 0 && !slot.is_out_of_line()
}

/// Reads the records that are still sought: at home first, then in their buckets, then in the blocks of the buckets' chains.
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

/// Looks again at LOCK and VERSION of the records that were shown.
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

/// Reads as [`read`] does, then looks again at the records that were shown: a reader without a lease must.
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
