//! The decider's process with its program in the driver of a virtual interface; machines are in another network namespace.
//!
//! Invariant: where the kernel loads no program for this user, or there are no namespaces, each test says so in one line and passes. Counters
//! of the program show that it has decided, and not the process.

use super::common::write_config_at;
use super::processes::{Game, Ground, LEASE, MARGIN_BESIDE_OTHERS, Process, Victim, command};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tarn_locks::service::{Patience, Refusal};
use tarn_locks::value::{LockId, Mode, View};
use tarn_locks::wire::Key;
use tarn_net::config::Config;
use tarn_net::control::message::Status;
use tarn_net::lock::LockClient;
use tarn_net::program;
use tarn_xdp::config::Config as Setting;
use tarn_xdp::kernel::{Failed, Kind, Program};
use tarn_xdp::namespaces::{Namespaces, Side};

const INTERFACE: &str = "lock";
const NETWORK: &str = "10.78.1";
const DECIDER: &str = "10.78.1.2";
const MACHINES: &str = "10.78.1.1";
/// A test that fails has to end.
const SOON: Patience = Patience::Nanos(10_000_000_000);
/// Writes before and after each death.
const WRITES: u64 = 1_000;

/// A program that lets all frames pass.
fn pass() -> Result<Program, Failed> {
    let (view, key) = (View(0), Key([0; 16]));
    let config = Setting { view, key, port: 1, locks: 1, machines: 1, threads: 1 };
    Program::load(Kind::Pass, &config, &[])
}

/// Namespaces, and the process that lets the machines' interface take in what a program sends.
struct Network {
    namespaces: Arc<Namespaces>,
    _pass: Process,
}

impl Network {
    /// `None`, with a line that says why: this machine or this user cannot.
    fn new() -> Option<Network> {
        if let Err(error) = pass() {
            println!("skipped: the kernel loads no XDP program for this user: {error}");
            return None;
        }
        let namespaces = match Namespaces::new(&[(INTERFACE, NETWORK)]) {
            Ok(namespaces) => Arc::new(namespaces),
            Err(reason) => {
                println!("skipped: no network namespaces: {reason}");
                return None;
            }
        };
        let own = std::env::current_exe().expect("this program");
        let client = namespaces.command(Side::Client, &own);
        let _pass = Process::of(command(client, &format!("pass {INTERFACE}")));
        Some(Network { namespaces, _pass })
    }

    fn program(&self) -> impl Fn(bool) -> Command + use<> {
        let namespaces = Arc::clone(&self.namespaces);
        move |is_decider| {
            let own = std::env::current_exe().expect("this program");
            namespaces.command(if is_decider { Side::Server } else { Side::Client }, &own)
        }
    }

    fn ground(&self) -> Ground {
        let program = Box::new(self.program());
        Ground { decider: (DECIDER, Some(INTERFACE)), machines: MACHINES, program }
    }

    /// What a part in the namespace of the machines prints.
    fn asked(&self, part: &str) -> String {
        let output = command(self.program()(false), part).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{part}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    fn status(&self, config: &Path) -> Status {
        let text = self.asked(&format!("status {}", config.display()));
        let at = text.find("{\"view\"").expect("a status");
        let line = text[at..].lines().next().expect("a line");
        serde_json::from_str(line).expect("a status")
    }
}

fn answered(status: &Status) -> u64 {
    let (interface, counters) = status.program.as_ref().expect("a program decides");
    assert_eq!(interface, INTERFACE);
    counters.iter().find(|(name, _)| name == "answered").expect("a counter").1
}

/// The parts of processes in the namespaces.
pub fn part(name: &str, words: &[&str]) -> bool {
    let read = || Config::read(words[0].as_ref()).expect("a configuration");
    match name {
        "pass" => {
            let mut program = pass().expect("it is loaded");
            program.attach(words[0]).expect("the interface takes it");
            std::thread::sleep(Duration::from_secs(600));
        }
        "status" => {
            let status = program::status(words[0].as_ref()).expect("the decider answers");
            println!("\n{}", serde_json::to_string(&status).expect("text"));
            println!("{}", program::status_text(&status));
        }
        "count" => {
            let counted = (0..9).find_map(|_| count(&read()));
            counted.expect("a run in which no packet was sent again");
        }
        "keep" => keep(&read()),
        _ => return false,
    }
    true
}

/// Lock packets that two machines have sent, without acknowledgements and repetitions, and the answers of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sent {
    packets: u64,
    answers: u64,
    acknowledgements: u64,
}

/// Two machines that count.
struct Count<'a> {
    config: &'a Config,
    machines: [LockClient; 2],
    last: Sent,
}

impl Count<'_> {
    fn now(&self) -> Sent {
        let counters = self.machines.each_ref().map(|it| it.status().counters);
        let acknowledgements = counters.iter().map(|it| it.acknowledgements_out).sum();
        let all: u64 = counters.iter().map(|it| it.packets_out).sum();
        let status = program::status(&self.config.file).expect("the decider answers");
        let (packets, answers) = (all - acknowledgements, answered(&status));
        Sent { packets, answers, acknowledgements }
    }

    /// Whether a packet was sent again, because the machine is busy.
    fn has_resent(&self) -> bool {
        self.machines.iter().any(|it| it.status().counters.resent > 0)
    }

    /// Waits until the sums have grown by exactly so much.
    fn grows_by(&mut self, (packets, answers, acknowledgements): (u64, u64, u64), of: &str) {
        let expected = Sent {
            packets: self.last.packets + packets,
            answers: self.last.answers + answers,
            acknowledgements: self.last.acknowledgements + acknowledgements,
        };
        let begun = Instant::now();
        while self.now() != expected && begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(30));
        self.last = self.now();
        assert!(
            self.last == expected || self.has_resent(),
            "{of}: {:?}, not {expected:?}",
            self.last
        );
    }
}

/// Counts the packets of the usual ways. `None`: a packet was sent again.
fn count(config: &Config) -> Option<()> {
    let machines = [(), ()].map(|()| LockClient::connect(config).expect("it joins"));
    let mut count =
        Count { config, machines, last: Sent { packets: 0, answers: 0, acknowledgements: 0 } };
    count.last = count.now();
    let [first, second] = count.machines.clone();
    let held = || program::status(&config.file).expect("the decider answers").held;
    let lock = LockId(7);
    let holder = first.acquire_blocking_for(lock, Mode::Exclusive, SOON).expect("it is free");
    count.grows_by((1, 1, 0), "a free lock: 2");
    assert_eq!(held(), 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| second.acquire_blocking_for(lock, Mode::Exclusive, SOON));
        count.grows_by((2, 1, 1), "a lock that is held: 3, and the copy's receipt");
        let token = holder.token();
        drop(holder);
        let next = waiter.join().expect("no panic").expect("it is granted");
        assert!(next.token() > token);
        count.grows_by((2, 1, 1), "a transfer: 3, and the agent's receipt");
        drop(next);
        count.grows_by((1, 1, 0), "the last release: 2");
    });
    assert_eq!(held(), 0);
    let one = first.acquire_blocking_for(lock, Mode::Shared, SOON).expect("it is free");
    count.grows_by((1, 1, 0), "a free lock: 2");
    let other = second.acquire_blocking_for(lock, Mode::Shared, SOON).expect("it is shared");
    count.grows_by((2, 1, 1), "shared beside shared: 3, and a receipt");
    drop((one, other));
    (!count.has_resent()).then_some(())
}

/// Holds locks while the decider is killed and started again, and looks for them in the new view's program.
fn keep(config: &Config) {
    let [one, two] = [(), ()].map(|()| LockClient::connect(config).expect("it joins"));
    let (lock, other) = (LockId(7), LockId(8));
    let exclusive = one.acquire_blocking_for(lock, Mode::Exclusive, SOON).expect("it is free");
    let shared = one.acquire_blocking_for(other, Mode::Shared, SOON).expect("it is free");
    let has_begun = |client: &LockClient| {
        let status = client.status();
        status.life.is_some_and(|(_, view)| view > exclusive.token().view) && !status.is_paused
    };
    let begun = Instant::now();
    while !has_begun(&one) || !has_begun(&two) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", two.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(exclusive.is_valid() && shared.is_valid(), "a holder that lives keeps its locks");
    assert_eq!(program::status(&config.file).expect("the decider answers").held, 2);
    drop(two.acquire_blocking_for(other, Mode::Shared, SOON).expect("it is shared"));
    for lock in [lock, other] {
        let busy = two.acquire_blocking_for(lock, Mode::Exclusive, Patience::Try);
        assert_eq!(busy.expect_err("it is held"), Refusal::Busy);
    }
    let token = exclusive.token();
    drop(exclusive);
    let next = two.acquire_blocking_for(lock, Mode::Exclusive, SOON).expect("it is granted");
    assert!(next.token() > token);
}

#[test]
fn holds_are_in_the_program_of_the_next_view() {
    let Some(network) = Network::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let more = "xdp = true\nlease_ms = 2000\n[clients]\nfirst = 1\nlast = 9\n";
    let config = write_config_at(folder.path(), DECIDER, more);
    let state = folder.path().join("state");
    let part = format!("decider {} {} {INTERFACE}", config.display(), state.display());
    let decider = || Process::of(command(network.program()(true), &part));
    let first = decider();
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| network.asked(&format!("keep {}", config.display())));
        // The decider answers as soon as it has its address.
        std::thread::sleep(Duration::from_millis(500));
        while network.status(&config).held < 2 && !keeper.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(first);
        let _second = decider();
        keeper.join().expect("it holds its locks");
    });
}

#[test]
fn a_driver_decides_for_machines_that_die() {
    let Some(network) = Network::new() else { return };
    let mut game = Game::start(network.ground(), MARGIN_BESIDE_OTHERS);
    game.wait_for_all();
    game.wait_for_writes(WRITES);
    let before = network.status(&game.config);
    assert!(answered(&before) > WRITES, "{before:?}");
    for victim in [Victim::Client, Victim::Decider] {
        let took = game.kill(victim);
        println!("{victim:?} killed: service back after {took:?}, the lease is {LEASE:?}");
        game.wait_for_writes(WRITES);
    }
    let after = network.status(&game.config);
    assert!(after.view > before.view, "{before:?} {after:?}");
    for status in [&before, &after] {
        // After a restart, questions of the old view reach the process before the new view begins.
        assert_eq!(status.counters.datagrams_out, 0, "the process has answered");
    }
    let (written, stale) = game.exact();
    println!(
        "{written} writes, {stale} refused by guards; {} answers since the restart",
        answered(&after)
    );
}

#[test]
fn messages_are_three_and_three() {
    let Some(network) = Network::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let config = write_config_at(
        folder.path(),
        DECIDER,
        "xdp = true\nlease_ms = 400\n[clients]\nfirst = 1\nlast = 9\n",
    );
    let part = format!(
        "decider {} {} {INTERFACE}",
        config.display(),
        folder.path().join("state").display()
    );
    let _decider = Process::of(command(network.program()(true), &part));
    network.asked(&format!("count {}", config.display()));
}

#[test]
fn an_interface_that_does_not_exist_is_refused() {
    if let Err(error) = pass() {
        return println!("skipped: the kernel loads no XDP program for this user: {error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config =
        write_config_at(folder.path(), "127.0.0.1", "xdp = true\n[clients]\nfirst = 1\nlast = 9\n");
    let (state, never) = (folder.path().join("state"), AtomicBool::new(false));
    let place = (None, Some("no-such-0"));
    let refused = program::decider(&config, (&state, true), place, &never, |_| {});
    let refused = refused.expect_err("there is no such interface");
    assert_eq!(refused.to_string(), "--xdp = no-such-0; allowed: an interface of this machine");
    assert!(matches!(refused, program::ProgramError::Usage(_)));
    assert!(!state.exists(), "a decider that cannot start begins no view");
}
