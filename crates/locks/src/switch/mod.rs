//! The decider in register form: a table of transitions, the stages of a switch that carry it out, and P4 source.
//!
//! Invariant: the table is the one source. The stages and the P4 source are derived from it, and tests hold
//! it equal to [`crate::decider::step`].
//!
//! - `table`: transitions as data. `program`: the table as the match-action tables of stages.
//! - `registers`: arrays that a packet touches once. `staged`: the decider over them.
//! - `budget`: locks that fit a switch. `p4`: the source for a switch, never compiled.

pub mod budget;
pub mod p4;
pub mod program;
pub mod registers;
pub mod staged;
pub mod table;
