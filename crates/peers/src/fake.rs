//! A server with the commands that the rivals use, in this process: for tests on machines without Redis.
//!
//! Invariant: a command answers as Redis 7 does. Times to live are read and checked, and never run out.

use crate::redlock::RELEASE_SCRIPT;
use crate::resp::{self, Value};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The name of the release script in this server. Redis names a script by its SHA-1.
const SCRIPT_NAME: &str = "0000000000000000000000000000000000000001";

type Key = (Vec<u8>, Vec<u8>);
type Table = BTreeMap<Key, Vec<u8>>;

/// A server.
pub struct Fake {
    address: SocketAddr,
    stops: Arc<AtomicBool>,
    table: Arc<Mutex<Table>>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Starts a server on a free port.
    #[expect(clippy::disallowed_methods, reason = "a server of tests lives beside its clients")]
    pub fn start() -> Fake {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let stops = Arc::new(AtomicBool::new(false));
        let table = Arc::new(Mutex::new(Table::new()));
        let (is_stopped, of_all) = (Arc::clone(&stops), Arc::clone(&table));
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                for stream in listener.incoming().flatten() {
                    if is_stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    scope.spawn(|| serve(stream, &of_all));
                }
            });
        });
        Fake { address, stops, table, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.table.lock().expect("a table").len()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        // The connection wakes the listener. The other clients have closed theirs before.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, table: &Mutex<Table>) {
    let (mut input, mut chunk) = (Vec::new(), [0; 1 << 16]);
    while let Ok(bytes @ 1..) = stream.read(&mut chunk) {
        input.extend_from_slice(&chunk[..bytes]);
        let mut out = Vec::new();
        let mut used = 0;
        while let Ok(Some((value, bytes))) = resp::parse(&input[used..]) {
            used += bytes;
            let Value::Array(Some(parts)) = value else { return };
            let texts = parts.iter().map(|part| match part {
                Value::Text(Some(text)) => text.as_slice(),
                _ => &[],
            });
            let answer = answer(&texts.collect::<Vec<_>>(), &mut table.lock().expect("a table"));
            resp::put_value(&mut out, &answer);
        }
        input.drain(..used);
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}

fn answer(parts: &[&[u8]], table: &mut Table) -> Value {
    let error = |text: &str| Value::Error(format!("ERR {text}"));
    let texts: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    let plain = |key: &[u8]| (key.to_vec(), Vec::new());
    let count = |did: bool| Value::Integer(i64::from(did));
    match texts[..] {
        ["PING"] => Value::Simple("PONG".into()),
        ["SET", _, _] => {
            table.insert(plain(parts[1]), parts[2].to_vec());
            Value::Simple("OK".into())
        }
        ["SET", _, _, "NX", ref life @ ..] if is_life(life) => {
            if table.contains_key(&plain(parts[1])) {
                return Value::Text(None);
            }
            table.insert(plain(parts[1]), parts[2].to_vec());
            Value::Simple("OK".into())
        }
        ["GET", _] => Value::Text(table.get(&plain(parts[1])).cloned()),
        ["DEL", _] => {
            let of_key = table.range(plain(parts[1])..).take_while(|(key, _)| key.0 == parts[1]);
            let keys: Vec<Key> = of_key.map(|(key, _)| key.clone()).collect();
            keys.iter().for_each(|key| _ = table.remove(key));
            count(!keys.is_empty())
        }
        ["HGET", _, _] => Value::Text(table.get(&(parts[1].to_vec(), parts[2].to_vec())).cloned()),
        ["HSET", _, _, _] => {
            let key = (parts[1].to_vec(), parts[2].to_vec());
            count(table.insert(key, parts[3].to_vec()).is_none())
        }
        ["SCRIPT", "LOAD", script] if script == RELEASE_SCRIPT => {
            Value::Text(Some(SCRIPT_NAME.into()))
        }
        ["EVAL", script, "1", _, _] if script == RELEASE_SCRIPT => release(parts, table),
        ["EVALSHA", SCRIPT_NAME, "1", _, _] => release(parts, table),
        [name, ..] => error(&format!("unknown command '{name}', with args beginning with: ")),
        [] => error("no command"),
    }
}

/// No time to live, or one that Redis takes.
fn is_life(words: &[&str]) -> bool {
    match words {
        [] => true,
        ["PX", ms] => ms.parse().is_ok_and(|ms: u64| ms > 0),
        _ => false,
    }
}

fn release(parts: &[&[u8]], table: &mut Table) -> Value {
    let key = (parts[3].to_vec(), Vec::new());
    let is_holder = table.get(&key).is_some_and(|token| token == parts[4]);
    if is_holder {
        table.remove(&key);
    }
    Value::Integer(i64::from(is_holder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use crate::server::Private;

    /// Commands of the rivals, and of their mistakes.
    const COMMANDS: [&[&str]; 17] = [
        &["PING"],
        &["SET", "a", "one", "NX", "PX", "10000"],
        &["SET", "a", "two", "NX", "PX", "10000"],
        &["SET", "a", "two", "NX"],
        &["GET", "a"],
        &["EVAL", RELEASE_SCRIPT, "1", "a", "two"],
        &["EVAL", RELEASE_SCRIPT, "1", "a", "one"],
        &["GET", "a"],
        &["DEL", "a"],
        &["SET", "a", "three", "NX"],
        &["DEL", "a"],
        &["HGET", "1", "balance"],
        &["HSET", "1", "balance", "7"],
        &["HSET", "1", "balance", "8"],
        &["HGET", "1", "balance"],
        &["EVAL", RELEASE_SCRIPT, "1", "b", "one"],
        &["DEL", "1"],
    ];

    #[test]
    fn the_fake_answers_as_redis_does() {
        let real = match Private::redis() {
            Ok(real) => real,
            Err(skipped) => return eprintln!("{skipped}"),
        };
        let fake = Fake::start();
        let mut ends = [real.address(), fake.address()].map(|at| Connection::open(at).unwrap());
        for command in COMMANDS {
            let parts: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
            let [real, fake] = ends.each_mut().map(|it| it.call(&parts).unwrap());
            assert_eq!(fake, real, "{command:?}");
        }
        let [real, fake] =
            ends.each_mut().map(|it| it.call(&[b"HDECRBY", b"1", b"balance", b"5"]).unwrap());
        for answer in [real, fake] {
            let is_unknown = matches!(&answer, Value::Error(it) if it.starts_with("ERR unknown"));
            assert!(is_unknown, "{answer:?}");
        }
        for it in &mut ends {
            let script = it.call(&[b"SCRIPT", b"LOAD", RELEASE_SCRIPT.as_bytes()]).unwrap();
            let Value::Text(Some(script)) = script else { panic!("{script:?}") };
            assert_eq!(script.len(), 40);
            let answer = it.call(&[b"EVALSHA", &script, b"1", b"a", b"one"]).unwrap();
            assert_eq!(answer, Value::Integer(0));
        }
    }
}
