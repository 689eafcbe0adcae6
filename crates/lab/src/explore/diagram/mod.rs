//! One schedule drawn: who sent what, where and when it landed, and what records became.
//!
//! Map: [`names`] says what lies at an address, [`scene`] makes rows of a trace, [`text`] and [`svg`] draw
//! them.
//!
//! Invariant: a drawing is a function of litmus and schedule, byte for byte.

pub mod names;
pub mod scene;
pub mod svg;
pub mod text;

pub use scene::Scene;
