//! A connection to a Redis: commands in one direction, replies in the order of the commands in the other.
//!
//! Invariant: the number of commands without a reply is known, and a reply belongs to the oldest of them. Commands leave when they are
//! flushed or when a reply is awaited, so that many of them share one system call.

use crate::resp::{self, Value};
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Bytes that one system call reads.
const READ_BYTES: usize = 1 << 16;

/// A command that has no result.
#[derive(Debug)]
pub enum PeerError {
    /// The connection.
    Network(io::Error),
    /// The server's bytes.
    Malformed(resp::Malformed),
    /// The server refuses a command, or answers it with a value of another kind.
    Answer {
        /// The command.
        command: &'static str,
        /// The answer.
        answer: String,
        /// The answers that are allowed.
        allowed: &'static str,
    },
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::Network(error) => write!(f, "the server cannot be reached: {error}"),
            PeerError::Malformed(error) => error.fmt(f),
            PeerError::Answer { command, answer, allowed } => {
                write!(f, "the answer to {command} = {answer}; allowed: {allowed}")
            }
        }
    }
}

impl std::error::Error for PeerError {}

impl From<io::Error> for PeerError {
    fn from(error: io::Error) -> PeerError {
        PeerError::Network(error)
    }
}

impl From<resp::Malformed> for PeerError {
    fn from(error: resp::Malformed) -> PeerError {
        PeerError::Malformed(error)
    }
}

/// Whether a caller sleeps until a reply arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It sleeps.
    Sleeps,
    /// It takes only replies that have arrived.
    Looks,
    /// It takes only replies that an earlier call has read.
    Takes,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    wait: Wait,
    out: Vec<u8>,
    input: Vec<u8>,
    /// The first byte of `input` that is not read yet.
    from: usize,
    /// The end of the bytes in `input`.
    to: usize,
    unanswered: usize,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(to: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            wait: Wait::Sleeps,
            out: Vec::new(),
            input: vec![0; READ_BYTES],
            from: 0,
            to: 0,
            unanswered: 0,
        })
    }

    /// The number of commands without a reply.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Puts a command behind the others.
    pub fn put(&mut self, parts: &[&[u8]]) {
        resp::put(&mut self.out, parts);
        self.unanswered += 1;
    }

    /// Sends the commands that wait.
    ///
    /// # Errors
    /// The system's error.
    pub fn flush(&mut self) -> Result<(), PeerError> {
        if self.out.is_empty() {
            return Ok(());
        }
        // A socket that only looks would cut a long text of commands short.
        let sent = match self.stream.write(&self.out) {
            Ok(sent) => sent,
            Err(error) if is_empty(&error) => 0,
            Err(error) => return Err(error.into()),
        };
        if sent < self.out.len() {
            self.set_wait(Wait::Sleeps)?;
            self.stream.write_all(&self.out[sent..])?;
        }
        self.out.clear();
        Ok(())
    }

    /// The next reply; `None` if it has not arrived and the caller only looks, or if no command waits for one.
    ///
    /// # Errors
    /// The connection has ended, or the bytes are no replies.
    pub fn receive(&mut self, wait: Wait) -> Result<Option<Value>, PeerError> {
        while self.unanswered > 0 {
            if let Some((value, bytes)) = resp::parse(&self.input[self.from..self.to])? {
                self.from += bytes;
                self.unanswered -= 1;
                return Ok(Some(value));
            }
            if wait == Wait::Takes {
                return Ok(None);
            }
            self.flush()?;
            if !self.fill(wait)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Reads bytes. Returns whether there were any.
    fn fill(&mut self, wait: Wait) -> Result<bool, PeerError> {
        self.set_wait(wait)?;
        self.input.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.input.len() - self.to < READ_BYTES / 2 {
            self.input.resize(self.input.len() * 2, 0);
        }
        match self.stream.read(&mut self.input[self.to..]) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(bytes) => {
                self.to += bytes;
                Ok(true)
            }
            Err(error) if wait == Wait::Looks && is_empty(&error) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn set_wait(&mut self, wait: Wait) -> io::Result<()> {
        if self.wait != wait {
            self.stream.set_nonblocking(wait == Wait::Looks)?;
            self.wait = wait;
        }
        Ok(())
    }

    /// Sends one command and waits for its reply. No other command may be without a reply.
    ///
    /// # Errors
    /// The connection has ended, or the bytes are no reply.
    pub fn call(&mut self, parts: &[&[u8]]) -> Result<Value, PeerError> {
        assert_eq!(self.unanswered, 0, "a reply of another command would be taken for this one's");
        self.put(parts);
        self.flush()?;
        match self.receive(Wait::Sleeps)? {
            Some(value) => Ok(value),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

fn is_empty(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Fails unless an answer is of an allowed kind.
///
/// # Errors
/// The answer is of another kind.
pub fn expect(
    is_allowed: bool,
    (command, allowed): (&'static str, &'static str),
    answer: &Value,
) -> Result<(), PeerError> {
    if is_allowed {
        return Ok(());
    }
    Err(PeerError::Answer { command, answer: format!("{answer:?}"), allowed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn replies_come_in_the_order_of_the_commands() {
        let fake = Fake::start();
        let mut connection = Connection::open(fake.address()).unwrap();
        for number in 0..2_000u64 {
            let mut text = Vec::new();
            resp::digits(&mut text, number);
            connection.put(&[b"SET", &text, &text, b"NX", b"PX", b"60000"]);
            connection.put(&[b"DEL", &text]);
        }
        assert_eq!(connection.unanswered(), 4_000);
        for _ in 0..2_000 {
            let next = |connection: &mut Connection| connection.receive(Wait::Sleeps).unwrap();
            assert_eq!(next(&mut connection), Some(Value::Simple("OK".into())));
            assert_eq!(next(&mut connection), Some(Value::Integer(1)));
        }
        assert_eq!(connection.receive(Wait::Sleeps).unwrap(), None);
    }

    #[test]
    fn a_caller_that_looks_does_not_sleep() {
        let fake = Fake::start();
        let mut connection = Connection::open(fake.address()).unwrap();
        connection.put(&[b"DEL", b"a"]);
        let reply = loop {
            if let Some(reply) = connection.receive(Wait::Looks).unwrap() {
                break reply;
            }
        };
        assert_eq!(reply, Value::Integer(0));
    }

    #[test]
    fn an_unknown_command_is_refused_as_redis_does() {
        let fake = Fake::start();
        let mut connection = Connection::open(fake.address()).unwrap();
        let answer = connection.call(&[b"HDECRBY", b"1", b"balance", b"5"]).unwrap();
        let Value::Error(text) = answer else { panic!("{answer:?}") };
        assert!(text.starts_with("ERR unknown command"), "{text}");
    }
}
