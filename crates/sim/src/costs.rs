//! The constants of a profile in picoseconds. The model charges costs in picoseconds.
//!
//! Invariant: the numbers in picoseconds are derived from the profile once, when a cluster is made. No
//! number is tuned in this file. The sizes of headers are taken from the specifications (InfiniBand
//! Architecture Specification, vol. 1: LRH 8, BTH 12, RETH 16, AETH 4, AtomicETH 28, AtomicAckETH 8,
//! DETH 8, ICRC 4, VCRC 2 bytes). RoCEv2 has Ethernet 14, IPv4 20, UDP 8, FCS 4 and a gap of 20 in
//! place of LRH and VCRC.

use crate::config::ConfigError;
use crate::doorbells::DoorbellCosts;
use crate::profile::{self, AtomicUnit, Constant, Doorbells, Framing, Profile};
use tarn_fabric::round::{Verb, VerbKind};

/// The number of bytes of headers of each kind of packet, without payload.
#[derive(Clone, Copy, Debug)]
struct Headers {
    read_request: u64,
    read_response: u64,
    write: u64,
    ack: u64,
    atomic_request: u64,
    atomic_response: u64,
    datagram: u64,
    /// The bytes of headers of each packet of a message, except the message's first packet.
    more: u64,
}

const INFINIBAND: Headers = Headers {
    read_request: 42,
    read_response: 30,
    write: 42,
    ack: 30,
    atomic_request: 54,
    atomic_response: 38,
    datagram: 34,
    more: 26,
};

const ROCE_V2: Headers = Headers {
    read_request: 78,
    read_response: 66,
    write: 78,
    ack: 66,
    atomic_request: 90,
    atomic_response: 74,
    datagram: 70,
    more: 62,
};

/// A cost per byte, in units of 2^-24 picoseconds. No batch is as long as 2^24 bytes.
#[derive(Clone, Copy, Debug)]
struct PerByte(u64);

impl PerByte {
    fn of_gbps(gbps: f64) -> PerByte {
        PerByte((8e3 / gbps * f64::from(1 << 24)).round() as u64)
    }

    #[inline(always)]
    fn of(self, bytes: u64) -> u64 {
        (bytes * self.0) >> 24
    }
}

/// One number for each kind of verb, by the number of the kind.
type ByKind = [u64; Verb::KINDS_MAX];

/// The costs of verbs, indexed by the number of the verb's kind. The processor cannot predict the kind
/// of a verb. So the simulator reads the cost from a table, without a branch.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    /// The time that a verb spends in the pipeline, without the time for bytes beyond the first 64.
    pipeline: ByKind,
    /// The largest number of bytes that a request carries without a separate DMA.
    inline_max: ByKind,
    request: ByKind,
    /// For each kind of verb, a mask of the verb's bytes in the request. All bits are set if the
    /// request carries the verb's bytes. The mask is 0 if the request carries no bytes.
    request_payload: ByKind,
    response: ByKind,
    response_payload: ByKind,
}

impl Kinds {
    fn of([read, write, atomic]: [u64; 3], inline_max_bytes: u64, headers: &Headers) -> Kinds {
        // All kinds except READ and WRITE are atomics.
        let of = |[read, write, atomic]: [u64; 3]| {
            let mut by_kind = [atomic; Verb::KINDS_MAX];
            by_kind[VerbKind::Read as usize] = read;
            by_kind[VerbKind::Write as usize] = write;
            by_kind
        };
        Kinds {
            pipeline: of([read, write, atomic]),
            inline_max: of([u64::MAX, inline_max_bytes, u64::MAX]),
            request: of([headers.read_request, headers.write, headers.atomic_request]),
            request_payload: of([0, u64::MAX, 0]),
            response: of([headers.read_response, 0, headers.atomic_response]),
            response_payload: of([u64::MAX, 0, 0]),
        }
    }
}

/// The number that stands for a thread's full speed. A thread with the slowness `2 * SPEED` takes twice
/// the time.
pub(crate) const SPEED: u64 = 1 << 10;

/// Work requests that a thread posts together: all of them, the WRITEs among them, and the WRITEs whose
/// bytes the NIC fetches by a separate DMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    pub(crate) verbs: u64,
    pub(crate) writes: u64,
    pub(crate) fetched: u64,
}

/// The misses of one cache of a NIC. Each work request in flight beyond `entries` makes some more of them
/// miss, until after `spread` further work requests all of them miss.
#[derive(Clone, Copy, Debug)]
struct Misses {
    entries: u64,
    spread: u64,
    /// How long a miss occupies the transmit side.
    miss: u64,
}

impl Misses {
    fn of(entries: &Constant<f64>, spread: &Constant<f64>, miss: &Constant<f64>) -> Misses {
        let (entries, spread) = (entries.value as u64, spread.value as u64);
        Misses { entries, spread, miss: ps(miss) }
    }

    /// Returns how much longer a work request occupies the transmit side on average.
    fn each(&self, in_flight: u64) -> u64 {
        self.miss * in_flight.saturating_sub(self.entries).min(self.spread) / self.spread
    }
}

/// The misses of work requests: of READs and atomics when they are sent and when their responses arrive,
/// and of WRITEs when they are sent. The NIC needs no work request to take the acknowledgement of a WRITE.
#[derive(Clone, Copy, Debug)]
struct WorkQueue {
    /// The number of work requests in flight up to which none of them misses.
    entries: u64,
    read: Misses,
    response: Misses,
    write: Misses,
}

impl WorkQueue {
    fn of(nic: &profile::Nic) -> WorkQueue {
        let sent = &nic.work_queue_entries;
        let read = Misses::of(sent, &nic.work_queue_read_spread, &nic.work_queue_read_miss_ns);
        let write = Misses::of(sent, &nic.work_queue_write_spread, &nic.work_queue_write_miss_ns);
        let response =
            Misses::of(&nic.response_entries, &nic.response_spread, &nic.response_miss_ns);
        let entries = read.entries.min(response.entries);
        WorkQueue { entries, read, response, write }
    }

    /// Returns how much longer work requests occupy the transmit side because some of them miss.
    #[inline]
    fn missed(&self, Requests { verbs, writes, .. }: Requests, in_flight: u64) -> u64 {
        if in_flight <= self.entries {
            return 0;
        }
        (verbs - writes) * (self.read.each(in_flight) + self.response.each(in_flight))
            + writes * self.write.each(in_flight)
    }
}

/// The costs of one profile. All fields except the last group of fields are in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    pub(crate) switch: u64,
    post_verb: u64,
    post_write: u64,
    /// The costs that a thread pays to ring a doorbell.
    pub(crate) doorbells: DoorbellCosts,
    pub(crate) far_doorbell: u64,
    pub(crate) far_completion: u64,
    pub(crate) poll_completion: u64,
    pub(crate) send_message: u64,
    pub(crate) receive_message: u64,
    pub(crate) handler: u64,
    transaction: u64,
    record: u64,
    written_record: u64,
    together: u64,
    together_record: u64,
    pub(crate) local_lookup: u64,
    pub(crate) local_atomic: u64,

    transmit_read: u64,
    transmit_write: u64,
    pub(crate) receive: u64,
    pub(crate) second_dma: u64,
    work_queue: WorkQueue,
    pub(crate) issue: u64,
    pub(crate) respond: u64,
    pub(crate) complete: u64,
    pub(crate) retry_timeout: u64,
    pub(crate) atomic_unit: u64,
    /// The time that a packet needs for one way over cables and switch.
    pub(crate) travel: u64,
    /// The time over the cables between a node and the switch.
    pub(crate) half_way: u64,
    /// The time of one pass through the switch's pipeline.
    pub(crate) through_switch: u64,

    /// The number of work requests that a queue pair may have outstanding; 0: any number.
    pub(crate) credits: u64,
    pub(crate) doorbell_registers: u32,
    pub(crate) doorbell_private: u32,
    pub(crate) inline_max_bytes: u64,
    pub(crate) doorbells_of: Doorbells,
    pub(crate) cores: usize,
    /// The number of cores in the socket of the NIC.
    pub(crate) near_cores: usize,
    pub(crate) hyperthread: u64,
    pub(crate) unit: AtomicUnit,
    pub(crate) atomic_slots: usize,
    pipeline_each_byte: PerByte,
    link_each_byte: PerByte,
    mtu_bytes: u64,
    headers: Headers,
    kinds: Kinds,
}

fn ps(ns: &Constant<f64>) -> u64 {
    (ns.value * 1e3).round() as u64
}

fn ps_each(mops: &Constant<f64>) -> u64 {
    (1e6 / mops.value).round() as u64
}

impl Costs {
    pub(crate) fn of(profile: &Profile) -> Costs {
        let Profile { form, cpu, nic, link, .. } = profile;
        let headers = match form.framing.value {
            Framing::Infiniband => INFINIBAND,
            Framing::RoceV2 => ROCE_V2,
        };
        let rates = [&nic.read_mops, &nic.write_mops, &nic.atomic_mops];
        let inline_max_bytes = nic.inline_max_bytes.value as u64;
        Costs {
            switch: ps(&cpu.switch_ns),
            post_verb: ps(&cpu.post_verb_ns),
            post_write: ps(&cpu.post_write_ns),
            doorbells: DoorbellCosts {
                alone_ps: ps(&cpu.doorbell_ns),
                shared_ps: ps(&cpu.doorbell_shared_ns),
                handoff_ps: ps(&cpu.doorbell_handoff_ns),
                waiting_max: cpu.doorbell_waiting_max.value as u64,
            },
            far_doorbell: ps(&cpu.far_doorbell_ns),
            far_completion: ps(&cpu.far_completion_ns),
            poll_completion: ps(&cpu.poll_completion_ns),
            send_message: ps(&cpu.send_message_ns),
            receive_message: ps(&cpu.receive_message_ns),
            handler: ps(&cpu.handler_ns),
            transaction: ps(&cpu.transaction_ns),
            record: ps(&cpu.record_ns),
            written_record: ps(&cpu.written_record_ns),
            together: ps(&cpu.together_ns),
            together_record: ps(&cpu.together_record_ns),
            local_lookup: ps(&cpu.local_lookup_ns),
            local_atomic: ps(&cpu.local_atomic_ns),
            transmit_read: ps_each(&nic.transmit_read_mops),
            transmit_write: ps_each(&nic.transmit_write_mops),
            receive: ps_each(&nic.receive_mops),
            second_dma: ps(&nic.second_dma_ns),
            work_queue: WorkQueue::of(nic),
            issue: ps(&nic.issue_ns),
            respond: ps(&nic.respond_ns),
            complete: ps(&nic.complete_ns),
            retry_timeout: ps(&nic.retry_timeout_ns),
            atomic_unit: ps(&nic.atomic_unit_ns),
            travel: ps(&link.propagation_ns) + ps(&link.switch_ns),
            half_way: ps(&link.propagation_ns) / 2,
            through_switch: ps(&link.switch_ns),
            credits: cpu.queue_pair_credits.value as u64,
            doorbell_registers: cpu.doorbell_registers.value as u32,
            doorbell_private: cpu.doorbell_private_registers.value as u32,
            inline_max_bytes,
            doorbells_of: form.doorbells.value,
            cores: cpu.cores.value as usize,
            near_cores: (cpu.cores.value / cpu.sockets.value).ceil() as usize,
            hyperthread: (cpu.hyperthread_slowdown.value * SPEED as f64).round() as u64,
            unit: form.atomic_unit.value,
            atomic_slots: nic.atomic_slots.value as usize,
            pipeline_each_byte: PerByte::of_gbps(nic.pipeline_gbps.value),
            link_each_byte: PerByte::of_gbps(link.bandwidth_gbps.value),
            mtu_bytes: link.mtu_bytes.value as u64,
            kinds: Kinds::of(rates.map(ps_each), inline_max_bytes, &headers),
            headers,
        }
    }

    /// Checks that nodes that were created for these costs can also be charged by the costs of `other`.
    pub(crate) fn same_parts(&self, other: &Costs) -> Result<(), ConfigError> {
        let parts = |costs: &Costs| {
            [
                ("cpu.doorbell_registers", u64::from(costs.doorbell_registers)),
                ("cpu.doorbell_private_registers", u64::from(costs.doorbell_private)),
                ("nic.atomic_slots", costs.atomic_slots as u64),
                ("form.atomic_unit", costs.unit as u64),
                ("form.doorbells", costs.doorbells_of as u64),
                ("cpu.cores", costs.cores as u64),
                ("cpu.queue_pair_credits", costs.credits),
            ]
        };
        let both = parts(self).into_iter().zip(parts(other));
        match both.into_iter().find(|(mine, theirs)| mine != theirs) {
            None => Ok(()),
            Some(((field, mine), (_, theirs))) => {
                let allowed = format!("{mine}, as when the cluster was made");
                Err(ConfigError { field, value: theirs.to_string(), allowed })
            }
        }
    }

    /// Returns how long a verb occupies the responder's pipeline.
    #[inline]
    pub(crate) fn pipeline(&self, verb: &Verb) -> u64 {
        // An atomic has 8 bytes, so no byte of an atomic lies beyond the first 64 bytes.
        let beyond = (verb.len_bytes() as u64).saturating_sub(64);
        self.kinds.pipeline[verb.kind_number()] + self.pipeline_each_byte.of(beyond)
    }

    /// Returns whether the requester's NIC fetches a verb's bytes by a separate DMA.
    #[inline]
    pub(crate) fn is_fetched(&self, verb: &Verb) -> bool {
        verb.len_bytes() as u64 > self.kinds.inline_max[verb.kind_number()]
    }

    /// Returns the processor time to create work requests.
    #[inline]
    pub(crate) fn post(&self, Requests { verbs, writes, .. }: Requests) -> u64 {
        verbs * self.post_verb + writes * self.post_write
    }

    /// Returns how long a batch's work requests occupy the requester's transmit side while the NIC
    /// has `in_flight` work requests.
    #[inline]
    pub(crate) fn transmit(&self, requests: Requests, in_flight: u64) -> u64 {
        self.sent(requests) + self.work_queue.missed(requests, in_flight)
    }

    /// Returns how long work requests that the NIC has on chip occupy the requester's transmit side.
    #[inline]
    fn sent(&self, Requests { verbs, writes, fetched }: Requests) -> u64 {
        (verbs - writes) * self.transmit_read
            + writes * self.transmit_write
            + fetched * self.second_dma
    }

    /// Returns the processor time that a coordinator itself needs for one try of a transaction.
    #[inline]
    pub(crate) fn transaction(&self, records: u64, written: u64) -> u64 {
        self.transaction + records * self.record + written * self.written_record
    }

    /// Returns the processor time that a coordinator itself needs for one try of a transaction that
    /// reads all records together, without a working set.
    #[inline]
    pub(crate) fn together(&self, records: u64) -> u64 {
        self.together + records * self.together_record
    }

    /// Returns how long one datagram occupies its sender's transmit side. As the bytes of a WRITE, the
    /// bytes of a datagram leave with its request.
    pub(crate) fn transmit_message(&self, payload: usize) -> u64 {
        let is_fetched = payload as u64 > self.inline_max_bytes;
        self.transmit_write + if is_fetched { self.second_dma } else { 0 }
    }

    /// Returns the time between two verbs of a batch. The slower part of the requester's NIC and the
    /// link decides this time.
    #[inline]
    pub(crate) fn apart(&self, requests: Requests, request_bytes: u64) -> u64 {
        if requests.verbs == 1 {
            return 0;
        }
        self.sent(requests).max(self.link(request_bytes)) / requests.verbs
    }

    /// Returns how long `bytes` bytes occupy a link.
    #[inline]
    pub(crate) fn link(&self, bytes: u64) -> u64 {
        self.link_each_byte.of(bytes)
    }

    /// Returns the number of bytes that a verb's request has on the wire.
    #[inline]
    pub(crate) fn request_bytes(&self, verb: &Verb) -> u64 {
        let (kinds, kind) = (&self.kinds, verb.kind_number());
        kinds.request[kind] + (self.payload(verb.len_bytes() as u64) & kinds.request_payload[kind])
    }

    /// Returns the number of bytes that a verb's response has on the wire. A WRITE has no response of
    /// its own, so the number of bytes for a WRITE is 0.
    #[inline]
    pub(crate) fn response_bytes(&self, verb: &Verb) -> u64 {
        let (kinds, kind) = (&self.kinds, verb.kind_number());
        kinds.response[kind]
            + (self.payload(verb.len_bytes() as u64) & kinds.response_payload[kind])
    }

    /// Returns the number of bytes of the acknowledgement that ends a batch of WRITEs.
    pub(crate) fn ack_bytes(&self) -> u64 {
        self.headers.ack
    }

    /// Returns the payload of one packet, in bytes.
    pub(crate) fn mtu_bytes(&self) -> u64 {
        self.mtu_bytes
    }

    /// Returns the number of bytes that a message has on the wire.
    pub(crate) fn datagram_bytes(&self, payload: usize) -> u64 {
        self.headers.datagram + self.payload(payload as u64)
    }

    /// Returns the number of bytes of the padded payload and of all headers except the headers of the
    /// first packet. The payload is padded to words of 4 bytes.
    #[inline]
    fn payload(&self, bytes: u64) -> u64 {
        let padded = (bytes + 3) & !3;
        if bytes <= self.mtu_bytes {
            return padded;
        }
        padded + (bytes - 1) / self.mtu_bytes * self.headers.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Address, GroupId, NodeSlot};
    use tarn_fabric::round::Round;

    fn verb(bytes: usize) -> Verb {
        let mut round = Round::new();
        round.read(Address::new(GroupId(0), 64).at(NodeSlot(0)), bytes);
        round.verbs()[0]
    }

    #[test]
    fn bytes_on_the_wire_are_those_of_the_specification() {
        let ib = Costs::of(&Profile::load("cx3-56g").unwrap());
        let roce = Costs::of(&Profile::load("cx5-100g").unwrap());
        let read = verb(1418);
        assert_eq!((ib.request_bytes(&read), ib.response_bytes(&read)), (42, 30 + 1420));
        assert_eq!((roce.request_bytes(&read), roce.response_bytes(&read)), (78, 66 + 1420));
        assert_eq!(ib.response_bytes(&verb(10_000)), 30 + 10_000 + 2 * 26);
    }

    #[test]
    fn nodes_are_not_charged_for_parts_that_they_lack() {
        let profile = Profile::load("cx3-56g").unwrap();
        let costs = Costs::of(&profile);
        let slow = profile.clone().with("cpu.doorbell_ns", 900.0).unwrap();
        assert_eq!(costs.same_parts(&Costs::of(&slow)), Ok(()));
        let other = profile.with("cpu.doorbell_registers", 8.0).unwrap();
        let error = costs.same_parts(&Costs::of(&other)).expect_err("refused").to_string();
        assert_eq!(error, "cpu.doorbell_registers = 8; allowed: 16, as when the cluster was made");
    }

    #[test]
    fn a_read_occupies_the_pipeline_by_its_bytes() {
        let costs = Costs::of(&Profile::load("cx3-56g").unwrap());
        assert_eq!(costs.pipeline(&verb(8)), 37_736); // the model's pipeline serves 26.5 million verbs per second
        assert_eq!(costs.pipeline(&verb(8)), costs.pipeline(&verb(64)));
        assert_eq!(costs.pipeline(&verb(764)) - costs.pipeline(&verb(64)), 100_000);
    }
}
