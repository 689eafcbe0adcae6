//! A value in Redis that several processes change under a lock, and that checks fencing tokens itself.
//!
//! Invariant: one script compares the token with the greatest tokens of a write and of a read, and writes, in one step. The rule is that of
//! `tarn_locks::guard::Guard`. Orders of tokens are below 2^48, so that the script's numbers hold them exactly.
//!
//! `cargo run -p tarn-peers --example guarded_redis -- locks.toml 127.0.0.1:6379 counter 7` adds 1 to the key `counter` under lock 7.
//! Without arguments the example starts a lock service and a Redis of its own, or says why it does not.

use std::error::Error;
use std::net::SocketAddr;
use tarn_locks::value::{LockId, Mode, Token};
use tarn_net::bench::{Cluster, Waits};
use tarn_net::config::Config;
use tarn_net::lock::LockClient;
use tarn_peers::connection::Connection;
use tarn_peers::resp::Value;
use tarn_peers::server::Private;

/// Keys: the value, and the hash with its tokens. Arguments: view and order of the token, and the new value. The result is 0 for a token that
/// is too old.
const WRITE: &[u8] = b"
local seen = redis.call('HMGET', KEYS[2], 'write_view', 'write_order', 'read_view', 'read_order')
local view, order = tonumber(ARGV[1]), tonumber(ARGV[2])
local function passed(at, is_equal_enough)
  local v, o = tonumber(seen[at] or -1), tonumber(seen[at + 1] or -1)
  return view > v or (view == v and (order > o or (is_equal_enough and order == o)))
end
if not (passed(1, true) and passed(3, false)) then return 0 end
redis.call('HSET', KEYS[2], 'write_view', view, 'write_order', order)
redis.call('SET', KEYS[1], ARGV[3])
return 1";

/// Writes a value, if the token is not too old.
fn write(
    redis: &mut Connection,
    (key, token): (&str, Token),
    value: &str,
) -> Result<(), Box<dyn Error>> {
    let (view, order) = (token.view.0.to_string(), token.order.to_string());
    let tokens = format!("{key}:tokens");
    let parts = [key, &tokens, &view, &order, value].map(str::as_bytes);
    let command = [&[b"EVAL".as_slice(), WRITE, b"2"], &parts[..]].concat();
    match redis.call(&command)? {
        Value::Integer(1) => Ok(()),
        Value::Integer(0) => Err(format!("the token {token} is too old").into()),
        other => Err(format!("Redis answers {other:?}").into()),
    }
}

/// Adds 1 to the key under the lock, and shows that an older token is refused.
fn add_one(
    client: &LockClient,
    redis: SocketAddr,
    (key, lock): (&str, LockId),
) -> Result<(), Box<dyn Error>> {
    let mut redis = Connection::open(redis)?;
    let guard = client.acquire_blocking(lock, Mode::Exclusive)?;
    let number = redis.call(&[b"GET", key.as_bytes()])?.number().unwrap_or(0) + 1;
    // A process that stops here for longer than its lease finds its token refused below.
    write(&mut redis, (key, guard.token()), &number.to_string())?;
    println!("{number} with token {}", guard.token());
    // An older token is refused, whatever its holder believes.
    let old = Token { view: guard.token().view, order: guard.token().order.saturating_sub(1) };
    match write(&mut redis, (key, old), "0") {
        Err(error) => println!("refused as it has to be: {error}"),
        Ok(()) => return Err("an older token was not refused".into()),
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [config, redis, key, lock] => {
            let client = LockClient::connect(&Config::read(config.as_ref())?)?;
            add_one(&client, redis.parse()?, (key, LockId(lock.parse()?)))
        }
        [] => {
            let redis = match Private::redis() {
                Ok(redis) => redis,
                Err(skipped) => {
                    println!("skipped: {skipped}");
                    return Ok(());
                }
            };
            let cluster = Cluster::start(Waits::Sleeping)?;
            add_one(&cluster.client()?, redis.address(), ("counter", LockId(7)))
        }
        _ => Err("usage: guarded_redis [CONFIG ADDRESS KEY LOCK]".into()),
    }
}
