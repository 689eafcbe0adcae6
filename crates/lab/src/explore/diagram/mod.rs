//! One schedule drawn: messages and verbs, where and when they landed, and the records after them.
//!
//! Map: [`names`] names the thing at an address, [`scene`] makes rows of a trace, [`text`] and [`svg`] draw them.
//!
//! Invariant: a drawing is a function of litmus and schedule, byte for byte.

pub mod names;
pub mod scene;
pub mod svg;
pub mod text;

pub use scene::Scene;
