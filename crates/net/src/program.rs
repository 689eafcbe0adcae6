//! The commands of `tarn lock`, without their command line.
//!
//! Invariant: a value that the caller chose badly is [`ProgramError::Usage`], with its name, its value and the values that are allowed; a
//! failure of the system or of the service is [`ProgramError::Failed`].

use crate::authority::{self, AuthorityError};
use crate::config::{Config, ConfigError};
use crate::control::message::{Status, ToDecider, ToMachine};
use crate::control::stream::{Side, Stream};
use crate::decider::plane::Plane;
use crate::decider::{DeciderError, DeciderProcess};
use crate::lock::{ConnectError, LockClient, LockGuard, Options};
use crate::os::{self, MS_NS};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tarn_locks::service::{Patience, Refusal};
use tarn_locks::value::{LockId, Machine, Mode, View};

/// The variable in which a command finds its token.
pub const TOKEN_VARIABLE: &str = "TARN_LOCK_TOKEN";
/// How long a command that has lost its lock may take to end before it is killed.
const GRACE_NS: u64 = 1_000 * MS_NS;
/// A program that waits for another looks around so often.
const LOOK: Duration = Duration::from_millis(5);
/// The program's counter of questions that it answered.
const ANSWERED: &str = tarn_xdp::counters::Counter::Answered.name();
/// How long a decider may take to answer.
const ANSWER_NS: u64 = 2_000 * MS_NS;

/// The reason why a command has not done its work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramError {
    /// A value that the caller chose.
    Usage(String),
    /// The work failed.
    Failed(String),
}

impl std::fmt::Display for ProgramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ProgramError::Usage(text) | ProgramError::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for ProgramError {}

impl From<ConfigError> for ProgramError {
    fn from(error: ConfigError) -> ProgramError {
        ProgramError::Usage(error.to_string())
    }
}

impl From<AuthorityError> for ProgramError {
    fn from(error: AuthorityError) -> ProgramError {
        let text = error.to_string();
        if error.is_usage() { ProgramError::Usage(text) } else { ProgramError::Failed(text) }
    }
}

impl From<DeciderError> for ProgramError {
    fn from(error: DeciderError) -> ProgramError {
        let text = error.to_string();
        if error.is_usage() { ProgramError::Usage(text) } else { ProgramError::Failed(text) }
    }
}

impl From<ConnectError> for ProgramError {
    fn from(error: ConnectError) -> ProgramError {
        match &error {
            ConnectError::Refused { field, .. } if field == "machine" => {
                ProgramError::Usage(format!("--{error}"))
            }
            ConnectError::Refused { .. } => ProgramError::Usage(error.to_string()),
            ConnectError::Unavailable { .. } | ConnectError::Network(_) => {
                ProgramError::Failed(error.to_string())
            }
        }
    }
}

/// Runs a decider until `stop` is set. `tell` gets one line for each event. `interface`: its driver decides; `None`: this process.
///
/// # Errors
/// A bad choice, or a decider that has to stop.
pub fn decider(
    config: &Path,
    (state, is_new): (&Path, bool),
    (address, interface): (Option<SocketAddr>, Option<&str>),
    stop: &AtomicBool,
    mut tell: impl FnMut(String),
) -> Result<(), ProgramError> {
    let config = Config::read(config)?;
    let plane = |at| Plane::open(&config, at, interface);
    let mut process = DeciderProcess::open_with(&config, address, (state, is_new), plane)?;
    let (at, view, wait_ms) =
        (process.address(), process.view().0, config.lease_with_drift_ns() / MS_NS);
    tell(format!("decider at {at}, view {view}: waits up to {wait_ms} ms for machines"));
    Ok(process.run(stop, &mut tell)?)
}

/// Runs a machine of the configuration until `stop` is set. `tell` gets one line whenever its life or its view changes.
///
/// # Errors
/// A bad choice, or no decider.
pub fn agent(
    config: &Path,
    machine: u16,
    stop: &AtomicBool,
    mut tell: impl FnMut(String),
) -> Result<(), ProgramError> {
    let config = Config::read(config)?;
    let options = Options { machine: Some(Machine(machine)), ..Options::default() };
    let client = LockClient::connect_with(&config, options)?;
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let status = client.status();
        let life = status.life.map(|(machine, view)| (machine, view, status.is_paused));
        if last != Some(life) {
            last = Some(life);
            tell(match life {
                None => "no life: the lease has ended, and a new life is asked for".to_owned(),
                Some((machine, View(view), is_paused)) => {
                    let state = if is_paused { "waits for" } else { "serves in" };
                    format!(
                        "machine {} {state} view {view}; knows {} locks",
                        machine.0, status.locks
                    )
                }
            });
        }
        pause(Duration::from_millis(50));
    }
    client.close();
    Ok(())
}

/// What happens to a command whose lock is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnLoss {
    /// It gets SIGTERM, and SIGKILL if it has not ended a second later.
    Kill,
    /// One line on standard error.
    Warn,
}

/// A command that runs while a lock is held.
#[derive(Clone, Debug)]
pub struct Held {
    /// The lock.
    pub lock: LockId,
    /// How it is held.
    pub mode: Mode,
    /// How long to wait for a decider and the lock.
    pub patience: Patience,
    /// What happens if it is lost.
    pub on_loss: OnLoss,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Runs a command while a lock is held. Returns the command's exit code. `stop` ends the command; `tell` gets warnings.
///
/// # Errors
/// A bad choice, no lock, or a lock that was lost.
pub fn run(
    config: &Path,
    held: &Held,
    stop: &AtomicBool,
    tell: impl FnMut(String),
) -> Result<u8, ProgramError> {
    let config = Config::read(config)?;
    let Some((program, arguments)) = held.command.split_first() else {
        return Err(ProgramError::Usage("COMMAND = nothing; allowed: a command".to_owned()));
    };
    if held.lock.0 >= config.locks {
        let allowed = config.locks - 1;
        let text = format!("--lock = {}; allowed: 0 to {allowed}", held.lock.0);
        return Err(ProgramError::Usage(text));
    }
    let (client, patience) = join(&config, held.patience)?;
    let guard = client.acquire_blocking_for(held.lock, held.mode, patience);
    let guard = guard.map_err(|refusal| match refusal {
        Refusal::OutOfRange { .. } => ProgramError::Usage(format!("--lock: {refusal}")),
        _ => ProgramError::Failed(format!("lock {}: {refusal}", held.lock.0)),
    })?;
    let token = guard.token();
    let mut command = Command::new(program);
    command.args(arguments).env(TOKEN_VARIABLE, token.to_string());
    // SAFETY: between fork and exec the closure makes one system call without pointers.
    unsafe {
        command.pre_exec(|| {
            // A command must not go on without the program that keeps its lock.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let child = command.spawn().map_err(|error| {
        let program = program.to_string_lossy();
        ProgramError::Usage(format!(
            "COMMAND = {program}; allowed: a program that starts ({error})"
        ))
    })?;
    let (status, is_lost) = attend(child, &guard, held.on_loss, stop, tell)?;
    drop(guard);
    client.close();
    if is_lost && held.on_loss == OnLoss::Kill {
        let text = format!("lock {}: {}; the command was ended", held.lock.0, Refusal::LeaseEnded);
        return Err(ProgramError::Failed(text));
    }
    // Shells report a signal so.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(code as u8)
}

/// Joins the cluster within a patience. Returns the client, and what is left of the patience for the lock.
fn join(config: &Config, patience: Patience) -> Result<(LockClient, Patience), ProgramError> {
    let begun_ns = os::now_ns();
    let wait = match patience {
        Patience::Forever => None,
        Patience::Nanos(ns) => Some(Duration::from_nanos(ns)),
        Patience::Try => {
            // A decider that answers is not waited for, but it may take as long as any answer.
            ask(config, &ToDecider::Status)?;
            Some(Duration::from_nanos(ANSWER_NS))
        }
    };
    let client = LockClient::connect_with(config, Options { wait, ..Options::default() })?;
    let left = match patience {
        Patience::Nanos(ns) => match ns.saturating_sub(os::now_ns() - begun_ns) {
            0 => Patience::Try,
            left_ns => Patience::Nanos(left_ns),
        },
        other => other,
    };
    Ok((client, left))
}

/// Waits for a command. Returns its status, and whether the lock was lost before its end.
fn attend(
    mut child: Child,
    guard: &LockGuard,
    on_loss: OnLoss,
    stop: &AtomicBool,
    mut tell: impl FnMut(String),
) -> Result<(ExitStatus, bool), ProgramError> {
    let (mut is_lost, mut kill_at_ns) = (false, None);
    let end = |child: &Child| {
        os::signal(child, libc::SIGTERM);
        Some(os::now_ns() + GRACE_NS)
    };
    loop {
        let ended = child.try_wait().map_err(|error| ProgramError::Failed(error.to_string()))?;
        if let Some(status) = ended {
            return Ok((status, is_lost));
        }
        if !is_lost && !guard.is_valid() {
            is_lost = true;
            tell(format!("lock {}: {}", guard.lock().0, Refusal::LeaseEnded));
            if on_loss == OnLoss::Kill {
                kill_at_ns = end(&child);
            }
        }
        if kill_at_ns.is_none() && stop.load(Ordering::Relaxed) {
            kill_at_ns = end(&child);
        }
        if kill_at_ns.is_some_and(|at_ns| os::now_ns() >= at_ns) {
            os::signal(&child, libc::SIGKILL);
        }
        pause(LOOK);
    }
}

#[expect(clippy::disallowed_methods, reason = "a program that waits for another")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Asks the deciders of a configuration, one after the other.
///
/// # Errors
/// None of them answers.
pub fn ask(config: &Config, question: &ToDecider) -> Result<ToMachine, ProgramError> {
    for at in &config.deciders {
        if let Some(answer) = ask_one(config, *at, question) {
            return Ok(answer);
        }
    }
    let deciders: Vec<_> = config.deciders.iter().map(ToString::to_string).collect();
    let text = format!("no decider at {} answers, or none has this secret", deciders.join(", "));
    Err(ProgramError::Failed(text))
}

fn ask_one(config: &Config, at: SocketAddr, question: &ToDecider) -> Option<ToMachine> {
    let until_ns = os::now_ns() + ANSWER_NS;
    let mut stream = Stream::new(os::connect(at).ok()?, Side::Machine, config.key).ok()?;
    stream.send(question).ok()?;
    let mut answers = Vec::new();
    while answers.is_empty() {
        let left_ns = until_ns.saturating_sub(os::now_ns());
        if left_ns == 0 {
            return None;
        }
        os::poll(&mut [os::interest(stream.fd(), true, stream.has_output())], left_ns);
        stream.write().ok()?;
        stream.read(&mut answers).ok()?;
    }
    answers.pop()
}

/// The state of the decider.
///
/// # Errors
/// A bad configuration, or no decider.
pub fn status(config: &Path) -> Result<Status, ProgramError> {
    match ask(&Config::read(config)?, &ToDecider::Status)? {
        ToMachine::Status(status) => Ok(*status),
        _ => {
            Err(ProgramError::Failed("the decider gives another answer than its state".to_owned()))
        }
    }
}

/// The state of the decider as lines for people.
#[must_use]
pub fn status_text(status: &Status) -> String {
    let state = if status.is_serving { "serves" } else { "waits for machines" };
    let mut text = format!(
        "view {}: {state}; {} of {} locks are held; {} machines, {} join\n",
        status.view,
        status.held,
        status.locks,
        status.members.len(),
        status.joining
    );
    _ = writeln!(
        text,
        "views since the start: {}; the last one began in {} ms",
        status.views, status.recovery_ms
    );
    for (machine, address, lease_ms) in &status.members {
        _ = writeln!(text, "machine {machine} at {address}: {lease_ms} ms of lease left");
    }
    for (name, count) in status.counters.named().into_iter().filter(|(_, count)| *count > 0) {
        _ = writeln!(text, "{name}: {count}");
    }
    if let Some((interface, counters)) = &status.program {
        let (answered, refused): (Vec<_>, Vec<_>) =
            counters.iter().partition(|(name, _)| name == ANSWERED);
        let answers: u64 = answered.iter().map(|(_, count)| count).sum();
        let refusals: u64 = refused.iter().map(|(_, count)| count).sum();
        _ = writeln!(text, "the driver of {interface}: {answers} answers, {refusals} refusals");
        for (name, count) in refused.into_iter().filter(|(_, count)| *count > 0) {
            _ = writeln!(text, "refused by the driver, {name}: {count}");
        }
    }
    text
}

/// Begins a new view: through the decider of a configuration, or in a state folder whose decider does not answer.
///
/// # Errors
/// A bad choice, or no decider.
pub fn recover(config: Option<&Path>, state: Option<&Path>) -> Result<String, ProgramError> {
    if let Some(state) = state {
        let view = authority::depose(state)?;
        return Ok(format!(
            "view {} is durable in {}: a decider of an earlier view stops when it goes on; start a decider\n",
            view.0,
            state.display()
        ));
    }
    let Some(config) = config else {
        let text = "--config = nothing; allowed: a configuration, or --state with a folder";
        return Err(ProgramError::Usage(text.to_owned()));
    };
    match ask(&Config::read(config)?, &ToDecider::Raise)? {
        ToMachine::Raised { view } => Ok(format!("view {view} is durable, and begins\n")),
        _ => Err(ProgramError::Failed("the decider gives another answer than a view".to_owned())),
    }
}
