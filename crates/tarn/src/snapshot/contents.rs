//! A snapshot file, and its rows block by block.
//!
//! Invariant: no byte of the file is used before the checksum of its part was compared, except lengths. A length is
//! compared with the size of the file and with its greatest possible value. So a damaged length costs no memory.

use super::error::SnapshotError;
use super::format::{
    BLOCK_HEADER_BYTES, CHECKSUM_BYTES, END_MAGIC, FOOTER_BYTES, HEADER_BYTES, MAGIC, VERSION,
    checksum, footer_bytes, key_bytes, row_bytes, rows_of_block,
};
use crate::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tarn_store::schema::{Key, KeyWidth, TableSchema};

/// A snapshot whose header and footer were checked.
#[derive(Debug)]
pub(super) struct Contents {
    path: PathBuf,
    file: File,
    snapshot: u64,
    /// The tables, each with the number of its rows as its expected records, unless it expected more.
    pub(super) tables: Vec<TableSchema>,
    /// The number of rows of each table.
    pub(super) rows: Vec<u64>,
    blocks: u64,
    blocks_at: u64,
    footer_at: u64,
}

impl Contents {
    /// Opens a snapshot and checks its header and footer.
    ///
    /// # Errors
    /// If the file cannot be read, is no snapshot, is damaged, or has another version of the format.
    pub(super) fn open(path: &Path) -> Result<Contents, Error> {
        let file = File::open(path).map_err(SnapshotError::io(path, "open"))?;
        let size = file.metadata().map_err(SnapshotError::io(path, "read"))?.len();
        let start = read(path, &file, 0, HEADER_BYTES, size)?;
        if start[..8] != MAGIC {
            return Err(SnapshotError::damaged(path, 0, "this is no snapshot of Tarn"));
        }
        let [found, schema_bytes] = [8, 12].map(|at| number(&start[at..at + 4]) as u32);
        let header_bytes = HEADER_BYTES + schema_bytes as usize;
        let header = read(path, &file, 0, header_bytes + CHECKSUM_BYTES, size)?;
        let snapshot = number(&start[16..24]);
        if !is_sealed(snapshot, &header) {
            // A later version may have another header, so its number is believed if the magic is right.
            return Err(match found == VERSION {
                true => SnapshotError::damaged(path, 0, "the header has a wrong checksum"),
                false => {
                    SnapshotError::Version { path: path.into(), found, allowed: VERSION }.into()
                }
            });
        }
        if found != VERSION {
            return Err(
                SnapshotError::Version { path: path.into(), found, allowed: VERSION }.into()
            );
        }
        let refuse = |why: String| SnapshotError::damaged(path, HEADER_BYTES as u64, why);
        let tables = tables_of(&header[HEADER_BYTES..header_bytes]).map_err(refuse)?;
        let blocks_at = (header_bytes + CHECKSUM_BYTES) as u64;
        let mut contents = Contents {
            path: path.to_owned(),
            file,
            snapshot,
            tables,
            rows: Vec::new(),
            blocks: 0,
            blocks_at,
            footer_at: 0,
        };
        contents.read_footer(size)?;
        Ok(contents)
    }

    fn read_footer(&mut self, size: u64) -> Result<(), Error> {
        let path = &self.path;
        let bytes = footer_bytes(self.tables.len());
        let refuse = |why: &str| SnapshotError::damaged(path, size, format!("{why}: was it cut?"));
        let at = size.checked_sub(bytes as u64).filter(|at| *at >= self.blocks_at);
        let at = at.ok_or_else(|| refuse("the file ends before its footer"))?;
        let footer = read(path, &self.file, at, bytes, size)?;
        let words = footer[8..bytes - CHECKSUM_BYTES].as_chunks::<8>().0;
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let is_its = footer[..8] == END_MAGIC && words[0] == self.snapshot && words[2] == size;
        if !is_its || !is_sealed(self.snapshot, &footer) {
            return Err(refuse("the file does not end with its footer"));
        }
        self.blocks = words[1];
        self.footer_at = at;
        self.rows = words[(FOOTER_BYTES - 8) / 8..].to_vec();
        for (table, rows) in self.tables.iter_mut().zip(&self.rows) {
            table.expected_records = table.expected_records.max(*rows);
        }
        Ok(())
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to read the blocks. Several threads may each read all blocks.
    pub(super) fn blocks(&self) -> Blocks<'_> {
        let rows = vec![0; self.tables.len()];
        Blocks { contents: self, at: self.blocks_at, next: 0, rows, bytes: Vec::new() }
    }
}

/// The rows of one table in one block.
pub(super) struct Block<'a> {
    /// The table, by its place in the snapshot's schema.
    pub(super) table: usize,
    schema: &'a TableSchema,
    rows: &'a [u8],
}

impl<'a> Block<'a> {
    /// The primary key and the payload of each row.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Key<'a>, &'a [u8])> {
        let (width, is_word) = (key_bytes(self.schema), self.schema.key == KeyWidth::Word);
        self.rows.chunks_exact(row_bytes(self.schema)).map(move |row| {
            let (key, payload) = row.split_at(width);
            let key = if is_word { Key::Word(number(key)) } else { Key::Bytes(key) };
            (key, payload)
        })
    }
}

/// Reads the blocks of a snapshot in order, and checks each block.
pub(super) struct Blocks<'a> {
    contents: &'a Contents,
    at: u64,
    next: u64,
    rows: Vec<u64>,
    bytes: Vec<u8>,
}

impl Blocks<'_> {
    /// Returns the next block, or `None` after the last block.
    ///
    /// # Errors
    /// If the block is damaged, or if blocks or rows are missing.
    pub(super) fn read_next(&mut self) -> Result<Option<Block<'_>>, Error> {
        let Contents { path, file, tables, footer_at, .. } = self.contents;
        if self.at == *footer_at {
            return self.check_end().map(|()| None);
        }
        let place = format!("block {}", self.next);
        let refuse = |why: &str| SnapshotError::damaged(path, self.at, format!("{place} {why}"));
        let header = read(path, file, self.at, BLOCK_HEADER_BYTES, *footer_at)?;
        let table = number(&header[8..12]) as usize;
        let rows = number(&header[12..16]);
        let Some(schema) = tables.get(table) else {
            return Err(refuse("names a table that the schema does not have"));
        };
        if number(&header[..8]) != self.next || rows == 0 || rows > rows_of_block(schema) as u64 {
            let name = &schema.name;
            return Err(refuse(&format!("of table {name} has a wrong number or length")));
        }
        let bytes = BLOCK_HEADER_BYTES + rows as usize * row_bytes(schema);
        read_into(path, (file, self.at), &mut self.bytes, bytes + CHECKSUM_BYTES, *footer_at)?;
        if !is_sealed(self.contents.snapshot, &self.bytes) {
            return Err(refuse(&format!("of table {} has a wrong checksum", schema.name)));
        }
        self.at += self.bytes.len() as u64;
        self.next += 1;
        self.rows[table] += rows;
        let rows = &self.bytes[BLOCK_HEADER_BYTES..bytes];
        Ok(Some(Block { table, schema, rows }))
    }

    /// Checks that the blocks are as many, and have as many rows, as the footer says.
    fn check_end(&self) -> Result<(), Error> {
        let contents = self.contents;
        if self.next == contents.blocks && self.rows == contents.rows {
            return Ok(());
        }
        let differs = (0..self.rows.len()).find(|at| self.rows[*at] != contents.rows[*at]);
        let reason = match differs {
            Some(at) => {
                let (name, found, saved) =
                    (&contents.tables[at].name, self.rows[at], contents.rows[at]);
                format!("table {name} has {found} rows in blocks, and {saved} were saved")
            }
            None => format!("{} blocks are there, and {} were saved", self.next, contents.blocks),
        };
        Err(SnapshotError::damaged(&contents.path, self.at, reason))
    }
}

/// Parses the schema of the header.
fn tables_of(json: &[u8]) -> Result<Vec<TableSchema>, String> {
    let tables: Vec<TableSchema> =
        serde_json::from_slice(json).map_err(|error| format!("the schema is damaged: {error}"))?;
    for table in &tables {
        table.validate().map_err(|error| error.to_string())?;
        let mut offset_bytes = 0;
        for column in &table.columns {
            if column.offset_bytes != offset_bytes {
                let (table, column) = (&table.name, &column.name);
                return Err(format!("table {table}: column {column} has a wrong offset"));
            }
            offset_bytes += column.column_type.width_bytes();
        }
    }
    Ok(tables)
}

/// Whether the bytes end with the checksum of the bytes before it.
fn is_sealed(snapshot: u64, bytes: &[u8]) -> bool {
    let (bytes, sum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    u64::from(checksum(snapshot, bytes)) == number(sum)
}

/// A little-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn read(path: &Path, file: &File, at: u64, bytes: usize, end: u64) -> Result<Vec<u8>, Error> {
    let mut buffer = Vec::new();
    read_into(path, (file, at), &mut buffer, bytes, end)?;
    Ok(buffer)
}

/// Reads `bytes` bytes, which must end before the byte `end`.
fn read_into(
    path: &Path,
    (file, at): (&File, u64),
    buffer: &mut Vec<u8>,
    bytes: usize,
    end: u64,
) -> Result<(), Error> {
    if at + bytes as u64 > end {
        let reason = match end {
            0 => "the file is empty".to_owned(),
            _ => format!("a part of {bytes} bytes does not end before byte {end}"),
        };
        return Err(SnapshotError::damaged(path, at, reason));
    }
    buffer.resize(bytes, 0);
    file.read_exact_at(buffer, at).map_err(SnapshotError::io(path, "read"))
}
