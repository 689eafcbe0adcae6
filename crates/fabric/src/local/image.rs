//! An image of this process's private memory: a child process in which private memory stays as it was at one moment.
//!
//! The kernel copies a page only when one of the two processes writes it (copy on write). So the image costs a copy of
//! the page tables, and later one copy for each page that this process changes. Databases that save while they run
//! use this method (Redis, "Persistence", RDB; Kemper and Neumann, "HyPer", ICDE 2011).
//!
//! Invariant: the child never returns to the code of its parent. It runs one closure, without handlers of signals and
//! without destructors of its parent's values, and then ends. If the parent dies, the child dies too. The child has no
//! file of the parent but the named ones, so a socket that the parent closes is closed. Memory that is mapped as
//! shared is no part of the image.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The first descriptor that is not standard input, output or error.
const FIRST_OWN: RawFd = 3;

/// A child process that holds an image of this process's private memory. Dropping this value ends the child.
pub struct Image {
    pid: libc::pid_t,
    answer: PipeReader,
    is_over: bool,
}

impl Image {
    /// Takes an image of this process. The child runs `body`, which writes its answer into the given pipe, and then
    /// ends. Of the process's files the child keeps only `files` and the standard ones.
    ///
    /// In the child only the calling thread exists. So `body` may take no lock that another thread may hold at this
    /// moment, or the child waits for ever. The locks of glibc's and musl's allocators are free in the child.
    ///
    /// # Errors
    /// The operating system's error: no further process, no pipe, or no memory for the page tables.
    pub fn take(files: &[BorrowedFd<'_>], body: impl FnOnce(&mut PipeWriter)) -> io::Result<Image> {
        let (answer, mut to_parent) = io::pipe()?;
        let mut kept: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        kept.push(to_parent.as_raw_fd());
        kept.sort_unstable();
        let parent = std::process::id();
        // The child begins with all signals blocked, so that it never runs a handler of its parent.
        let before = block_signals()?;
        // SAFETY: the child runs only `run`, which never returns. Its thread is the only one, and the functions that
        // `run` calls itself are system calls. The caller's duty about locks concerns waiting, not memory.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            run(parent, &kept, || body(&mut to_parent));
        }
        let forked = io::Error::last_os_error();
        unblock_signals(&before);
        if pid < 0 {
            return Err(forked);
        }
        Ok(Image { pid, answer, is_over: false })
    }

    /// Waits until the child has ended, and returns its answer.
    ///
    /// # Errors
    /// If the child panicked, or was ended by a signal.
    pub fn wait(mut self) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        self.answer.read_to_end(&mut answer)?;
        self.is_over = true;
        match ended(self.pid)? {
            Some(status) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                Err(io::Error::other(format!("signal {signal} ended the process with the image")))
            }
            Some(status) if libc::WEXITSTATUS(status) != 0 => {
                Err(io::Error::other("the process with the image panicked"))
            }
            // Another part of the program has waited for all children, so the status is lost.
            Some(_) | None => Ok(answer),
        }
    }

    /// The number of the child process.
    pub fn process(&self) -> u32 {
        self.pid.cast_unsigned()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.is_over {
            // SAFETY: the child was not waited for, so its number still belongs to it.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            let _ = ended(self.pid);
        }
    }
}

/// The processor time that this process has used. A child with an image begins at zero.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the result.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(code, 0, "every Linux has the clock of a process");
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

/// The child's work.
fn run(parent: u32, kept: &[RawFd], body: impl FnOnce()) -> ! {
    // SAFETY: both calls take numbers and change only this process.
    let is_orphan = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::getppid().cast_unsigned() != parent
    };
    let mut code = 1;
    if !is_orphan {
        close_others(kept);
        code = i32::from(catch_unwind(AssertUnwindSafe(body)).is_err());
    }
    // SAFETY: the call ends the process at once. No destructor and no handler of its parent runs.
    unsafe { libc::_exit(code) }
}

/// Closes all files but the standard ones and `kept`, which is sorted. Linux before 5.9 does not have the call. There
/// the files stay open until the child ends.
fn close_others(kept: &[RawFd]) {
    let mut from = FIRST_OWN;
    for &file in kept.iter().filter(|file| **file >= FIRST_OWN) {
        close_range(from, file - 1);
        from = file + 1;
    }
    close_range(from, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: the call only closes descriptors of the child, and the child uses none of them.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Waits for the end of a child. Returns `None` if the child's status was taken by another part of the program.
fn ended(pid: libc::pid_t) -> io::Result<Option<libc::c_int>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a place for the result.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            return Ok(Some(status));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// Blocks all signals of this thread. Returns the set that was blocked before.
fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` fills the first set, and `pthread_sigmask` the second unless it reports an error.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        match libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn unblock_signals(before: &libc::sigset_t) {
    // SAFETY: `before` is a set that `pthread_sigmask` returned, and no old set is requested.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::local::{Backing, Mapping};
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Returns the first word of a mapping as the child sees it after this process has changed it.
    fn seen_by_child(backing: Backing) -> u64 {
        let mapping = Mapping::new(4096, backing).expect("memory");
        // SAFETY: the mapping is long enough, aligned to a page, and outlives the reference.
        let word = unsafe { &*mapping.start().as_ptr().cast::<AtomicU64>() };
        word.store(7, Ordering::Relaxed);
        let (go, mut begin) = io::pipe().expect("a pipe");
        let image = Image::take(&[go.as_fd()], |answer| {
            let _ = (&go).read(&mut [0]);
            let _ = answer.write_all(&word.load(Ordering::Relaxed).to_le_bytes());
        });
        let image = image.expect("a child");
        word.store(8, Ordering::Relaxed);
        begin.write_all(&[1]).expect("the child reads");
        let answer = image.wait().expect("the child answers");
        u64::from_le_bytes(answer.try_into().expect("a word"))
    }

    #[test]
    fn the_image_keeps_private_memory_and_not_shared_memory() {
        assert_eq!(seen_by_child(Backing::Private), 7);
        assert_eq!(seen_by_child(Backing::Shared), 8);
    }

    #[test]
    fn a_panic_and_a_signal_are_errors() {
        let panics = Image::take(&[], |_| panic!("as the test wants")).expect("a child").wait();
        assert!(panics.expect_err("refused").to_string().contains("panicked"));
        let image = Image::take(&[], |_| {
            loop {
                std::hint::spin_loop();
            }
        });
        let image = image.expect("a child");
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(image.pid, libc::SIGTERM) }; // blocked in the child
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(image.pid, libc::SIGKILL) };
        let error = image.wait().expect_err("refused").to_string();
        assert!(error.contains("signal 9"), "{error}");
    }

    #[test]
    fn a_dropped_image_leaves_no_process() {
        let image = Image::take(&[], |_| {
            loop {
                std::hint::spin_loop();
            }
        });
        let pid = image.expect("a child").pid;
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn the_child_has_no_files_but_the_named_ones() {
        let mut kept = tempfile();
        let other = tempfile();
        let number = other.as_raw_fd();
        let image = Image::take(&[kept.as_fd()], |_| {
            let listed = std::path::Path::new(&format!("/proc/self/fd/{number}")).exists();
            let _ = (&kept).write_all(&[u8::from(listed)]);
        });
        image.expect("a child").wait().expect("an end");
        let mut text = Vec::new();
        kept.rewind().expect("a file");
        kept.read_to_end(&mut text).expect("a file");
        assert_eq!(text, [0]);
    }

    fn tempfile() -> std::fs::File {
        // SAFETY: the name is a literal, and the result is checked.
        let file = unsafe { libc::memfd_create(c"test".as_ptr(), 0) };
        assert!(file >= 0);
        // SAFETY: the descriptor is new and has no other owner.
        unsafe { std::os::fd::FromRawFd::from_raw_fd(file) }
    }
}
