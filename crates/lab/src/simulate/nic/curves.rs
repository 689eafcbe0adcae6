//! The curves: what is varied, and what each point of them is.
//!
//! Invariant: a published figure's point is made by the same function as the curve's, so that both name
//! the same run.

use super::{Calls, Curve, Loop, Point, Verbs, name_of};
use tarn_fabric::round::VerbKind;

impl Verbs {
    /// One thread of so many machines, four batches of eight READs in flight each.
    pub const fn clients(clients: u16) -> Verbs {
        let (verb, posting) = (VerbKind::Read, Loop::Batches(4));
        Verbs { verb, clients, threads: 1, depth: 8, payload_bytes: 8, posting }
    }

    /// Four threads of eight machines, two batches of eight READs in flight each.
    pub const fn many() -> Verbs {
        Verbs { threads: 4, posting: Loop::Batches(2), ..Verbs::clients(8) }
    }

    /// So many threads of one machine, eight READs each, a doorbell for each.
    pub const fn doorbell(threads: u16) -> Verbs {
        Verbs { threads, posting: Loop::RingEach, ..Verbs::clients(1) }
    }

    /// One thread, so many verbs in one batch.
    pub const fn batch(verb: VerbKind, depth: u16) -> Verbs {
        Verbs { verb, depth, posting: Loop::Batches(1), ..Verbs::clients(1) }
    }

    /// One thread that never waits: hardly anything but posting is left of what it does.
    pub const fn posting_alone(verb: VerbKind) -> Verbs {
        Verbs { posting: Loop::Batches(4), ..Verbs::batch(verb, 64) }
    }
}

impl Calls {
    /// One call at a time at an idle node.
    pub const fn alone(bytes: u16) -> Calls {
        Calls {
            clients: 1,
            threads: 1,
            depth: 1,
            cores: 1,
            datagrams_a_poll: 1,
            request_bytes: bytes,
            reply_bytes: bytes,
            handler_ns: 0,
            together: 1,
            stamps: false,
        }
    }

    /// So many timestamps a call, of an idle service of one core.
    pub const fn stamp(together: u16) -> Calls {
        Calls { request_bytes: 4, reply_bytes: 16, together, stamps: true, ..Calls::alone(0) }
    }

    /// The same, of a service of so many cores that has all it can do.
    pub const fn stamps(cores: u16, together: u16) -> Calls {
        let (clients, threads, depth) = (4, 16, cores);
        Calls { clients, threads, depth, cores, datagrams_a_poll: 16, ..Calls::stamp(together) }
    }

    /// A saturated node of so many cores: 64 calls in flight for each.
    pub const fn saturated(cores: u16, datagrams_a_poll: u16) -> Calls {
        let many = Calls { clients: 4, threads: 16, depth: cores, ..Calls::alone(32) };
        Calls { cores, datagrams_a_poll, ..many }
    }

    /// The look-ups of two machines at a third, so many a packet: keys of 8 bytes, values of 16, each
    /// with 8 of its own.
    pub const fn packed(together: u16) -> Calls {
        let (request_bytes, reply_bytes) = (16 * together, 24 * together);
        let deep = Calls { clients: 2, threads: 64, depth: 16, cores: 64, ..Calls::alone(0) };
        Calls { datagrams_a_poll: 16, request_bytes, reply_bytes, together, ..deep }
    }
}

const VERBS: [VerbKind; 4] =
    [VerbKind::Read, VerbKind::Write, VerbKind::CompareAndSwap, VerbKind::FetchAndAdd];
const PLAIN: [VerbKind; 2] = [VerbKind::Read, VerbKind::Write];

fn verbs(point: Point, text: impl Fn(Verbs) -> String) -> String {
    match point {
        Point::Verbs(verbs) => format!("{} {}", name_of(verbs.verb), text(verbs)),
        Point::Calls(calls) => format!("calls, {} a packet", calls.together),
    }
}

fn calls(point: Point, text: impl Fn(Calls) -> String) -> String {
    match point {
        Point::Calls(calls) => text(calls),
        Point::Verbs(verbs) => name_of(verbs.verb).to_owned(),
    }
}

/// All curves, in the order in which they are shown.
pub const CURVES: &[Curve] = &[
    Curve {
        name: "latency",
        about: "one verb at a time, nothing else going on, by payload",
        varied: |point| verbs(point, |verbs| format!("{} B", verbs.payload_bytes)),
        points: || {
            let alone = |verb, payload_bytes| Verbs { payload_bytes, ..Verbs::batch(verb, 1) };
            let small = VERBS.map(|verb| alone(verb, 8)).into_iter();
            let larger = [64, 512, 4096].into_iter();
            let larger = larger.flat_map(|bytes| PLAIN.map(|verb| alone(verb, bytes)));
            small.chain(larger).map(Point::Verbs).collect()
        },
    },
    Curve {
        name: "clients",
        about: "by client machines and threads of each: four batches of 8 in flight a thread, two with \
                four threads, 8 bytes",
        varied: |point| verbs(point, |verbs| format!("{} x {}", verbs.clients, verbs.threads)),
        points: || {
            let shapes = [1, 2, 4, 8].map(Verbs::clients).into_iter().chain([Verbs::many()]);
            let all = VERBS.into_iter().flat_map(|verb| shapes.clone().zip([verb; 5]));
            all.map(|(shape, verb)| Point::Verbs(Verbs { verb, ..shape })).collect()
        },
    },
    Curve {
        name: "depth",
        about: "by verbs in the queue: one thread of one machine, one batch in flight, of 256 four; 8 bytes",
        varied: |point| {
            verbs(point, |verbs| match verbs.posting {
                Loop::Batches(count) => format!("depth {}", count * verbs.depth),
                _ => format!("depth {}", verbs.depth),
            })
        },
        points: || {
            let depths = [1, 2, 4, 8, 16, 32, 64];
            let of = |verb| {
                let one = depths.map(|depth| Verbs::batch(verb, depth)).into_iter();
                one.chain([Verbs::posting_alone(verb)]).map(Point::Verbs)
            };
            VERBS.into_iter().flat_map(of).collect()
        },
    },
    Curve {
        name: "payload",
        about: "by payload: 8 machines of 4 threads, two batches of 8 in flight a thread",
        varied: |point| verbs(point, |verbs| format!("{} B", verbs.payload_bytes)),
        points: || {
            let sizes = [8, 64, 128, 256, 512, 1024, 4096];
            let of = |verb| {
                sizes.map(|payload_bytes| {
                    Point::Verbs(Verbs { verb, payload_bytes, ..Verbs::many() })
                })
            };
            PLAIN.into_iter().flat_map(of).collect()
        },
    },
    Curve {
        name: "doorbell",
        about: "by threads of one machine: 8 READs of 8 bytes each, a doorbell for each READ; `alone`: a \
                doorbell register for each thread",
        varied: |point| {
            verbs(point, |verbs| match verbs.posting {
                Loop::RingEachAlone => format!("{} alone", verbs.threads),
                _ => format!("{} threads", verbs.threads),
            })
        },
        points: || {
            let threads = [1, 8, 16, 24, 32, 48, 64, 96];
            let shared = threads.map(Verbs::doorbell).into_iter();
            let alone =
                |threads| Verbs { posting: Loop::RingEachAlone, ..Verbs::doorbell(threads) };
            shared.chain([32, 96].map(alone)).map(Point::Verbs).collect()
        },
    },
    Curve {
        name: "inline",
        about: "WRITEs of one machine of 16 threads, four batches of 8 in flight each, by payload around \
                the largest that is sent with its work request",
        varied: |point| verbs(point, |verbs| format!("{} B", verbs.payload_bytes)),
        points: || {
            let sizes = [8, 64, 128, 188, 192, 256, 384];
            let of = |payload_bytes| {
                let all = Verbs { threads: 16, payload_bytes, ..Verbs::clients(1) };
                Point::Verbs(Verbs { verb: VerbKind::Write, ..all })
            };
            sizes.map(of).into()
        },
    },
    Curve {
        name: "batching",
        about: "look-ups a second of two machines at a third with 64 cores, by how many share a packet: \
                more than 6 replies exceed 188 bytes",
        varied: |point| calls(point, |calls| format!("{} a packet", calls.together)),
        points: || {
            [1, 2, 4, 6, 8, 16, 32, 64].map(|count| Point::Calls(Calls::packed(count))).into()
        },
    },
    Curve {
        name: "calls",
        about: "calls of 32 bytes, one a packet: one at a time; then 4 machines of 16 threads, 64 in flight \
                a core, at so many cores that ring for each reply or for up to 16, with a handler that \
                takes so long",
        varied: |point| {
            calls(point, |calls| match calls.clients {
                1 => "one at a time".to_owned(),
                _ => {
                    let Calls { cores, datagrams_a_poll, handler_ns, .. } = calls;
                    format!("{cores} cores, {datagrams_a_poll} a ring, {handler_ns} ns")
                }
            })
        },
        points: || {
            let handlers = [500, 2_000].into_iter();
            let slow = |handler_ns| Calls { handler_ns, ..Calls::saturated(1, 16) };
            let slow = handlers.map(slow);
            let quick = [(1, 1), (1, 16), (2, 16), (4, 16), (8, 16), (16, 16)].into_iter();
            let quick = quick.map(|(cores, datagrams)| Calls::saturated(cores, datagrams));
            let all = std::iter::once(Calls::alone(32)).chain(quick).chain(slow);
            all.map(Point::Calls).collect()
        },
    },
    Curve {
        name: "timestamps",
        about: "timestamps of a service: one call at a time; then 4 machines of 16 threads, 64 calls in \
                flight a core, at so many cores, each call for so many",
        varied: |point| {
            calls(point, |calls| match calls.clients {
                1 => "one at a time".to_owned(),
                _ => format!("{} cores, {} a call", calls.cores, calls.together),
            })
        },
        points: || {
            let busy = [(1, 1), (2, 1), (4, 1), (1, 4), (1, 16)];
            let busy = busy.map(|(cores, together)| Calls::stamps(cores, together));
            std::iter::once(Calls::stamp(1)).chain(busy).map(Point::Calls).collect()
        },
    },
];
