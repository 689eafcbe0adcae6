//! Tests of the lock service over loopback: one program, a module for each subject.
//!
//! Invariant: each test has a folder and ports of its own.

#![allow(clippy::disallowed_methods, reason = "drives real threads and processes")]

mod basics;
mod commands;
mod common;
mod control;
mod input;
mod processes;
#[cfg(feature = "xdp")]
mod xdp;
