//! Draws one schedule: messages and verbs, where and when they landed, and the records after each of
//! them.
//!
//! Map: [`names`] names the object at an address, [`scene`] converts a trace to rows, and [`text`] and
//! [`svg`] draw the rows.
//!
//! Invariant: litmus and schedule determine the drawing, byte for byte.

pub mod names;
pub mod scene;
pub mod svg;
pub mod text;

pub use scene::Scene;
