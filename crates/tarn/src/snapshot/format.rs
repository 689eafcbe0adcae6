//! The bytes of a snapshot file, and how they are written.
//!
//! ```text
//! header  byte 0    magic "TARNSNAP"
//!              8    version: u32
//!             12    bytes of the schema: u32
//!             16    number of this snapshot: u64
//!             24    schema: JSON, a list of tables
//!              …    checksum of the bytes 0 to here: u32
//! blocks            number of the block, from 0: u64
//!              8    table, its place in the schema: u32
//!             12    rows: u32
//!             16    rows × { primary key, payload }
//!              …    checksum of the snapshot's number and of this block: u32
//! footer            magic "TARN_END"
//!              8    number of this snapshot: u64
//!             16    blocks: u64
//!             24    bytes of the whole file: u64
//!             32    rows of each table: u64 × tables
//!              …    checksum of the footer's bytes: u32
//! ```
//!
//! Numbers are little-endian. A key of one word takes 8 bytes, and a longer key the width of its table. The payload is
//! the one of [`tarn_store::schema`]. A checksum is a CRC-32 (IEEE 802.3), which detects every change within 32
//! adjacent bits. The bytes that are the same under every protocol are the key and the payload, so the file has
//! neither versions nor locks nor entries of indexes.
//!
//! Invariant: a checksum covers every byte of the file. The snapshot's number is part of each checksum, so a block of
//! another snapshot is refused. Without its last byte, a file has no valid footer.

use crc32fast::Hasher;
use std::io::{self, Write};
use tarn_store::schema::{KeyWidth, TableSchema};

/// The first bytes of a snapshot file.
pub(super) const MAGIC: [u8; 8] = *b"TARNSNAP";
/// The version of the format. It increases when the meaning of any byte changes.
pub(super) const VERSION: u32 = 1;
/// The first bytes of the footer.
pub(super) const END_MAGIC: [u8; 8] = *b"TARN_END";
/// The number of bytes of the header before the schema.
pub(super) const HEADER_BYTES: usize = 24;
/// The number of bytes of a block before its rows.
pub(super) const BLOCK_HEADER_BYTES: usize = 16;
/// The number of bytes of the footer before the rows of each table.
pub(super) const FOOTER_BYTES: usize = 32;
/// The number of bytes of a checksum.
pub(super) const CHECKSUM_BYTES: usize = 4;
/// The number of bytes of rows after which a block ends. Such a block fits into the second cache of a core, and is
/// long enough that a system call for each block costs nothing.
pub(super) const BLOCK_ROWS_BYTES: usize = 256 << 10;

/// The number of bytes of a primary key in the file.
pub(super) fn key_bytes(schema: &TableSchema) -> usize {
    match schema.key {
        KeyWidth::Word => 8,
        KeyWidth::Bytes(width) => usize::from(width),
    }
}

/// The number of bytes of one row in the file.
pub(super) fn row_bytes(schema: &TableSchema) -> usize {
    key_bytes(schema) + schema.payload_bytes()
}

/// The most rows of one block.
pub(super) fn rows_of_block(schema: &TableSchema) -> usize {
    (BLOCK_ROWS_BYTES / row_bytes(schema)).max(1)
}

/// The number of bytes of the footer of a file with this many tables.
pub(super) fn footer_bytes(tables: usize) -> usize {
    FOOTER_BYTES + tables * 8 + CHECKSUM_BYTES
}

/// The checksum of a block, a header or a footer.
pub(super) fn checksum(snapshot: u64, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&snapshot.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Writes the rows of a database, table by table. The writer takes no lock and allocates nothing after
/// [`Writer::new`], except as `out` does.
pub(super) struct Writer<'a, W> {
    out: W,
    tables: Vec<&'a TableSchema>,
    snapshot: u64,
    /// The rows of each table that are written.
    rows: Vec<u64>,
    blocks: u64,
    written_bytes: u64,
    /// The block that is being filled, with room for its header.
    block: Vec<u8>,
    table: usize,
    rows_in_block: u32,
    rows_of_block: u32,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the header. The snapshot with this number has these tables.
    ///
    /// # Errors
    /// The error of `out`.
    pub(super) fn new(
        mut out: W,
        tables: Vec<&'a TableSchema>,
        snapshot: u64,
    ) -> io::Result<Writer<'a, W>> {
        let schema = serde_json::to_vec(&tables)?;
        let mut header = Vec::with_capacity(HEADER_BYTES + schema.len() + CHECKSUM_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        let schema_bytes = u32::try_from(schema.len()).map_err(io::Error::other)?;
        header.extend_from_slice(&schema_bytes.to_le_bytes());
        header.extend_from_slice(&snapshot.to_le_bytes());
        header.extend_from_slice(&schema);
        seal(&mut header, snapshot);
        out.write_all(&header)?;
        let longest = tables.iter().map(|table| row_bytes(table)).max().unwrap_or(0);
        let room = BLOCK_HEADER_BYTES + longest.max(BLOCK_ROWS_BYTES) + CHECKSUM_BYTES;
        let mut writer = Writer {
            out,
            rows: vec![0; tables.len()],
            tables,
            snapshot,
            blocks: 0,
            written_bytes: header.len() as u64,
            block: Vec::with_capacity(room),
            table: 0,
            rows_in_block: 0,
            rows_of_block: 0,
        };
        writer.block.resize(BLOCK_HEADER_BYTES, 0);
        Ok(writer)
    }

    /// Begins the rows of a table, which is named by its place in the schema.
    ///
    /// # Errors
    /// The error of `out`.
    pub(super) fn begin(&mut self, table: usize) -> io::Result<()> {
        self.end_block()?;
        self.table = table;
        self.rows_of_block = rows_of_block(self.tables[table]) as u32;
        Ok(())
    }

    /// Adds a row to the table. `full_key` is empty if the table's keys are words.
    ///
    /// # Errors
    /// The error of `out`.
    #[inline]
    pub(super) fn push(&mut self, key: u64, full_key: &[u8], payload: &[u8]) -> io::Result<()> {
        match full_key.is_empty() {
            true => self.block.extend_from_slice(&key.to_le_bytes()),
            false => self.block.extend_from_slice(full_key),
        }
        self.block.extend_from_slice(payload);
        self.rows_in_block += 1;
        match self.rows_in_block == self.rows_of_block {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.rows_in_block == 0 {
            return Ok(());
        }
        let header = &mut self.block[..BLOCK_HEADER_BYTES];
        header[..8].copy_from_slice(&self.blocks.to_le_bytes());
        header[8..12].copy_from_slice(&(self.table as u32).to_le_bytes());
        header[12..].copy_from_slice(&self.rows_in_block.to_le_bytes());
        seal(&mut self.block, self.snapshot);
        self.out.write_all(&self.block)?;
        self.written_bytes += self.block.len() as u64;
        self.rows[self.table] += u64::from(self.rows_in_block);
        self.blocks += 1;
        self.rows_in_block = 0;
        self.block.truncate(BLOCK_HEADER_BYTES);
        Ok(())
    }

    /// Writes the footer. Returns the number of rows and the number of bytes of the file.
    ///
    /// # Errors
    /// The error of `out`.
    pub(super) fn finish(&mut self) -> io::Result<(u64, u64)> {
        self.end_block()?;
        let file_bytes = self.written_bytes + footer_bytes(self.tables.len()) as u64;
        let footer = &mut self.block;
        footer.clear();
        footer.extend_from_slice(&END_MAGIC);
        for word in [self.snapshot, self.blocks, file_bytes].iter().chain(&self.rows) {
            footer.extend_from_slice(&word.to_le_bytes());
        }
        seal(footer, self.snapshot);
        self.out.write_all(footer)?;
        Ok((self.rows.iter().sum(), file_bytes))
    }
}

/// Appends the checksum.
fn seal(bytes: &mut Vec<u8>, snapshot: u64) {
    let sum = checksum(snapshot, bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
}
