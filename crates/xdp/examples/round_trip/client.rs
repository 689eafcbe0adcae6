//! The client's namespace: acquires and echoes in turns, one at a time, spinning.
//!
//! Invariant: an acquire is timed from its fields to the opened and checked answer, seals on both sides
//! included; an echo is timed from the send to the receipt. A datagram without an answer within [`PATIENCE`]
//! is a failure: nothing loses datagrams here.

use crate::setting::{CONFIG, PAIRS};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use tarn_locks::host::Incoming;
use tarn_locks::packet::{Answer, Ask, LaneId, Question, Verdict, Waiter};
use tarn_locks::value::{LockId, Machine, Mode, RequestId, Thread, View};
use tarn_locks::wire::{self, Datagram, Item};
use tarn_xdp::kernel::{Kind, Program};
use tarn_xdp::namespaces::{CLIENT, SERVER};

const ROUNDS: usize = 40;
const TRIPS: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(2);
/// Lock packets of a large datagram.
const BATCH: u32 = 16;
const HERE: Machine = Machine(1);
const BYTES: usize = 2_048;

struct Lane {
    socket: UdpSocket,
    view: View,
    number: u32,
    datagram: Datagram,
    buffer: [u8; BYTES],
}

/// Sends, and spins until a datagram comes.
fn trip(socket: &UdpSocket, bytes: &[u8], buffer: &mut [u8; BYTES]) -> Result<usize, String> {
    let began = Instant::now();
    socket.send(bytes).map_err(|error| format!("send: {error}"))?;
    loop {
        match socket.recv(buffer) {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(format!("receive: {error}")),
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("no answer to {} bytes within {PATIENCE:?}", bytes.len()));
        }
    }
}

impl Lane {
    fn new() -> Result<Lane, String> {
        let datagram = Datagram::new(CONFIG.view, HERE, Machine(0));
        let (view, socket) = (CONFIG.view, socket(0)?);
        Ok(Lane { socket, view, number: 0, datagram, buffer: [0; BYTES] })
    }

    /// Asks about locks in one datagram; `answers` takes the answers.
    fn ask(
        &mut self,
        asks: impl Iterator<Item = (LockId, Ask)>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String> {
        self.datagram.begin(self.view, HERE, Machine(0));
        let lane = LaneId { machine: HERE, thread: Thread(0) };
        for (lock, ask) in asks {
            self.number += 1;
            let number = self.number;
            self.datagram.question(&Question { view: self.view, lane, number, lock, ask });
        }
        let bytes = trip(&self.socket, self.datagram.seal(&CONFIG.key), &mut self.buffer)?;
        answers.clear();
        let take = &mut |_, item| {
            if let Item::Incoming(Incoming::Reply(reply)) = item {
                answers.push(reply.answer);
            }
        };
        wire::open(&self.buffer[..bytes], (HERE, &CONFIG.key), take)
            .map_err(|error| format!("an answer is {}", error.name()))?;
        Ok(())
    }

    /// Acquires `many` locks in one datagram and returns the time; then frees them, untimed.
    fn acquire(&mut self, many: u32, answers: &mut Vec<Answer>) -> Result<Duration, String> {
        let first = self.number % (CONFIG.locks - many);
        let began = Instant::now();
        let base = self.number;
        let acquire = |at| {
            let request = RequestId { machine: HERE, thread: Thread(0), seq: base + at + 1 };
            let waiter = Waiter { request, mode: Mode::Exclusive };
            (LockId(first + at), Ask::Acquire { waiter, bars_readers: false })
        };
        self.ask((0..many).map(acquire), answers)?;
        let is_granted = answers.iter().all(|answer| answer.verdict == Verdict::Granted);
        let took = began.elapsed();
        if !is_granted || answers.len() != many as usize {
            return Err(format!("not granted: {answers:?}"));
        }
        let counts: Vec<u64> = answers.iter().map(|answer| answer.number).collect();
        let free =
            |(at, count): (usize, &u64)| (LockId(first + at as u32), Ask::Free { count: *count });
        self.ask(counts.iter().enumerate().map(free), answers)?;
        match answers.iter().all(|answer| answer.verdict == Verdict::Done) {
            true => Ok(took),
            false => Err(format!("not freed: {answers:?}")),
        }
    }
}

fn socket(pair: usize) -> Result<UdpSocket, String> {
    let network = PAIRS[pair].1;
    let socket = UdpSocket::bind(format!("{network}.{CLIENT}:0"));
    let socket = socket.map_err(|error| format!("bind: {error}"))?;
    let connect = socket.connect(format!("{network}.{SERVER}:{}", CONFIG.port));
    connect.map_err(|error| format!("connect: {error}"))?;
    socket.set_nonblocking(true).map_err(|error| format!("socket: {error}"))?;
    Ok(socket)
}

/// Times of one kind of trip.
struct Times(&'static str, Vec<Duration>);

impl Times {
    fn percentile(&self, percent: usize) -> f64 {
        let at = (self.1.len() * percent / 100).min(self.1.len() - 1);
        self.1[at].as_secs_f64() * 1e6
    }

    fn print(&self) {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| self.percentile(percent));
        println!("  {:34} p50 {p50:6.2}   p90 {p90:6.2}   p99 {p99:6.2}", self.0);
    }
}

pub(crate) fn run() -> Result<(), String> {
    let mut programs = Vec::new();
    for (name, _) in PAIRS {
        let mut program = Program::load(Kind::Pass, &CONFIG, &[]).map_err(|it| it.to_string())?;
        program.attach(name).map_err(|error| format!("client: {error}"))?;
        programs.push(program);
    }
    let mut lane = Lane::new()?;
    let echo = socket(1)?;
    let mut buffer = [0; BYTES];
    let (mut small, mut large) = (Vec::new(), Vec::new());
    let (mut one, mut many, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    let small_bytes = [0; wire::HEADER_BYTES + wire::PACKET_BYTES];
    let large_bytes = [0; wire::HEADER_BYTES + BATCH as usize * wire::PACKET_BYTES];
    for round in 0..ROUNDS {
        for _ in 0..TRIPS {
            one.push(lane.acquire(1, &mut answers)?);
        }
        for (bytes, times) in [(&small_bytes[..], &mut small), (&large_bytes[..], &mut large)] {
            for _ in 0..TRIPS {
                let began = Instant::now();
                trip(&echo, bytes, &mut buffer)?;
                times.push(began.elapsed());
                // The acquire has a second trip too, its free.
                trip(&echo, bytes, &mut buffer)?;
            }
        }
        for _ in 0..TRIPS {
            many.push(lane.acquire(BATCH, &mut answers)?);
        }
        if round == 0 {
            // The first round warms up.
            [&mut one, &mut small, &mut large, &mut many].into_iter().for_each(Vec::clear);
        }
    }
    report([("one acquire", one), ("bare echo of its size", small)], 1);
    report([("16 acquires in one datagram", many), ("bare echo of its size", large)], BATCH);
    println!("  program's counters: {}", wish("counters")?);
    next_view(&mut lane, &mut answers)
}

fn wish(text: &str) -> Result<String, String> {
    println!("!{text}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| error.to_string())?;
    Ok(line.trim().to_owned())
}

fn report(pair: [(&'static str, Vec<Duration>); 2], many: u32) {
    if many == 1 {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo");
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name\t: "));
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let kernel = read("/proc/sys/kernel/osrelease");
        println!(
            "two network namespaces, veth, XDP in the driver; one client that spins, one datagram at a time\n\
             {cores} cores of {}, Linux {}; {} trips of each kind, in turns of {TRIPS}; microseconds",
            processor.unwrap_or("an unknown processor"),
            kernel.trim(),
            (ROUNDS - 1) * TRIPS,
        );
    }
    let [acquire, echo] = pair.map(|(name, mut times)| {
        times.sort_unstable();
        let times = Times(name, times);
        times.print();
        times.percentile(50)
    });
    println!("  ratio of the p50: {:.2}", acquire / echo);
}

/// A new view takes the place of the old one: old questions have no answer, new ones do.
fn next_view(lane: &mut Lane, answers: &mut Vec<Answer>) -> Result<(), String> {
    if wish("next view")? != "ok" {
        return Err("the server did not raise the view".to_owned());
    }
    lane.number = 0;
    let old = lane.acquire(1, answers);
    if old.is_ok() {
        return Err("the old view was answered".to_owned());
    }
    lane.view = lane.view.next();
    lane.number = 0;
    lane.acquire(1, answers)?;
    println!("  a new view replaced the program: the old view had no answer, the new one granted");
    Ok(())
}
