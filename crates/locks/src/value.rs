//! Names and numbers of the lock protocol.
//!
//! Invariant: a request's name is used once. Counts are compared within a [`Width`] only, so that a counter of 16 bits and one of 48
//! bits obey the same rules.

use std::fmt;
use std::str::FromStr;

/// A lock's index at its decider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LockId(pub u32);

/// A machine that runs clients and agents: 1 or more. 0 stands for none in packed words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Machine(pub u16);

/// A thread of a machine. Each thread has a lane of its own to the decider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Thread(pub u16);

/// A period of authority of one decider. Packets of an older view are dropped at both ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct View(pub u32);

impl View {
    /// The view after this one.
    #[must_use]
    pub const fn next(self) -> View {
        View(self.0 + 1)
    }
}

/// One request of one client: no two requests of a view have the same name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestId {
    /// The client's machine.
    pub machine: Machine,
    /// The client's thread.
    pub thread: Thread,
    /// Counts the thread's requests.
    pub seq: u32,
}

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// Beside other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// Which waiter comes next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// A shared request joins shared holders although an exclusive request waits.
    ReadsFirst,
    /// An exclusive request comes before all shared requests that wait.
    WritesFirst,
    /// Requests are granted in the order in which they reached the agent.
    #[default]
    InOrder,
}

/// A fencing token: of two exclusive holders, the later has the greater token.
///
/// Shared holders may hold different tokens. A guarded resource therefore keeps the greatest token of a write and of a read: see
/// [`crate::guard::Guard`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token {
    /// The decider's view.
    pub view: View,
    /// The decision within the view.
    pub order: u64,
}

impl Token {
    /// The token of a service that grants none.
    pub const NONE: Token = Token { view: View(0), order: 0 };
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.view.0, self.order)
    }
}

/// A text that is not a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAToken(String);

impl fmt::Display for NotAToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token = {}; allowed: two numbers with a point between them, as in 3.17", self.0)
    }
}

impl std::error::Error for NotAToken {}

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Token, NotAToken> {
        let numbers = text.split_once('.').map(|(view, order)| (view.parse(), order.parse()));
        match numbers {
            Some((Ok(view), Ok(order))) => Ok(Token { view: View(view), order }),
            _ => Err(NotAToken(text.to_owned())),
        }
    }
}

/// How many bits of a lock's count the decider keeps.
///
/// Source: 16 bits on a switch, 48 bits elsewhere. Fewer than 2^(bits − 1) acquires of one lock may be under way at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Width(u32);

impl Width {
    /// A register of a switch.
    pub const SWITCH: Width = Width(16);
    /// A word of a server's memory.
    pub const WIDE: Width = Width(48);

    /// A width of `bits` bits, from 2 to 48.
    ///
    /// # Panics
    /// If `bits` is outside that range.
    #[must_use]
    pub const fn of_bits(bits: u32) -> Width {
        assert!(bits >= 2 && bits <= 48);
        Width(bits)
    }

    /// The number of bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The low bits of `number` that this width keeps.
    #[inline]
    #[must_use]
    pub const fn cut(self, number: u64) -> u64 {
        number & ((1 << self.0) - 1)
    }

    /// By how many numbers `number` is ahead of `base`; `None` if it is `base` itself or lies before it.
    #[inline]
    #[must_use]
    pub const fn ahead(self, number: u64, base: u64) -> Option<u64> {
        let by = self.cut(number.wrapping_sub(base));
        if by == 0 || by >= 1 << (self.0 - 1) { None } else { Some(by) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_written_and_read() {
        let token = Token { view: View(3), order: 17 };
        assert_eq!(token.to_string().parse(), Ok(token));
        for text in ["", "3", "3.", ".17", "3.17.1", "a.1", "-1.2"] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_compared_across_the_wrap() {
        let width = Width::SWITCH;
        assert_eq!(width.ahead(3, 0xffff), Some(4));
        assert_eq!(width.ahead(0xffff, 3), None);
        assert_eq!(width.ahead(7, 7), None);
        assert_eq!(width.ahead(0x7fff, 0), Some(0x7fff));
        assert_eq!(width.ahead(0x8000, 0), None);
    }
}
