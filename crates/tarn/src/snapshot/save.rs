//! Saves a snapshot while transactions run.
//!
//! Invariant: the rows of a snapshot are those of one moment at which no transaction ran ([`Stop`]). Transactions wait
//! at most [`STOP_MAX`] for this moment, and for the time of a copy of the page tables. After that they run beside an
//! image of the memory ([`Image`]), from which the file is written. If the memory is shared with other processes, no
//! image of it exists, and transactions wait until the rows are written.

use super::error::SnapshotError;
use super::format::Writer;
use super::target::Target;
use crate::database::Tarn;
use crate::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tarn_engine::admin::inspect::scan_followed;
use tarn_engine::admin::stop::{Stop, settle_abandoned};
use tarn_engine::site::Context;
use tarn_fabric::executor::block_on;
use tarn_fabric::local::{Image, processor_time};
use tarn_store::ids::Failure;

/// The time for which a save holds new transactions back while it waits for the running ones. The library promises a
/// pause of 10 ms; the rest is for the image.
const STOP_MAX: Duration = Duration::from_millis(8);
/// The time for which transactions run between two attempts to find a moment without transactions.
const BETWEEN: Duration = Duration::from_millis(8);
/// The time between two looks whether all threads are quiet. The threads may need this processor to become quiet.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// The time after which a save gives up to find such a moment: the default patience of the library.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process with the image rests this many times as long as it has worked. While it works, each first change of a
/// page costs a transaction a copy of the page. A save that takes longer spreads these copies over more transactions,
/// for the reason for which PostgreSQL spreads its checkpoints (`checkpoint_completion_target`). The page 0023 of
/// `docs/design` has the measurements behind this number.
const RESTS: u32 = 7;

/// The answer of the process with the image: the rows were written.
const DONE: u8 = 0;
/// The answer: the file could not be written. An error number of the operating system follows.
const UNWRITTEN: u8 = 1;
/// The answer: the records could not be read. The reason follows.
const UNREAD: u8 = 2;

/// A snapshot that was saved: see [`Tarn::save`].
///
/// ```no_run
/// # fn save(tarn: &tarn::Tarn) -> Result<(), tarn::Error> {
/// let saved = tarn.save("bank.tarn")?;
/// println!("{} rows, {} bytes; nothing began for {:?}", saved.rows, saved.bytes, saved.pause);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The number of rows in the file.
    pub rows: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The longest time for which no transaction could begin.
    pub pause: Duration,
}

impl Tarn {
    /// Saves the rows of all tables as they are at one moment, between transactions. When the function returns, the
    /// file is on the disk, and has replaced the file that was at `path`. Until then the old file stays as it was,
    /// even if the process or the machine dies. [`Tarn::load`] opens a database with these rows.
    ///
    /// Transactions continue while the file is written. For a moment, at most 10 ms, no transaction begins. Pages that
    /// transactions change meanwhile are copied, so the database may need up to twice its memory.
    ///
    /// The calling thread waits until the file is written. None of its own transactions may be running, because the
    /// save waits for their ends. In a program with coroutines, call this function on a thread of its own. One save of
    /// a database runs at a time, and another one waits.
    ///
    /// If the database has shared memory ([`Backing::Shared`](crate::Backing)), transactions wait until all rows are
    /// written. `tarn.cluster().fabric().is_private()` tells which memory the database got.
    ///
    /// ```
    /// # #[derive(tarn::Row)]
    /// # #[row(table = "players", key(id))]
    /// # struct Player { id: u64, points: u64 }
    /// # fn main() -> Result<(), tarn::Error> {
    /// # let folder = std::env::temp_dir().join(format!("tarn-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).expect("a folder");
    /// # let path = folder.join("game.tarn");
    /// # let game = tarn::Tarn::embedded().table::<Player>(100).open()?;
    /// # let players = game.table::<Player>()?;
    /// game.session()?.run(async |tx| players.put(tx, &Player { id: 7, points: 3 }).await)?;
    /// let saved = game.save(&path)?;
    /// assert_eq!(saved.rows, 1);
    ///
    /// // The rows load under any protocol, over any number of memory nodes, with any number of copies.
    /// let again = tarn::Tarn::embedded()
    ///     .table::<Player>(1_000)
    ///     .protocol("occ", "corrected")
    ///     .memory_nodes(2)
    ///     .replicas(2)
    ///     .load(&path)?;
    /// let players = again.table::<Player>()?;
    /// let found = again.session()?.run(async |tx| players.find(tx, 7).await)?;
    /// assert_eq!(found.map(|player| player.points), Some(3));
    /// # std::fs::remove_dir_all(&folder).expect("the folder");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SnapshotError`](crate::SnapshotError): the file cannot be written, or the running transactions did not all
    /// end within 10 seconds. `Open`, if the database has no free thread number.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<Saved, Error> {
        let _one_at_a_time = self.one_save();
        let target = Target::create(path.as_ref())?;
        let cx = self.own_context()?;
        let tables = self.cluster().database().catalog.tables();
        let schemas = tables.iter().map(|table| &table.schema).collect();
        let rests = if self.cluster().fabric().is_private() { RESTS } else { 0 };
        let out = Paced { out: target.file(), rests, before: Duration::MAX };
        let writer = Writer::new(out, schemas, snapshot_number());
        let mut writer = writer.map_err(SnapshotError::io(target.path(), "write"))?;
        let (answer, pause) = match self.cluster().fabric().is_private() {
            true => {
                let (stop, since, longest) = wait_for_quiet(&cx)?;
                let image = Image::take(&[target.file().as_fd()], |answer| {
                    let _ = answer.write_all(&write_rows(&cx, &mut writer, target.file()));
                });
                drop(stop);
                let pause = longest.max(since.elapsed());
                let image =
                    image.map_err(SnapshotError::io(target.path(), "take the image for"))?;
                (image.wait(), pause)
            }
            false => {
                let (stop, since, longest) = wait_for_quiet(&cx)?;
                let answer = write_rows(&cx, &mut writer, target.file());
                drop(stop);
                (Ok(answer), longest.max(since.elapsed()))
            }
        };
        let (rows, bytes) = understood(answer, target.path())?;
        target.put_in_place()?;
        Ok(Saved { rows, bytes, pause })
    }
}

/// Writes to a file, and rests after each block in proportion to the processor time of the block.
struct Paced<'a> {
    out: &'a File,
    rests: u32,
    /// The processor time at the end of the last rest. Before the image exists, it is not less than the process's time,
    /// so the header causes no rest.
    before: Duration,
}

impl Write for Paced<'_> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a process with an image has one thread, which rests"
    )]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        let worked = processor_time().saturating_sub(self.before);
        std::thread::sleep(worked * self.rests);
        self.before = processor_time();
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A number that differs from the numbers of earlier snapshots.
#[expect(
    clippy::disallowed_methods,
    reason = "the number only distinguishes files of this machine"
)]
fn snapshot_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    tarn_fabric::rng::mix(since.as_nanos() as u64 ^ u64::from(std::process::id()) << 40)
}

/// Waits for a moment at which no transaction runs. Returns the stop, its beginning, and the duration of the longest
/// earlier stop, which found no such moment.
#[expect(clippy::disallowed_methods, reason = "the pause is real time, and the threads are real")]
fn wait_for_quiet(cx: &Context) -> Result<(Stop<'_>, Instant, Duration), Error> {
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    loop {
        let settled = block_on(settle_abandoned(cx));
        let since = Instant::now();
        if let Some(stop) = Stop::announce(cx) {
            loop {
                if stop.is_quiet() {
                    return Ok((stop, since, longest));
                }
                if since.elapsed() > STOP_MAX {
                    break;
                }
                std::thread::sleep(LOOK_EVERY);
            }
            drop(stop);
            longest = longest.max(since.elapsed());
        }
        if began.elapsed() > PATIENCE {
            let ids = settled.unwrap_or_else(|_| cx.database().log_area_owners.in_doubt());
            let in_doubt = ids.iter().map(ToString::to_string).collect();
            return Err(SnapshotError::Busy { waited: began.elapsed(), in_doubt }.into());
        }
        std::thread::sleep(BETWEEN);
    }
}

/// Writes all rows and synchronises the file. Returns the answer for [`understood`]. The function takes no lock.
fn write_rows<W: Write>(cx: &Context, writer: &mut Writer<'_, W>, file: &File) -> Vec<u8> {
    let mut answer = Vec::with_capacity(64);
    match rows_written(cx, writer).and_then(|done| file.sync_all().map(|()| done).map_err(Ok)) {
        Ok((rows, bytes)) => {
            answer.push(DONE);
            answer.extend_from_slice(&rows.to_le_bytes());
            answer.extend_from_slice(&bytes.to_le_bytes());
        }
        Err(Ok(error)) => {
            answer.push(UNWRITTEN);
            answer.extend_from_slice(&error.raw_os_error().unwrap_or(0).to_le_bytes());
        }
        Err(Err(failure)) => {
            answer.push(UNREAD);
            answer.extend_from_slice(format!("the records cannot be read: {failure}").as_bytes());
        }
    }
    answer
}

fn rows_written<W: Write>(
    cx: &Context,
    writer: &mut Writer<'_, W>,
) -> Result<(u64, u64), Result<io::Error, Failure>> {
    for (at, table) in cx.database().catalog.tables().iter().enumerate() {
        let mut result = writer.begin(at);
        let scanned = scan_followed(cx, table.id, |stored| {
            if result.is_ok() {
                result = writer.push(stored.key, stored.full_key, stored.row.payload());
            }
        });
        block_on(scanned).map_err(Err)?;
        result.map_err(Ok)?;
    }
    writer.finish().map_err(Ok)
}

/// Returns the numbers of rows and bytes, if the answer says that the file was written.
fn understood(answer: io::Result<Vec<u8>>, path: &Path) -> Result<(u64, u64), Error> {
    let refuse = |reason: String| SnapshotError::Writer { path: path.to_owned(), reason }.into();
    let answer = answer.map_err(|error| refuse(error.to_string()))?;
    match answer.split_first() {
        Some((&DONE, rest)) if rest.len() == 16 => {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| rest[at + byte]));
            Ok((word(0), word(8)))
        }
        Some((&UNWRITTEN, number)) if number.len() == 4 => {
            let number = i32::from_le_bytes(std::array::from_fn(|byte| number[byte]));
            Err(SnapshotError::io(path, "write")(io::Error::from_raw_os_error(number)))
        }
        Some((&UNREAD, reason)) => Err(refuse(String::from_utf8_lossy(reason).into_owned())),
        _ => Err(refuse("the process with the image ended without an answer".into())),
    }
}
