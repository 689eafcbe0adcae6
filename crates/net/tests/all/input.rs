//! Bad input: configurations, datagrams and control connections that are refused, counted and survived.

use super::common::{Cluster, write_config};
use proptest::prelude::*;
use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tarn_locks::agent::Conduct;
use tarn_locks::decider::{Decider, Setup};
use tarn_locks::host::{Host, HostSetup};
use tarn_locks::links::{Moment, Output, Packet};
use tarn_locks::packet::{Ask, LaneId, Notice, NoticeKind, NoticeName, Payload, Question, Waiter};
use tarn_locks::place::Here;
use tarn_locks::service::Patience;
use tarn_locks::value::{LockId, Machine, Mode, Policy, RequestId, Thread, Token, View};
use tarn_locks::wire::{self, Datagram, HEADER_BYTES, Item, Key, Malformed};
use tarn_net::authority::{Authority, AuthorityError};
use tarn_net::config::{Config, ConfigError};
use tarn_net::program::{self, ProgramError};

const KEY: Key = Key([7; 16]);

fn refused(text: &str) -> ConfigError {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write_config(folder.path(), "");
    Config::parse(text, &file).expect_err("it is refused")
}

/// A configuration with one line replaced.
fn with(line: &str) -> String {
    let field = line.split(' ').next().expect("a field");
    let lines = [
        "decider = \"127.0.0.1:7400\"",
        "locks = 10",
        "secret = \"secret.key\"",
        "switch = true",
        "xdp = false",
        "lease_ms = 1000",
        "policy = \"in-order\"",
    ];
    let kept = lines.iter().filter(|it| !it.starts_with(field));
    let text: String = kept.map(|it| format!("{it}\n")).collect();
    format!(
        "{text}{line}\n{}",
        if line.contains('[') { "" } else { "[clients]\nfirst = 1\nlast = 2" }
    )
}

#[test]
fn configurations_are_refused_by_field_value_and_allowed_values() {
    let cases = [
        ("locks = 0", "locks", "0", "1 to 134217728"),
        ("lease_ms = 1", "lease_ms", "1", "50 to 3600000"),
        ("policy = \"fair\"", "policy", "fair", "in-order, reads-first, writes-first"),
        (
            "decider = \"0.0.0.0:1\"",
            "decider",
            "0.0.0.0:1",
            "an IP address of one machine and a port, as 10.0.0.1:7400",
        ),
        ("[clients]\nfirst = 1\nlast = 64", "clients.last", "64", "1 to 63"),
        ("[clients]\nfirst = 0\nlast = 9", "clients.first", "0", "1 to 63"),
        ("[[machines]]\nid = 64\naddress = \"10.0.0.1:1\"", "machines.id", "64", "1 to 63"),
        (
            "[[machines]]\nid = 1\naddress = \"x\"",
            "machines.address",
            "x",
            "an IP address of one machine and a port, as 10.0.0.1:7400",
        ),
    ];
    for (line, field, value, allowed) in cases {
        let error = refused(&with(line));
        let found = (error.field.as_str(), error.value.as_str(), error.allowed.as_str());
        assert_eq!(found, (field, value, allowed), "{line}");
    }
    assert_eq!(refused(&with("colour = 1")).field, "--config");
    let both = refused(&with("xdp = true")).to_string();
    assert!(both.starts_with("xdp = true in ") && both.contains("where switch = true"), "{both}");
    let driver = with("xdp = true").replace("switch = true", "switch = false");
    let six = refused(&driver.replace("127.0.0.1", "[::1]"));
    assert_eq!((six.field.as_str(), six.value.as_str()), ("decider", "[::1]:7400"));
    assert_eq!(six.allowed, "an address of IPv4, because xdp = true");
    let two = "[[machines]]\nid = 1\naddress = \"10.0.0.1:1\"\n";
    assert_eq!(refused(&with(&two.repeat(2))).allowed, "an address of one machine alone");
    let many = with("switch = false").replace("last = 2", "last = 16383");
    assert_eq!(refused(&many).field, "machines");
}

#[test]
fn a_secret_that_others_can_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write_config(folder.path(), "[clients]\nfirst = 1\nlast = 2\n");
    Config::read(&file).expect("it is good");
    let secret = folder.path().join("secret.key");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o640)).expect("a mode");
    let error = Config::read(&file).expect_err("others can read it");
    assert_eq!((error.field.as_str(), error.allowed.as_str()), ("secret", "a file of mode 0600"));
    assert!(error.value.ends_with("of mode 0640"), "{error}");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    std::fs::write(&secret, "0011").expect("a file");
    assert_eq!(Config::read(&file).expect_err("it is too short").field, "secret");
}

#[test]
fn a_missing_state_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let Err(AuthorityError::Missing(_)) = Authority::open(&state, false) else {
        panic!("no folder")
    };
    let text = program::recover(None, Some(&state)).expect_err("no folder").to_string();
    assert!(text.starts_with("--state = ") && text.contains("; allowed: "), "{text}");
}

fn requests() -> impl Strategy<Value = RequestId> {
    (1_u16..9, 0_u16..9, any::<u32>()).prop_map(|(machine, thread, seq)| RequestId {
        machine: Machine(machine),
        thread: Thread(thread),
        seq,
    })
}

fn waiters() -> impl Strategy<Value = Waiter> {
    (requests(), any::<bool>()).prop_map(|(request, exclusive)| Waiter {
        request,
        mode: if exclusive { Mode::Exclusive } else { Mode::Shared },
    })
}

fn payloads() -> impl Strategy<Value = Vec<Waiter>> {
    proptest::collection::vec(waiters(), 0..20)
}

const VIEW: View = View(3);
const FROM: Machine = Machine(5);

fn packets() -> impl Strategy<Value = Packet> {
    let token = |order| Token { view: VIEW, order };
    let own = (0_u16..9, any::<u32>(), any::<bool>()).prop_map(|(thread, seq, exclusive)| Waiter {
        request: RequestId { machine: FROM, thread: Thread(thread), seq },
        mode: if exclusive { Mode::Exclusive } else { Mode::Shared },
    });
    let asks = prop_oneof![
        (own, any::<bool>())
            .prop_map(|(waiter, bars_readers)| Ask::Acquire { waiter, bars_readers }),
        any::<u64>().prop_map(|count| Ask::Free { count }),
        (any::<u64>(), waiters(), any::<bool>(), payloads()).prop_map(
            |(count, next, bars_readers, queue)| Ask::Transfer {
                count,
                next,
                bars_readers,
                payload: Payload { counted: count, queue },
            }
        ),
        Just(Ask::BarReaders),
    ];
    let questions =
        (asks, 0_u16..9, any::<u32>(), any::<u32>()).prop_map(|(ask, thread, number, lock)| {
            let lane = LaneId { machine: FROM, thread: Thread(thread) };
            Packet::Question(Question { view: VIEW, lane, number, lock: LockId(lock), ask })
        });
    let notices = prop_oneof![
        (waiters(), any::<u64>(), any::<bool>())
            .prop_map(|(waiter, number, granted)| Notice::Copy { waiter, number, granted }),
        (requests(), proptest::option::of(1_u64..))
            .prop_map(|(request, number)| Notice::Release { request, number }),
        (requests(), 1_u16.., any::<u64>()).prop_map(move |(request, agent, order)| {
            Notice::Grant { request, agent: Machine(agent), token: token(order) }
        }),
        (waiters(), 1_u16.., any::<u64>(), payloads(), any::<u64>()).prop_map(
            move |(holder, from, order, queue, counted)| Notice::Install {
                holder,
                from: Machine(from),
                payload: Payload { counted, queue },
                token: token(order),
            }
        ),
    ];
    let to = Machine(9);
    let notices = (notices, any::<u32>()).prop_map(move |(notice, lock)| Packet::Notice {
        to,
        view: VIEW,
        lock: LockId(lock),
        notice,
    });
    let kinds = prop_oneof![
        Just(NoticeKind::Copy),
        Just(NoticeKind::Joined),
        Just(NoticeKind::Release),
        Just(NoticeKind::Grant),
        Just(NoticeKind::Install)
    ];
    let acknowledgements =
        (kinds, requests(), any::<u32>()).prop_map(move |(kind, request, lock)| {
            let name = NoticeName { kind, request };
            Packet::Acknowledgement { to, view: VIEW, lock: LockId(lock), name }
        });
    prop_oneof![questions, notices, acknowledgements]
}

/// The machine that a packet is for; 0 is the decider.
fn addressee(packet: &Packet) -> Machine {
    match packet {
        Packet::Question(_) => Machine(0),
        Packet::Notice { to, .. } | Packet::Acknowledgement { to, .. } => *to,
    }
}

fn sealed(packet: &Packet) -> Vec<u8> {
    let mut datagram = Datagram::new(VIEW, FROM, addressee(packet));
    assert!(datagram.has_room(wire::waiters_of(packet)));
    datagram.packet(packet);
    datagram.seal(&KEY).to_vec()
}

proptest! {
    #[test]
    fn packets_survive_the_wire(packet in packets()) {
        let bytes = sealed(&packet);
        let mut items = Vec::new();
        let ends = wire::open(&bytes, (addressee(&packet), &KEY), &mut |_, it| items.push(it));
        prop_assert_eq!(ends.map(|ends| (ends.view, ends.from)), Ok((VIEW, FROM)));
        let expected = match &packet {
            Packet::Question(question) => Item::Question(question.clone()),
            other => Item::Incoming(tarn_locks::host::Incoming::of(other).expect("for a machine")),
        };
        prop_assert_eq!(items, vec![expected]);
    }

    #[test]
    fn a_changed_byte_is_noticed(packet in packets(), at in any::<prop::sample::Index>(), by in 1_u8..) {
        let mut bytes = sealed(&packet);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        let opened = wire::open(&bytes, (addressee(&packet), &KEY), &mut |_, _| ());
        prop_assert!(opened.is_err(), "{:?}", opened);
    }
}

#[test]
fn datagrams_cut_short_or_too_long_are_refused() {
    let packet = Packet::Acknowledgement {
        to: Machine(9),
        view: VIEW,
        lock: LockId(1),
        name: NoticeName {
            kind: NoticeKind::Grant,
            request: RequestId { machine: FROM, thread: Thread(0), seq: 1 },
        },
    };
    let whole = sealed(&packet);
    let open =
        |bytes: &[u8]| wire::open(bytes, (Machine(9), &KEY), &mut |_, _| panic!("no packet"));
    for length in 0..HEADER_BYTES {
        assert_eq!(open(&whole[..length]), Err(Malformed::Short), "{length}");
    }
    for length in HEADER_BYTES..whole.len() {
        assert_eq!(open(&whole[..length]), Err(Malformed::Seal), "{length}");
        let mut cut = whole[..length].to_vec();
        reseal(&mut cut);
        assert_eq!(open(&cut), Err(Malformed::Short), "{length}");
    }
    let mut long = [&whole[..], &[0]].concat();
    reseal(&mut long);
    assert_eq!(open(&long), Err(Malformed::Long));
}

fn reseal(bytes: &mut [u8]) {
    let seal = wire::seal_of(bytes, &KEY);
    bytes[16..32].copy_from_slice(&seal);
}

/// The command line and the configuration name the place of the decider, and have to agree.
#[test]
fn a_place_of_the_decider_that_the_configuration_does_not_have_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (state, never) = (folder.path().join("state"), AtomicBool::new(false));
    let ended = |more: &str, interface: Option<&str>| {
        let more = format!("{more}[clients]\nfirst = 1\nlast = 2\n");
        let file = write_config(folder.path(), &more);
        match program::decider(&file, (&state, true), (None, interface), &never, |_| {}) {
            Err(ProgramError::Usage(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let text = ended("", Some("eth0"));
    assert!(text.starts_with("--xdp = eth0; allowed: only with xdp = true in "), "{text}");
    let text = ended("xdp = true\n", None);
    assert!(text.starts_with("xdp = true in ") && text.contains("--xdp INTERFACE"), "{text}");
    let text = ended("xdp = true\n", Some("lo"));
    assert!(text.starts_with("--xdp = lo; allowed: an interface to other machines"), "{text}");
    if cfg!(not(feature = "xdp")) {
        let text = ended("xdp = true\n", Some("eth0"));
        assert!(
            text.starts_with("--xdp = eth0; allowed: ") && text.contains("--features xdp"),
            "{text}"
        );
    }
    assert!(!state.exists(), "a decider that cannot start begins no view");
}

/// A decider that cannot start makes no folder, so the corrected command can make it.
#[test]
fn a_decider_that_cannot_start_makes_no_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let (state, never) = (folder.path().join("state"), AtomicBool::new(false));
    let file = write_config(folder.path(), "[clients]\nfirst = 1\nlast = 2\n");
    let config = Config::read(&file).expect("a configuration");
    let start = |address| {
        let place = (address, None);
        program::decider(&file, (&state, true), place, &never, |_| {}).expect_err("it starts")
    };
    let elsewhere = "1.2.3.4:5".parse().expect("an address");
    let ProgramError::Usage(text) = start(Some(elsewhere)) else { panic!("a bad choice") };
    assert!(text.starts_with("--address = 1.2.3.4:5; allowed: 127.0.0.1:"), "{text}");
    assert!(!state.exists());
    // Another process has the port of one of the two protocols.
    let at = config.deciders[0];
    let tcp = std::net::TcpListener::bind(at).expect("a free port");
    assert!(matches!(start(None), ProgramError::Failed(_)));
    drop(tcp);
    let udp = UdpSocket::bind(at).expect("a free port");
    assert!(matches!(start(None), ProgramError::Failed(_)));
    drop(udp);
    assert!(!state.exists());
    let stopped = AtomicBool::new(true);
    program::decider(&file, (&state, true), (None, None), &stopped, |_| {}).expect("it starts");
    assert!(state.join("view.1").exists(), "a decider that starts has begun a view");
}

#[test]
fn an_error_in_a_configuration_names_the_line_and_the_key() {
    let secret = "secret = \"secret.key\"\n";
    for (text, place) in [
        ("decider = \"127.0.0.1:7\"\nlocks = \"x\"\n", ", line 2, locks; allowed: "),
        ("decider = 7\n", ", line 1, decider; allowed: "),
        ("decider = \"127.0.0.1:7\"\n\nlock = 9\n", ", line 3; allowed: "),
    ] {
        let said = refused(&format!("{text}{secret}")).to_string();
        assert!(said.starts_with("--config = ") && said.contains(place), "{said}");
    }
}

#[test]
fn a_machine_without_an_address_is_refused_with_the_ids_that_have_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let never = AtomicBool::new(false);
    let clients = "[clients]\nfirst = 1\nlast = 2\n";
    let refused = |more: &str| {
        let file = write_config(folder.path(), more);
        match program::agent(&file, 5, &never, |_| {}) {
            Err(ProgramError::Usage(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let text = refused(clients);
    assert!(text.starts_with("--machine = 5; allowed: none, because "), "{text}");
    assert!(text.ends_with("locks.toml has no [[machines]]"), "{text}");
    let text = refused("[[machines]]\nid = 7\naddress = \"127.0.0.1:7001\"\n");
    assert!(text.ends_with("locks.toml: 7"), "{text}");
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A decider and a machine, which take in whatever opens.
struct Target {
    decider: Decider,
    host: Host,
    output: Output,
    opened: u64,
    taken: u64,
}

impl Target {
    fn new() -> Target {
        let (width, rules) = Setup::PROCESS.counts();
        let conduct = Conduct { policy: Policy::InOrder, width, rules };
        let here = Here { machine: Machine(1), conduct, decider_sends: true };
        let setup = HostSetup { here, threads: 2, window: 8 };
        Target {
            decider: Decider::new(Setup::PROCESS, View(1), 4),
            host: Host::new(setup, View(1)),
            output: Output::default(),
            opened: 0,
            taken: 0,
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        for to in [Machine(0), Machine(1)] {
            let mut items = Vec::new();
            if wire::open(bytes, (to, &KEY), &mut |_, item| items.push(item)).is_err() {
                assert!(items.is_empty(), "a refused datagram has an effect");
                continue;
            }
            self.opened += 1;
            for item in items {
                self.taken += 1;
                match item {
                    Item::Question(question) => {
                        _ = self.decider.receive(&question, &mut |_| ());
                    }
                    Item::Incoming(incoming) => {
                        let at = Moment { now: 0, lane: 0 };
                        _ = self.host.receive(at, incoming, &mut self.output);
                    }
                }
            }
        }
        self.output = Output::default();
    }
}

/// Random datagrams, and mutated ones with and without a seal.
fn fuzz(time: Duration, seed: u64) {
    let mut random = Random(seed | 1);
    let (mut target, mut count) = (Target::new(), 0_u64);
    let begun = Instant::now();
    let mut whole: Vec<Vec<u8>> = Vec::new();
    while begun.elapsed() < time {
        for _ in 0..1_000 {
            count += 1;
            if count % 50_000 == 0 {
                target = Target { opened: target.opened, taken: target.taken, ..Target::new() };
            }
            let mut bytes = match whole.len() {
                0 => Vec::new(),
                kept => whole[random.below(kept)].clone(),
            };
            if bytes.is_empty() || random.below(8) == 0 {
                bytes = (0..random.below(400)).map(|_| random.next() as u8).collect();
                if random.below(4) > 0 && bytes.len() >= HEADER_BYTES {
                    bytes.truncate(HEADER_BYTES + 40 * ((bytes.len() - HEADER_BYTES) / 40));
                    bytes[..12].copy_from_slice(&[0x4c, 0x54, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
                    bytes[3] = ((bytes.len() - HEADER_BYTES) / 40) as u8;
                    bytes[10] = random.below(2) as u8;
                    bytes[8] = random.below(3) as u8;
                    for packet in bytes[HEADER_BYTES..].chunks_exact_mut(40) {
                        let kinds = [1, 2, 3, 4, 16, 32, 33, 34, 35, 48];
                        packet[0] = kinds[random.below(kinds.len())];
                        packet[1] &= 0x4f;
                        packet[2..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
                        (packet[4], packet[8]) = (random.below(5) as u8, random.below(9) as u8);
                        packet[12..16].copy_from_slice(&[1, 0, 0, 0]);
                        packet[16..20].copy_from_slice(&[random.below(9) as u8, 0, 0, 0]);
                        packet[20..24].copy_from_slice(&[random.below(2) as u8, 0, 1, 0]);
                    }
                }
            }
            for _ in 0..random.below(4) {
                if bytes.is_empty() {
                    break;
                }
                let at = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes[at] ^= 1 << random.below(8),
                    2 => bytes.truncate(at),
                    _ => bytes.insert(at, random.next() as u8),
                }
            }
            if bytes.len() >= HEADER_BYTES && random.below(8) > 0 {
                reseal(&mut bytes);
                if whole.len() < 500 {
                    whole.push(bytes.clone());
                } else {
                    let at = random.below(500);
                    whole[at].clone_from(&bytes);
                }
            }
            target.give(&bytes);
        }
    }
    println!("{count} datagrams, {} opened, {} packets taken in", target.opened, target.taken);
    assert!(target.taken > 1_000, "the fuzz reaches the protocol");
}

#[test]
fn fuzz_for_two_seconds() {
    fuzz(Duration::from_secs(2), 1);
}

#[test]
#[ignore = "ten minutes"]
fn fuzz_for_ten_minutes() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    fuzz(Duration::from_secs(600), seed);
}

/// Strangers talk to a decider; all of that is counted, and the service goes on.
#[test]
fn strangers_get_nothing() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let at = cluster.config.deciders[0];
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    stranger.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
    let (machine, view) = client.status().life.expect("a life");
    let question = |view: View, from: Machine, lock: u32| {
        let waiter = Waiter {
            request: RequestId { machine: from, thread: Thread(0), seq: 1_000 },
            mode: Mode::Exclusive,
        };
        let ask = Ask::Acquire { waiter, bars_readers: false };
        let lane = LaneId { machine: from, thread: Thread(9) };
        let question = Question { view, lane, number: 1, lock: LockId(lock), ask };
        let mut datagram = Datagram::new(view, from, Machine(0));
        datagram.question(&question);
        datagram
    };
    let key = cluster.config.key;
    let send = |bytes: &[u8]| _ = stranger.send_to(bytes, at).expect("it is sent");
    send(question(view, machine, 1).seal(&KEY)); // another key
    send(question(view, machine, 1).seal(&key)); // the cluster's key, from another address
    send(question(view, Machine(39), 1).seal(&key)); // a machine that has not joined
    send(question(View(view.0 - 1), machine, 1).seal(&key)); // an older view
    send(&question(view, machine, 1).seal(&key)[..20]);
    send(b"");
    let mut control = TcpStream::connect(at).expect("anyone can connect");
    control.write_all(&[9; 200]).expect("it is sent");
    std::thread::sleep(Duration::from_millis(50));
    assert!(stranger.recv(&mut [0; 2_000]).is_err(), "an answer to a stranger");
    let status = program::status(&cluster.config.file).expect("the decider answers");
    let counters = status.counters;
    assert_eq!(counters.malformed, [2, 0, 0, 1, 0, 0], "{counters:?}");
    assert_eq!(counters.strangers, 3, "{counters:?}");
    assert_eq!(counters.other_views, 1, "{counters:?}");
    let guard = client.acquire_blocking_for(LockId(1), Mode::Exclusive, Patience::Try);
    assert!(guard.is_ok(), "{guard:?}");
}
