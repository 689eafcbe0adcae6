//! A batch of reads from one table by processor loads, for memory that the processor can load directly (near memory).
//! The batch of reads is a whole transaction that takes no lock, has no working set and sends no round.
//!
//! Invariant: the batch reads records in the same steps as [`super::near`], with the same checks. First the batch
//! reads the home bin of each record. Then the batch reads the bucket of each record that is not in its home bin, and
//! the blocks of this bucket's chain. At the end, the batch reads the LOCK and VERSION of the records again, if the
//! protocol requires this. A batch of reads locks and changes nothing. So any unusual case only ends the batch of
//! reads, and the engine runs the transaction again as an ordinary transaction. Unusual cases are a record that
//! another transaction has locked, a record in no slot of its bucket, and a failed node. The protocol decides the
//! meaning of a LOCK word ([`Access::judge`]), and which records the batch must validate.

use super::near::{self, show_homes, show_strays};
use super::sought::{Found, Outcome, Sought, Sum, ask_bins, ask_strays};
use super::validate::Seen;
use super::{Access, Which};
use crate::cluster::lease::LeaseWord;
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::transaction::lock::LockKind;
use tarn_fabric::address::{Address, LINE_BYTES, NodeSlot, Target};
use tarn_fabric::local::{DirectMemory, EpochSnapshot, Visit};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_fabric::window::Window;
use tarn_store::ids::{AbortReason, OwnerTag};
use tarn_store::index::hash_of;
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT, Version};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::TableId;

/// The maximum number of records in a batch of reads. With at most this number of records, all their cache lines are
/// still in the processor's cache when the batch validates the records.
pub(crate) const TOGETHER_MAX: usize = 16;

/// A record that the batch wants to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The record's key.
    pub(crate) key: u64,
    /// Before the record is found, this field names the slots that the batch searches; after that, it names the
    /// record's slot.
    at: Target,
    /// The block to search if the record is not in its home bin: first the record's bucket, then each block of the
    /// bucket's chain.
    block: Address,
    /// The version of the record that was found.
    pub(crate) version: Version,
    /// After the record is found, this field is the position of its payload in the round's buffer. Before that, it is
    /// the position of the buffer's line for the record.
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

    /// The search may follow NEXT without a check, because a chain only grows at its end, and its blocks are never
    /// used for anything else.
    fn go_on(&mut self, visit: &mut Visit<'_>, block: Target) -> Outcome<bool> {
        let [next, _] = visit.read_words(block.plus(DIRECTORY_NEXT_AT))?;
        self.block = Address::from_word(next);
        Ok(!self.block.is_null())
    }
}

/// The state of the search for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The record has not been found yet.
    Sought,
    /// The record was found and is shown to the caller.
    Shown,
    /// The record was found and is shown to the caller, and another transaction was about to write the record.
    Marked,
}

/// A batch of reads of one coordinator. The memory of a batch is used again for the coordinator's next transaction.
pub struct BatchRead {
    wanted: [Wanted; TOGETHER_MAX],
    count: usize,
    table: TableId,
    tag: OwnerTag,
    /// The position in the buffer where the lines of the records begin, one line for each record.
    lines: BufferOffset,
    /// The window of time in which the batch reads its records, for protocols whose readers have leases.
    pub(crate) window: Option<(Window, LeaseWord)>,
    /// The moment before the batch's first read, for protocols whose writers announce when they begin to write.
    pub(crate) moment: Option<EpochSnapshot>,
}

/// The progress of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchOutcome {
    /// The batch found all records as of one moment, so its transaction has committed.
    Done,
    /// The batch has prefetched the cache lines of more bins. The caller lets some time pass for the prefetched lines
    /// to arrive, and then reads the batch again.
    Asked,
    /// Another transaction has locked or changed a record of the batch.
    Refused(AbortReason),
    /// A record of the batch is at an unusual place, or a node has failed.
    Unusual,
}

impl BatchRead {
    /// Returns a batch of reads without records.
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

    /// Begins a new batch in an empty buffer, and prefetches the cache lines of all home bins of the batch.
    ///
    /// # Panics
    /// The caller gives more than [`TOGETHER_MAX`] keys. A call with too many keys is a bug in this program.
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

    /// Begins a new batch with the home bins and buckets of these keys.
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

    /// Returns the records of the batch.
    #[inline]
    pub(crate) fn wanted(&self) -> &[Wanted] {
        &self.wanted[..self.count]
    }

    /// Returns the records of the batch that must be validated.
    #[inline]
    fn seen(&self, which: Which) -> impl Iterator<Item = Seen<Target>> + Clone + use<'_> {
        let names = move |it: &&Wanted| which == Which::All || it.state == State::Marked;
        self.wanted().iter().filter(names).map(|it| (LockKind::Record, it.at, it.version))
    }

    /// Returns whether another transaction was about to write any record of the batch.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.wanted().iter().any(|wanted| wanted.state == State::Marked)
    }

    /// Returns whether the batch reads a single record, because one record needs no validation: its bytes belong to
    /// one moment.
    #[inline]
    pub(crate) fn is_of_one(&self) -> bool {
        self.count == 1
    }
}

/// Returns whether one call can read a batch of records of this table.
#[inline]
pub(crate) fn reads(cx: &Context, table: &Table) -> bool {
    if cx.is_near {
        return near::reads_table(cx, table);
    }
    // One READ of a slot must either bring the whole record or show that the record is incomplete.
    let slot = &table.slot;
    let is_at_once = slot.is_one_line() || slot.lined().is_some();
    is_at_once && slot.full_key_bytes == 0 && !slot.is_out_of_line()
}

/// Reads the records that the batch has not found yet: first in their home bins, then in their buckets, then in the
/// blocks of the buckets' chains.
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

/// Validates the records that the batch has found: reads their LOCK and VERSION again.
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

/// Reads the records of the batch in the same way as [`read`]. After the reads, validates the records that the batch
/// has found, because a reader without a lease must validate them.
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
