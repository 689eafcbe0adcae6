//! Records of one table that are read all at once where memory is far: a whole transaction that locks nothing and has no working
//! set, by rounds.
//!
//! Invariant: its READs, its rounds and its checks are those of a transaction that reads the same records ([`crate::steps::access::fetch()`],
//! [`crate::steps::access::validate()`]): each bin, or slot where the record was seen last; the bucket of what is not there, then the blocks of its chain, as a [`Lookup`] asks for them;
//! LOCK and VERSION again, where the protocol asks for it. Absences are seen and looked at again as there. All answers of a round are taken in before any ends the try.

use super::{BatchOutcome, BatchRead, State, Wanted};
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::access::absorb::{gathered, in_lines};
use crate::steps::access::validate::judge_seen;
use crate::steps::access::{Access, LockState, Which};
use crate::transaction::working_set::LockKind;
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{AbortReason, Mode, OwnerTag};
use tarn_store::index::hash::{Answer, Lookup, Wanted as Sought, head_at_home};
use tarn_store::layout::{KEY_AT, LOCK_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// Whether records of this table can be read so: what one READ brings of a slot shows the record whole, or says that it is not.
#[inline]
pub(super) fn reads_table(table: &Table) -> bool {
    let slot = &table.slot;
    let is_at_once = slot.is_one_line() || slot.lined().is_some();
    is_at_once && slot.full_key_bytes == 0 && !slot.is_out_of_line()
}

impl BatchRead {
    /// As [`BatchRead::ask`], by a round that is not sent yet. Whether it did: not if a key repeats, which is one record to a transaction.
    #[inline]
    pub(crate) fn ask_far(
        &mut self,
        cx: &Context,
        (table, keys): (&Table, impl ExactSizeIterator<Item = u64>),
        (tag, round): (OwnerTag, &mut Round),
    ) -> bool {
        self.seek(cx, (table, keys), tag);
        self.strays.clear();
        let mut bits = 0_u64;
        for (at, wanted) in self.wanted().iter().enumerate() {
            let bit = 1 << (wanted.at.address().to_word() / LINE_BYTES as u64 % 64);
            let repeats = |before: &Wanted| before.key == wanted.key;
            if bits & bit != 0 && self.wanted[..at].iter().any(repeats) {
                return false;
            }
            bits |= bit;
        }
        if cx.remembers || table.slot.by_bucket {
            self.plan_rarer(cx, table, round);
            return true;
        }
        let bin_bytes = table.geometry.bin_bytes;
        let mut image = round.reserve_lines(self.count * bin_bytes);
        for wanted in &mut self.wanted[..self.count] {
            wanted.payload = image;
            round.read_into(wanted.at, image, bin_bytes);
            image = image.plus(bin_bytes);
        }
        true
    }

    /// Adds the first READs where records are remembered, or have no homes.
    #[inline(never)]
    fn plan_rarer(&mut self, cx: &Context, table: &Table, round: &mut Round) {
        let (slot_bytes, bin_bytes) = (table.slot.slot_bytes, table.geometry.bin_bytes);
        let cache = cx.cache.borrow();
        for (at, wanted) in self.wanted[..self.count].iter_mut().enumerate() {
            if let Some((address, _)) = cache.get(table.id, wanted.key) {
                wanted.at = cx.groups.primary(address);
                wanted.state = State::Remembered;
                wanted.payload = round.read(wanted.at, slot_bytes);
            } else if table.slot.by_bucket {
                let mut lookup = Lookup::start(cx.lookup_context(), table, wanted.key);
                lookup.plan(cx.lookup_context(), table, round);
                wanted.state = State::Away;
                self.strays.push((at as u32, lookup));
            } else {
                wanted.payload = round.read(wanted.at, bin_bytes);
            }
        }
    }

    /// Whether what was read is of one moment by itself.
    #[inline]
    pub(crate) fn is_of_one_read(&self) -> bool {
        self.is_of_one() && self.wanted[0].state != State::Absent { is_stable: false }
    }
}

/// Reads what was asked for. [`BatchOutcome::Done`] says that all is shown, and not yet that it is of one moment.
#[inline]
pub(crate) async fn fetch(
    access: &impl Access,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
) -> BatchOutcome {
    for wanted in together.wanted() {
        let is_remembered = wanted.state == State::Remembered;
        access.enter(cx, if is_remembered { Phase::ReadDirect } else { Phase::Locate });
    }
    if cx.port.execute(round).await.is_err() {
        return BatchOutcome::Unusual;
    }
    let mut came = absorb_first(access, cx, together, round);
    while came == BatchOutcome::Asked {
        round.begin();
        plan_strays(access, cx, together, round);
        if cx.port.execute(round).await.is_err() {
            return BatchOutcome::Unusual;
        }
        came = absorb_strays(access, cx, together, round);
    }
    came
}

/// As [`fetch`], then again what was shown, as who has no lease must.
#[inline]
pub(crate) async fn fetch_and_look_again(
    access: &impl Access,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
) -> BatchOutcome {
    match fetch(access, cx, (&mut *together, &mut *round)).await {
        BatchOutcome::Done if together.is_of_one_read() => BatchOutcome::Done,
        BatchOutcome::Done => look_again(access, cx, (together, round), Which::All).await,
        step => step,
    }
}

/// What a round came to, if nothing or something is sought still.
fn outcome(verdict: Result<(), AbortReason>, is_all: bool) -> BatchOutcome {
    match verdict {
        Err(reason) => BatchOutcome::Refused(reason),
        Ok(()) if is_all => BatchOutcome::Done,
        Ok(()) => BatchOutcome::Asked,
    }
}

/// Takes in what the first round brought.
#[inline]
fn absorb_first(
    access: &impl Access,
    cx: &Context,
    together: &mut BatchRead,
    round: &mut Round,
) -> BatchOutcome {
    let mut verdict = Ok(());
    if !together.strays.is_empty() {
        verdict = take_strays(access, cx, together, round);
    }
    let BatchRead { wanted, count, table, tag, strays, .. } = together;
    let table = cx.table(*table);
    for (at, wanted) in wanted[..*count].iter_mut().enumerate() {
        let image = wanted.payload;
        let found = match wanted.state {
            State::Sought => head_at_home(table, wanted.key, round, image),
            State::Remembered => head_remembered(cx, table, wanted.key, (round, image)),
            _ => continue,
        };
        let Some((offset, head)) = found else {
            let is_at_bucket = wanted.state == State::Sought;
            wanted.state = State::Away;
            strays.push((at as u32, start(cx, table, wanted.key, is_at_bucket)));
            continue;
        };
        let is_new = wanted.state == State::Sought && cx.remembers;
        wanted.at = wanted.at.plus(offset);
        if is_new {
            remember(cx, table, wanted);
        }
        let seen = (image.plus(offset), [head[LOCK_AT / 8], head[VERSION_AT / 8]]);
        verdict = verdict.and(take(access, (cx, *tag), (table, round), wanted, seen));
    }
    outcome(verdict, strays.is_empty())
}

#[cold]
fn remember(cx: &Context, table: &Table, wanted: &Wanted) {
    cx.cache.borrow_mut().put(table.id, wanted.key, wanted.at.address(), Address::NULL);
}

/// The header's words where the record was seen last, if it is still there; else that is forgotten.
#[inline(never)]
fn head_remembered(
    cx: &Context,
    table: &Table,
    key: u64,
    (round, image): (&Round, BufferOffset),
) -> Option<(usize, [u64; 3])> {
    let head = *round.array::<3>(image);
    if head[KEY_AT / 8] == key && Version::from_word(head[VERSION_AT / 8]).is_present() {
        return Some((0, head));
    }
    cx.cache.borrow_mut().forget(table.id, key);
    None
}

/// A look-up of a record that is not where it was looked for: in its bucket, if its bin was looked at.
#[cold]
fn start(cx: &Context, table: &Table, key: u64, is_at_bucket: bool) -> Lookup {
    let mut lookup = Lookup::start(cx.lookup_context(), table, key);
    if is_at_bucket {
        lookup.restart_at_bucket();
    }
    lookup
}

#[inline(never)]
fn plan_strays(access: &impl Access, cx: &Context, together: &mut BatchRead, round: &mut Round) {
    let table = cx.table(together.table);
    for (_, lookup) in &mut together.strays {
        access.enter(cx, Phase::Locate);
        lookup.plan(cx.lookup_context(), table, round);
    }
}

fn absorb_strays(
    access: &impl Access,
    cx: &Context,
    together: &mut BatchRead,
    round: &mut Round,
) -> BatchOutcome {
    let verdict = take_strays(access, cx, together, round);
    outcome(verdict, together.strays.is_empty())
}

/// Takes in what the look-ups have brought, and keeps those that go on.
#[inline(never)]
fn take_strays(
    access: &impl Access,
    cx: &Context,
    together: &mut BatchRead,
    round: &mut Round,
) -> Result<(), AbortReason> {
    let BatchRead { wanted, table, tag, strays, .. } = together;
    let table = cx.table(*table);
    let mut verdict = Ok(());
    strays.retain_mut(|(at, lookup)| {
        let wanted = &mut wanted[*at as usize];
        let sought = Sought { word: wanted.key, full_key: None, me: tag.word() };
        let settled = match lookup.absorb(cx.lookup_context(), table, sought, round) {
            Answer::More => return true,
            Answer::Unstable => {
                if let Some((address, word)) = lookup.met(table, round) {
                    cx.note_blocking_lock(address, word);
                }
                Err(AbortReason::ReadLocked)
            }
            Answer::Found { address, image, .. } => {
                wanted.at = cx.groups.primary(address);
                remember(cx, table, wanted);
                let head = *round.array(image.plus(LOCK_AT));
                take(access, (cx, *tag), (table, round), wanted, (image, head))
            }
            Answer::Absent => {
                wanted.at = cx.groups.primary(lookup.directory);
                wanted.version = lookup.directory_version;
                wanted.state = State::Absent { is_stable: lookup.stable };
                Ok(())
            }
        };
        verdict = verdict.and(settled);
        false
    });
    verdict
}

/// Takes in a record that was found, of which an image and its LOCK and VERSION were read.
///
/// # Errors
/// Another transaction has locked it, or its lines are of several moments.
#[inline(always)]
fn take(
    access: &impl Access,
    (cx, tag): (&Context, OwnerTag),
    (table, round): (&Table, &mut Round),
    wanted: &mut Wanted,
    (image, [lock, version]): (BufferOffset, [u64; 2]),
) -> Result<(), AbortReason> {
    wanted.version = Version::from_word(version);
    wanted.payload = image.plus(table.slot.payload_at);
    wanted.state = State::Shown;
    if lock != 0 {
        match access.judge(lock, tag, Mode::Read) {
            LockState::Free => {}
            LockState::Marked => wanted.state = State::Marked,
            LockState::InTheWay | LockState::Taken => {
                cx.note_blocking_lock(wanted.at.address(), lock);
                return Err(AbortReason::ReadLocked);
            }
        }
    }
    let is_in_line = table.slot.slot_bytes <= LINE_BYTES;
    if is_in_line { Ok(()) } else { gather(access, (table, round), wanted, image) }
}

/// Takes in a record of several lines.
///
/// # Errors
/// They are of several moments.
#[inline(never)]
fn gather(
    access: &impl Access,
    (table, round): (&Table, &mut Round),
    wanted: &mut Wanted,
    image: BufferOffset,
) -> Result<(), AbortReason> {
    let Some(lined) = in_lines(table) else { return Ok(()) };
    let is_whole = lined.is_whole(round.bytes(image, table.slot.slot_bytes));
    if !is_whole && access.keeps(Rule::CheckLines) {
        return Err(AbortReason::VersionChanged);
    }
    wanted.payload = gathered(round, image, table, lined);
    Ok(())
}

/// Looks again, in a round, at LOCK and VERSION of what was shown, and of the directories of what is absent.
#[inline]
pub(crate) async fn look_again(
    access: &impl Access,
    cx: &Context,
    (together, round): (&BatchRead, &mut Round),
    which: Which,
) -> BatchOutcome {
    if !access.keeps(Rule::ValidateReads) {
        return BatchOutcome::Done;
    }
    let first = plan_again(access, (together, &mut *round), which);
    if round.is_empty() {
        return BatchOutcome::Done;
    }
    access.enter(cx, Phase::Validate);
    round.hot();
    if cx.port.execute(round).await.is_err() {
        return BatchOutcome::Unusual;
    }
    match absorb_again(access, cx, (together, round), (first, which)) {
        Ok(()) => BatchOutcome::Done,
        Err(reason) => BatchOutcome::Refused(reason),
    }
}

/// What is looked at again.
#[inline]
fn seen<'t, A: Access>(
    access: &A,
    together: &'t BatchRead,
    which: Which,
) -> impl Iterator<Item = (LockKind, &'t Wanted)> + use<'t, A> {
    let is_all = which == Which::All;
    let protects = is_all && access.keeps(Rule::ProtectAbsent);
    together.wanted().iter().filter_map(move |wanted| match wanted.state {
        State::Marked => Some((LockKind::Record, wanted)),
        State::Shown => is_all.then_some((LockKind::Record, wanted)),
        State::Absent { .. } => protects.then_some((LockKind::Directory, wanted)),
        State::Sought | State::Remembered | State::Away => None,
    })
}

#[inline]
fn plan_again(
    access: &impl Access,
    (together, round): (&BatchRead, &mut Round),
    which: Which,
) -> BufferOffset {
    round.begin();
    let first = round.reserve(16 * together.count);
    let mut again = first;
    for (_, wanted) in seen(access, together, which) {
        round.read_into(wanted.at, again, 16);
        again = again.plus(16);
    }
    first
}

#[inline]
fn absorb_again(
    access: &impl Access,
    cx: &Context,
    (together, round): (&BatchRead, &Round),
    (mut again, which): (BufferOffset, Which),
) -> Result<(), AbortReason> {
    let mut verdict = Ok(());
    for (kind, wanted) in seen(access, together, which) {
        let now = (*round.array(again), Mode::Read);
        let seen = (kind, wanted.at.address(), wanted.version);
        verdict = verdict.and(judge_seen(access, cx, together.tag, seen, now));
        again = again.plus(16);
    }
    verdict
}
