//! Calls of the operating system that the standard library lacks: the clock that counts suspended time, random bytes, sleeping on
//! several descriptors, wake-ups, locks on files.
//!
//! Invariant: each function is one system call with checked arguments. No other module but `udp` holds `unsafe` code.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of nanoseconds in a millisecond.
pub const MS_NS: u64 = 1_000_000;

/// Nanoseconds since the machine was started. A stopped process and a suspended machine do not stop this clock.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time of this process in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Random bytes of the system.
///
/// # Errors
/// The system's error.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the pointer and the length are those of a local array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if got == N as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// A random number.
///
/// # Errors
/// The system's error.
pub fn random_u64() -> io::Result<u64> {
    random::<8>().map(u64::from_le_bytes)
}

/// Sleeps until one of the descriptors is ready for its events, or until the time is over. Sets the events that have happened.
pub fn poll(descriptors: &mut [libc::pollfd], timeout_ns: u64) {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the slice and the time are valid for the call; the signal mask may be absent.
    let ready = unsafe {
        libc::ppoll(
            descriptors.as_mut_ptr(),
            descriptors.len() as libc::nfds_t,
            &raw const timeout,
            std::ptr::null(),
        )
    };
    if ready < 0 {
        descriptors.iter_mut().for_each(|it| it.revents = 0);
    }
}

/// A descriptor and the events to sleep for.
#[must_use]
pub fn interest(fd: RawFd, reads: bool, writes: bool) -> libc::pollfd {
    let reads = if reads { libc::POLLIN } else { 0 };
    let writes = if writes { libc::POLLOUT } else { 0 };
    libc::pollfd { fd, events: reads | writes, revents: 0 }
}

/// Wakes a thread that sleeps in [`poll`].
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
}

impl Bell {
    /// A bell that is silent.
    ///
    /// # Errors
    /// The system's error.
    pub fn new() -> io::Result<Bell> {
        // SAFETY: the call has no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(Bell { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The descriptor to sleep on.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Rings.
    pub fn ring(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of a local number. A full counter rings already.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it silent.
    pub fn hush(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes of a local number.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}

/// Locks a file for this process alone. Returns whether no other process has the lock.
#[must_use]
pub fn lock_file(file: &std::fs::File) -> bool {
    // SAFETY: the descriptor is open; the call has no pointers.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// An address as the system has it.
#[derive(Clone, Copy)]
pub struct Address {
    /// The bytes.
    pub storage: libc::sockaddr_storage,
    /// The number of bytes in use.
    pub len: libc::socklen_t,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        socket_address(&self.storage).fmt(f)
    }
}

/// An address for the system.
#[must_use]
pub fn address(of: SocketAddr) -> Address {
    // SAFETY: all bytes zero are a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match of {
        SocketAddr::V4(of) => {
            let v4 = (&raw mut storage).cast::<libc::sockaddr_in>();
            // SAFETY: a `sockaddr_storage` has room and alignment for every kind of address.
            unsafe {
                (*v4).sin_family = libc::AF_INET as libc::sa_family_t;
                (*v4).sin_port = of.port().to_be();
                (*v4).sin_addr.s_addr = u32::from_ne_bytes(of.ip().octets());
            }
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(of) => {
            let v6 = (&raw mut storage).cast::<libc::sockaddr_in6>();
            // SAFETY: a `sockaddr_storage` has room and alignment for every kind of address.
            unsafe {
                (*v6).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*v6).sin6_port = of.port().to_be();
                (*v6).sin6_addr.s6_addr = of.ip().octets();
                (*v6).sin6_scope_id = of.scope_id();
            }
            size_of::<libc::sockaddr_in6>()
        }
    };
    Address { storage, len: len as libc::socklen_t }
}

/// The system's address as a value. `None`: it is of another kind.
#[must_use]
pub fn socket_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that these bytes are a `sockaddr_in`.
            let v4 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that these bytes are a `sockaddr_in6`.
            let v6 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)))
        }
        _ => None,
    }
}

/// Begins to connect, and waits for nothing. The stream is connected when it can be written to.
///
/// # Errors
/// The system's error.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call has no pointers.
    let fd = unsafe { libc::socket(family, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let stream = unsafe { TcpStream::from_raw_fd(fd) };
    let to = address(to);
    // SAFETY: the address is local and as long as the call is told.
    let result = unsafe { libc::connect(fd, (&raw const to.storage).cast(), to.len) };
    let error = io::Error::last_os_error();
    match result {
        0 => Ok(stream),
        _ if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(stream),
        _ => Err(error),
    }
}

/// Sets how much a socket may hold that is not read yet, as far as the system allows.
pub fn set_buffers(socket: RawFd, bytes: i32) {
    for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        let value = (&raw const bytes).cast();
        // SAFETY: the option is a number of four bytes, which lives during the call.
        unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, option, value, 4) };
    }
}

/// Counts the words of a descriptor's memory for which `counts` holds. Others may change them meanwhile.
///
/// # Errors
/// The descriptor has no memory that can be read, or less of it.
pub fn count_words(
    of: BorrowedFd<'_>,
    words: usize,
    counts: impl Fn(u64) -> bool,
) -> io::Result<u64> {
    let bytes = words * size_of::<u64>();
    let (kind, fd) = (libc::MAP_SHARED, of.as_raw_fd());
    // SAFETY: the system chooses a place that nothing uses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, kind, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the memory has so many aligned words until it is given back below. Others write it, so it is read as atomic words.
    let mapped = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), words) };
    let count = mapped.iter().filter(|word| counts(word.load(Ordering::Relaxed))).count();
    // SAFETY: the memory is this function's, and nothing refers to it any more.
    unsafe { libc::munmap(at, bytes) };
    Ok(count as u64)
}

/// Sends a signal to a process that this process has started.
pub fn signal(child: &std::process::Child, signal: i32) {
    // SAFETY: the call has no pointers. The child is not waited for yet, so that its id is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_system_s_form() {
        for text in ["127.0.0.1:7400", "[::1]:80", "10.1.2.3:65535"] {
            let it: SocketAddr = text.parse().expect("an address");
            assert_eq!(socket_address(&address(it).storage), Some(it));
        }
    }

    #[test]
    fn a_bell_wakes_a_sleeper() {
        let bell = Bell::new().expect("a bell");
        let mut fds = [interest(bell.fd(), true, false)];
        poll(&mut fds, 0);
        assert_eq!(fds[0].revents, 0);
        bell.ring();
        poll(&mut fds, 1_000_000_000);
        assert_ne!(fds[0].revents, 0);
        bell.hush();
        poll(&mut fds, 0);
        assert_eq!(fds[0].revents, 0);
    }
}
