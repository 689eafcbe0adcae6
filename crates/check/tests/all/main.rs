//! The tests of the checker, in one program.
//!
//! Invariant: each file checks on its own; they share only the fixed code of `common` and `replay`.

mod anomalies;
mod common;
mod elle;
mod files;
mod oracle;
mod replay;
mod scale;
mod snapshot;
