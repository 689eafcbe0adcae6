//! Strangers and broken members at the control channel of a decider in a process of its own.
//!
//! Invariant: frames are built here from the table in `control/stream.rs`, not by its code. A connection without the key gets the decider's
//! nonce and nothing else; the members of the cluster and the memory of the decider stay as they are.

use super::common::write_config;
use super::input::Random;
use super::processes::{Game, Ground, Process};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::Hasher as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tarn_locks::service::Patience;
use tarn_locks::value::{LockId, Mode};
use tarn_locks::wire::Key;
use tarn_net::config::Config;
use tarn_net::control::message::{Life, ToDecider};
use tarn_net::control::stream::UNKNOWN_BYTES_MAX;
use tarn_net::lock::LockClient;
use tarn_net::program;

/// What the decider's process may grow by. Source: 64 strangers with a frame and a read of 64 KB each, and the allocator's reserve.
const GROWTH_BYTES: u64 = 32 << 20;
const NONCE_BYTES: usize = 16;
/// Connections that are left open, more than the decider keeps.
const IDLE: usize = 100;

/// A connection that builds its frames by hand.
struct Peer {
    tcp: TcpStream,
    own: [u8; NONCE_BYTES],
    decider: [u8; NONCE_BYTES],
}

impl Peer {
    /// `None`: the decider has too many strangers, and has closed it.
    fn connect(at: SocketAddr, random: &mut Random) -> Option<Peer> {
        let mut tcp = TcpStream::connect(at).ok()?;
        tcp.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
        tcp.set_nodelay(true).expect("an option");
        let mut decider = [0; NONCE_BYTES];
        tcp.read_exact(&mut decider).ok()?;
        Some(Peer { tcp, own: std::array::from_fn(|_| random.next() as u8), decider })
    }

    fn frame(&self, key: &Key, number: u64, text: &[u8]) -> Vec<u8> {
        let mut hasher = SipHasher24::new_with_key(&key.0);
        hasher.write(b"control machine ");
        hasher.write(&self.decider);
        hasher.write(&self.own);
        hasher.write(&number.to_le_bytes());
        hasher.write(text);
        let seal = hasher.finish128().as_bytes();
        [&(text.len() as u32).to_le_bytes()[..], &seal, text].concat()
    }

    /// The bytes that the decider sends until it closes the connection, or until `patience` is over.
    fn answer(&mut self, patience: Duration) -> Vec<u8> {
        self.tcp.set_read_timeout(Some(patience)).expect("a time-out");
        let (mut all, mut room) = (Vec::new(), [0; 4_096]);
        loop {
            match self.tcp.read(&mut room) {
                Ok(0) => return all,
                Ok(count) => all.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return all,
            }
        }
    }
}

/// A message of a machine.
fn message(random: &mut Random) -> ToDecider {
    let life = Life { machine: random.below(12) as u16, incarnation: random.next() % 4 };
    let address = SocketAddr::from(([127, 0, 0, 1], random.below(65_536) as u16));
    match random.below(5) {
        0 => ToDecider::Join {
            machine: (random.below(2) == 0).then(|| random.below(12) as u16),
            incarnation: random.next() % 4,
            address,
            previous: (random.below(2) == 0).then_some(life),
        },
        1 => {
            let (view, is_paused) = (random.below(4) as u32, random.below(2) == 0);
            ToDecider::Attach { life, view, address, is_paused }
        }
        2 => ToDecider::Renew { seq: random.next(), view: random.below(4) as u32 },
        3 => ToDecider::Leave { is_clean: random.below(2) == 0 },
        _ => ToDecider::Status,
    }
}

/// The text of a submission, whose fields are private: locks, machines and views that may not exist.
fn submission(random: &mut Random) -> Vec<u8> {
    let mut number = |most: usize| random.below(most);
    let waiter = |number: &mut dyn FnMut(usize) -> usize| {
        format!("[[{},{},{}],{}]", number(12), number(9), number(9), number(2) == 0)
    };
    let holds: Vec<String> = (0..number(4))
        .map(|_| {
            let waiter = waiter(&mut number);
            format!("[{},{waiter},{},{}]", number(1_100), number(4), number(9))
        })
        .collect();
    let view = number(4);
    let waits = format!("[{},{}]", number(1_100), waiter(&mut number));
    let queues = format!("[{},[[{},0,1],[1,1,1]]]", number(1_100), number(12));
    let holds = holds.join(",");
    format!("{{\"Submit\":{{\"view\":{view},\"holds\":[{holds}],\"waits\":[{waits}],\"queues\":[{queues}]}}}}")
        .into_bytes()
}

fn text(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => submission(random),
        _ => serde_json::to_vec(&message(random)).expect("text"),
    }
}

fn noise(random: &mut Random, most: usize) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.next() as u8).collect()
}

/// What a stranger sends on a connection. Returns whether the decider has to close it.
fn stranger(peer: &Peer, key: &Key, before: &[u8], random: &mut Random) -> (Vec<u8>, bool) {
    let text = text(random);
    let mut good = peer.frame(key, 0, &text);
    let own = &peer.own[..];
    match random.below(8) {
        0 => (noise(random, 2_000), false),
        1 => {
            let other = Key(std::array::from_fn(|_| random.next() as u8));
            ([own, &peer.frame(&other, 0, &text)].concat(), true)
        }
        2 => {
            // Not its length: the decider would wait for the rest.
            let at = 4 + random.below(good.len() - 4);
            good[at] ^= 1 << random.below(8);
            ([own, &good].concat(), true)
        }
        // A frame of another connection.
        3 => ([own, before].concat(), !before.is_empty()),
        4 => {
            let over = u32::MAX - UNKNOWN_BYTES_MAX as u32;
            let length = UNKNOWN_BYTES_MAX as u32 + 1 + random.next() as u32 % over;
            good[..4].copy_from_slice(&length.to_le_bytes());
            ([own, &good].concat(), true)
        }
        5 => {
            let cut = random.below(good.len());
            ([own, &good[..cut]].concat(), false)
        }
        6 => ([own, &peer.frame(key, 1 + random.next() % 3, &text)].concat(), true),
        // The key, and no text of the protocol.
        _ => {
            let noise = [&[0xff][..], &noise(random, 300)].concat();
            ([own, &peer.frame(key, 0, &noise)].concat(), true)
        }
    }
}

struct Target {
    process: Process,
    config: Config,
    _folder: tempfile::TempDir,
}

impl Target {
    fn start() -> Target {
        let folder = tempfile::tempdir().expect("a folder");
        let file = write_config(folder.path(), "lease_ms = 1000\n[clients]\nfirst = 1\nlast = 9\n");
        let process = Game::decider(&Ground::loopback(), &file, folder.path());
        let config = Config::read(&file).expect("a configuration");
        Target { process, config, _folder: folder }
    }

    fn client(&self) -> LockClient {
        LockClient::connect(&self.config).expect("it joins")
    }
}

fn fuzz(time: Duration, seed: u64) {
    let mut random = Random(seed | 1);
    let mut target = Target::start();
    let client = target.client();
    let key = target.config.key;
    let at = target.config.deciders[0];
    let members = program::status(&target.config.file).expect("it answers").members.len();
    let mut idle = Vec::new();
    let (mut connections, mut closed, mut refused) = (0_u64, 0_u64, 0_u64);
    let (mut before, mut first_bytes, mut most_bytes) = (Vec::new(), 0, 0);
    let begun = Instant::now();
    while begun.elapsed() < time || connections < 300 {
        connections += 1;
        let Some(mut peer) = Peer::connect(at, &mut random) else {
            refused += 1;
            continue;
        };
        let (bytes, closes) = stranger(&peer, &key, &before, &mut random);
        before = peer.frame(&key, 0, &serde_json::to_vec(&ToDecider::Status).expect("text"));
        // In two parts, as a network may deliver it.
        let (one, two) = bytes.split_at(random.below(bytes.len() + 1));
        _ = peer.tcp.write_all(one).and_then(|()| peer.tcp.write_all(two));
        if closes {
            let begun = Instant::now();
            let answer = peer.answer(Duration::from_secs(10));
            assert!(begun.elapsed() < Duration::from_secs(10), "a stranger's connection stays");
            assert!(answer.is_empty(), "a stranger has an answer");
            closed += 1;
        } else {
            idle.push(peer);
        }
        if idle.len() > IDLE {
            for mut peer in idle.drain(..) {
                let answer = peer.answer(Duration::from_millis(1));
                assert!(answer.is_empty(), "a stranger has an answer");
            }
            let guard = client.acquire_blocking_for(LockId(1), Mode::Exclusive, Patience::Try);
            assert!(guard.is_ok(), "{guard:?}");
        }
        if connections % 100 == 0 {
            assert!(target.process.is_alive(), "the decider has ended");
            let status = program::status(&target.config.file).expect("the decider answers");
            assert_eq!((status.members.len(), status.joining, status.view), (members, 0, 1));
            let bytes = target.process.resident_bytes();
            most_bytes = bytes.max(most_bytes);
            if first_bytes == 0 {
                first_bytes = bytes;
            }
            assert!(bytes < first_bytes + GROWTH_BYTES, "{first_bytes} bytes, and then {bytes}");
        }
    }
    println!(
        "seed {seed}: {connections} connections, {closed} closed by the decider, {refused} at once; {first_bytes} bytes, {most_bytes} at most"
    );
}

/// A member, or several, that send whatever has the form of a message: the decider neither panics nor stops.
fn fuzz_members(time: Duration, seed: u64) {
    let mut random = Random(seed | 1);
    let mut target = Target::start();
    let key = target.config.key;
    let at = target.config.deciders[0];
    let begun = Instant::now();
    let (mut messages, mut mutated) = (0_u64, 0_u64);
    while begun.elapsed() < time || messages < 1_000 {
        let Some(mut peer) = Peer::connect(at, &mut random) else { continue };
        let mut bytes = peer.own.to_vec();
        for number in 0..1 + random.below(12) as u64 {
            let mut text = text(&mut random);
            if random.below(6) == 0 {
                // Often still a message: digits are the most frequent bytes.
                let at = random.below(text.len());
                text[at] = b'0' + random.below(10) as u8;
                mutated += 1;
            }
            bytes.extend(peer.frame(&key, number, &text));
            messages += 1;
        }
        _ = peer.tcp.write_all(&bytes);
        if random.below(4) > 0 {
            peer.answer(Duration::from_millis(2));
        }
        assert!(target.process.is_alive(), "the decider has ended after {messages} messages");
    }
    // Lives that have never existed end with their leases, and then the service is back.
    let client = target.client();
    let guard =
        client.acquire_blocking_for(LockId(1), Mode::Exclusive, Patience::Nanos(20_000_000_000));
    assert!(guard.is_ok(), "{guard:?}");
    let bytes = target.process.resident_bytes();
    println!(
        "seed {seed}: {messages} messages, {mutated} of them mutated; {bytes} bytes at the end"
    );
}

const SHORT: Duration = Duration::from_secs(2);

#[test]
fn strangers_at_the_control_channel_change_nothing() {
    fuzz(SHORT, 11);
}

#[test]
fn members_that_send_anything_do_not_end_the_decider() {
    fuzz_members(SHORT, 12);
}

/// Connections that say nothing do not keep a client out.
#[test]
fn silent_strangers_leave_room_for_a_client() {
    let target = Target::start();
    drop(target.client());
    let at = target.config.deciders[0];
    let silent: Vec<_> = (0..IDLE).map(|_| TcpStream::connect(at).expect("connected")).collect();
    let begun = Instant::now();
    let client = target.client();
    assert!(begun.elapsed() < Duration::from_secs(4), "after {:?}", begun.elapsed());
    drop((client, silent));
}

#[test]
#[ignore = "ten minutes"]
fn fuzz_the_control_channel_for_ten_minutes() {
    let seed = u64::from(std::process::id());
    fuzz(Duration::from_secs(300), seed);
    fuzz_members(Duration::from_secs(300), seed);
}
