//! Litmuses under every order that the contract allows, by the explorer of `tarn-sim`.
//!
//! Map: [`litmus`] is the file, [`script`] its language (`parse.rs` reads it), [`ranges`] its ordered index, [`shape`]
//! where it runs. [`cluster`] is the small database of one, [`model`] the explorer's model of it: coordinators
//! ([`coordinate`]), keepers that look after the lost ([`recovery`]) as the membership [`service`] lets them, state that
//! compute nodes keep ([`beside`]), the judges ([`judge`], [`oracle`]). [`order`] lists the items to explore, [`run`]
//! explores them, [`report`] reports the results. [`diagram`] draws a schedule.
//!
//! Invariant: no litmus and no judge names a protocol: each registered protocol has the suite. The effect of a schedule is
//! a function of item and schedule, byte for byte.

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
