//! The constants of a profile, section by section, with the range within which each makes sense.
//!
//! Invariant: a constant is declared once, here; reading, checking and listing follow from it.

use super::{Constant, Listed};
use serde::{Deserialize, Serialize};

macro_rules! section {
    ($(#[$about:meta])* $type:ident, $section:literal, {
        $($(#[$doc:meta])* $field:ident: $low:literal to $high:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct $type {
            $($(#[$doc])* pub $field: Constant<f64>,)*
        }

        impl $type {
            pub(super) fn constants(&self) -> Vec<Listed<'_>> {
                vec![$(Listed {
                    section: $section,
                    name: stringify!($field),
                    constant: &self.$field,
                    allowed: ($low as f64, $high as f64),
                },)*]
            }

            pub(super) fn slot(&mut self, name: &str) -> Option<&mut Constant<f64>> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

section! {
    /// The processors of compute nodes.
    Cpu, "cpu", {
        /// Going from one coroutine to another.
        switch_ns: 0 to 100_000,
        /// Making one work request of a doorbell batch.
        post_verb_ns: 0 to 100_000,
        /// Ringing a doorbell that no other thread uses, once a batch.
        doorbell_ns: 0 to 100_000,
        /// Doorbell registers of a node, shared by its threads in turn.
        doorbell_registers: 1 to 65536,
        /// Of these, so many have one thread each: those of the first threads. One is always left to
        /// be shared.
        doorbell_private_registers: 0 to 65536,
        /// What a doorbell costs more as soon as threads share its register.
        doorbell_shared_ns: 0 to 100_000,
        /// What it costs more for every thread beyond the first that shares it.
        doorbell_handoff_ns: 0 to 100_000,
        /// Finding one completion. Batches are signalled selectively: one completion a batch.
        poll_completion_ns: 0 to 100_000,
        /// Sending one message.
        send_message_ns: 0 to 1_000_000,
        /// Receiving one message: its completion, and giving its buffer back.
        receive_message_ns: 0 to 1_000_000,
        /// Handing a message to whoever it is for.
        handler_ns: 0 to 1_000_000,
        /// A coordinator's own work for one try of a transaction.
        transaction_ns: 0 to 10_000_000,
        /// The same for each of its records.
        record_ns: 0 to 10_000_000,
        /// The same, more, for each record that it changes.
        written_record_ns: 0 to 10_000_000,
        /// The same for one try that reads records together, without a working set.
        together_ns: 0 to 10_000_000,
        /// The same for each of its records.
        together_record_ns: 0 to 10_000_000,
        /// One look into a table of the compute node.
        local_lookup_ns: 0 to 100_000,
        /// One compare-and-swap on memory of the compute node.
        local_atomic_ns: 0 to 100_000,
    }
}

section! {
    /// The NIC of every node.
    Nic, "nic", {
        /// Work requests sent a second, in millions.
        transmit_mops: 0.001 to 10_000,
        /// Responses and messages received a second, in millions.
        receive_mops: 0.001 to 10_000,
        /// Larger payloads are fetched from the requester's memory by a second DMA.
        inline_max_bytes: 0 to 65536,
        /// For how long that DMA occupies the transmit side.
        second_dma_ns: 0 to 100_000,
        /// Work requests in flight that the NIC keeps on chip.
        work_queue_entries: 1 to 1_000_000,
        /// What a work request costs the transmit side that the NIC must fetch again.
        work_queue_miss_ns: 0 to 100_000,
        /// From the doorbell to the transmit side.
        issue_ns: 0 to 1_000_000,
        /// From the responder's pipeline to its link: access to the memory behind PCIe.
        respond_ns: 0 to 1_000_000,
        /// From the requester's link to a completion that its processor can see.
        complete_ns: 0 to 1_000_000,
        /// From a request that nobody answers to the error at the requester.
        retry_timeout_ns: 0 to 1_000_000_000,
        /// Small READs that a responder's pipeline executes a second, in millions.
        read_mops: 0.001 to 10_000,
        /// Small WRITEs.
        write_mops: 0.001 to 10_000,
        /// Atomics that the pipeline passes to the atomic unit.
        atomic_mops: 0.001 to 10_000,
        /// For how long an atomic occupies the atomic unit, or its address.
        atomic_unit_ns: 0 to 1_000_000,
        /// Atomics on addresses that share one of so many slots are not side by side.
        atomic_slots: 1 to 1_000_000,
        /// Payload beyond the first line that the pipeline moves, in gigabits a second.
        pipeline_gbps: 0.001 to 100_000,
    }
}

section! {
    /// Cables and the switch.
    Link, "link", {
        /// Bits a second and direction, in thousands of millions.
        bandwidth_gbps: 0.001 to 100_000,
        /// Payload of one packet.
        mtu_bytes: 64 to 65536,
        /// Over the cables of one way.
        propagation_ns: 0 to 1_000_000_000,
        /// Through the switch.
        switch_ns: 0 to 1_000_000_000,
    }
}

section! {
    /// Oscillators and their synchronisation.
    Clock, "clock", {
        /// A node's clock runs this much too fast or too slow at the most, in millionths.
        drift_ppm: 0 to 100_000,
        /// It is off by this much at the most when a run starts.
        offset_ns: 0 to 1_000_000_000,
    }
}

section! {
    /// What a machine takes that comes back.
    Cluster, "cluster", {
        /// Registering its memory with its NIC.
        reregister_ms: 0 to 1_000_000,
        /// Connecting its queue pairs.
        reconnect_ms: 0 to 1_000_000,
    }
}
