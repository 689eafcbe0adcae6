//! Holds the XDP program and the decider equal, by runs on given frames that need no network.
//!
//! Invariant: where the kernel loads no program for this user, each test says so in one line and passes; a
//! kernel that loads the empty program and refuses the decider fails the tests.
#![cfg(feature = "xdp")]
#![allow(clippy::disallowed_methods, reason = "drives real threads")]

mod concurrent;
mod equal;
mod frames;
mod hosts;

use tarn_locks::decider::Entry;
use tarn_locks::value::{LockId, View};
use tarn_locks::wire::Key;
use tarn_xdp::config::Config;
use tarn_xdp::kernel::{Kind, Program};

/// The config of the tests.
pub(crate) const CONFIG: Config = Config {
    view: View(7),
    key: Key([0xa5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xf7]),
    port: 4040,
    locks: 5,
    machines: 8,
    threads: 4,
};

/// The decider in the kernel; `None`, with a line that says why, where no program can be loaded at all.
pub(crate) fn decider(entries: &[(LockId, Entry)]) -> Option<Program> {
    if let Err(error) = Program::load(Kind::Pass, &CONFIG, &[]) {
        println!("skipped: the kernel loads no XDP program for this user: {error}");
        return None;
    }
    Some(Program::load(Kind::Decider, &CONFIG, entries).expect("the kernel takes the decider"))
}
