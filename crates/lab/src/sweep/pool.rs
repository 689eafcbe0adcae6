//! Runs the points of a sweep at the same time. Each point is a new process of this program with the point's
//! arguments.
//!
//! Invariant: the report of a point is read from the process's standard output, and the pool never changes it. A
//! point starts only when fewer than `jobs` points run. The machine must also have enough memory for the new point
//! and for the further growth of the running points. If no point runs, the next point starts in any case. When a
//! point fails, or the caller stops the pool, the pool ends the processes of all running points and waits for their
//! end. The error names these points.

use super::Point;
use crate::machine;
use serde_json::Value;
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The largest number of points that run at the same time.
pub const JOBS_MAX: usize = 256;
/// The time between two checks of the running points by the pool.
const TURN: Duration = Duration::from_millis(5);

/// A pool starts the processes of points.
#[derive(Clone, Debug)]
pub struct Pool {
    program: PathBuf,
    jobs: usize,
}

/// The result of a point's process.
#[derive(Clone, PartialEq, Debug)]
pub struct Done {
    /// The JSON object that the point's process printed.
    pub report: Value,
    /// Whether the process reported, by its exit code, that all of its checks passed.
    pub passed: bool,
    /// The time that the process took on this machine.
    pub seconds: f64,
}

/// A watch receives the progress of a pool.
pub trait Watch {
    /// A point's process starts.
    fn begins(&self, point: &Point);
    /// A point has ended; `finished` of all `of` points have ended by now.
    fn ended(&self, point: &Point, done: &Done, finished: usize, of: usize);
}

/// A watch that shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watch for Silent {
    fn begins(&self, _: &Point) {}
    fn ended(&self, _: &Point, _: &Done, _: usize, _: usize) {}
}

/// The reason for which a pool did not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolError {
    /// A point's process gave no report.
    Failed {
        /// The point's name.
        point: String,
        /// The last message of the process, or the way in which the process ended.
        why: String,
        /// Whether the process refused its arguments (exit code 2).
        is_usage: bool,
    },
    /// The caller stopped the pool.
    Interrupted {
        /// The names of the points that were running.
        running: Vec<String>,
        /// The number of points that had ended.
        finished: usize,
        /// The number of all points.
        of: usize,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Failed { point, why, .. } => write!(f, "point {point}: {why}"),
            PoolError::Interrupted { running, finished, of } => {
                write!(f, "interrupted after {finished} of {of} points")?;
                match running.is_empty() {
                    true => Ok(()),
                    false => write!(f, "; not finished: {}", running.join("; ")),
                }
            }
        }
    }
}

impl std::error::Error for PoolError {}

/// A point that is running.
struct Running {
    index: usize,
    child: Child,
    start: Instant,
    out: JoinHandle<io::Result<Vec<u8>>>,
    err: JoinHandle<io::Result<Vec<u8>>>,
}

impl Pool {
    /// Makes a pool that starts `program`, with at most `jobs` processes at the same time.
    ///
    /// # Panics
    /// Panics if `jobs` is not from 1 to [`JOBS_MAX`].
    pub fn new(program: PathBuf, jobs: usize) -> Pool {
        assert!((1..=JOBS_MAX).contains(&jobs), "{jobs} jobs");
        Pool { program, jobs }
    }

    /// Makes a pool that starts the program which is running now.
    ///
    /// # Errors
    /// If the system does not report the path of the running program.
    ///
    /// # Panics
    /// Panics in the same cases as [`Pool::new`].
    pub fn of_this_program(jobs: usize) -> io::Result<Pool> {
        Ok(Pool::new(std::env::current_exe()?, jobs))
    }

    /// Runs all points and returns their reports in the order of `points`. If the caller sets `stop`, the pool ends
    /// all points.
    ///
    /// # Errors
    /// Returns the first point whose process gave no report, or reports that the caller stopped the pool.
    pub fn run(
        &self,
        points: &[Point],
        watch: &dyn Watch,
        stop: &AtomicBool,
    ) -> Result<Vec<Done>, PoolError> {
        let mut running = Vec::new();
        let ended = self.run_all(points, watch, stop, &mut running);
        end_all(&mut running);
        ended
    }

    fn run_all(
        &self,
        points: &[Point],
        watch: &dyn Watch,
        stop: &AtomicBool,
        running: &mut Vec<Running>,
    ) -> Result<Vec<Done>, PoolError> {
        let mut all: Vec<Option<Done>> = vec![None; points.len()];
        let (mut next, mut finished) = (0, 0);
        while finished < points.len() {
            // The pool checks `stop` before it checks the points' processes, because the user's interruption may also
            // have ended these processes.
            if stop.load(Ordering::Relaxed) {
                let names = running.iter().map(|it| points[it.index].name()).collect();
                return Err(PoolError::Interrupted { running: names, finished, of: points.len() });
            }
            while next < points.len() && running.len() < self.jobs && fits(points, next, running) {
                watch.begins(&points[next]);
                running.push(self.start(&points[next], next)?);
                next += 1;
            }
            let Some(ended) = take_ended(running, points)? else {
                pause();
                continue;
            };
            let index = ended.0;
            finished += 1;
            watch.ended(&points[index], &ended.1, finished, points.len());
            all[index] = Some(ended.1);
        }
        Ok(all.into_iter().flatten().collect())
    }

    #[expect(clippy::disallowed_methods, reason = "a real process and its pipes")]
    fn start(&self, point: &Point, index: usize) -> Result<Running, PoolError> {
        let child = Command::new(&self.program)
            .args(&point.arguments)
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| {
            failed(point, format!("{} does not start: {error}", self.program.display()))
        })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (out, err) = (out.expect("a pipe"), err.expect("a pipe"));
        Ok(Running {
            index,
            child,
            start: Instant::now(),
            // A thread must read the process's output while the process writes, because otherwise the process would
            // wait for ever.
            out: std::thread::spawn(move || read(out)),
            err: std::thread::spawn(move || read(err)),
        })
    }
}

fn read(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[expect(clippy::disallowed_methods, reason = "waits for real processes")]
fn pause() {
    std::thread::sleep(TURN);
}

/// Returns whether the machine has enough memory to run one more point together with the running points.
fn fits(points: &[Point], next: usize, running: &[Running]) -> bool {
    if running.is_empty() {
        return true;
    }
    let Some(available) = tarn::memory::available_bytes() else { return true };
    let to_come = running.iter().map(|it| {
        let taken = machine::resident_bytes(it.child.id()).unwrap_or_default();
        points[it.index].memory_bytes.saturating_sub(taken)
    });
    to_come.sum::<u64>().saturating_add(points[next].memory_bytes) <= available
}

/// Removes one ended point from `running`, if a point has ended.
fn take_ended(
    running: &mut Vec<Running>,
    points: &[Point],
) -> Result<Option<(usize, Done)>, PoolError> {
    for at in 0..running.len() {
        let point = &points[running[at].index];
        let status = running[at].child.try_wait();
        let status = status.map_err(|error| failed(point, format!("is lost: {error}")))?;
        if let Some(status) = status {
            let ended = running.swap_remove(at);
            return Ok(Some((ended.index, done(point, ended, status)?)));
        }
    }
    Ok(None)
}

fn done(point: &Point, ended: Running, status: ExitStatus) -> Result<Done, PoolError> {
    let seconds = ended.start.elapsed().as_secs_f64();
    let text = |reader: JoinHandle<io::Result<Vec<u8>>>| {
        let bytes = reader.join().expect("a reader panicked");
        bytes.map_err(|error| failed(point, format!("cannot be read: {error}")))
    };
    let (out, err) = (text(ended.out)?, text(ended.err)?);
    let report = serde_json::from_slice::<Value>(&out);
    match (status.code(), report) {
        (Some(code @ (0 | 1)), Ok(report)) => Ok(Done { report, passed: code == 0, seconds }),
        (code, _) => {
            let said = String::from_utf8_lossy(&err);
            let last = said.lines().rev().find(|line| !line.trim().is_empty());
            let why = match (last, code) {
                (Some(line), Some(1 | 2)) => line.trim_start_matches("error: ").to_owned(),
                (Some(line), _) => format!("ended by {status}: {line}"),
                (None, _) => format!("ended by {status} without a report"),
            };
            let point = point.name();
            Err(PoolError::Failed { point, why, is_usage: code == Some(2) })
        }
    }
}

fn failed(point: &Point, why: String) -> PoolError {
    PoolError::Failed { point: point.name(), why, is_usage: false }
}

/// Ends the points that still run, and waits for them, so that no process remains.
fn end_all(running: &mut Vec<Running>) {
    for it in running.iter_mut() {
        // A process that has ended by itself in the meantime cannot be killed, so the pool ignores this error.
        let _ = it.child.kill();
    }
    for mut it in running.drain(..) {
        let _ = it.child.wait();
        let _ = (it.out.join(), it.err.join());
    }
}
