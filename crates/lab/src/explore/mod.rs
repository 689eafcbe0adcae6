//! Runs litmuses under every order that the contract allows, with the explorer of `tarn-sim`.
//!
//! Map: [`litmus`] reads the file of a litmus, and [`script`] defines the file's language (`parse.rs` reads this
//! language). [`ranges`] is the litmus's ordered index, and [`shape`] is the cluster on which the litmus runs.
//! [`cluster`] is the small database of one litmus, and [`model`] is the explorer's model of the litmus. The model
//! consists of coordinators ([`coordinate`]), keepers that recover lost nodes ([`recovery`]), and the membership
//! [`service`]. The local state of compute nodes ([`beside`]) and the judges ([`judge`], [`oracle`]) also belong to
//! the model. [`order`] lists the items to explore, [`run`] explores these items, and [`report`] reports the results.
//! [`diagram`] draws a schedule.
//!
//! Invariant: no litmus and no judge names a protocol, so the whole suite runs with each registered protocol. The
//! replay of a schedule of an item always has the same result, byte for byte.

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
