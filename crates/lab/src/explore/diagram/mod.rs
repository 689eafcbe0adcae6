//! Draws one schedule: the messages and verbs, the places and times at which they landed, and the records after each
//! of them.
//!
//! Map: [`names`] names the object at an address, [`scene`] converts a trace to rows, and [`text`] and
//! [`svg`] draw the rows.
//!
//! Invariant: a litmus and a schedule determine every byte of the drawing.

pub mod names;
pub mod scene;
pub mod svg;
pub mod text;

pub use scene::Scene;
