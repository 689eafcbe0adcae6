//! Texts and byte strings of a limited length.
//!
//! Invariant: the bytes behind the end are zeros. So two equal values have equal bytes, and the bytes compare like
//! the values. A text does not end with a zero, because its length is not stored.

use super::{Field, Ordered};
use crate::error::Error;
use std::fmt;
use std::ops::Deref;
use tarn_store::ids::UsageError;

/// A text of at most `N` bytes of UTF-8. It dereferences to `str`.
///
/// ```
/// use tarn::Text;
///
/// let name: Text<8> = Text::new("tarn")?;
/// assert_eq!(&*name, "tarn");
/// assert!(Text::<8>::new("a long name").is_err());
/// const NONE: Text<8> = Text::literal("none");
/// assert!(NONE < name);
/// # Ok::<(), tarn::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// Creates a text.
    ///
    /// # Errors
    /// If `text` is longer than `N` bytes, or ends with a zero.
    #[inline]
    pub fn new(text: &str) -> Result<Text<N>, Error> {
        match Text::fitting(text) {
            Some(fitting) => Ok(fitting),
            None => Err(refused(text, N)),
        }
    }

    /// Creates a text that the program contains.
    ///
    /// # Panics
    /// If `text` is longer than `N` bytes, or ends with a zero. In a constant, the program does not compile then.
    pub const fn literal(text: &'static str) -> Text<N> {
        match Text::fitting(text) {
            Some(fitting) => fitting,
            None => panic!("the literal is longer than its Text, or ends with a zero"),
        }
    }

    #[inline]
    const fn fitting(text: &str) -> Option<Text<N>> {
        let (from, mut bytes, mut at) = (text.as_bytes(), [0; N], 0);
        if from.len() > N || matches!(from, [.., 0]) {
            return None;
        }
        while at < from.len() {
            bytes[at] = from[at];
            at += 1;
        }
        Some(Text { bytes })
    }

    /// The text. If another program wrote bytes that are no UTF-8, the text ends before these bytes.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let text = &self.bytes[..end];
        match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

#[cold]
fn refused(text: &str, most: usize) -> Error {
    let field = "text".to_owned();
    let value = match text.ends_with('\0') {
        true => format!("{text:?}, which ends with a zero"),
        false => format!("{text:?} of {} bytes", text.len()),
    };
    UsageError { field, value, allowed: format!("at most {most} bytes, the last one not zero") }
        .into()
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Text<N> {
        Text { bytes: [0; N] }
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> PartialEq<str> for Text<N> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<const N: usize> PartialEq<&str> for Text<N> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> TryFrom<&str> for Text<N> {
    type Error = Error;

    fn try_from(text: &str) -> Result<Text<N>, Error> {
        Text::new(text)
    }
}

impl<const N: usize> Field for Text<N> {
    const BYTES: usize = N;

    #[inline]
    fn encode(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes);
    }

    #[inline]
    fn decode(from: &[u8]) -> Text<N> {
        Text { bytes: from.try_into().expect("the bytes of one value") }
    }
}

impl<const N: usize> Ordered for Text<N> {}

/// At most `N` bytes, with their number. It dereferences to `[u8]`, and takes 2 bytes more than `N` in a row.
///
/// ```
/// use tarn::Bytes;
///
/// let bytes: Bytes<8> = Bytes::new(&[1, 0])?;
/// assert_eq!(&*bytes, [1, 0]);
/// assert!(bytes > Bytes::new(&[1])?);
/// # Ok::<(), tarn::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes<const N: usize> {
    // The order of the fields is the order of the values: of two values with the same bytes, the shorter one is less.
    bytes: [u8; N],
    len: u16,
}

impl<const N: usize> Bytes<N> {
    /// Creates a byte string.
    ///
    /// # Errors
    /// If there are more than `N` bytes.
    #[inline]
    pub fn new(bytes: &[u8]) -> Result<Bytes<N>, Error> {
        if bytes.len() > N.min(usize::from(u16::MAX)) {
            let (field, value) = ("bytes".to_owned(), format!("{} bytes", bytes.len()));
            return Err(UsageError { field, value, allowed: format!("at most {N} bytes") }.into());
        }
        let mut to = [0; N];
        to[..bytes.len()].copy_from_slice(bytes);
        Ok(Bytes { bytes: to, len: bytes.len() as u16 })
    }
}

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Bytes<N> {
        Bytes { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Deref for Bytes<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl<const N: usize> fmt::Debug for Bytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<const N: usize> TryFrom<&[u8]> for Bytes<N> {
    type Error = Error;

    fn try_from(bytes: &[u8]) -> Result<Bytes<N>, Error> {
        Bytes::new(bytes)
    }
}

impl<const N: usize> Field for Bytes<N> {
    const BYTES: usize = N + 2;

    #[inline]
    fn encode(&self, to: &mut [u8]) {
        to[..N].copy_from_slice(&self.bytes);
        to[N..].copy_from_slice(&self.len.to_be_bytes());
    }

    #[inline]
    fn decode(from: &[u8]) -> Bytes<N> {
        let bytes = from[..N].try_into().expect("the bytes of one value");
        Bytes { bytes, len: u16::decode(&from[N..]).min(N as u16) }
    }
}

impl<const N: usize> Ordered for Bytes<N> {}
