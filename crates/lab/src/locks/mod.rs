//! Lock services alone, without transactions on data, on a simulated cluster.
//!
//! Map:
//! - [`system`]: the services. [`plan`]: the machine, the switch or the memory node that decides a lock.
//! - `host`: the parts of a machine that its threads share. [`seat`]: a thread of a machine. `programs`: the
//!   programs of the switch. [`words`]: services whose locks are words of memory nodes.
//! - `client`: clients, which replay a trace of requests. `tally`: the counts of clients and services.
//! - [`cluster`]: all of it together. [`run`]: measures a trace. [`view`]: the time of a new view.
//!
//! Invariant: everything is simulated, and the result depends on the setup and the trace alone. All services
//! replay the same trace of [`tarn_locks::trace`], and run the state machines of the crate `tarn_locks`.

mod client;
pub mod cluster;
pub(crate) mod host;
pub mod plan;
mod programs;
pub mod run;
pub mod seat;
pub mod system;
mod tally;
pub mod view;
pub mod words;

#[cfg(test)]
mod tests;

use tarn_sim::profile::{Constant, Profile};

/// The machines that issue requests, and that have agents or a share of the locks. Source: Zhang, Cheng, Chen,
/// Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024, section 7.1: 8 nodes.
pub const HOSTS: u16 = 8;
/// Threads of a machine that issue requests. Source: the public code, 5 of the 10 cores of clients; the other
/// 5 receive.
pub const ISSUING: u16 = 5;
/// The thread of a machine that has the agents, or the machine's share of the locks. Source: section 7.1,
/// one core.
pub const MANAGER: u16 = ISSUING;
/// Cores of the lock server of services that have one. Source: section 7.1, "8 cores as lock managers".
pub const SERVER_CORES: u16 = 8;
/// Machines of clients beside a lock server. Source: section 7.1, one node serves and seven are clients.
pub const HOSTS_BESIDE_SERVER: u16 = 7;
/// Clients of an issuing thread. Source: 160 clients on 8 × 5 threads.
pub const CLIENTS_A_THREAD: usize = 4;
/// A transaction ends after this time, with all its locks released. Source: section 7.1, 10 ms.
pub const TRANSACTION_MAX_NS: u64 = 10_000_000;
/// The time that a core takes for one request, to send it or to serve it. Derived: SrvLock serves about 3 M
/// acquires a second on 8 cores (sections 7.1 and 7.5), each with its release: 8 cores / 6 M/s. Assumed: a client's
/// core takes the same time, whatever the service; the paper states no time of a client.
pub const REQUEST_NS: u64 = 1_333;

/// Returns the time that a core works for a request of messages, beside the profile's costs of a message received,
/// a message sent and a doorbell. All together are [`REQUEST_NS`], if the profile charges no more than that.
pub(crate) fn message_work_ns(profile: &Profile) -> u64 {
    let cpu = &profile.cpu;
    rest_of([&cpu.receive_message_ns, &cpu.send_message_ns, &cpu.doorbell_ns])
}

/// The same for a request by a verb: the profile charges its work request, a doorbell and a completion.
pub(crate) fn verb_work_ns(profile: &Profile) -> u64 {
    let cpu = &profile.cpu;
    rest_of([&cpu.post_verb_ns, &cpu.doorbell_ns, &cpu.poll_completion_ns])
}

fn rest_of(charged: [&Constant<f64>; 3]) -> u64 {
    let charged_ns: f64 = charged.iter().map(|it| it.value).sum();
    (REQUEST_NS as f64 - charged_ns).max(0.0) as u64
}
