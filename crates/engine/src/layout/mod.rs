//! Record layouts: how a record lies in remote memory.
//!
//! Invariant: a layout is bytes and arithmetic only; who may change which word when is the
//! protocol's business. Indexes and logs work on the [`Slot`] of any layout, which the database's
//! [`LayoutKind`] makes; loaders and inspections read its [`RecordLayout`].

mod reach;
mod record;
mod single_version;
mod version;

pub(crate) use reach::for_each_run;
pub use reach::{Reach, WORD_BYTES};
pub use record::{LayoutKind, Loaded, Newest, PayloadAt, RecordLayout};
pub use single_version::{
    DIRECTORY_BYTES, DIRECTORY_DEPTH_AT, DIRECTORY_NEXT_AT, DIRECTORY_PRINTS_AT,
    DIRECTORY_STAMP_AT, HEADER_BYTES, KEY_AT, LOCK_AT, Slot, VERSION_AT,
};
pub use version::Version;
