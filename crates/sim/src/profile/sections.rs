//! The constants of a profile, section by section, with the range of meaningful values for each.
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
        /// Switching from one coroutine to another.
        switch_ns: 0 to 100_000,
        /// Making one work request of a doorbell batch.
        post_verb_ns: 0 to 100_000,
        /// Ringing a doorbell that no other thread uses, once a batch.
        doorbell_ns: 0 to 100_000,
        /// Doorbell registers of a node. The node's threads are spread over them in turn.
        doorbell_registers: 1 to 65536,
        /// Registers that belong to one thread each: to the first threads. At least one register is
        /// always left to be shared.
        doorbell_private_registers: 0 to 65536,
        /// The extra cost of a doorbell as soon as threads share its register.
        doorbell_shared_ns: 0 to 100_000,
        /// The further cost for each thread beyond the first that shares it.
        doorbell_handoff_ns: 0 to 100_000,
        /// Finding one completion. Batches are signalled selectively: one completion a batch.
        poll_completion_ns: 0 to 100_000,
        /// Sending one message.
        send_message_ns: 0 to 1_000_000,
        /// Receiving one message: finding its completion, and giving its buffer back.
        receive_message_ns: 0 to 1_000_000,
        /// Handing a message to its handler.
        handler_ns: 0 to 1_000_000,
        /// A coordinator's own work for one try of a transaction.
        transaction_ns: 0 to 10_000_000,
        /// The same work for each record of the transaction.
        record_ns: 0 to 10_000_000,
        /// The further work for each record that the transaction changes.
        written_record_ns: 0 to 10_000_000,
        /// A coordinator's own work for one try that reads records together, without a working set.
        together_ns: 0 to 10_000_000,
        /// The same work for each record of that transaction.
        together_record_ns: 0 to 10_000_000,
        /// One lookup in a table of the compute node.
        local_lookup_ns: 0 to 100_000,
        /// One compare-and-swap on memory of the compute node.
        local_atomic_ns: 0 to 100_000,
    }
}

section! {
    /// The NIC of every node.
    Nic, "nic", {
        /// Work requests that the NIC can send in a second, in millions.
        transmit_mops: 0.001 to 10_000,
        /// Responses and messages that it can receive in a second, in millions.
        receive_mops: 0.001 to 10_000,
        /// Larger payloads are fetched from the requester's memory by a second DMA.
        inline_max_bytes: 0 to 65536,
        /// How long that DMA occupies the transmit side.
        second_dma_ns: 0 to 100_000,
        /// Work requests in flight that the NIC keeps on chip.
        work_queue_entries: 1 to 1_000_000,
        /// The cost at the transmit side of a work request that the NIC must fetch again.
        work_queue_miss_ns: 0 to 100_000,
        /// From the doorbell to the transmit side.
        issue_ns: 0 to 1_000_000,
        /// From the responder's pipeline to its link: access to the memory behind PCIe.
        respond_ns: 0 to 1_000_000,
        /// From the requester's link to a completion that its processor can see.
        complete_ns: 0 to 1_000_000,
        /// From a request that is not answered to the error at the requester.
        retry_timeout_ns: 0 to 1_000_000_000,
        /// Small READs that a responder's pipeline can execute in a second, in millions.
        read_mops: 0.001 to 10_000,
        /// The same for small WRITEs.
        write_mops: 0.001 to 10_000,
        /// Atomics that the pipeline can pass to the atomic unit in a second, in millions.
        atomic_mops: 0.001 to 10_000,
        /// How long an atomic occupies the atomic unit, or its address.
        atomic_unit_ns: 0 to 1_000_000,
        /// Number of slots of addresses. Atomics on addresses that share a slot do not run in parallel.
        atomic_slots: 1 to 1_000_000,
        /// Rate at which the pipeline moves payload beyond the first line, in gigabits a second.
        pipeline_gbps: 0.001 to 100_000,
    }
}

section! {
    /// Cables and the switch.
    Link, "link", {
        /// Bandwidth in each direction, in gigabits a second.
        bandwidth_gbps: 0.001 to 100_000,
        /// Payload of one packet, in bytes.
        mtu_bytes: 64 to 65536,
        /// Time over the cables of one way.
        propagation_ns: 0 to 1_000_000_000,
        /// Time through the switch.
        switch_ns: 0 to 1_000_000_000,
    }
}

section! {
    /// Oscillators and their synchronisation.
    Clock, "clock", {
        /// Largest drift of a node's clock, too fast or too slow, in millionths.
        drift_ppm: 0 to 100_000,
        /// Largest offset of a node's clock when a run starts.
        offset_ns: 0 to 1_000_000_000,
    }
}

section! {
    /// The steps that a machine needs when it restarts.
    Cluster, "cluster", {
        /// Registering its memory with its NIC.
        reregister_ms: 0 to 1_000_000,
        /// Connecting its queue pairs.
        reconnect_ms: 0 to 1_000_000,
    }
}
