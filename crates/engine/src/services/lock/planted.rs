//! Planted bugs of the lock table: the paper's algorithm, in the places where it allows two writers at the same time.
//!
//! Invariant: only the planted values of [`super::table::Bits`] call this code, and only tests use these values.

use super::bucket::{READER, WRITER};
use super::name::LockMode;
use super::sync::{Ordering, pause};
use super::table::{Found, Joined, LockTable, Place};

impl LockTable {
    /// The paper's algorithm: it finds a free slot, and then claims the slot without the bucket's bit.
    #[cold]
    pub(super) fn acquire_without_bit(
        &self,
        home: u32,
        print: u64,
        mode: LockMode,
    ) -> Option<Place> {
        let header = self.bucket(home)[0].load(Ordering::Relaxed);
        let place = match self.find(home, header, print) {
            Found::Free(place) => place,
            Found::Held(place, word) if mode == LockMode::Read => {
                let joined = self.join::<false>(place, word);
                return matches!(joined, Joined::Yes).then_some(place);
            }
            Found::Held(..) | Found::Full => return None,
        };
        planted_pause();
        let holder = if mode == LockMode::Write { WRITER } else { READER };
        let (won, lost) = (Ordering::AcqRel, Ordering::Relaxed);
        self.slot(place).compare_exchange(0, print | holder, won, lost).ok().map(|_| place)
    }
}

/// Lengthens the race window of a planted bug, so that a test meets the race reliably.
#[cold]
pub(super) fn planted_pause() {
    let pauses = if cfg!(loom) { 0 } else { 200 };
    (0..pauses).for_each(|_| pause());
}
