// The decider of the lock service, for the network driver of a Linux machine (XDP). It answers the sender of
// a datagram alone: the sender sends copies of acquires and agents on. The datagram's format is
// crates/locks/src/wire.rs, the decisions are those of `step` in crates/locks/src/decider.rs; tests hold
// every byte equal.
//
// Why it is right when several processors run it at once. A lock is one word of 64 bits, and changes by one
// compare-and-swap, so the decisions about a lock have an order. A lane has a spin lock, held from the
// comparison of the packet's number until the answer is recorded, so a packet that came before finds its
// answer, and no number is decided twice. A packet holds one spin lock at a time. If the word was changed by
// others TRIES times, the packet is dropped before anything of it has happened: its sender sends it again.
// The scratch memory is one processor's: a program of the driver is not interrupted by another run of
// itself.
//
// A new view is a new program with maps of its own, which replaces the old one. So a packet of the old view
// never meets new entries.

#include "kernel.h"

#define WINDOW 64
#define TRIES 16
#define HEADER_BYTES 32
#define PACKET_BYTES 40
#define WAITER_BYTES 12
#define DATAGRAM_BYTES_MAX 1400
#define PACKETS_MAX ((DATAGRAM_BYTES_MAX - HEADER_BYTES) / PACKET_BYTES)
#define WAITERS_MAX ((DATAGRAM_BYTES_MAX - HEADER_BYTES - PACKET_BYTES) / WAITER_BYTES)
#define MAGIC 0x544c
#define VERSION 1

enum kind { ACQUIRE = 1, FREE = 2, TRANSFER = 3, BAR_READERS = 4, REPLY = 16 };
enum flag { EXCLUSIVE = 1, BARS_READERS = 2 };
enum verdict { GRANTED, JOINED, QUEUED, DONE, REFUSED };
#define VERDICT_SHIFT 4

// A lock's word: {bars readers 1, exclusive 1, machine 14, count 48}. Machine 0: free.
#define COUNT_MASK ((1ull << 48) - 1)
#define MACHINE_SHIFT 48
#define MACHINE_MASK 0x3fffull
#define EXCLUSIVE_BIT (1ull << 62)
#define BARS_READERS_BIT (1ull << 63)

// In the order of `Counter` in src/lib.rs.
enum counter {
    ANSWERED,
    SHORT,
    LONG,
    OTHER_VERSION,
    BAD_SEAL,
    ADDRESSEE,
    BAD_PACKET,
    OVERSIZE,
    OTHER_VIEW,
    NO_LOCK,
    NO_LANE,
    GAP,
    CONTENDED,
    COUNTERS
};

struct config {
    u64 key[2];
    u32 view;
    u32 locks;
    u32 machines;
    u32 threads;
    u32 port;
    u32 unused;
};
const volatile struct config CONFIG;

struct recorded {
    u64 number;
    u16 agent;
    u8 verdict;
    u8 is_recorded;
    u32 unused;
};
struct lane {
    struct bpf_spin_lock lock;
    u32 last;
    struct recorded answers[WINDOW];
};
struct scratch {
    // Longer than a datagram: the verifier sees that a packet which begins in a datagram ends within, with
    // the most waiters.
    u8 bytes[4096];
    u64 seal[2];
    // The length of the datagram, the place of its next packet, and the answers so far. They are here and
    // not in variables, so that the kernel's verifier does not follow their values through loops.
    u32 length;
    u32 place;
    u32 replies;
};

// The loader sets the numbers of locks and lanes.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    // The decider's process counts the locks that are held without a call for each.
    MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u64);
} LOCKS SECTION(".maps");
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct lane);
} LANES SECTION(".maps");
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct scratch);
} SCRATCH SECTION(".maps");
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, COUNTERS);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u64);
} COUNTS SECTION(".maps");

INLINED void add(u32 counter, u64 by) {
    u64 *count = bpf_map_lookup_elem(&COUNTS, &counter);
    if (count) *count += by;
}

INLINED struct scratch *scratch_of(void) {
    u32 only = 0;
    return bpf_map_lookup_elem(&SCRATCH, &only);
}

#define TURN(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))
#define SIP_ROUND             \
    do {                      \
        v0 += v1;             \
        v1 = TURN(v1, 13);    \
        v1 ^= v0;             \
        v0 = TURN(v0, 32);    \
        v2 += v3;             \
        v3 = TURN(v3, 16);    \
        v3 ^= v2;             \
        v0 += v3;             \
        v3 = TURN(v3, 21);    \
        v3 ^= v0;             \
        v2 += v1;             \
        v1 = TURN(v1, 17);    \
        v1 ^= v2;             \
        v2 = TURN(v2, 32);    \
    } while (0)
#define SIP_WORD(word)  \
    do {                \
        u64 m = (word); \
        v3 ^= m;        \
        SIP_ROUND;      \
        SIP_ROUND;      \
        v0 ^= m;        \
    } while (0)

// Computes the seal of the datagram in the scratch memory: SipHash-2-4 with 128 bits, of Aumasson and
// Bernstein, over the bytes 0..16 and 32.. . Returns 0 if it did.
VERIFIED_ALONE int seal(u32 bytes) {
    struct scratch *scratch = scratch_of();
    if (!scratch || bytes < HEADER_BYTES || bytes > DATAGRAM_BYTES_MAX) return 1;
    u32 body = bytes - HEADER_BYTES, words = body / 8, tail = body % 8;
    u64 k0 = CONFIG.key[0], k1 = CONFIG.key[1];
    u64 v0 = k0 ^ 0x736f6d6570736575ull, v1 = k1 ^ 0x646f72616e646f6dull ^ 0xee;
    u64 v2 = k0 ^ 0x6c7967656e657261ull, v3 = k1 ^ 0x7465646279746573ull;
    SIP_WORD(*(u64 *)scratch->bytes);
    SIP_WORD(*(u64 *)(scratch->bytes + 8));
    for (u32 i = 0; i < (DATAGRAM_BYTES_MAX - HEADER_BYTES) / 8; i++) {
        if (i >= words) break;
        SIP_WORD(*(u64 *)(scratch->bytes + HEADER_BYTES + 8 * i));
    }
    u64 rest = *(u64 *)(scratch->bytes + HEADER_BYTES + (words & 255) * 8);
    rest &= (1ull << tail * 8) - 1;
    SIP_WORD(rest | (u64)(16 + body) << 56);
    v2 ^= 0xee;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    scratch->seal[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    scratch->seal[1] = v0 ^ v1 ^ v2 ^ v3;
    return 0;
}

#define AS_16(pointer, at) (*(u16 *)((pointer) + (at)))
#define AS_32(pointer, at) (*(u32 *)((pointer) + (at)))
#define AS_64(pointer, at) (*(u64 *)((pointer) + (at)))

// Checks the next packet of the datagram. Returns 0 if it is a question, or a counter.
VERIFIED_ALONE int check_packet(void) {
    struct scratch *scratch = scratch_of();
    if (!scratch) return SHORT;
    u32 at = scratch->place, bytes = scratch->length;
    if (at > DATAGRAM_BYTES_MAX || at + PACKET_BYTES > bytes) return SHORT;
    u8 *packet = scratch->bytes + at;
    u32 kind = packet[0], waiters = AS_16(packet, 2), request = AS_16(packet, 12);
    u32 after = at + PACKET_BYTES + waiters * WAITER_BYTES;
    if (after > bytes) return SHORT;
    scratch->place = after;
    if (waiters > 0 && kind != TRANSFER) return BAD_PACKET;
    for (u32 i = 0; i < WAITERS_MAX; i++) {
        if (i >= waiters) break;
        u8 *waiter = packet + PACKET_BYTES + i * WAITER_BYTES;
        if (AS_16(waiter, 0) == 0 || AS_32(waiter, 8) > 1) return BAD_PACKET;
    }
    u32 from = AS_16(scratch->bytes, 8);
    if (from == 0) return BAD_PACKET;
    if (kind == ACQUIRE) return request == from ? 0 : BAD_PACKET;
    if (kind == TRANSFER) return request != 0 ? 0 : BAD_PACKET;
    return kind == FREE || kind == BAR_READERS ? 0 : BAD_PACKET;
}

struct question {
    u32 kind;
    u32 flags;
    u64 count;
    u64 machine;
};

// `step`: the new word of a lock, and the verdict.
INLINED u64 step(u64 old, const struct question *question, u32 *verdict) {
    u64 count = old & COUNT_MASK, agent = old >> MACHINE_SHIFT & MACHINE_MASK;
    u64 exclusive = question->flags & EXCLUSIVE ? EXCLUSIVE_BIT : 0;
    u64 bars = question->flags & BARS_READERS ? BARS_READERS_BIT : 0;
    u64 more = (count + 1) & COUNT_MASK;
    switch (question->kind) {
    case ACQUIRE:
        if (agent == 0) {
            *verdict = GRANTED;
            return more | question->machine << MACHINE_SHIFT | exclusive;
        }
        *verdict = (old & (EXCLUSIVE_BIT | BARS_READERS_BIT)) || exclusive ? QUEUED : JOINED;
        return (old & ~COUNT_MASK) | more | (exclusive ? bars : 0);
    case FREE:
        *verdict = count == (question->count & COUNT_MASK) ? DONE : REFUSED;
        return *verdict == DONE ? count : old;
    case TRANSFER:
        *verdict = count == (question->count & COUNT_MASK) ? DONE : REFUSED;
        return *verdict == DONE ? more | question->machine << MACHINE_SHIFT | exclusive | bars : old;
    default:
        *verdict = DONE;
        return agent == 0 ? old : old | BARS_READERS_BIT;
    }
}

// Decides the next packet of the datagram, and writes the answer after the answers so far, which is not
// beyond the packet. Returns 0 if there is an answer, or a counter.
VERIFIED_ALONE int decide_packet(void) {
    struct scratch *scratch = scratch_of();
    if (!scratch) return SHORT;
    u32 at = scratch->place, to = HEADER_BYTES + scratch->replies * PACKET_BYTES;
    if (at > DATAGRAM_BYTES_MAX || to > DATAGRAM_BYTES_MAX) return SHORT;
    u8 *packet = scratch->bytes + at;
    scratch->place = at + PACKET_BYTES + AS_16(packet, 2) * WAITER_BYTES;
    u32 from = AS_16(scratch->bytes, 8), thread = AS_16(packet, 20);
    u32 place = AS_32(packet, 4), number = AS_32(packet, 8);
    struct question question = {packet[0], packet[1], AS_64(packet, 24), AS_16(packet, 12)};
    if (place >= CONFIG.locks) return NO_LOCK;
    if (from > CONFIG.machines || thread >= CONFIG.threads) return NO_LANE;
    if (question.kind == TRANSFER && question.machine > CONFIG.machines) return NO_LANE;
    u32 index = (from - 1) * CONFIG.threads + thread;
    u64 *word = bpf_map_lookup_elem(&LOCKS, &place);
    struct lane *lane = bpf_map_lookup_elem(&LANES, &index);
    if (!word) return NO_LOCK;
    if (!lane) return NO_LANE;

    struct recorded *record = &lane->answers[number % WINDOW];
    u32 verdict = 0, agent = 0;
    int result = GAP;
    u64 count = 0;
    bpf_spin_lock(&lane->lock);
    if (number == lane->last + 1) {
        result = CONTENDED;
        for (int i = 0; i < TRIES && result; i++) {
            u64 old = *(volatile u64 *)word;
            u64 new = step(old, &question, &verdict);
            if (new != old && __sync_val_compare_and_swap(word, old, new) != old) continue;
            lane->last = number;
            count = new & COUNT_MASK;
            agent = new >> MACHINE_SHIFT & MACHINE_MASK;
            record->number = count;
            record->agent = agent;
            record->verdict = verdict;
            record->is_recorded = 1;
            result = 0;
        }
    } else if (lane->last - number < WINDOW && record->is_recorded) {
        count = record->number;
        agent = record->agent;
        verdict = record->verdict;
        result = 0;
    }
    bpf_spin_unlock(&lane->lock);
    if (result) return result;

    scratch->replies++;
    u8 *reply = scratch->bytes + to;
    AS_32(reply, 0) = REPLY | verdict << (8 + VERDICT_SHIFT);
    AS_32(reply, 4) = place;
    AS_32(reply, 8) = number;
    AS_32(reply, 12) = 0;
    AS_32(reply, 16) = 0;
    AS_16(reply, 20) = thread;
    AS_16(reply, 22) = agent;
    AS_64(reply, 24) = count;
    // The order of the token: a wide count does not come again in a view.
    AS_64(reply, 32) = count;
    return 0;
}

// Opens the datagram in the scratch memory, decides its packets, and writes the sealed answer over it.
// Returns the bytes of the answer, 0 if there is none.
VERIFIED_ALONE int answer(u32 bytes) {
    struct scratch *scratch = scratch_of();
    if (!scratch || bytes > DATAGRAM_BYTES_MAX) return 0;
    u8 *header = scratch->bytes;
    u32 counter = 0, count = header[3], from = AS_16(header, 8);
    if (bytes < HEADER_BYTES) counter = SHORT;
    else if (AS_16(header, 0) != MAGIC || header[2] != VERSION) counter = OTHER_VERSION;
    else if (AS_16(header, 10) != 0) counter = ADDRESSEE;
    if (counter) {
        add(counter, 1);
        return 0;
    }
    // All bytes of the seal are compared, however many are right.
    if (seal(bytes) || ((scratch->seal[0] ^ AS_64(header, 16)) | (scratch->seal[1] ^ AS_64(header, 24))) != 0) {
        add(BAD_SEAL, 1);
        return 0;
    }
    scratch->length = bytes;
    scratch->place = HEADER_BYTES;
    for (u32 i = 0; i <= PACKETS_MAX; i++) {
        if (i >= count) break;
        u32 refused = check_packet();
        if (refused) {
            add(refused, 1);
            return 0;
        }
    }
    if (scratch->place != bytes) {
        add(LONG, 1);
        return 0;
    }
    if (AS_32(header, 4) != CONFIG.view) {
        add(OTHER_VIEW, count);
        return 0;
    }
    scratch->place = HEADER_BYTES;
    scratch->replies = 0;
    for (u32 i = 0; i < PACKETS_MAX; i++) {
        if (i >= count) break;
        u32 refused = decide_packet();
        if (refused) add(refused, 1);
    }
    u32 replies = scratch->replies;
    if (replies == 0 || replies > PACKETS_MAX) return 0;
    add(ANSWERED, replies);
    header[3] = replies;
    AS_16(header, 8) = 0;
    AS_16(header, 10) = from;
    AS_32(header, 12) = 0;
    bytes = HEADER_BYTES + replies * PACKET_BYTES;
    if (seal(bytes)) return 0;
    AS_64(header, 16) = scratch->seal[0];
    AS_64(header, 24) = scratch->seal[1];
    return bytes;
}

INLINED struct frame *frame_of(struct xdp_md *context) {
    void *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    return data + FRAME_BYTES <= end ? data : 0;
}

// The frame of a datagram for the port; or none.
INLINED struct frame *lock_frame(struct xdp_md *context, u16 port) {
    struct frame *frame = frame_of(context);
    if (!frame || frame->ethernet.kind != BIG16(ETHERNET_IPV4)) return 0;
    // A datagram in fragments, or with options, is not for us: the kernel takes it.
    if (frame->ipv4.version_and_words != IPV4_WITHOUT_OPTIONS || frame->ipv4.protocol != PROTOCOL_UDP) return 0;
    if (frame->ipv4.fragment & BIG16(FRAGMENT_MASK)) return 0;
    return frame->udp.to == BIG16(port) ? frame : 0;
}

INLINED void swap_ends(struct frame *frame) {
    for (int i = 0; i < 6; i++) {
        u8 byte = frame->ethernet.to[i];
        frame->ethernet.to[i] = frame->ethernet.from[i];
        frame->ethernet.from[i] = byte;
    }
    u32 address = frame->ipv4.to;
    frame->ipv4.to = frame->ipv4.from;
    frame->ipv4.from = address;
    u16 port = frame->udp.to;
    frame->udp.to = frame->udp.from;
    frame->udp.from = port;
}

SECTION("xdp")
int decide(struct xdp_md *context) {
    struct frame *frame = lock_frame(context, CONFIG.port);
    if (!frame) return XDP_PASS;
    int whole = bpf_xdp_get_buff_len(context);
    u32 udp_bytes = BIG16(frame->udp.bytes);
    struct scratch *scratch = scratch_of();
    if (!scratch) return XDP_ABORTED;
    u32 bytes = udp_bytes - UDP_BYTES;
    if (udp_bytes < UDP_BYTES + HEADER_BYTES || FRAME_BYTES + bytes > (u32)whole ||
        BIG16(frame->ipv4.bytes) != IPV4_BYTES + udp_bytes) {
        add(SHORT, 1);
        return XDP_DROP;
    }
    if (bytes > DATAGRAM_BYTES_MAX) {
        add(OVERSIZE, 1);
        return XDP_DROP;
    }
    if (bpf_xdp_load_bytes(context, FRAME_BYTES, scratch->bytes, bytes)) return XDP_ABORTED;
    int left = answer(bytes);
    HIDE_RANGE(left);
    if (left < HEADER_BYTES || left > DATAGRAM_BYTES_MAX) return XDP_DROP;
    if (bpf_xdp_store_bytes(context, FRAME_BYTES, scratch->bytes, left)) return XDP_ABORTED;
    // Dropped questions and waiters make the answer shorter.
    if (FRAME_BYTES + left < whole && bpf_xdp_adjust_tail(context, FRAME_BYTES + left - whole)) return XDP_ABORTED;
    frame = frame_of(context);
    if (!frame) return XDP_ABORTED;
    swap_ends(frame);
    frame->ipv4.bytes = BIG16(IPV4_BYTES + UDP_BYTES + left);
    frame->ipv4.lives = LIVES;
    frame->ipv4.checksum = 0;
    u16 *halves = (u16 *)((void *)frame + sizeof(struct ethernet));
    u32 sum = 0;
    for (int i = 0; i < IPV4_BYTES / 2; i++) sum += halves[i];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame->ipv4.checksum = ~sum;
    frame->udp.bytes = BIG16(UDP_BYTES + left);
    // The seal covers the datagram, so IPv4's optional checksum of UDP is left out.
    frame->udp.checksum = 0;
    return XDP_TX;
}

// The bare echo that the decider is measured against.
SECTION("xdp")
int echo(struct xdp_md *context) {
    struct frame *frame = lock_frame(context, CONFIG.port);
    if (!frame) return XDP_PASS;
    swap_ends(frame);
    // A sender on a virtual interface leaves the checksum to its card, which it does not have.
    frame->udp.checksum = 0;
    return XDP_TX;
}

// A virtual interface takes frames that its peer's program sends only if it has a program itself.
SECTION("xdp")
int pass(struct xdp_md *context) {
    return XDP_PASS;
}

char LICENSE[] SECTION("license") = "Apache-2.0";
