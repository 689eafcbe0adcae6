//! A resource's side of fencing: which tokens it lets through.
//!
//! Invariant: after a write with a token, no earlier holder writes, and no earlier holder's read is let through. One register that keeps the
//! greatest token is not enough: shared holders of one tenure hold different tokens.

use crate::value::Token;

/// The greatest tokens that a resource has seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guard {
    written: Option<Token>,
    read: Option<Token>,
}

impl Guard {
    /// A guard that has seen these tokens, from where the resource keeps them.
    #[must_use]
    pub fn new(written: Option<Token>, read: Option<Token>) -> Guard {
        Guard { written, read }
    }

    /// The greatest token of a write.
    #[must_use]
    pub fn written(&self) -> Option<Token> {
        self.written
    }

    /// The greatest token of a read since the last write.
    #[must_use]
    pub fn read(&self) -> Option<Token> {
        self.read
    }

    /// Whether a read with this token is let through.
    pub fn reads(&mut self, token: Token) -> bool {
        let passes = self.written.is_none_or(|written| token > written);
        if passes {
            self.read = self.read.max(Some(token));
        }
        passes
    }

    /// Whether a write with this token is let through.
    pub fn writes(&mut self, token: Token) -> bool {
        let passes = self.written.is_none_or(|written| token >= written)
            && self.read.is_none_or(|read| token > read);
        if passes {
            self.written = Some(token);
            // A token that passes the write passes the earlier read, too.
            self.read = self.read.filter(|read| *read >= token);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::View;

    fn token(order: u64) -> Token {
        Token { view: View(1), order }
    }

    #[test]
    fn an_older_holder_is_refused() {
        let mut guard = Guard::default();
        assert!(guard.writes(token(2)));
        assert!(guard.writes(token(2)), "a holder writes twice");
        assert!(!guard.writes(token(1)));
        assert!(!guard.reads(token(2)), "a reader has a token of its own");
        assert!(guard.reads(token(3)));
        assert!(!guard.writes(token(3)), "a reader has read with this token");
        assert!(guard.writes(token(4)));
    }

    #[test]
    fn shared_holders_pass_in_any_order() {
        let mut guard = Guard::default();
        assert!(guard.reads(token(5)));
        assert!(guard.reads(token(3)), "shared holders hold different tokens");
        assert!(!guard.writes(token(4)));
        assert!(guard.writes(Token { view: View(2), order: 0 }), "a later view is later");
    }
}
