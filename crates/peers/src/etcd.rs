//! The lock service of etcd, through its gateway: JSON over HTTP/1.1, one request at a time on each connection.
//!
//! Invariant: an answer is read whole before the next request. A lock is a key below its name, and lives as long as its lease.

use serde_json::{Value, json};
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// The life of a lease in seconds: longer than a measurement.
const LEASE_S: u64 = 600;
/// The greatest number of bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A request without a result.
#[derive(Debug)]
pub enum EtcdError {
    /// The connection.
    Network(io::Error),
    /// An answer that is no answer to the request.
    Answer(String),
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EtcdError::Network(error) => write!(f, "etcd cannot be reached: {error}"),
            EtcdError::Answer(answer) => write!(f, "the answer of etcd = {answer}"),
        }
    }
}

impl std::error::Error for EtcdError {}

impl From<io::Error> for EtcdError {
    fn from(error: io::Error) -> EtcdError {
        EtcdError::Network(error)
    }
}

/// A connection to the gateway.
#[derive(Debug)]
pub struct Gateway {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Gateway {
    /// Connects.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(address: SocketAddr) -> io::Result<Gateway> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Gateway { stream: BufReader::new(stream), address })
    }

    /// Makes a lease.
    ///
    /// # Errors
    /// etcd does not answer, or with something else.
    pub fn lease(&mut self) -> Result<String, EtcdError> {
        let answer = self.post("/v3/lease/grant", &json!({ "TTL": LEASE_S }))?;
        text(&answer, "ID")
    }

    /// Takes a lock. Returns its key.
    ///
    /// # Errors
    /// etcd does not answer, or with something else.
    pub fn lock(&mut self, name: &str, lease: &str) -> Result<String, EtcdError> {
        let body = json!({ "name": base64(name.as_bytes()), "lease": lease });
        text(&self.post("/v3/lock/lock", &body)?, "key")
    }

    /// Releases a lock by its key.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn unlock(&mut self, key: &str) -> Result<(), EtcdError> {
        self.post("/v3/lock/unlock", &json!({ "key": key })).map(|_| ())
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let body = body.to_string();
        let (host, length) = (self.address, body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (status, answer) = answer(&mut self.stream)?;
        let shown = || EtcdError::Answer(format!("{status} {}", String::from_utf8_lossy(&answer)));
        if status != 200 {
            return Err(shown());
        }
        serde_json::from_slice(&answer).map_err(|_| shown())
    }
}

fn text(answer: &Value, field: &str) -> Result<String, EtcdError> {
    let text = answer.get(field).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| EtcdError::Answer(answer.to_string()))
}

/// Reads one HTTP answer: its status and its body.
fn answer(stream: &mut impl io::BufRead) -> Result<(u16, Vec<u8>), EtcdError> {
    let malformed = |line: &str| EtcdError::Answer(line.trim_end().to_owned());
    let first = line(stream)?;
    let status = first.split(' ').nth(1).and_then(|it| it.parse().ok());
    let status = status.ok_or_else(|| malformed(&first))?;
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let header = line(stream)?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        let Some((name, value)) = header.split_once(':') else { return Err(malformed(&header)) };
        match (name, value.trim()) {
            ("content-length", value) => length = value.parse().map_err(|_| malformed(&header))?,
            ("transfer-encoding", value) => is_chunked = value == "chunked",
            _ => {}
        }
    }
    let mut body = Vec::new();
    if !is_chunked {
        part(stream, length, &mut body)?;
        return Ok((status, body));
    }
    loop {
        let size = line(stream)?;
        let bytes = u64::from_str_radix(&size, 16).map_err(|_| malformed(&size))?;
        part(stream, bytes, &mut body)?;
        line(stream)?;
        if bytes == 0 {
            return Ok((status, body));
        }
    }
}

fn line(stream: &mut impl io::BufRead) -> Result<String, EtcdError> {
    let mut line = String::new();
    stream.take(ANSWER_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

fn part(stream: &mut impl io::BufRead, bytes: u64, body: &mut Vec<u8>) -> Result<(), EtcdError> {
    if bytes > ANSWER_BYTES_MAX - (body.len() as u64).min(ANSWER_BYTES_MAX) {
        return Err(EtcdError::Answer(format!("an answer of {bytes} more bytes")));
    }
    if stream.take(bytes).read_to_end(body)? as u64 != bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(())
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { letter as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standards_examples() {
        let texts =
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|it| base64(it.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn answers_are_read_by_length_and_in_chunks() {
        let read = |text: &str| answer(&mut text.as_bytes());
        let plain = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}rest";
        assert_eq!(read(plain).unwrap(), (200, b"{}".to_vec()));
        let chunked = "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{\"\r\n3\r\na\"}\r\n0\r\n\r\n";
        assert_eq!(read(chunked).unwrap(), (404, b"{\"a\"}".to_vec()));
    }

    #[test]
    fn answers_that_are_cut_short_or_too_long_are_refused() {
        let head = "HTTP/1.1 200 OK\r\n";
        let bodies = [
            "Content-Length: 3\r\n\r\n{}",
            "Content-Length: 99999999999\r\n\r\n{}",
            "nothing\r\n\r\n",
            "",
        ];
        for text in bodies.map(|body| format!("{head}{body}")) {
            assert!(answer(&mut text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(answer(&mut b"rubbish\r\n\r\n".as_slice()).is_err());
    }
}
