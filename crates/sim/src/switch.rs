//! Switches that run a program on the packets that are addressed to them.
//!
//! Invariants: a switch sits half-way between two nodes, so a datagram to it travels half of the cables of a
//! datagram to a node, and no processor and no NIC handles the datagram there. A switch takes packets in the
//! order in which they arrive, one in each slot of its pipeline. In timed mode the datagrams of one thread arrive in
//! their order, and each packet passes the pipeline in the fixed time of the profile (`link.switch_ns`). In random
//! mode a datagram to a switch may be lost, arrive twice, or be overtaken, as one to a node. A program announces the
//! register arrays that it touches ([`Pass`]): each at most once in one pass, in the order of the arrays. The
//! simulator checks the announced touches; it does not see the program's memory. A packet that needs more is
//! resubmitted: it takes another slot and the time of another pass. The program has no clock and no randomness, so
//! the simulation stays deterministic.
//!
//! Sources: Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI
//! 2024, sections 2.2 and 5.2 (less than 1 µs, several billion packets per second for a whole switch, arrays
//! touched once); Yu et al., "NetLock", SIGCOMM 2020 (a release resubmits its packet).

use crate::config::{ConfigError, check};
use crate::nic::Resource;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_fabric::backend::Endpoint;

/// The shape of a switch's pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// The number of packets that one pipeline takes per second, in millions.
    pub packets_mpps: u32,
    /// The largest number of passes of one packet. Only a program that resubmits packets needs more than 1.
    pub passes_max: u32,
}

impl SwitchConfig {
    /// One pipeline of a Tofino switch: one packet per cycle at about 1 GHz. Assumed: the paper states several
    /// billion packets per second for all pipelines together.
    pub const TOFINO: SwitchConfig = SwitchConfig { packets_mpps: 1_000, passes_max: 1 };
}

const MPPS_MAX: u64 = 1_000_000;
const PASSES_MAX: u64 = 64;

/// One packet's way through the register arrays.
///
/// A program calls [`Pass::touch`] each time before it accesses an array. Nothing checks that it does.
#[derive(Debug)]
pub struct Pass {
    passes: u32,
    passes_max: u32,
    next_array: u32,
}

impl Pass {
    /// Creates the first pass of a packet that may pass so often.
    pub fn new(passes_max: u32) -> Pass {
        Pass { passes: 1, passes_max, next_array: 0 }
    }

    /// Notes that the packet touches an array. Arrays are numbered from 0 in the order of the stages.
    ///
    /// # Panics
    /// The packet has already touched this array, or a later one, in this pass. No switch can run such a
    /// program.
    pub fn touch(&mut self, array: u32) {
        assert!(
            array >= self.next_array,
            "array {array} = touched again in one pass; allowed: once, arrays {} and later",
            self.next_array
        );
        self.next_array = array + 1;
    }

    /// Sends the packet through the pipeline again.
    ///
    /// # Panics
    /// The packet has passed as often as the switch allows.
    pub fn resubmit(&mut self) {
        let (passes, most) = (self.passes + 1, self.passes_max);
        assert!(passes <= most, "passes = {passes}; allowed: 1 to {most}");
        (self.passes, self.next_array) = (passes, 0);
    }

    /// Returns the number of passes so far.
    pub fn passes(&self) -> u32 {
        self.passes
    }
}

/// A program of a switch.
pub trait Program {
    /// Processes one packet of `from`. Calls `send` for each packet that leaves the switch.
    fn process(
        &mut self,
        from: Endpoint,
        packet: &[u8],
        pass: &mut Pass,
        send: &mut dyn FnMut(Endpoint, &[u8]),
    );
}

/// A program that its owner can look at between events, as the control plane of the switch does.
impl<P: Program> Program for Rc<RefCell<P>> {
    fn process(
        &mut self,
        from: Endpoint,
        packet: &[u8],
        pass: &mut Pass,
        send: &mut dyn FnMut(Endpoint, &[u8]),
    ) {
        self.borrow_mut().process(from, packet, pass, send);
    }
}

/// A switch of the cluster.
pub(crate) struct Switch {
    pub(crate) slot: usize,
    config: SwitchConfig,
    program: Box<dyn Program>,
    /// The part that takes one packet in each slot.
    pub(crate) pipeline: Resource,
    /// Packets that leave, and buffers that are reused.
    pub(crate) leaving: Vec<(Endpoint, Vec<u8>)>,
    pub(crate) free: Vec<Vec<u8>>,
}

impl Switch {
    /// How long one packet occupies the pipeline's entry.
    fn slot_ps(&self) -> u64 {
        1_000_000 / u64::from(self.config.packets_mpps)
    }
}

impl Switch {
    /// A switch without packets, at a node's slot.
    ///
    /// # Errors
    /// The shape is impossible. The error names the field, its value and the allowed values.
    pub(crate) fn new(
        slot: usize,
        config: SwitchConfig,
        program: Box<dyn Program>,
    ) -> Result<Switch, ConfigError> {
        check("packets_mpps", u64::from(config.packets_mpps), MPPS_MAX, "")?;
        check("passes_max", u64::from(config.passes_max), PASSES_MAX, "")?;
        let (pipeline, leaving, free) = (Resource::default(), Vec::new(), Vec::new());
        Ok(Switch { slot, config, program, pipeline, leaving, free })
    }

    /// Runs the program on a packet that arrives at `now_ps`, and takes the pipeline's slots for it. Returns the
    /// end of these slots, and the number of passes. The packets that leave are then in `leaving`.
    pub(crate) fn take(&mut self, now_ps: u64, from: Endpoint, bytes: &[u8]) -> (u64, u64) {
        let mut pass = Pass::new(self.config.passes_max);
        let Switch { program, leaving, free, .. } = self;
        program.process(from, bytes, &mut pass, &mut |to, bytes| {
            let mut buffer = free.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(bytes);
            leaving.push((to, buffer));
        });
        let passes = u64::from(pass.passes());
        (self.pipeline.reserve(now_ps, passes * self.slot_ps()), passes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_touches_arrays_in_their_order_and_begins_again_when_resubmitted() {
        let mut pass = Pass::new(2);
        [0, 2, 5].into_iter().for_each(|array| pass.touch(array));
        pass.resubmit();
        pass.touch(0);
        assert_eq!(pass.passes(), 2);
    }

    #[test]
    #[should_panic(
        expected = "array 3 = touched again in one pass; allowed: once, arrays 4 and later"
    )]
    fn a_second_touch_of_an_array_is_refused() {
        let mut pass = Pass::new(1);
        pass.touch(3);
        pass.touch(3);
    }

    #[test]
    #[should_panic(expected = "array 1 = touched again in one pass")]
    fn an_array_of_an_earlier_stage_is_refused() {
        let mut pass = Pass::new(1);
        pass.touch(2);
        pass.touch(1);
    }

    #[test]
    #[should_panic(expected = "passes = 3; allowed: 1 to 2")]
    fn a_packet_passes_no_more_often_than_the_switch_allows() {
        let mut pass = Pass::new(2);
        pass.resubmit();
        pass.resubmit();
    }
}
