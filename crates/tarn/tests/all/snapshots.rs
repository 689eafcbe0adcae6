//! Tests snapshots: what was saved is loaded, and nothing else is.
//!
//! Invariant checked: a snapshot has the rows of one moment, under every protocol and beside running transactions. A
//! file of which any byte was changed, removed or added is refused. A process that dies leaves the old snapshot.

#![allow(clippy::disallowed_methods, reason = "drives real threads and processes")]

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tarn::cluster::OpenError;
use tarn::{
    Backing, Builder, ColumnId, ColumnType, Error, Row, SnapshotError, TableSchema, Tarn, block_on,
};
use tarn_engine::admin::inspect::{audit, scan};
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::protocol::ALL;
use tarn_store::schema::{Key, TableId};

/// A bank account, with a text that makes the row longer than a line.
#[derive(Row, Clone, PartialEq, Debug)]
#[row(table = "accounts", key(number), index(by_cents(cents)))]
struct Account {
    number: u64,
    cents: i64,
    note: [u8; 90],
}

/// A stock item, with a long key.
#[derive(Row, Clone, PartialEq, Debug)]
#[row(table = "stock", key(code), ordered, index(by_grade(grade)))]
struct Item {
    code: [u8; 12],
    pieces: u32,
    grade: u8,
}

/// A row of a table that stays empty.
#[derive(Row)]
#[row(table = "unused", key(id))]
struct Unused {
    id: u64,
    number: u64,
}

/// An account with a shorter text.
#[derive(Row)]
#[row(table = "accounts", key(number))]
struct Shorter {
    number: u64,
    cents: i64,
    note: [u8; 89],
}

/// An account with another index.
#[derive(Row)]
#[row(table = "accounts", key(number), ordered)]
struct Ordered {
    number: u64,
    cents: i64,
    note: [u8; 90],
}

const ACCOUNTS: u64 = 300;
const ITEMS: u64 = 100;
const START_CENTS: i64 = 1_000;

fn account(number: u64) -> Account {
    let mut note = [0; 90];
    note[..8].copy_from_slice(&(number ^ 0x5555).to_le_bytes());
    note[82..].copy_from_slice(&number.to_be_bytes());
    Account { number, cents: START_CENTS, note }
}

fn item_key(number: u64) -> [u8; 12] {
    let mut key = *b"item........";
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A database with three tables, of which two have indexes.
fn settings(protocol: &str) -> Builder {
    Tarn::embedded()
        .table::<Account>(64)
        .table::<Item>(64)
        .table::<Unused>(10)
        .memory(Backing::Private)
        .protocol(protocol, "corrected")
}

/// Fills the tables by transactions, and deletes and changes some rows again.
fn filled(tarn: &Tarn) {
    let accounts = tarn.table::<Account>().expect("the table");
    let stock = tarn.table::<Item>().expect("the table");
    let mut session = tarn.session().expect("a session");
    for number in 0..ACCOUNTS + 20 {
        let done = session.run(async |tx| accounts.put(tx, &account(number)).await);
        done.expect("stored");
    }
    for number in 0..ITEMS {
        let (code, grade) = (item_key(number), (number % 7) as u8);
        let item = Item { code, pieces: number as u32 * 3, grade };
        let done = session.run(async |tx| stock.put(tx, &item).await);
        done.expect("stored");
    }
    for number in ACCOUNTS..ACCOUNTS + 20 {
        let gone = session.run(async |tx| {
            accounts.delete(tx, number);
            tx.fetch().await
        });
        gone.expect("deleted");
    }
    for number in 0..ACCOUNTS / 2 {
        transfer(tarn, &mut session, (number, number + 1), number as i64).expect("transferred");
    }
}

fn transfer(
    tarn: &Tarn,
    session: &mut tarn::Session,
    (from, to): (u64, u64),
    cents: i64,
) -> Result<(), Error> {
    let accounts = tarn.table::<Account>()?;
    session.run(async |tx| {
        let (from, to) = (accounts.update(tx, from), accounts.update(tx, to));
        tx.fetch().await?;
        let (Some(mut payer), Some(mut payee)) = (accounts.get(tx, from), accounts.get(tx, to))
        else {
            return tx.abort();
        };
        payer.cents -= cents;
        payee.cents += cents;
        accounts.set(tx, from, &payer);
        accounts.set(tx, to, &payee);
        Ok(())
    })
}

/// The rows of each table: key and payload. Checks memory, and the ordered indexes with it.
fn rows(tarn: &Tarn) -> BTreeMap<(String, Vec<u8>), Vec<u8>> {
    let session = tarn.session().expect("a session");
    let cx = session.context();
    let found = block_on(audit(cx)).expect("an audit");
    assert!(found.is_clean(), "{found}");
    let mut all = BTreeMap::new();
    for table in cx.database().catalog.tables() {
        let scanned = scan(cx, table.id, |stored| {
            let key = match stored.full_key {
                [] => stored.key.to_le_bytes().to_vec(),
                full => full.to_vec(),
            };
            let at = (table.schema.name.clone(), key);
            assert!(
                all.insert(at, stored.row.payload().to_vec()).is_none(),
                "a row is there twice"
            );
        });
        block_on(scanned).expect("a scan");
    }
    all
}

fn cents(rows: &BTreeMap<(String, Vec<u8>), Vec<u8>>) -> i64 {
    let accounts = rows.iter().filter(|((table, _), _)| table == "accounts");
    let money = accounts.map(|(_, row)| i64::from_le_bytes(row[..8].try_into().expect("a column")));
    money.sum()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.tarn");
    (folder, path)
}

fn snapshot_error(error: &Error) -> Option<&SnapshotError> {
    match error {
        Error::Open(error) => match &**error {
            OpenError::Snapshot(error) => Some(error),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn rows_saved_under_one_protocol_load_under_the_next_one() {
    let (_folder, path) = folder();
    for (at, info) in ALL.iter().enumerate() {
        let bank = settings(info.name).open().expect("a database");
        filled(&bank);
        let before = rows(&bank);
        let saved = bank.save(&path).expect("saved");
        assert_eq!(saved.rows, ACCOUNTS + ITEMS, "{}", info.name);
        assert_eq!(saved.bytes, std::fs::metadata(&path).expect("the file").len());
        assert_eq!(rows(&bank), before, "{}: a save changes nothing", info.name);
        let next = ALL[(at + 1) % ALL.len()].name;
        let again = settings(next).memory_nodes(3).replicas(2).load(&path).expect("loaded");
        assert_eq!(rows(&again), before, "{} to {next}", info.name);
        assert_eq!(cents(&before), START_CENTS * ACCOUNTS as i64);
        // The loaded database works: its rows change, and its indexes find them.
        let mut session = again.session().expect("a session");
        transfer(&again, &mut session, (1, 2), 7).expect("transferred");
        assert_eq!(cents(&rows(&again)), START_CENTS * ACCOUNTS as i64, "{next}");
        found_by_grade(&again, &mut session, next);
        let plain = Tarn::load(&path).expect("loaded with its own schema");
        assert_eq!(rows(&plain), before, "{}", info.name);
        assert!(plain.table::<Unused>().is_ok(), "an empty table is a table");
    }
}

fn found_by_grade(tarn: &Tarn, session: &mut tarn::Session, what: &str) {
    let stock = tarn.table::<Item>().expect("the table");
    let found = session.run(async |tx| stock.by_grade().prefix(3).rows(tx).await);
    let found: Vec<_> = found.expect("selected").iter().map(|item| item.code).collect();
    let expected = (0..ITEMS).filter(|number| number % 7 == 3).map(item_key);
    assert_eq!(found, expected.collect::<Vec<_>>(), "{what}");
}

#[test]
fn a_snapshot_beside_transfers_has_all_the_money() {
    let (_folder, path) = folder();
    for info in ALL {
        let bank = settings(info.name).open().expect("a database");
        filled(&bank);
        let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for seed in 1..3u64 {
                let (bank, over, done) = (&bank, &over, &done);
                scope.spawn(move || {
                    let mut session = bank.session().expect("a session");
                    let mut random = seed;
                    while !over.load(Ordering::Relaxed) {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let (from, to) = (random >> 40 & 255, random >> 48 & 255);
                        if from != to {
                            transfer(bank, &mut session, (from, to), 1).expect("transferred");
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..5 {
                let before = done.load(Ordering::Relaxed);
                while done.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
                bank.save(&path).expect("saved");
                let loaded = Tarn::load(&path).expect("loaded");
                let rows = rows(&loaded);
                assert_eq!(rows.len() as u64, ACCOUNTS + ITEMS, "{}", info.name);
                assert_eq!(cents(&rows), START_CENTS * ACCOUNTS as i64, "{}", info.name);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(cents(&rows(&bank)), START_CENTS * ACCOUNTS as i64, "{}", info.name);
    }
}

#[test]
fn shared_memory_is_saved_too() {
    let (_folder, path) = folder();
    let bank = settings("ford").memory(Backing::Shared).open().expect("a database");
    assert!(!bank.cluster().fabric().is_private());
    filled(&bank);
    let before = rows(&bank);
    bank.save(&path).expect("saved");
    assert_eq!(rows(&Tarn::load(&path).expect("loaded")), before);
}

/// A small snapshot of two tables.
fn small(path: &Path) {
    let schema = TableSchema::new("t", 8).column("a", ColumnType::U64);
    let other = TableSchema::new("u", 8).column("b", ColumnType::Bytes(3)).key_bytes(5);
    let tarn = Tarn::embedded().schema(schema).schema(other).memory(Backing::Private);
    let tarn = tarn.open().expect("a database");
    let session = tarn.session().expect("a session");
    block_on(async {
        let mut loader = Loader::new(session.context(), Part { index: 0, of: 1 });
        for key in 0..3u64 {
            loader.insert(TableId(0), key, |row| row.set(ColumnId(0), key)).await?;
        }
        loader.insert(TableId(1), Key::Bytes(b"abcde"), |row| row.payload().fill(7)).await?;
        loader.finish().await
    })
    .expect("loaded");
    assert_eq!(tarn.save(path).expect("saved").rows, 4);
}

/// Opens and loads a snapshot, with as little memory as possible.
fn loads(path: &Path) -> Result<Tarn, Error> {
    Tarn::embedded().memory(Backing::Private).spare_bytes(1 << 20).sessions_max(4).load(path)
}

#[test]
fn a_changed_byte_anywhere_is_refused() {
    let (_folder, path) = folder();
    small(&path);
    let right = std::fs::read(&path).expect("the file");
    assert!(loads(&path).is_ok());
    for at in 0..right.len() {
        for change in [1, 0x80, 0xff] {
            let mut bytes = right.clone();
            bytes[at] ^= change;
            std::fs::write(&path, &bytes).expect("written");
            let error = loads(&path).err().unwrap_or_else(|| panic!("byte {at} ^ {change:#x}"));
            let is_right = matches!(
                snapshot_error(&error),
                Some(SnapshotError::Damaged { .. } | SnapshotError::Version { .. })
            );
            assert!(is_right, "byte {at}: {error}");
        }
    }
}

#[test]
fn a_cut_or_longer_file_is_refused() {
    let (_folder, path) = folder();
    small(&path);
    let right = std::fs::read(&path).expect("the file");
    for len in 0..right.len() {
        std::fs::write(&path, &right[..len]).expect("written");
        let error = loads(&path).err().unwrap_or_else(|| panic!("cut to {len} bytes"));
        assert!(matches!(snapshot_error(&error), Some(SnapshotError::Damaged { .. })), "{error}");
    }
    for more in [1, 64] {
        let mut bytes = right.clone();
        bytes.resize(right.len() + more, 0);
        std::fs::write(&path, &bytes).expect("written");
        assert!(loads(&path).is_err(), "{more} bytes more");
    }
    std::fs::write(&path, &right).expect("written");
    assert!(loads(&path).is_ok());
}

#[test]
fn a_damaged_block_is_named_with_its_table() {
    let (_folder, path) = folder();
    let bank = settings("ford").open().expect("a database");
    filled(&bank);
    bank.save(&path).expect("saved");
    let mut bytes = std::fs::read(&path).expect("the file");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let error = Tarn::load(&path).err().expect("refused").to_string();
    assert!(error.contains("block 0 of table accounts has a wrong checksum"), "{error}");
    assert!(error.contains(&path.display().to_string()), "{error}");
}

#[test]
fn blocks_of_another_snapshot_are_refused() {
    let (_folder, path) = folder();
    small(&path);
    let first = std::fs::read(&path).expect("the file");
    small(&path);
    let second = std::fs::read(&path).expect("the file");
    assert_eq!(first.len(), second.len());
    // The files differ in the snapshot's number and in checksums. The blocks lie between header and footer.
    let schema_bytes = u32::from_le_bytes(first[12..16].try_into().expect("a number")) as usize;
    let blocks = 24 + schema_bytes + 4..first.len() - (32 + 2 * 8 + 4);
    let mut mixed = first;
    mixed[blocks.clone()].copy_from_slice(&second[blocks]);
    std::fs::write(&path, &mixed).expect("written");
    let error = loads(&path).err().expect("refused").to_string();
    assert!(error.contains("block 0 of table t has a wrong checksum"), "{error}");
}

#[test]
fn another_schema_names_the_column_before_rows_are_loaded() {
    let (_folder, path) = folder();
    let bank = settings("ford").open().expect("a database");
    filled(&bank);
    bank.save(&path).expect("saved");
    let refused = |builder: Builder| builder.load(&path).err().expect("refused").to_string();
    let said = refused(Tarn::embedded().table::<Shorter>(100));
    let expected = format!(
        "table accounts: column note = [u8; 89]; allowed: [u8; 90], as the snapshot {} has it",
        path.display()
    );
    assert_eq!(said, expected);
    let key = TableSchema::new("unused", 10).column("number", ColumnType::U64).key_bytes(9);
    let said = refused(Tarn::embedded().schema(key));
    assert!(said.starts_with("table unused: key = [u8; 9]; allowed: u64"), "{said}");
    // Another index is no difference, and a further table is empty.
    let more = TableSchema::new("more", 10).column("a", ColumnType::U64);
    let other = Tarn::embedded().table::<Ordered>(1).schema(more).load(&path).expect("loaded");
    assert_eq!(rows(&other), rows(&bank));
}

#[test]
fn saves_at_the_same_time_wait_for_each_other() {
    let (folder, path) = folder();
    let bank = settings("ford").open().expect("a database");
    filled(&bank);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (bank, path) = (&bank, &path);
            let own = folder.path().join(format!("{thread}.tarn"));
            scope.spawn(move || {
                for _ in 0..5 {
                    bank.save(path).expect("saved");
                    bank.save(&own).expect("saved");
                }
            });
        }
    });
    assert_eq!(rows(&Tarn::load(&path).expect("loaded")), rows(&bank));
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").collect();
    assert_eq!(left.len(), 5, "only snapshots remain: {left:?}");
}

#[test]
fn a_file_that_another_save_writes_is_refused() {
    let (_folder, path) = folder();
    let beside = path.with_file_name("bank.tarn.saving");
    let other = std::fs::File::create(&beside).expect("a file");
    other.lock().expect("the lock");
    let bank = settings("ford").open().expect("a database");
    let error = bank.save(&path).expect_err("refused");
    assert!(matches!(snapshot_error(&error), Some(SnapshotError::Running { .. })), "{error}");
    drop(other);
    bank.save(&path).expect("a file that a dead process has left is written anew");
    assert!(!beside.exists() && path.exists());
    let error = bank.save(path.join("below")).expect_err("refused").to_string();
    assert!(error.contains("cannot create the snapshot"), "{error}");
}

#[test]
fn a_transaction_that_does_not_end_holds_the_save_up_and_no_other_transaction() {
    let (_folder, path) = folder();
    let bank = settings("ford").open().expect("a database");
    filled(&bank);
    let accounts = bank.table::<Account>().expect("the table");
    let (begun, is_begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let bank = &bank;
        scope.spawn(move || {
            let mut session = bank.session().expect("a session");
            let waits = session.run(async |tx| {
                accounts.find(tx, 1).await?;
                begun.send(()).expect("the test waits");
                let _ = ends.recv();
                tarn::Ok(())
            });
            waits.expect("committed");
        });
        is_begun.recv().expect("it begins");
        let saver = scope.spawn(|| bank.save(&path));
        let (mut session, mut slowest) = (bank.session().expect("a session"), Duration::ZERO);
        for _ in 0..50 {
            let start = Instant::now();
            transfer(bank, &mut session, (2, 3), 1).expect("transferred");
            slowest = slowest.max(start.elapsed());
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!saver.is_finished(), "the transaction runs");
        // A stop lasts 8 ms. The rest is for a busy machine.
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
        end.send(()).expect("it waits");
        saver.join().expect("no panic").expect("saved");
    });
    assert_eq!(rows(&Tarn::load(&path).expect("loaded")), rows(&bank));
}

#[test]
fn a_save_within_a_transaction_ends_in_an_error() {
    let (_folder, path) = folder();
    let bank = settings("ford").open().expect("a database");
    filled(&bank);
    let accounts = bank.table::<Account>().expect("the table");
    let mut session = bank.session().expect("a session");
    let mut saved = None;
    let done = session.run(async |tx| {
        accounts.find(tx, 1).await?;
        saved = Some(bank.save(&path));
        tarn::Ok(())
    });
    done.expect("committed");
    let error = saved.expect("the body ran").expect_err("refused");
    assert!(matches!(snapshot_error(&error), Some(SnapshotError::Busy { .. })), "{error}");
    bank.save(&path).expect("saved");
}

/// The number of accounts of the process that is killed: a file of some megabytes, so that a kill meets its middle.
const MANY: u64 = 60_000;
/// The variable that gives the path to [`a_process_that_saves_for_ever`].
const PATH_VARIABLE: &str = "TARN_TEST_SNAPSHOT";

/// No test of its own: the process that `kill_leaves_the_old_snapshot` kills.
#[test]
#[ignore = "another test starts this one as a process"]
fn a_process_that_saves_for_ever() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else { return };
    let bank = Tarn::embedded().table::<Account>(MANY).memory(Backing::Private);
    let bank = bank.open().expect("a database");
    let session = bank.session().expect("a session");
    block_on(async {
        let mut loader = Loader::new(session.context(), Part { index: 0, of: 1 });
        for number in 0..MANY {
            let row = account(number);
            let fill = |to: &mut tarn_engine::admin::load::RowMut<'_>| {
                to.payload()[..8].copy_from_slice(&row.cents.to_le_bytes());
                to.payload()[8..].copy_from_slice(&row.note);
            };
            loader.insert(TableId(0), number, fill).await?;
        }
        loader.finish().await
    })
    .expect("loaded");
    loop {
        bank.save(&path).expect("saved");
    }
}

/// A process that saves for ever, and is killed with this value.
struct Saving(Child);

impl Saving {
    fn start(path: &Path) -> Saving {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "snapshots::a_process_that_saves_for_ever", "--ignored"]);
        command.env(PATH_VARIABLE, path).stdout(Stdio::null()).process_group(0);
        Saving(command.spawn().expect("a process"))
    }

    /// Kills the process, and waits until it and its children are gone. A child holds the file's lock.
    fn kill(&mut self, beside: &Path) {
        self.0.kill().expect("killed");
        self.0.wait().expect("an end");
        if let Ok(file) = std::fs::File::open(beside) {
            let since = Instant::now();
            while file.try_lock().is_err() {
                assert!(since.elapsed() < Duration::from_secs(10), "the child outlives its parent");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// The number of accounts.
fn counted(tarn: &Tarn) -> u64 {
    let session = tarn.session().expect("a session");
    let mut count = 0;
    block_on(scan(session.context(), TableId(0), |_| count += 1)).expect("a scan");
    count
}

#[test]
fn kill_leaves_the_old_snapshot() {
    let (_folder, path) = folder();
    let beside = path.with_file_name("bank.tarn.saving");
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |it| it.len());
    let mut in_the_middle = 0;
    for round in 0..3u64 {
        let mut saving = Saving::start(&path);
        until("the first snapshot", || size(&path) > 0);
        let whole = size(&path);
        // Each round kills at another place of the file.
        until("a file beside it", || size(&beside) > whole / 5 * round);
        saving.kill(&beside);
        in_the_middle += u64::from((1..whole).contains(&size(&beside)));
        let loaded = Tarn::load(&path).expect("the old snapshot is whole");
        assert_eq!(counted(&loaded), MANY);
        // The next save does not mind the file that was left.
        if round == 2 {
            loaded.save(&path).expect("saved");
            assert!(!beside.exists());
        }
        std::fs::remove_file(&path).expect("the snapshot");
    }
    assert!(in_the_middle > 0, "no kill came in the middle of a save");
}
