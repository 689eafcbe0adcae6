//! The decider of the lock service as an XDP program: the driver of a network card answers, before the
//! kernel's network stack.
//!
//! Invariant: the program answers every datagram as [`tarn_locks::decider::Decider`] with [`SETUP`] and
//! [`tarn_locks::wire`] do, byte by byte. It answers the sender alone, which sends copies of acquires and
//! agents on.
//!
//! - `config`: the sizes of a program's maps, and its view. `counters`: the datagrams and questions that it refuses.
//! - `kernel`, with the feature `xdp`: loads the program, and puts it in the place of an older view's.
//!   `namespaces`: two network namespaces for tests and measurements.
//!
//! The feature needs clang at build time, and root (or the capabilities BPF and NET_ADMIN) at run time.
//! Without it the crate needs neither.

pub mod config;
pub mod counters;
#[cfg(feature = "xdp")]
pub mod kernel;
#[cfg(feature = "xdp")]
pub mod namespaces;

use tarn_locks::decider::{Fanout, Setup};
use tarn_locks::rules::Rules;
use tarn_locks::value::Width;

/// Answers that a lane records: `WINDOW` of the program.
pub const WINDOW: u32 = 64;

/// The greatest datagram that the program opens: `DATAGRAM_BYTES_MAX` of the program. A greater one does not
/// fit a frame.
pub const DATAGRAM_BYTES_MAX: usize = tarn_locks::wire::BATCH_BYTES;

/// The decider that the program is.
pub const SETUP: Setup =
    Setup { width: Width::WIDE, fanout: Fanout::Answers, window: WINDOW, rules: Rules::ALL };
