//! The control channel: who takes part, which view is in force, leases, submissions and seats.
//!
//! Invariant: a frame is sealed with the cluster's key, the nonces of both ends and its number, so that a frame of another connection or of
//! another place in the stream is refused.

pub mod message;
pub mod stream;
