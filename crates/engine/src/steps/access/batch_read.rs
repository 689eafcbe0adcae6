//! Records of one table that are read all at once, by loads, where memory is near: a whole transaction that locks nothing, has no
//! working set and makes no round. Where memory is far, rounds do the same: [`far`].
//!
//! Invariant: the looks are those of [`super::near`], visit for visit, with the same checks: at each home; at the whole bucket of what is not
//! there, and at the blocks of its chain; at LOCK and VERSION again, where the protocol asks for it. Nothing is locked or changed, so that whatever is unusual (a record that
//! another has locked, one that is in no slot of its bucket, a node that has failed) only ends this, and the transaction runs anew as
//! any other does. What a LOCK word means is the protocol's ([`Access::judge`]), and so is what has to be looked at again.

pub(crate) mod far;

use super::near::{BIN_LINES, LINE_WORDS, ask_elsewhere, is_half};
use super::{Access, LockState, Which};
use crate::cluster::lease::LeaseWord;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use tarn_fabric::address::{Address, LINE_BYTES, NodeSlot, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::local::{DirectMemory, EpochSnapshot, Visit};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_fabric::window::Window;
use tarn_store::ids::{AbortReason, Mode, OwnerTag};
use tarn_store::index::hash::Lookup;
use tarn_store::index::hash_of;
use tarn_store::layout::{
    DIRECTORY_BYTES, DIRECTORY_NEXT_AT, KEY_AT, LOCK_AT, VERSION_AT, Version,
};
use tarn_store::placement::catalog::Table;
use tarn_store::schema::TableId;

/// Most records that are read so: all that they touch is still near when it is looked at again.
pub(crate) const TOGETHER_MAX: usize = 16;

/// A record that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Its key.
    pub(crate) key: u64,
    /// Its bin; its slot, once it is shown.
    at: Target,
    /// The block that is looked through when it is not in its bin: its bucket, then those of the bucket's chain.
    block: Address,
    /// As of which version it is shown.
    pub(crate) version: Version,
    /// Its payload in the round's buffer, once it is shown; before, where memory is far, what is read of its place.
    pub(crate) payload: BufferOffset,
    state: State,
}

impl Wanted {
    /// Whether there is such a record.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.state, State::Absent { .. })
    }

    #[inline(always)]
    fn seek(&mut self, key: u64, bin: Target, bucket: Address) {
        (self.key, self.at, self.block, self.state) = (key, bin, bucket, State::Sought);
    }
}

/// How far a record has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It is looked for.
    Sought,
    /// It is read where it was seen last.
    Remembered,
    /// A [`Lookup`] goes on for it.
    Away,
    /// It is shown.
    Shown,
    /// It is shown, and another was about to write it.
    Marked,
    /// There is none; whether that was seen at one moment.
    Absent { is_stable: bool },
}

/// What one coordinator reads together; kept from transaction to transaction.
pub struct BatchRead {
    wanted: [Wanted; TOGETHER_MAX],
    count: usize,
    table: TableId,
    tag: OwnerTag,
    /// A line for each, where memory is near.
    lines: BufferOffset,
    /// Where memory is far, which of them are [`State::Away`], and how far each is looked for.
    strays: Vec<(u32, Lookup)>,
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
        let strays = Vec::new();
        BatchRead {
            wanted,
            count: 0,
            table: TableId(0),
            tag,
            lines,
            strays,
            window: None,
            moment: None,
        }
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
        let bins = self.wanted().iter().map(|wanted| wanted.at);
        match is_half(table) {
            true => near.ask::<1>(bins),
            false => near.ask::<BIN_LINES>(bins),
        }
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
    match cx.is_near {
        true => super::near::reads_table(cx, table),
        false => far::reads_table(table),
    }
}

/// Reads what is still sought: at its home first, then in its bucket, then in the blocks of that one's chain.
#[inline]
pub(crate) fn read(
    access: &impl Access,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (near, is_again): (DirectMemory<'_>, bool),
) -> BatchOutcome {
    let table = cx.table(together.table);
    let sum = match (is_half(table), is_again) {
        (true, false) => read_homes::<2>(access, cx, (together, round), (near, table)),
        (false, false) => read_homes::<1>(access, cx, (together, round), (near, table)),
        (true, true) => read_blocks::<2>(access, cx, (together, round), (near, table)),
        (false, true) => read_blocks::<1>(access, cx, (together, round), (near, table)),
    };
    match sum {
        Err(_) => BatchOutcome::Unusual,
        Ok(Sum { refused: true, .. }) => BatchOutcome::Refused(AbortReason::ReadLocked),
        Ok(Sum { sought: 0, .. }) => BatchOutcome::Done,
        Ok(Sum { nowhere: true, .. }) => BatchOutcome::Unusual,
        Ok(_) => {
            ask_strays(cx, together, (near, table), is_again);
            BatchOutcome::Asked
        }
    }
}

/// What came of several records.
#[derive(Default)]
struct Sum {
    sought: usize,
    refused: bool,
    /// One of them is in no block of its bucket.
    nowhere: bool,
}

type Outcome<T> = Result<T, Box<FabricError>>;

#[inline(never)]
fn read_homes<const PARTS: usize>(
    access: &impl Access,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (near, table): (DirectMemory<'_>, &Table),
) -> Outcome<Sum> {
    let BatchRead { wanted, count, tag, lines, .. } = together;
    let (wanted, mut image) = (&mut wanted[..*count], *lines);
    let (buffer, _) = round.words_mut(image, *count * LINE_WORDS).as_chunks_mut();
    let mut sum = Sum::default();
    let bin_lines = if PARTS == 1 { BIN_LINES } else { 1 };
    near.visit(wanted[0].at, |visit| {
        for (wanted, line) in wanted.iter_mut().zip(buffer) {
            let place = (wanted.at, bin_lines);
            take::<PARTS>(
                visit,
                (access, cx, *tag),
                (table, place),
                (wanted, line, image),
                &mut sum,
            )?;
            image = image.plus(LINE_BYTES);
        }
        Outcome::Ok(())
    })?;
    Ok(sum)
}

#[inline(never)]
fn read_blocks<const PARTS: usize>(
    access: &impl Access,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (near, table): (DirectMemory<'_>, &Table),
) -> Outcome<Sum> {
    let BatchRead { wanted, count, tag, lines, .. } = together;
    let block_lines = table.geometry.slots * table.slot.slot_bytes / LINE_BYTES;
    let mut sum = Sum::default();
    near.visit(wanted[0].at, |visit| {
        for (at, wanted) in wanted[..*count].iter_mut().enumerate() {
            if wanted.state != State::Sought {
                continue;
            }
            access.enter(cx, Phase::Locate);
            let image = lines.plus(at * LINE_BYTES);
            let block = cx.groups.primary(wanted.block);
            let place = (block.plus(DIRECTORY_BYTES), block_lines);
            let line = round.array_mut(image);
            take::<PARTS>(
                visit,
                (access, cx, *tag),
                (table, place),
                (wanted, line, image),
                &mut sum,
            )?;
            if wanted.state == State::Sought {
                // A chain grows at its end alone, and none of its blocks is ever used otherwise.
                let [next, _] = visit.read_words(block.plus(DIRECTORY_NEXT_AT))?;
                wanted.block = Address::from_word(next);
                sum.nowhere |= wanted.block.is_null();
            }
        }
        Outcome::Ok(())
    })?;
    Ok(sum)
}

#[inline(never)]
fn ask_strays(
    cx: &Context,
    together: &BatchRead,
    (near, table): (DirectMemory<'_>, &Table),
    is_again: bool,
) {
    for wanted in together.wanted().iter().filter(|wanted| wanted.state == State::Sought) {
        if !is_again {
            ask_elsewhere(cx, near, (table, wanted.block, wanted.at.address()));
            continue;
        }
        let block = cx.groups.primary(wanted.block);
        let lines = (0..table.geometry.bucket_bytes).step_by(LINE_BYTES);
        near.ask::<1>(lines.map(|line| block.plus(line)));
    }
}

/// Takes in a record, if it is in one of these lines.
#[inline(always)]
fn take<const PARTS: usize>(
    visit: &mut Visit<'_>,
    (access, cx, tag): (&impl Access, &Context, OwnerTag),
    (table, place): (&Table, (Target, usize)),
    (wanted, line, image): (&mut Wanted, &mut [u64; LINE_WORDS], BufferOffset),
    sum: &mut Sum,
) -> Outcome<()> {
    let Some(slot) = visit.find_part::<PARTS>(place, (KEY_AT / 8, wanted.key), line)? else {
        sum.sought += 1;
        return Ok(());
    };
    let slot_bytes = LINE_BYTES / PARTS;
    let within = slot % PARTS * slot_bytes;
    let [lock, version] = [LOCK_AT, VERSION_AT].map(|at| line[(within + at) / 8]);
    wanted.version = Version::from_word(version);
    if !wanted.version.is_present() {
        sum.sought += 1;
        return Ok(());
    }
    wanted.at = place.0.plus(slot * slot_bytes);
    wanted.payload = image.plus(within + table.slot.payload_at);
    wanted.state = State::Shown;
    if lock != 0 {
        match access.judge(lock, tag, Mode::Read) {
            LockState::Free => {}
            LockState::Marked => wanted.state = State::Marked,
            LockState::InTheWay | LockState::Taken => {
                cx.note_blocking_lock(wanted.at.address(), lock);
                sum.refused = true;
            }
        }
    }
    Ok(())
}

/// Looks again at LOCK and VERSION of what was shown.
#[inline(never)]
pub(crate) fn look_again(
    access: &impl Access,
    cx: &Context,
    (together, near): (&BatchRead, DirectMemory<'_>),
    which: Which,
) -> BatchOutcome {
    let names = |wanted: &Wanted| which == Which::All || wanted.state == State::Marked;
    let seen = || together.wanted().iter().filter(|wanted| names(wanted));
    let Some(first) = seen().next() else { return BatchOutcome::Done };
    if !access.keeps(Rule::ValidateReads) {
        return BatchOutcome::Done;
    }
    access.enter(cx, Phase::Validate);
    let mut verdict = BatchOutcome::Done;
    let looked = near.visit(first.at, |visit| {
        for wanted in seen() {
            let [lock, now] = visit.read_words::<2>(wanted.at)?;
            let address = wanted.at.address();
            match access.judge(lock, together.tag, Mode::Read) {
                LockState::InTheWay | LockState::Taken => {
                    cx.note_blocking_lock(address, lock);
                    verdict = BatchOutcome::Refused(AbortReason::ValidationLocked);
                }
                LockState::Free | LockState::Marked if now != wanted.version.word() => {
                    verdict = BatchOutcome::Refused(AbortReason::VersionChanged);
                }
                LockState::Free | LockState::Marked => {}
            }
        }
        Ok::<_, Box<FabricError>>(())
    });
    if looked.is_err() { BatchOutcome::Unusual } else { verdict }
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
