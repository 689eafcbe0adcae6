//! Real processes that are killed and stopped while clients of all of them use guarded resources.
//!
//! Invariant: the resources are in the test's own process, which nothing kills. A holder reads a counter, waits, and writes the next number:
//! two writers that both pass the guard leave the same number twice. Its socket is a file, which every network namespace reaches. The parts of a cluster are this very program, started again with an
//! argument that names a test and a variable that says which part to play.

use super::common::{free_port, write_config, write_config_at};
use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tarn_locks::guard::Guard;
use tarn_locks::service::Patience;
use tarn_locks::value::{LockId, Machine, Mode, Token, View};
use tarn_net::config::Config;
use tarn_net::lock::{LockClient, Options};
use tarn_net::program;

const PART: &str = "TARN_NET_PART";
pub const LEASE: Duration = Duration::from_millis(400);
/// Service has to be back after a lease and this time. The long test asks for it, on a machine without other work.
const MARGIN: Duration = Duration::from_millis(500);
/// The same on a machine that runs other tests: only a service that stays away is noticed.
pub const MARGIN_BESIDE_OTHERS: Duration = Duration::from_secs(15);
const LOCKS: u32 = 3;
const AGENT: u16 = 200;

/// A request to the resource: what to do, the lock, the token, the counter's new value, and whether the guard was valid before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Request {
    kind: u64,
    lock: u32,
    token: Token,
    count: u64,
    number: u64,
    player: u64,
}

/// A read by an exclusive holder that will write.
const OPEN: u64 = 1;
/// A write of the next number.
const WRITE: u64 = 2;
/// A read by a shared holder.
const READ: u64 = 3;
/// The guard is valid, although the resource has refused its token.
const REFUSED_THOUGH_VALID: u64 = 4;

impl Request {
    fn bytes(self) -> [u8; 64] {
        let words = [
            self.kind,
            u64::from(self.lock),
            u64::from(self.token.view.0),
            self.token.order,
            self.count,
            self.number,
            self.player,
            0,
        ];
        let mut bytes = [0; 64];
        for (at, word) in words.iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8; 64]) -> Request {
        let word = |at: usize| {
            u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"))
        };
        let token = Token { view: View(word(2) as u32), order: word(3) };
        Request {
            kind: word(0),
            lock: word(1) as u32,
            token,
            count: word(4),
            number: word(5),
            player: word(6),
        }
    }
}

#[derive(Default)]
struct Resource {
    guard: Guard,
    count: u64,
    last: Option<(Token, u64)>,
    written: u64,
    stale: u64,
}

#[derive(Default)]
struct Resources {
    locks: HashMap<u32, Resource>,
    /// The last time at which each player used each lock.
    used: HashMap<(u64, u32), Instant>,
    faults: Vec<String>,
}

impl Resources {
    /// Returns whether the token passes, and the counter.
    fn serve(&mut self, it: Request) -> (bool, u64) {
        let resource = self.locks.entry(it.lock).or_default();
        let passes = match it.kind {
            OPEN => resource.guard.writes(it.token),
            READ => resource.guard.reads(it.token),
            WRITE if resource.last == Some((it.token, it.count)) => true,
            WRITE => {
                let passes = resource.guard.writes(it.token);
                if passes && it.count != resource.count + 1 {
                    self.faults
                        .push(format!("{it:?} after {} at {:?}", resource.count, resource.last));
                }
                if passes && resource.last.is_some_and(|(token, _)| token > it.token) {
                    self.faults.push(format!("{it:?} after the token {:?}", resource.last));
                }
                if passes {
                    (resource.count, resource.last) = (it.count, Some((it.token, it.count)));
                    resource.written += 1;
                }
                passes
            }
            REFUSED_THOUGH_VALID => {
                self.faults.push(format!("{it:?} was refused: {:?}", resource.guard));
                false
            }
            _ => false,
        };
        resource.stale += u64::from(!passes);
        if passes {
            self.used.insert((it.player, it.lock), Instant::now());
        }
        (passes, resource.count)
    }
}

/// The resources, behind a socket.
struct Server {
    at: PathBuf,
    resources: Arc<Mutex<Resources>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let at = folder.join("resources");
        let socket = UnixDatagram::bind(&at).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
        let resources = Arc::new(Mutex::new(Resources::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, seen) = (Arc::clone(&resources), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut bytes = [0; 64];
            while !seen.load(Ordering::Relaxed) {
                let Ok((64, from)) = socket.recv_from(&mut bytes) else { continue };
                let request = Request::of(&bytes);
                let (passes, count) = shared.lock().expect("no panic").serve(request);
                let answer = Request { kind: u64::from(passes), count, ..request };
                _ = from.as_pathname().map(|from| socket.send_to(&answer.bytes(), from));
            }
        });
        Server { at, resources, stop }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A player's way to the resources.
struct Wire {
    socket: UnixDatagram,
    player: u64,
    number: u64,
}

impl Wire {
    fn ask(&mut self, kind: u64, lock: u32, token: Token, count: u64) -> (bool, u64) {
        self.number += 1;
        let request =
            Request { kind, lock, token, count, number: self.number, player: self.player };
        loop {
            _ = self.socket.send(&request.bytes());
            let mut bytes = [0; 64];
            while let Ok(64) = self.socket.recv(&mut bytes) {
                let answer = Request::of(&bytes);
                if answer.number == self.number {
                    return (answer.kind == 1, answer.count);
                }
            }
        }
    }
}

/// The entry of the processes that the tests start. Without its variable it does nothing.
#[test]
#[ignore = "the tests start it in processes of its own"]
fn part() {
    let Ok(text) = std::env::var(PART) else { return };
    let words: Vec<&str> = text.split_whitespace().collect();
    let config = PathBuf::from(words[1]);
    match words[0] {
        "decider" => {
            let state = PathBuf::from(words[2]);
            let never = AtomicBool::new(false);
            let is_new = !state.exists();
            let at = words.get(3).and_then(|at| at.parse().ok());
            let interface = words.get(3).filter(|_| at.is_none()).copied();
            let tell = |line| println!("{line}");
            let ended = program::decider(&config, (&state, is_new), (at, interface), &never, tell);
            // The parent reads the exit code: 3 says that another decider has taken over.
            let error = ended.expect_err("it is never told to stop").to_string();
            let is_deposed = error.contains("another decider has taken over");
            eprintln!("{error}");
            std::process::exit(if is_deposed { 3 } else { 1 });
        }
        "idle" => {
            let client = LockClient::connect(&Config::read(&config).expect("a configuration"));
            let client = client.expect("it joins");
            drop(client.acquire_blocking(LockId(1), Mode::Exclusive));
            std::thread::sleep(Duration::from_secs(60));
        }
        "client" => play(&config, None, words[2], words[3].parse().expect("a player")),
        "agent" => {
            let machine = Some(Machine(AGENT));
            play(&config, machine, words[2], words[3].parse().expect("a player"));
        }
        #[cfg(feature = "xdp")]
        part if super::xdp::part(part, &words[1..]) => {}
        other => panic!("no part {other}"),
    }
}

/// Uses the resources for ever. The configured machine holds shared locks for longer, so that agents are with it.
fn play(config: &Path, machine: Option<Machine>, server: &str, player: u64) {
    let config = Config::read(config).expect("a configuration");
    let options = Options { machine, wait: Some(Duration::from_secs(60)), ..Options::default() };
    let client = LockClient::connect_with(&config, options).expect("it joins");
    let own = format!("{server}.{player}.{}", std::process::id());
    let socket = UnixDatagram::bind(own).expect("a socket");
    socket.connect(server).expect("the server");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a time-out");
    let mut wire = Wire { socket, player, number: 0 };
    let mut random = player.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    loop {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let lock = (random % u64::from(LOCKS)) as u32;
        let is_shared = random >> 20 & 1 == 0;
        let mode = if is_shared { Mode::Shared } else { Mode::Exclusive };
        let patience = Patience::Nanos(100_000_000 + random % 100_000_000);
        let Ok(guard) = client.acquire_blocking_for(LockId(lock), mode, patience) else { continue };
        let token = guard.token();
        let was_valid = guard.is_valid();
        let (passes, count) = wire.ask(if is_shared { READ } else { OPEN }, lock, token, 0);
        let hold_us = if machine.is_some() && is_shared { 5_000 } else { random >> 40 & 0x3ff };
        if !passes {
            if was_valid && guard.is_valid() {
                wire.ask(REFUSED_THOUGH_VALID, lock, token, 0);
            }
            continue;
        }
        std::thread::sleep(Duration::from_micros(hold_us));
        if !is_shared {
            wire.ask(WRITE, lock, token, count + 1);
        }
        drop(guard);
    }
}

/// A process of the cluster.
pub struct Process {
    child: Child,
}

/// The command that plays a part.
pub fn command(mut program: Command, part: &str) -> Command {
    program.args(["processes::part", "--exact", "--ignored", "--nocapture"]).env(PART, part);
    program
}

impl Process {
    fn start(part: &str) -> Process {
        let program = std::env::current_exe().expect("this program");
        Process::of(command(Command::new(program), part))
    }

    pub fn of(mut command: Command) -> Process {
        Process { child: command.stdout(Stdio::null()).spawn().expect("it starts") }
    }

    /// Processor time so far.
    fn cpu(&self) -> Duration {
        let mut total = 0;
        let tasks = format!("/proc/{}/task", self.child.id());
        for task in std::fs::read_dir(tasks).expect("its threads").flatten() {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            total += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Duration::from_nanos(total)
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// The memory that it has now.
    pub fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let text = text.expect("its state");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number") << 10
    }

    fn signal(&self, signal: i32) {
        tarn_net::os::signal(&self.child, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The network of a cluster.
pub struct Ground {
    /// The address of the decider, and the interface whose driver decides.
    pub decider: (&'static str, Option<&'static str>),
    /// The address of the machines.
    pub machines: &'static str,
    /// A program on the decider's side, or on the side of the machines.
    pub program: Box<dyn Fn(bool) -> Command>,
}

impl Ground {
    pub fn loopback() -> Ground {
        let own = |_| Command::new(std::env::current_exe().expect("this program"));
        let at = "127.0.0.1";
        Ground { decider: (at, None), machines: at, program: Box::new(own) }
    }
}

/// A cluster of processes.
pub struct Game {
    ground: Ground,
    server: Server,
    pub config: PathBuf,
    decider: Process,
    agent: (u64, Process),
    clients: Vec<(u64, Process)>,
    players: u64,
    margin: Duration,
    /// Removed when all processes have ended.
    folder: tempfile::TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    Decider,
    Agent,
    Client,
    /// The decider and the agent's machine at once.
    Both,
}

impl Game {
    pub fn start(ground: Ground, margin: Duration) -> Game {
        let folder = tempfile::tempdir().expect("a folder");
        let (at, interface) = ground.decider;
        let more = format!(
            "standby = [\"{at}:{}\"]\nxdp = {}\nlease_ms = {}\n[clients]\nfirst = 1\nlast = 20\n[[machines]]\nid = {AGENT}\naddress = \"{}:{}\"\n",
            free_port(),
            interface.is_some(),
            LEASE.as_millis(),
            ground.machines,
            free_port()
        );
        let config = write_config_at(folder.path(), at, &more);
        let server = Server::start(folder.path());
        let decider = Game::decider(&ground, &config, folder.path());
        let player =
            |part, player| (player, Game::player((&ground, part), &config, &server, player));
        let (agent, clients) = (player("agent", 1), [2, 3].map(|it| player("client", it)));
        let clients = clients.into();
        Game { ground, server, folder, config, decider, agent, clients, players: 3, margin }
    }

    pub fn decider(ground: &Ground, config: &Path, folder: &Path) -> Process {
        let (config, state) = (config.display(), folder.join("state"));
        let interface = ground.decider.1.unwrap_or_default();
        let part = format!("decider {config} {} {interface}", state.display());
        Process::of(command((ground.program)(true), &part))
    }

    fn player(
        (ground, part): (&Ground, &str),
        config: &Path,
        server: &Server,
        player: u64,
    ) -> Process {
        let part = format!("{part} {} {} {player}", config.display(), server.at.display());
        Process::of(command((ground.program)(false), &part))
    }

    /// Waits until each lock has been used since `since` by a player other than `but`. Returns how long that took.
    fn wait_for_service(&self, since: Instant, but: Option<u64>, within: Duration) -> Duration {
        loop {
            let resources = self.server.resources.lock().expect("no panic");
            let is_used = |lock: u32| {
                let later = |((player, of), at): (&(u64, u32), &Instant)| {
                    *of == lock && Some(*player) != but && *at > since
                };
                resources.used.iter().any(later)
            };
            let is_back = (0..LOCKS).all(is_used);
            assert_eq!(resources.faults, Vec::<String>::new());
            drop(resources);
            if is_back {
                return since.elapsed();
            }
            assert!(since.elapsed() < within, "no service within {within:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until a player has used a lock.
    fn wait_for_player(&self, player: u64, since: Instant, within: Duration) -> Duration {
        loop {
            let resources = self.server.resources.lock().expect("no panic");
            let has_used = |((of, _), at): (&(u64, u32), &Instant)| *of == player && *at > since;
            let is_back = resources.used.iter().any(has_used);
            drop(resources);
            if is_back {
                return since.elapsed();
            }
            assert!(since.elapsed() < within, "player {player} is not back within {within:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until each lock and each player has had its turn.
    pub fn wait_for_all(&self) {
        let (begun, within) = (Instant::now(), Duration::from_secs(20));
        self.wait_for_service(begun, None, within);
        for player in 1..=self.players {
            self.wait_for_player(player, begun, within);
        }
    }

    /// Waits for so many writes more.
    #[cfg(feature = "xdp")]
    pub fn wait_for_writes(&self, more: u64) {
        let (begun, before) = (Instant::now(), self.exact().0);
        while self.exact().0 < before + more {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", self.exact());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Checks the guarded counters. Returns the writes, and the uses that guards have refused.
    pub fn exact(&self) -> (u64, u64) {
        let resources = self.server.resources.lock().expect("no panic");
        assert_eq!(resources.faults, Vec::<String>::new());
        let sum = |of: fn(&Resource) -> u64| resources.locks.values().map(of).sum::<u64>();
        assert_eq!(sum(|it| it.written), sum(|it| it.count), "guarded counters");
        (sum(|it| it.written), sum(|it| it.stale))
    }

    /// Kills a process, and starts another one for it. Returns how long the others were without service.
    pub fn kill(&mut self, victim: Victim) -> Duration {
        let begun = Instant::now();
        match victim {
            Victim::Decider => {
                self.decider.signal(libc::SIGKILL);
                _ = self.decider.child.wait();
                let begun = Instant::now();
                self.decider = Game::decider(&self.ground, &self.config, self.folder.path());
                self.wait_for_service(begun, None, LEASE + self.margin)
            }
            Victim::Both => {
                self.agent.1.signal(libc::SIGKILL);
                self.kill(Victim::Decider);
                self.kill(Victim::Agent)
            }
            Victim::Agent | Victim::Client => {
                let (part, (player, process)) = match victim {
                    Victim::Agent => ("agent", &mut self.agent),
                    _ => ("client", &mut self.clients[0]),
                };
                process.signal(libc::SIGKILL);
                _ = process.child.wait();
                self.players += 1;
                let dead = std::mem::replace(player, self.players);
                let part = (&self.ground, part);
                *process = Game::player(part, &self.config, &self.server, self.players);
                // The first uses after the death may have been granted before it.
                let took = self.wait_for_service(begun, Some(dead), LEASE + self.margin);
                self.wait_for_player(self.players, begun, 3 * (LEASE + self.margin));
                took
            }
        }
    }

    /// Stops a process for some time. Returns how long the others were without service.
    fn stop(&mut self, victim: Victim, time: Duration) -> Duration {
        let begun = Instant::now();
        let (player, process) = match victim {
            Victim::Decider | Victim::Both => (None, &self.decider),
            Victim::Agent => (Some(self.agent.0), &self.agent.1),
            Victim::Client => (Some(self.clients[0].0), &self.clients[0].1),
        };
        process.signal(libc::SIGSTOP);
        match player {
            None => {
                std::thread::sleep(time);
                process.signal(libc::SIGCONT);
                self.wait_for_service(Instant::now(), None, LEASE + self.margin)
            }
            Some(player) => {
                let took = self.wait_for_service(begun, Some(player), LEASE + self.margin);
                std::thread::sleep(time.saturating_sub(begun.elapsed()));
                process.signal(libc::SIGCONT);
                self.wait_for_player(player, Instant::now(), LEASE + self.margin);
                took
            }
        }
    }
}

fn rounds(victim: Victim, kills: bool, (rounds, margin): (u32, Duration)) {
    let mut game = Game::start(Ground::loopback(), margin);
    game.wait_for_all();
    let mut took = Vec::new();
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(u64::from(37 * round % 100)));
        // Shorter and longer than a lease.
        let time = LEASE * (1 + round % 3) * 2 / 3;
        took.push(if kills { game.kill(victim) } else { game.stop(victim, time) });
    }
    let (written, stale) = game.exact();
    assert!(written > 0);
    took.sort_unstable();
    println!(
        "{victim:?}, {}: {rounds} rounds, service back after {:?} at most and {:?} at the median; {written} writes, {stale} refused by guards",
        if kills { "killed" } else { "stopped" },
        took[took.len() - 1],
        took[took.len() / 2]
    );
}

/// Rounds in ordinary runs, and in the long test.
const FEW: (u32, Duration) = (2, MARGIN_BESIDE_OTHERS);
const MANY: (u32, Duration) = (20, MARGIN);

#[test]
fn deaths_leave_counters_exact() {
    for victim in [Victim::Decider, Victim::Agent, Victim::Client, Victim::Both] {
        rounds(victim, true, FEW);
    }
}

#[test]
fn stops_leave_counters_exact() {
    for victim in [Victim::Decider, Victim::Agent, Victim::Client] {
        rounds(victim, false, FEW);
    }
}

/// A decider is stopped while another one takes over at another address. When it goes on, it is ignored, and ends.
#[test]
fn a_deposed_decider_is_ignored_and_ends() {
    let mut game = Game::start(Ground::loopback(), MARGIN_BESIDE_OTHERS);
    game.wait_for_service(Instant::now(), None, Duration::from_secs(20));
    let config = Config::read(&game.config).expect("a configuration");
    let state = game.folder.path().join("state");
    game.decider.signal(libc::SIGSTOP);
    program::recover(None, Some(&state)).expect("the folder is taken");
    let begun = Instant::now();
    let part =
        format!("decider {} {} {}", game.config.display(), state.display(), config.deciders[1]);
    let second = Process::start(&part);
    // Machines notice after half a lease that the first decider is silent.
    game.wait_for_service(begun, None, LEASE * 3 / 2 + game.margin);
    let mut first = std::mem::replace(&mut game.decider, second);
    first.signal(libc::SIGCONT);
    let begun = Instant::now();
    let status = first.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(3), "after {:?}", begun.elapsed());
    game.wait_for_service(Instant::now(), None, LEASE + game.margin);
}

#[test]
fn idle_processes_use_less_than_one_hundredth_of_a_processor() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write_config(folder.path(), "[clients]\nfirst = 1\nlast = 2\n");
    let decider = Game::decider(&Ground::loopback(), &config, folder.path());
    let client = Process::start(&format!("idle {}", config.display()));
    let begun = Instant::now();
    while !program::status(&config).is_ok_and(|status| status.members.len() == 1) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the client does not join");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let time = Duration::from_secs(3);
    let before = [&decider, &client].map(Process::cpu);
    std::thread::sleep(time);
    for (process, before) in [&decider, &client].into_iter().zip(before) {
        let used = process.cpu() - before;
        println!("{used:?} of {time:?}");
        assert!(used < time / 100, "{used:?} of {time:?}");
    }
}

#[test]
#[ignore = "minutes"]
fn twenty_rounds_of_each() {
    for victim in [Victim::Decider, Victim::Agent, Victim::Client] {
        for kills in [true, false] {
            rounds(victim, kills, MANY);
        }
    }
    rounds(Victim::Both, true, MANY);
}
