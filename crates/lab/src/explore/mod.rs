//! Runs litmuses under every order that the contract allows, with the explorer of `tarn-sim`.
//!
//! Map of the description of a litmus: [`litmus`] is the file, [`script`] its language (`parse.rs`
//! reads it), [`ranges`] its ordered index, and [`shape`] the cluster on which it runs. [`cluster`] is
//! the small database of one litmus, and [`model`] is the explorer's model of it. The model contains
//! coordinators ([`coordinate`]), keepers that recover lost nodes ([`recovery`]) with the membership
//! [`service`], the local state of compute nodes ([`beside`]), and the judges ([`judge`], [`oracle`]).
//! [`order`] lists the items to explore, [`run`] explores them, and [`report`] reports the results.
//! [`diagram`] draws a schedule.
//!
//! Invariant: no litmus and no judge names a protocol, so each registered protocol runs the whole
//! suite. An item and a schedule determine the effect of the schedule, byte for byte.

pub mod beside;
pub mod cluster;
pub mod coordinate;
pub mod desk;
pub mod diagram;
pub mod judge;
pub mod litmus;
pub mod model;
pub mod oracle;
pub mod order;
mod parse;
pub mod ranges;
pub mod recovery;
pub mod report;
pub mod run;
pub mod script;
pub mod service;
pub mod shape;
#[cfg(test)]
mod stamps_tests;
mod watch;
