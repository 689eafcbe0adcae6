//! The cluster: which compute nodes are members, which map of replica groups is in force, and the constants that each
//! protocol declares about itself.
//!
//! Invariant: this module contains state and rules on which all compute nodes agree. No code of this module sends a
//! verb.

pub mod configuration;
pub mod info;
pub mod lease;
pub mod loads;
pub mod log_area_owners;
pub mod membership;
pub mod recovering;
pub mod rules;
pub mod threads;
