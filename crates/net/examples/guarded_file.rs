//! A file that several processes change under a lock, and that checks fencing tokens itself.
//!
//! Invariant: the first line of the file has the greatest token of a write and of a read. The line is read and changed under `flock`, in the
//! same step as the contents, so that a holder whose lease has ended changes nothing after a later holder.
//!
//! `cargo run -p tarn-net --example guarded_file -- locks.toml counter.txt 7` adds 1 to the number in the file. Without arguments the
//! example starts a service of its own, adds 1 twice to a temporary file, and shows that an older token is refused.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use tarn_locks::guard::Guard;
use tarn_locks::value::{LockId, Mode, Token};
use tarn_net::bench::{Cluster, Waits};
use tarn_net::config::Config;
use tarn_net::lock::LockClient;

/// A file with its guard.
struct Guarded {
    file: File,
    guard: Guard,
    contents: String,
}

impl Guarded {
    /// Opens the file and waits for its `flock`, which ends with the file's handle.
    fn open(path: &Path) -> Result<Guarded, Box<dyn Error>> {
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let (line, contents) = text.split_once('\n').unwrap_or(("written - read -", "0"));
        let words: Vec<&str> = line.split(' ').collect();
        let [_, written, _, read] = words[..] else {
            return Err("the first line has no tokens".into());
        };
        let token = |text: &str| (text != "-").then(|| text.parse::<Token>()).transpose();
        let guard = Guard::new(token(written)?, token(read)?);
        Ok(Guarded { file, guard, contents: contents.to_owned() })
    }

    /// Replaces the contents, if the token is not too old.
    fn write(&mut self, token: Token, contents: &str) -> Result<(), Box<dyn Error>> {
        if !self.guard.writes(token) {
            return Err(format!("the token {token} is too old: a later holder was here").into());
        }
        let shown = |token: Option<Token>| token.map_or("-".to_owned(), |token| token.to_string());
        let (written, read) = (shown(self.guard.written()), shown(self.guard.read()));
        let text = format!("written {written} read {read}\n{contents}");
        self.file.seek(SeekFrom::Start(0))?;
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        Ok(())
    }
}

/// Adds 1 to the number in the file, under the lock. Returns the token.
fn add_one(client: &LockClient, path: &Path, lock: LockId) -> Result<Token, Box<dyn Error>> {
    let guard = client.acquire_blocking(lock, Mode::Exclusive)?;
    let mut file = Guarded::open(path)?;
    let number: u64 = file.contents.trim().parse()?;
    // A process that stops here for longer than its lease finds its token refused below.
    file.write(guard.token(), &format!("{}\n", number + 1))?;
    println!("{} with token {}", number + 1, guard.token());
    Ok(guard.token())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [config, path, lock] => {
            let client = LockClient::connect(&Config::read(config.as_ref())?)?;
            add_one(&client, path.as_ref(), LockId(lock.parse()?)).map(|_| ())
        }
        [] => show(),
        _ => Err("usage: guarded_file [CONFIG FILE LOCK]".into()),
    }
}

fn show() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::start(Waits::Sleeping)?;
    let path = std::env::temp_dir().join(format!("guarded-{}.txt", std::process::id()));
    let first = add_one(&cluster.client()?, &path, LockId(7))?;
    add_one(&cluster.client()?, &path, LockId(7))?;
    let refused = Guarded::open(&path)?.write(first, "1\n");
    std::fs::remove_file(&path)?;
    match refused {
        Err(error) => println!("refused as it has to be: {error}"),
        Ok(()) => return Err("an older token was not refused".into()),
    }
    Ok(())
}
