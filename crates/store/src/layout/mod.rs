//! Record layouts: the arrangement of a record's bytes in remote memory.
//!
//! Invariant: a layout is only bytes and arithmetic. The protocol decides which transaction may change which word,
//! and when. Indexes and logs use a [`Slot`], which the database's [`LayoutKind`] creates. Code that loads or
//! inspects records uses the slot's [`RecordLayout`].

mod bucket_shape;
mod cells;
mod choose;
mod deltas;
mod field;
mod geometry;
pub mod index_plan;
mod lined;
mod lock_word;
pub mod node;
mod packed;
mod reach;
mod record;
mod single_version;
mod ticket_word;
mod version;
mod version_word;

pub use bucket_shape::BucketShape;
pub use cells::{
    CELL_BYTES, CELL_COORDINATORS_MAX, CELL_PREV_TS_AT, CELL_TO_AT, CELL_TXN_AT, CELLS_AT,
    CELLS_MAX, Cell, CellAddress, Cells, RECORD_HEAD_BYTES, SHAPE_AT, is_record_of, seal_record,
};
pub use choose::{
    Choice, Committed, Discards, Overwrite, Rules, Seen, cell_to_overwrite, choose,
    newest_committed,
};
pub use deltas::{
    DELTA_CELL_BYTES, DELTA_CELLS_AT, DELTA_VERSIONS_MAX, DeltaCell, Deltas, NEWEST_AT,
    STAMP_BYTES, Shown, VALUE_AT, delta_bytes, is_seen_at, newest, put_delta, take_delta,
    version_at,
};
pub use field::Field;
pub use geometry::{Geometry, SEGMENTS_MAX};
pub use lined::{
    LINED_ROW_AT, LINED_WRITER_AT, LVER_BYTES, LinePart, Lined, is_whole_at, lined_writer,
    lined_writes, newest_line, stamp_lines,
};
pub use lock_word::{LockMode, LockWord};
pub use packed::{PACKED_VERSIONS_AT, PACKED_WRITER_AT, Packed};
pub use reach::{Reach, WORD_BYTES};
pub use record::{LayoutKind, Loaded, Newest, PayloadAt, RecordLayout, Records};
pub use single_version::{
    DIRECTORY_BYTES, DIRECTORY_DEPTH_AT, DIRECTORY_NEXT_AT, DIRECTORY_PRINTS_AT,
    DIRECTORY_STAMP_AT, HEADER_BYTES, KEY_AT, LOCK_AT, LockWords, Slot, VERSION_AT,
};
pub use ticket_word::{COUNT_MAX, Ticket, TicketWord};
pub use version::Version;
pub use version_word::VersionWord;
