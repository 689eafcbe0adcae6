const bit<16> LOCK_PORT = 4040;

const bit<4> ACQUIRE = 0;
const bit<4> FREE = 1;
const bit<4> TRANSFER = 2;
const bit<4> BAR_READERS = 3;

const bit<3> GRANTED = 0;
const bit<3> JOINED = 1;
const bit<3> QUEUED = 2;
const bit<3> DONE = 3;
const bit<3> REFUSED = 4;

// The holder that a cell names: none, the requester (shared requests join), the next holder (they wait if
// the packet says so).
const bit<2> NONE = 0;
const bit<2> FIRST = 1;
const bit<2> NEXT = 2;

// A cell: {machine 6, bars readers 1, exclusive 1}; 0 is free.
const bit<8> BARS_READERS = 0x02;
// A recorded answer: {recorded 1, verdict 3, machine 6, count 16} in the low 26 bits.
const bit<32> RECORDED = 0x02000000;

header ethernet_h { bit<48> to; bit<48> from; bit<16> kind; }
header ipv4_h { bit<72> head; bit<8> protocol; bit<16> checksum; bit<32> from; bit<32> to; }
header udp_h { bit<16> from; bit<16> to; bit<16> bytes; bit<16> checksum; }
// 39 bytes. `machine`, `thread` and `sequence` name the request. An agent that moves follows as payload.
header lock_h {
    bit<32> view;
    bit<16> lane;
    bit<32> number;
    bit<4> ask;
    bit<1> pad;
    bit<1> granted;
    bit<1> bars_readers;
    bit<1> exclusive;
    bit<32> lock;
    bit<32> count_high;
    bit<16> count;
    bit<16> machine;
    bit<16> agent;
    bit<16> thread;
    bit<32> sequence;
    bit<3> verdict;
    bit<61> token;
}
struct headers_t { ethernet_h ethernet; ipv4_h ipv4; udp_h udp; lock_h lock; }
struct meta_t {
    bit<32> before;
    bit<32> last;
    bit<32> age;
    bit<32> token_low;
    bit<32> token_high;
    bit<16> answer_at;
    bit<32> answer;
    bit<2> count_op;
    bit<16> old_count;
    bit<16> new_count;
    bit<1> is_equal;
    bit<1> is_write;
    bit<8> first;
    bit<8> next;
    bit<8> when_free;
    bit<8> added_bits;
    bit<8> old_cell;
    bit<8> new_cell;
    bit<6> agent;
    bit<1> is_reply;
    bit<1> is_copied;
}

parser LockParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t ig) {
    state start {
        packet.extract(ig);
        packet.advance(PORT_METADATA_SIZE);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) { 0x0800: ipv4; default: accept; }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) { 17: udp; default: accept; }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.to) { LOCK_PORT: lock; default: accept; }
    }
    state lock {
        packet.extract(hdr.lock);
        transition accept;
    }
}

control Decider(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t ig,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
                inout ingress_intrinsic_metadata_for_tm_t to_queue) {
    // The last number of each lane. It goes up if the packet is the next one.
    Register<bit<32>, bit<16>>(LANES) sequence;
    RegisterAction<bit<32>, bit<16>, bit<32>>(sequence) sequence_accept = {
        void apply(inout bit<32> last, out bit<32> before) {
            before = last;
            if (last == meta.before) { last = hdr.lock.number; }
        }
    };
    // The number of packets, in two halves.
    Register<bit<32>, bit<1>>(1) token_low;
    RegisterAction<bit<32>, bit<1>, bit<32>>(token_low) token_low_add = {
        void apply(inout bit<32> number, out bit<32> after) { number = number + 1; after = number; }
    };
    Register<bit<32>, bit<1>>(1) token_high;
    RegisterAction<bit<32>, bit<1>, bit<32>>(token_high) token_high_carry = {
        void apply(inout bit<32> number, out bit<32> after) {
            if (meta.token_low == 0) { number = number + 1; }
            after = number;
        }
    };
    // The recorded answers of each lane. A fresh packet writes one, a packet that came before reads it.
    Register<bit<32>, bit<16>>(LANES * WINDOW) answers;
    RegisterAction<bit<32>, bit<16>, bit<32>>(answers) answers_write = {
        void apply(inout bit<32> answer) { answer = meta.answer; }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(answers) answers_read = {
        void apply(inout bit<32> answer, out bit<32> recorded) { recorded = answer; }
    };
