//! The tests of the checker, in one program.
//!
//! Invariant: each test file works without the other test files. The test files share only the code
//! of `common` and `replay`.

mod anomalies;
mod common;
mod elle;
mod files;
mod oracle;
mod replay;
mod scale;
mod snapshot;
