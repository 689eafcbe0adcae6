//! RESP2, the protocol of Redis: commands as bytes, and replies from bytes.
//!
//! Invariant: bytes that are not a whole reply yet are left alone. A length in a reply reserves no memory before its bytes have arrived.

use std::fmt;

/// The greatest length of one text in a reply. Source: balances and tokens are short; Redis itself stops at 512 MB.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The greatest number of elements of an array.
const ELEMENTS_MAX: usize = 1 << 16;
/// Arrays within arrays.
const DEPTH_MAX: u32 = 4;

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// `+OK`
    Simple(String),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Integer(i64),
    /// A text, or none.
    Text(Option<Vec<u8>>),
    /// Several values, or none.
    Array(Option<Vec<Value>>),
}

impl Value {
    /// Whether it is the value of a command that found nothing, or did nothing because of a condition.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Value::Text(None) | Value::Array(None))
    }

    /// The number that an integer or a text states.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            Value::Text(Some(text)) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }
}

/// Bytes that are no RESP2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server's bytes are not RESP2: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Appends a command.
pub fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    head(out, b'*', parts.len());
    for part in parts {
        head(out, b'$', part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn head(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    digits(out, number as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal digits.
pub fn digits(out: &mut Vec<u8>, mut number: u64) {
    let from = out.len();
    loop {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out[from..].reverse();
}

/// Appends a value, as a server does.
pub fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Simple(text) => line(out, b'+', text),
        Value::Error(text) => line(out, b'-', text),
        Value::Integer(number) => line(out, b':', &number.to_string()),
        Value::Text(None) => line(out, b'$', "-1"),
        Value::Text(Some(text)) => {
            head(out, b'$', text.len());
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
        Value::Array(None) => line(out, b'*', "-1"),
        Value::Array(Some(values)) => {
            head(out, b'*', values.len());
            values.iter().for_each(|value| put_value(out, value));
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Reads the first value of `bytes`, with its number of bytes. `None`: it is not whole yet.
///
/// # Errors
/// The bytes are no RESP2, whatever follows.
pub fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let mut at = 0;
    Ok(value(bytes, &mut at, DEPTH_MAX)?.map(|value| (value, at)))
}

fn value(bytes: &[u8], at: &mut usize, depth: u32) -> Result<Option<Value>, Malformed> {
    let Some(&kind) = bytes.get(*at) else { return Ok(None) };
    if !b"+-:$*".contains(&kind) {
        return Err(Malformed("an unknown kind of value"));
    }
    let rest = &bytes[*at + 1..];
    let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
        return if rest.len() > TEXT_BYTES_MAX {
            Err(Malformed("a line is too long"))
        } else {
            Ok(None)
        };
    };
    match rest.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(Malformed("a line ends in a carriage return alone")),
    }
    let text = std::str::from_utf8(&rest[..end]).map_err(|_| Malformed("a line is not UTF-8"))?;
    *at += 1 + end + 2;
    let number = || text.parse::<i64>().map_err(|_| Malformed("a number has other characters"));
    Ok(Some(match kind {
        b'+' => Value::Simple(text.to_owned()),
        b'-' => Value::Error(text.to_owned()),
        b':' => Value::Integer(number()?),
        b'$' => match length(number()?, TEXT_BYTES_MAX)? {
            None => Value::Text(None),
            Some(length) => {
                let Some(text) = bytes.get(*at..*at + length + 2) else { return Ok(None) };
                *at += length + 2;
                match text.split_at(length) {
                    (text, b"\r\n") => Value::Text(Some(text.to_vec())),
                    _ => return Err(Malformed("a text is longer than its length")),
                }
            }
        },
        _ => match length(number()?, ELEMENTS_MAX)? {
            None => Value::Array(None),
            Some(_) if depth == 0 => return Err(Malformed("arrays are too deep")),
            Some(length) => {
                let mut values = Vec::new();
                for _ in 0..length {
                    let Some(value) = value(bytes, at, depth - 1)? else { return Ok(None) };
                    values.push(value);
                }
                Value::Array(Some(values))
            }
        },
    }))
}

fn length(number: i64, max: usize) -> Result<Option<usize>, Malformed> {
    match usize::try_from(number) {
        Ok(length) if length <= max => Ok(Some(length)),
        Err(_) if number == -1 => Ok(None),
        _ => Err(Malformed("a length is out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            "[a-z ]{0,9}".prop_map(Value::Simple),
            "[A-Z ]{0,9}".prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            prop::option::of(prop::collection::vec(any::<u8>(), 0..20)).prop_map(Value::Text),
        ];
        leaf.prop_recursive(2, 12, 4, |inner| {
            prop::option::of(prop::collection::vec(inner, 0..4)).prop_map(Value::Array)
        })
    }

    proptest! {
        #[test]
        fn a_value_is_read_as_it_was_written(value in values(), more in any::<u8>()) {
            let mut bytes = Vec::new();
            put_value(&mut bytes, &value);
            for short in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..short]), Ok(None));
            }
            let len = bytes.len();
            bytes.push(more);
            prop_assert_eq!(parse(&bytes), Ok(Some((value, len))));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(Some((_, used))) = parse(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }

    #[test]
    fn a_command_is_an_array_of_texts() {
        let mut bytes = Vec::new();
        put(&mut bytes, &[b"SET", b"a", b""]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n");
    }

    #[test]
    fn lengths_out_of_range_are_refused() {
        for text in
            ["$-2\r\n", "$99999999999\r\n", "*99999999\r\n", "$1x\r\n", "?\r\n", "$1\r\nab\r\n"]
        {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
        let deep = "*1\r\n".repeat(6);
        assert!(parse(deep.as_bytes()).is_err());
    }
}
