//! The constants of a profile, section by section, with the range of meaningful values for each.
//!
//! Invariant: a constant is declared once, in this file. The code that reads, checks and lists the
//! constant is generated from this declaration.

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
    /// The costs of the processors of compute nodes.
    Cpu, "cpu", {
        /// The time to switch from one coroutine to another.
        switch_ns: 0 to 100_000,
        /// The time to create one work request of a doorbell batch.
        post_verb_ns: 0 to 100_000,
        /// The extra time to create the work request of a WRITE, which carries the bytes.
        post_write_ns: 0 to 100_000,
        /// The time to ring a doorbell that no other thread uses. A thread rings once per batch.
        doorbell_ns: 0 to 100_000,
        /// The number of doorbell registers of a node. The node's queue pairs are assigned to the
        /// registers in turn, in the order in which the queue pairs are created. Has no effect if each
        /// thread has a register of its own (`form.doorbells`).
        doorbell_registers: 1 to 65536,
        /// The number of doorbell registers that belong to one queue pair each. The first queue pairs
        /// of a node get these registers. At least one register always remains to be shared.
        doorbell_private_registers: 0 to 65536,
        /// The extra cost of a ring while another thread waits for the same doorbell register.
        doorbell_shared_ns: 0 to 100_000,
        /// The extra cost of a ring for each other thread that waits for the same doorbell register.
        doorbell_handoff_ns: 0 to 100_000,
        /// The number of waiting threads beyond which further waiting threads do not make a ring longer.
        doorbell_waiting_max: 1 to 65536,
        /// The number of work requests that a queue pair may have outstanding. The requester lets a batch wait
        /// until enough of these credits are free. 0: no limit.
        queue_pair_credits: 0 to 65536,
        /// The number of physical cores of a compute node. Each thread beyond this number shares a core
        /// with an earlier thread.
        cores: 1 to 65536,
        /// The number of sockets of a compute node. Each has the same number of cores. The NIC belongs to
        /// the first socket.
        sockets: 1 to 64,
        /// The extra time of a ring by a thread in another socket than the NIC.
        far_doorbell_ns: 0 to 100_000,
        /// The extra time until a thread in another socket than the NIC sees a completion.
        far_completion_ns: 0 to 1_000_000,
        /// The factor by which a thread's work takes longer while another thread shares its core.
        hyperthread_slowdown: 1 to 100,
        /// The time to find one completion. Batches are signalled selectively, so each batch has one
        /// completion.
        poll_completion_ns: 0 to 100_000,
        /// The time to send one message.
        send_message_ns: 0 to 1_000_000,
        /// The time to receive one message: the thread finds the message's completion and gives the
        /// message's buffer back.
        receive_message_ns: 0 to 1_000_000,
        /// The time to hand a message to its handler.
        handler_ns: 0 to 1_000_000,
        /// The processor time that a coordinator itself needs for one try of a transaction.
        transaction_ns: 0 to 10_000_000,
        /// The processor time that a coordinator itself needs for each record of the transaction.
        record_ns: 0 to 10_000_000,
        /// The extra processor time that a coordinator itself needs for each record that the
        /// transaction changes.
        written_record_ns: 0 to 10_000_000,
        /// The processor time that a coordinator itself needs for one try that reads all records
        /// together, without a working set.
        together_ns: 0 to 10_000_000,
        /// The processor time that a coordinator itself needs for each record of a transaction that
        /// reads all records together.
        together_record_ns: 0 to 10_000_000,
        /// The time of one lookup in a table of the compute node.
        local_lookup_ns: 0 to 100_000,
        /// The time of one compare-and-swap on the compute node's own memory.
        local_atomic_ns: 0 to 100_000,
    }
}

section! {
    /// The costs of the NIC of every node.
    Nic, "nic", {
        /// The number of READs and atomics that the NIC can send per second, in millions.
        transmit_read_mops: 0.001 to 10_000,
        /// The number of WRITEs and messages that the NIC can send per second, in millions.
        transmit_write_mops: 0.001 to 10_000,
        /// The number of responses and messages that the NIC can receive per second, in millions.
        receive_mops: 0.001 to 10_000,
        /// The largest payload that is sent inline, in bytes. The NIC fetches larger payloads from the
        /// requester's memory by a second DMA.
        inline_max_bytes: 0 to 65536,
        /// How long the second DMA, which fetches a large payload, occupies the transmit side.
        second_dma_ns: 0 to 100_000,
        /// The number of work requests in flight that the NIC keeps on chip.
        work_queue_entries: 1 to 1_000_000,
        /// How much longer a READ or an atomic occupies the transmit side if all of them must be fetched
        /// again.
        work_queue_read_miss_ns: 0 to 100_000,
        /// The number of work requests in flight, beyond those on chip, with which all READs and atomics
        /// must be fetched again.
        work_queue_read_spread: 1 to 1_000_000,
        /// The number of READs and atomics in flight that the NIC still has on chip when their responses
        /// arrive.
        response_entries: 1 to 1_000_000,
        /// How much longer a READ or an atomic occupies the transmit side if all of them must be fetched
        /// once more for their responses.
        response_miss_ns: 0 to 100_000,
        /// The number of work requests in flight, beyond `response_entries`, with which all READs and
        /// atomics must be fetched once more for their responses.
        response_spread: 1 to 1_000_000,
        /// How much longer a WRITE occupies the transmit side if all WRITEs must be fetched again.
        work_queue_write_miss_ns: 0 to 100_000,
        /// The number of work requests in flight, beyond those on chip, with which all WRITEs must be
        /// fetched again.
        work_queue_write_spread: 1 to 1_000_000,
        /// The time from the doorbell to the transmit side.
        issue_ns: 0 to 1_000_000,
        /// The time from the responder's pipeline to the responder's link. In this time the NIC
        /// accesses the memory behind PCIe.
        respond_ns: 0 to 1_000_000,
        /// The time from the requester's link to a completion that the requester's processor can see.
        complete_ns: 0 to 1_000_000,
        /// The time from a request that is not answered to the error at the requester.
        retry_timeout_ns: 0 to 1_000_000_000,
        /// The number of small READs that a responder's pipeline can execute per second, in millions.
        read_mops: 0.001 to 10_000,
        /// The number of small WRITEs that a responder's pipeline can execute per second, in millions.
        write_mops: 0.001 to 10_000,
        /// The number of atomics that the pipeline can pass to the atomic unit per second, in millions.
        atomic_mops: 0.001 to 10_000,
        /// How long an atomic occupies the atomic unit, or the slot of its address.
        atomic_unit_ns: 0 to 1_000_000,
        /// The number of slots of addresses. Atomics on addresses that share a slot do not run in
        /// parallel.
        atomic_slots: 1 to 1_000_000,
        /// The rate at which the pipeline moves payload beyond the first line, in gigabits per second.
        pipeline_gbps: 0.001 to 100_000,
    }
}

section! {
    /// The costs of cables and the switch.
    Link, "link", {
        /// The bandwidth in each direction, in gigabits per second.
        bandwidth_gbps: 0.001 to 100_000,
        /// The payload of one packet, in bytes.
        mtu_bytes: 64 to 65536,
        /// The time that a packet needs over the cables for one way.
        propagation_ns: 0 to 1_000_000_000,
        /// The time that a packet needs through the switch.
        switch_ns: 0 to 1_000_000_000,
    }
}

section! {
    /// The properties of oscillators and their synchronisation.
    Clock, "clock", {
        /// The largest drift of a node's clock, too fast or too slow, in millionths.
        drift_ppm: 0 to 100_000,
        /// The largest offset of a node's clock when a run starts.
        offset_ns: 0 to 1_000_000_000,
    }
}

section! {
    /// The times of the steps that a machine takes when it restarts.
    Cluster, "cluster", {
        /// The time to register the machine's memory with its NIC.
        reregister_ms: 0 to 1_000_000,
        /// The time to connect the machine's queue pairs.
        reconnect_ms: 0 to 1_000_000,
    }
}
