//! YCSB: records with several fields. Transactions read and update records by key.
//!
//! Cooper, Silberstein, Tam, Ramakrishnan, Sears, "Benchmarking cloud serving systems with YCSB",
//! SoCC 2010: workloads A, B, C and F. In the other profiles, a transaction has several YCSB
//! operations in one fetch, as in papers on concurrency control.
//!
//! All profiles differ from the paper in the following points. Keys are 8-byte integers, not strings.
//! An update writes the next value of the field instead of a random value, so that a check notices
//! lost updates and torn reads. (The round in which an update locks a record also reads the old
//! value, so the next value costs no further round.) An operation may draw a record that another
//! operation of its transaction has already drawn.
//!
//! Invariant checked: every field is whole and contains the number of its writes. The numbers of
//! writes add up to the number of committed writes, and so do the versions of the records. Reads were
//! also whole.

mod operation;
mod profiles;
mod read_only;
mod read_write;

use crate::distribution::Keys;
use crate::field::{self, FIELD_BYTES_MAX};
use crate::untold::{Slack, Untold};
use crate::workload::{Invariant, Profile, Settings, Workload, procedure, profiles_of};
pub use operation::{Input, OPERATIONS_MAX, Operation};
use profiles::{VARIANTS, Variant};
use tarn_engine::site::Context;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::admin::inspect::scan;
use tarn_engine::admin::load::Loader;
use tarn_store::ids::{Failure, Mode, UsageError};
use tarn_store::schema::procedure::Procedure;
use tarn_store::schema::row::Row;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::rng::Rng;

const TABLE: TableId = TableId(0);

/// The benchmark YCSB with the user's choices.
pub struct Ycsb {
    keys: Keys,
    zipf: f64,
    variant: Variant,
}

/// The counts of a coordinator's committed transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The number of written records. A record counts once for each transaction that wrote it.
    pub records_written: u64,
    /// The number of written fields. A field counts once for each operation that wrote it.
    pub fields_written: u64,
    /// The number of fields that a transaction read and that were torn or missing.
    pub torn: u64,
    /// The number of records that uncounted transactions may have written.
    pub untold_records: Slack,
    /// The number of fields that uncounted transactions may have written.
    pub untold_fields: Slack,
    /// The number of written records of uncounted transactions that may have been undone. After an
    /// undone write the record's version has advanced, and its fields are unchanged.
    pub undone: u64,
}

/// The handles of a transaction's operations. Handles after the transaction's last operation are not
/// used.
type Handles = [Handle; OPERATIONS_MAX];

/// The length of a field if the user chose the length of records. A record shorter than this length
/// has one field, which is as long as the record. `RECORD_BYTES_MAX` is the length of the longest
/// record.
const WHOLE_FIELD_BYTES: u16 = 128;
const RECORD_BYTES_MAX: u16 = 1024;

/// Checks that `value` is in a range. The error names the setting `field`.
fn within(field: &str, value: usize, (least, most): (usize, usize)) -> Result<(), UsageError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let (field, value) = (field.to_owned(), value.to_string());
    Err(UsageError { field, value, allowed: format!("{least} to {most}") })
}

impl Ycsb {
    /// Sets the share of transactions that may write to `percent`. This share replaces the profile's
    /// share.
    ///
    /// # Errors
    /// The share is more than 100 percent.
    pub fn writing(mut self, percent: u32) -> Result<Ycsb, UsageError> {
        within("writing-percent", percent as usize, (0, 100))?;
        self.variant.writers_percent = percent as u8;
        Ok(self)
    }

    /// Sets the number of operations of a transaction, which replaces the profile's number. The keys
    /// of all operations are known from the start.
    ///
    /// # Errors
    /// The number of operations is 0 or larger than allowed.
    pub fn of_operations(mut self, operations: usize) -> Result<Ycsb, UsageError> {
        within("operations", operations, (1, OPERATIONS_MAX))?;
        (self.variant.operations, self.variant.known_operations) = (operations, operations);
        Ok(self)
    }

    /// Sets the length of records to `bytes` bytes, which replaces the profile's length. Operations
    /// read and write whole records.
    ///
    /// # Errors
    /// The length is shorter than a count of writes, longer than a record may be, or not a multiple
    /// of the length of a field.
    pub fn of_bytes(mut self, bytes: u16) -> Result<Ycsb, UsageError> {
        let fields = bytes.div_ceil(WHOLE_FIELD_BYTES);
        if !(8..=RECORD_BYTES_MAX).contains(&bytes) || fields > 1 && !bytes.is_multiple_of(WHOLE_FIELD_BYTES)
        {
            let (field, value) = ("record-bytes".to_owned(), bytes.to_string());
            let allowed = format!(
                "8 to {WHOLE_FIELD_BYTES}, multiples of that up to {RECORD_BYTES_MAX}"
            );
            return Err(UsageError { field, value, allowed });
        }
        (self.variant.fields, self.variant.field_bytes) = (fields as u8, bytes / fields);
        (self.variant.read_whole, self.variant.write_whole) = (true, true);
        Ok(self)
    }

    /// Requests the records of `operations`. The list must not be empty.
    #[inline]
    fn request(&self, tx: &mut Transaction<'_>, operations: &[Operation]) -> Handles {
        let mut handles = [self.request_one(tx, operations[0]); OPERATIONS_MAX];
        for (handle, &operation) in handles.iter_mut().zip(operations).skip(1) {
            *handle = self.request_one(tx, operation);
        }
        handles
    }

    /// Like [`Ycsb::request`], for operations that only read.
    #[inline]
    fn request_reads(&self, tx: &mut Transaction<'_>, operations: &[Operation]) -> Handles {
        let of_one = self.variant.fields == 1;
        if !of_one && !self.variant.read_whole {
            return self.request(tx, operations);
        }
        let cells = if self.variant.read_whole { Cells::ALL } else { Cells::one(ColumnId(0)) };
        let mut handles = [Handle::default(); OPERATIONS_MAX];
        let mut next = handles.iter_mut();
        let keys = operations.iter().map(|operation| operation.key());
        tx.read_each(TABLE, keys, cells, |handle| {
            *next.next().expect("each operation has a handle") = handle;
        });
        handles
    }

    #[inline]
    fn request_one(&self, tx: &mut Transaction<'_>, operation: Operation) -> Handle {
        let key = operation.key();
        if operation.is_write() {
            let whole = self.variant.write_whole || self.variant.write_reads_whole;
            let cells = if whole { Cells::ALL } else { Cells::one(operation.field()) };
            tx.update(TABLE, key, cells)
        } else {
            let whole = self.variant.read_whole;
            tx.read(TABLE, key, if whole { Cells::ALL } else { Cells::one(operation.field()) })
        }
    }

    /// Returns the columns that an operation reads or writes.
    #[inline]
    fn fields(&self, operation: Operation, whole: bool) -> std::ops::Range<u8> {
        let field = operation.field().0;
        if whole { 0..self.variant.fields } else { field..field + 1 }
    }

    /// Checks the fields that an operation reads. Returns the number of torn fields.
    #[inline(always)]
    fn look(&self, tx: &Transaction<'_>, operation: Operation, handle: Handle) -> u64 {
        let Some(row) = tx.get(handle) else { return 1 };
        let whole = match operation.is_write() {
            true => self.variant.write_reads_whole,
            false => self.variant.read_whole,
        };
        // If a record has only one field, an operation on the whole record also names this field.
        if !whole || self.variant.fields == 1 {
            return u64::from(field::count(row.bytes(operation.field())).is_none());
        }
        let fields = self.fields(operation, whole);
        fields.filter(|&field| field::count(row.bytes(ColumnId(field))).is_none()).count() as u64
    }

    /// Sets each field that an operation writes to its next value. Returns the number of written
    /// fields.
    #[inline]
    fn advance(&self, tx: &mut Transaction<'_>, operation: Operation, handle: Handle) -> u64 {
        let bytes = usize::from(self.variant.field_bytes);
        let mut written = 0;
        for field in self.fields(operation, self.variant.write_whole) {
            let column = ColumnId(field);
            let Some(row) = tx.get(handle) else { return written };
            let count = field::count(row.bytes(column)).unwrap_or(0) + 1;
            let mut value = [0; FIELD_BYTES_MAX];
            field::fill(&mut value[..bytes], count);
            tx.set(handle, column, &value[..bytes]);
            written += 1;
        }
        written
    }
}

impl Workload for Ycsb {
    const NAME: &'static str = "ycsb";
    const PROFILES: &'static [Profile] = profiles_of!(VARIANTS);
    const TRANSACTIONS: &'static [&'static str] = &["read_only", "read_write"];
    type Input = Input;
    type Tally = Tally;

    fn new(settings: &Settings) -> Result<Ycsb, UsageError> {
        let variant = crate::workload::choose(VARIANTS, |v| v.profile.name, settings)?;
        let zipf = settings.zipf.unwrap_or(variant.zipf);
        let keys = Keys::new(settings.records.unwrap_or(variant.records), zipf)?;
        if keys.records() > Operation::KEYS_MAX {
            let (field, value) = ("records".into(), keys.records().to_string());
            let allowed = format!("1 to {}", Operation::KEYS_MAX);
            return Err(UsageError { field, value, allowed });
        }
        Ok(Ycsb { keys, zipf, variant: variant.clone() })
    }

    fn profile(&self) -> Profile {
        self.variant.profile
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let variant = &self.variant;
        vec![
            ("records", self.keys.records().to_string()),
            ("zipf", self.zipf.to_string()),
            ("fields", format!("{} × {} B", variant.fields, variant.field_bytes)),
            ("operations", variant.operations.to_string()),
            ("writing_transactions_percent", variant.writers_percent.to_string()),
            ("writes_percent_of_their_operations", variant.writes_percent.to_string()),
        ]
    }

    fn schemas(&self) -> Vec<TableSchema> {
        let column_type = match self.variant.field_bytes {
            8 => ColumnType::U64,
            width => ColumnType::Bytes(width),
        };
        let mut schema = TableSchema::new("usertable", self.keys.records());
        for field in 0..self.variant.fields {
            schema = schema.column(&format!("field{field}"), column_type);
        }
        vec![schema]
    }

    fn procedures(&self) -> Vec<Procedure> {
        // The field of an operation is random, so an operation may use any field.
        let read = vec![(TABLE, Mode::Read, Cells::ALL); self.variant.operations];
        let mut written = read.clone();
        written[0].1 = Mode::Update;
        if self.variant.writes_percent == 100 {
            written.fill((TABLE, Mode::Update, Cells::ALL));
        }
        vec![procedure("read_only", &read), procedure("read_write", &written)]
    }

    fn lines_per_transaction(&self) -> usize {
        let variant = &self.variant;
        let payload = usize::from(variant.fields) * usize::from(variant.field_bytes);
        let wanted = if variant.read_whole { payload } else { variant.field_bytes.into() };
        // A record's bin has two lines. If the payload is stored outside of its slot, a read also
        // reads the payload's lines, and the head once more.
        let apart = payload > 104;
        variant.operations * if apart { 3 + wanted.div_ceil(64) } else { 2 }
    }

    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let bytes = usize::from(self.variant.field_bytes);
        let mut initial = [0; FIELD_BYTES_MAX];
        field::fill(&mut initial[..bytes], 0);
        for key in 0..self.keys.records() {
            loader
                .insert(TABLE, key, |row| {
                    for field in 0..self.variant.fields {
                        row.set(ColumnId(field), &initial[..bytes]);
                    }
                })
                .await?;
        }
        Ok(())
    }

    fn records(&self) -> u64 {
        self.keys.records()
    }

    #[inline]
    fn draw(&self, rng: &mut Rng) -> Input {
        Input::draw(&self.keys, &self.variant, rng)
    }

    #[inline]
    fn kind(input: &Input) -> usize {
        usize::from(input.writes())
    }

    #[inline]
    fn first_key(input: &Input) -> Option<u64> {
        input.operations().first().map(|operation| operation.key())
    }

    #[inline]
    fn further_keys(input: &Input, see: &mut dyn FnMut(TableId, u64)) {
        input.operations().iter().skip(1).for_each(|operation| see(TABLE, operation.key()));
    }

    #[inline]
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Input,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        if input.writes() {
            read_write::run(self, coordinator, input, tally).await
        } else {
            read_only::run(self, coordinator, input, tally).await
        }
    }

    fn untold(&self, input: &Input, ended: Untold, tally: &mut Tally) {
        let operations = input.operations();
        let (mut records, mut fields) = (0, 0);
        for (at, &operation) in operations.iter().enumerate().filter(|(_, it)| it.is_write()) {
            records += i64::from(read_write::is_first(&operations[..at], operation));
            fields += self.fields(operation, self.variant.write_whole).len() as i64;
        }
        tally.untold_records.note(ended, records, records);
        tally.untold_fields.note(ended, fields, fields);
        tally.undone += if ended == Untold::Committed { 0 } else { records as u64 };
    }

    fn merge(into: &mut Tally, other: Tally) {
        into.untold_records.add(other.untold_records);
        into.untold_fields.add(other.untold_fields);
        into.undone += other.undone;
        into.records_written += other.records_written;
        into.fields_written += other.fields_written;
        into.torn += other.torn;
    }

    async fn check(&self, cx: &Context, tally: &Tally) -> Result<Vec<Invariant>, Failure> {
        let (mut records, mut versions, mut writes) = (0u64, Some(0u64), 0u64);
        let (mut wrong, mut ahead) = (0u64, 0u64);
        scan(cx, TABLE, |stored| {
            let told = self.writes_told(&stored.row);
            let changes = stored.changes;
            records += 1;
            versions = versions.zip(changes).map(|(sum, changes)| sum + changes);
            writes += told.unwrap_or(0);
            // If a transaction has one operation and writes one field, each committed write advances
            // the version by one.
            let one_each = self.variant.operations == 1 && !self.variant.write_whole;
            let is_behind = |told| one_each && changes.is_some_and(|changes| changes < told);
            wrong += u64::from(told.is_none_or(is_behind));
            ahead += u64::from(changes.zip(told).is_some_and(|(changes, told)| changes > told));
        })
        .await?;
        let Tally { records_written, fields_written, torn, .. } = *tally;
        let Tally { untold_records, untold_fields, undone, .. } = *tally;
        // Versions that are timestamps do not count writes. Under such a protocol only the fields
        // show that no write is lost.
        let made = records_written as i64;
        let is_all = versions.is_none_or(|found| {
            let found = found as i64;
            untold_records.admits(found, made) || undone > 0 && found > made
        });
        let versions = versions.map_or("versions".to_owned(), |versions| versions.to_string());
        let are_all = untold_fields.admits(writes as i64, fields_written as i64);
        Ok(vec![
            Invariant {
                name: "version = 1 + committed writes",
                ok: is_all && records == self.keys.records(),
                detail: format!(
                    "{versions} found, {records_written} made{untold_records}, {records} records"
                ),
                of_memory: false,
            },
            Invariant {
                name: "no field's update lost",
                ok: are_all && wrong == 0 && ahead <= undone,
                detail: format!(
                    "{writes} found, {fields_written} made{untold_fields}, {wrong} wrong records, \
                     {ahead} versions ahead, {undone} writes that may have been undone"
                ),
                of_memory: false,
            },
            Invariant {
                name: "reads were whole",
                ok: torn == 0,
                detail: format!("{torn} torn fields"),
                of_memory: false,
            },
        ])
    }
}

impl Ycsb {
    /// Returns the sum of the numbers of writes in a record's fields. Returns `None` if a byte of a
    /// field is wrong.
    fn writes_told(&self, row: &Row<'_>) -> Option<u64> {
        let counts = (0..self.variant.fields).map(|field| field::whole(row.bytes(ColumnId(field))));
        counts.sum()
    }
}
