//! The signals SIGINT and SIGTERM.
//!
//! Invariant: a command that asked for [`flag`] finishes its work: the two signals set the flag and do nothing else,
//! however often they arrive (`timeout` sends each of them twice). They end every other command, after its partial
//! files are removed. SIGQUIT ends any command without waiting.

use super::Stop;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// Whether a command has asked for the flag.
static HAS_FLAG: AtomicBool = AtomicBool::new(false);

/// Returns a flag that SIGINT and SIGTERM set from now on.
///
/// # Errors
/// If the operating system refuses a signal handler.
pub(super) fn flag() -> Result<Arc<AtomicBool>, Stop> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| refused(signal, &error))?;
    }
    HAS_FLAG.store(true, Ordering::SeqCst);
    Ok(flag)
}

/// Returns whether a signal has cut a run of seeds short, and says so. If the signal came after the last seed, the run
/// was not cut short.
pub(super) fn has_cut(flag: &AtomicBool, (seeds_run, seeds): (u64, u64)) -> bool {
    let is_cut = flag.load(Ordering::Relaxed) && seeds_run < seeds;
    if is_cut {
        remark!("interrupted after {seeds_run} seeds");
    }
    is_cut
}

/// Lets SIGINT and SIGTERM end this process only after its partial files are removed. A thread for each signal waits
/// for it, because a signal handler itself may not remove files that other threads list.
///
/// # Errors
/// If the operating system refuses a signal handler or a thread.
#[expect(clippy::disallowed_methods, reason = "signals come from outside")]
pub(super) fn remove_partial_files() -> Result<(), Stop> {
    for signal in SIGNALS {
        let refused = |error: std::io::Error| refused(signal, &error);
        let (mut arrived, sender) = UnixStream::pair().map_err(refused)?;
        signal_hook::low_level::pipe::register(signal, sender).map_err(refused)?;
        let wait = move || {
            while arrived.read_exact(&mut [0]).is_ok() {
                if !HAS_FLAG.load(Ordering::SeqCst) {
                    tarn_check::remove_partial_files();
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        };
        std::thread::Builder::new().spawn(wait).map_err(refused)?;
    }
    Ok(())
}

fn refused(signal: i32, error: &std::io::Error) -> Stop {
    Stop::Failed(format!("cannot handle signal {signal}: {error}"))
}
