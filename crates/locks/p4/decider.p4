// never compiled. Written by crates/locks/src/switch/p4.rs from the decider's table of transitions: do not edit.
//
// The decider of a lock service, for a Tofino switch. Each register array is touched once a packet. A
// datagram holds one packet, without a seal: a switch trusts its ports. After Zhang, Cheng, Chen, Chen,
// "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024, with its faults mended.
//
// The control plane presets counts and cells for a new view, fills `route`, and sets the view while no packet passes.

#include <core.p4>
#include <tna.p4>

const bit<32> LANES = 512;
const bit<32> WINDOW = 64;
const bit<32> WINDOW_MASK = 63;
const bit<32> LOCKS = 1572864;

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
    Register<bit<16>, bit<18>>(262144) count_0;
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_0) count_0_read = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_0) count_0_add = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; count = count + 1; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_0) count_0_add_if_equal = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count == hdr.lock.count) { count = count + 1; }
        }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_0) count_0_add_if_other = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count != hdr.lock.count) { count = count + 1; }
        }
    };
    Register<bit<16>, bit<18>>(262144) count_1;
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_1) count_1_read = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_1) count_1_add = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; count = count + 1; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_1) count_1_add_if_equal = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count == hdr.lock.count) { count = count + 1; }
        }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_1) count_1_add_if_other = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count != hdr.lock.count) { count = count + 1; }
        }
    };
    Register<bit<16>, bit<18>>(262144) count_2;
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_2) count_2_read = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_2) count_2_add = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; count = count + 1; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_2) count_2_add_if_equal = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count == hdr.lock.count) { count = count + 1; }
        }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_2) count_2_add_if_other = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count != hdr.lock.count) { count = count + 1; }
        }
    };
    Register<bit<16>, bit<18>>(262144) count_3;
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_3) count_3_read = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_3) count_3_add = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; count = count + 1; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_3) count_3_add_if_equal = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count == hdr.lock.count) { count = count + 1; }
        }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_3) count_3_add_if_other = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count != hdr.lock.count) { count = count + 1; }
        }
    };
    Register<bit<16>, bit<18>>(262144) count_4;
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_4) count_4_read = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_4) count_4_add = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; count = count + 1; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_4) count_4_add_if_equal = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count == hdr.lock.count) { count = count + 1; }
        }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_4) count_4_add_if_other = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count != hdr.lock.count) { count = count + 1; }
        }
    };
    Register<bit<16>, bit<18>>(262144) count_5;
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_5) count_5_read = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_5) count_5_add = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; count = count + 1; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_5) count_5_add_if_equal = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count == hdr.lock.count) { count = count + 1; }
        }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_5) count_5_add_if_other = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count != hdr.lock.count) { count = count + 1; }
        }
    };
    Register<bit<8>, bit<19>>(524288) cell_0;
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_0) cell_0_enter = {
        void apply(inout bit<8> cell, out bit<8> old) {
            old = cell;
            if (cell == 0) { cell = meta.when_free; } else { cell = cell | meta.added_bits; }
        }
    };
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_0) cell_0_write = {
        void apply(inout bit<8> cell, out bit<8> old) { old = cell; cell = meta.when_free; }
    };
    Register<bit<8>, bit<19>>(524288) cell_1;
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_1) cell_1_enter = {
        void apply(inout bit<8> cell, out bit<8> old) {
            old = cell;
            if (cell == 0) { cell = meta.when_free; } else { cell = cell | meta.added_bits; }
        }
    };
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_1) cell_1_write = {
        void apply(inout bit<8> cell, out bit<8> old) { old = cell; cell = meta.when_free; }
    };
    Register<bit<8>, bit<19>>(524288) cell_2;
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_2) cell_2_enter = {
        void apply(inout bit<8> cell, out bit<8> old) {
            old = cell;
            if (cell == 0) { cell = meta.when_free; } else { cell = cell | meta.added_bits; }
        }
    };
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_2) cell_2_write = {
        void apply(inout bit<8> cell, out bit<8> old) { old = cell; cell = meta.when_free; }
    };

    action count_read() { meta.count_op = 0; }
    action count_add() { meta.count_op = 1; }
    action count_add_if_equal() { meta.count_op = 2; }
    action count_add_if_other() { meta.count_op = 3; }
    action name_holder(bit<2> holder) {
        meta.when_free = 0;
        if (holder == FIRST) { meta.when_free = meta.first; }
        if (holder == NEXT) { meta.when_free = meta.next; }
    }
    action cell_enter(bit<2> holder, bit<8> added_bits) {
        name_holder(holder);
        meta.added_bits = added_bits;
        meta.is_write = 0;
    }
    action cell_write(bit<2> holder) {
        name_holder(holder);
        meta.is_write = 1;
    }
    // `is_copied` asks the queue for a second packet, which the egress turns into the copy.
    action leave(bit<3> verdict, bit<1> is_reply, bit<1> is_copied) {
        hdr.lock.verdict = verdict;
        meta.is_reply = is_reply;
        meta.is_copied = is_copied;
    }
    action reply(bit<3> verdict) { leave(verdict, 1, 0); }
    action reply_and_copy(bit<3> verdict) { leave(verdict, 1, 1); }
    action copy(bit<3> verdict) { leave(verdict, 0, 0); }
    action install(bit<3> verdict) { leave(verdict, 0, 0); }
    action drop() { to_deparser.drop_ctl = 1; }
    // An answer goes back through the port that the question came from.
    action answer_sender() {
        bit<48> sender = hdr.ethernet.from;
        hdr.ethernet.from = hdr.ethernet.to;
        hdr.ethernet.to = sender;
        to_queue.ucast_egress_port = ig.ingress_port;
    }
    action route_to(PortId_t port, bit<48> to) { to_queue.ucast_egress_port = port; hdr.ethernet.to = to; }
    // The view is the control plane's entry: another view matches nothing.
    table view {
        key = { hdr.lock.view: exact; }
        actions = { NoAction; drop; }
        default_action = drop();
        size = 1;
    }
    // From an agent's machine to its port, filled by the control plane.
    table route {
        key = { hdr.lock.agent: exact; }
        actions = { route_to; drop; }
        default_action = drop();
        size = 64;
    }

    table count_step {
        key = {
            hdr.lock.ask: exact;
        }
        actions = {
            count_read;
            count_add;
            count_add_if_equal;
            count_add_if_other;
        }
        const entries = {
            ACQUIRE: count_add();
            FREE: count_read();
            TRANSFER: count_add_if_equal();
            BAR_READERS: count_read();
        }
        size = 32;
    }

    table cell_step {
        key = {
            hdr.lock.ask: ternary;
            hdr.lock.exclusive: ternary;
            hdr.lock.bars_readers: ternary;
            meta.is_equal: ternary;
        }
        actions = {
            cell_enter;
            cell_write;
        }
        const entries = {
            (ACQUIRE, 0, 0, _): cell_enter(FIRST, 0);
            (ACQUIRE, 0, 1, _): cell_enter(FIRST, 0);
            (ACQUIRE, 1, 0, _): cell_enter(FIRST, 0);
            (ACQUIRE, 1, 1, _): cell_enter(FIRST, BARS_READERS);
            (FREE, _, _, 0): cell_enter(NONE, 0);
            (FREE, _, _, 1): cell_write(NONE);
            (TRANSFER, _, _, 0): cell_enter(NONE, 0);
            (TRANSFER, _, _, 1): cell_write(NEXT);
            (BAR_READERS, _, _, _): cell_enter(NONE, BARS_READERS);
        }
        size = 32;
    }

    table outcome {
        key = {
            meta.old_cell: ternary;
            hdr.lock.ask: ternary;
            hdr.lock.exclusive: ternary;
            hdr.lock.bars_readers: ternary;
            meta.is_equal: ternary;
        }
        actions = {
            reply;
            reply_and_copy;
            copy;
            install;
        }
        const entries = {
            (0x00 &&& 0xff, ACQUIRE, _, _, _): reply(GRANTED);
            (0x00 &&& 0xff, FREE, _, _, 0): reply(REFUSED);
            (0x00 &&& 0xff, FREE, _, _, 1): reply(DONE);
            (0x00 &&& 0xff, TRANSFER, _, _, 0): reply(REFUSED);
            (0x00 &&& 0xff, TRANSFER, _, _, 1): install(DONE);
            (0x00 &&& 0xff, BAR_READERS, _, _, _): reply(DONE);
            (0x00 &&& 0x03, ACQUIRE, 0, _, _): reply_and_copy(JOINED);
            (0x00 &&& 0x03, ACQUIRE, 1, _, _): copy(QUEUED);
            (0x00 &&& 0x03, FREE, _, _, 0): reply(REFUSED);
            (0x00 &&& 0x03, FREE, _, _, 1): reply(DONE);
            (0x00 &&& 0x03, TRANSFER, _, _, 0): reply(REFUSED);
            (0x00 &&& 0x03, TRANSFER, _, _, 1): install(DONE);
            (0x00 &&& 0x03, BAR_READERS, _, _, _): reply(DONE);
            (0x02 &&& 0x03, ACQUIRE, _, _, _): copy(QUEUED);
            (0x02 &&& 0x03, FREE, _, _, 0): reply(REFUSED);
            (0x02 &&& 0x03, FREE, _, _, 1): reply(DONE);
            (0x02 &&& 0x03, TRANSFER, _, _, 0): reply(REFUSED);
            (0x02 &&& 0x03, TRANSFER, _, _, 1): install(DONE);
            (0x02 &&& 0x03, BAR_READERS, _, _, _): reply(DONE);
            (0x01 &&& 0x01, ACQUIRE, _, _, _): copy(QUEUED);
            (0x01 &&& 0x01, FREE, _, _, 0): reply(REFUSED);
            (0x01 &&& 0x01, FREE, _, _, 1): reply(DONE);
            (0x01 &&& 0x01, TRANSFER, _, _, 0): reply(REFUSED);
            (0x01 &&& 0x01, TRANSFER, _, _, 1): install(DONE);
            (0x01 &&& 0x01, BAR_READERS, _, _, _): reply(DONE);
        }
        size = 32;
    }

    apply {
        if (!hdr.lock.isValid()) { drop(); return; }
        if (!view.apply().hit) { return; }
        if (hdr.lock.lock >= LOCKS || (bit<32>)hdr.lock.lane >= LANES) { drop(); return; }
        if (hdr.lock.machine == 0 || hdr.lock.machine > 63) { drop(); return; }
        meta.before = hdr.lock.number - 1;
        meta.first = (bit<8>)hdr.lock.machine << 2 | (bit<8>)hdr.lock.exclusive;
        meta.next = meta.first | (bit<8>)hdr.lock.bars_readers << 1;
        meta.answer_at = hdr.lock.lane << 6 | (bit<16>)(hdr.lock.number & WINDOW_MASK);
        meta.last = sequence_accept.execute(hdr.lock.lane);
        meta.token_low = token_low_add.execute(0);
        meta.token_high = token_high_carry.execute(0);
        if (meta.last != meta.before) {
            // It came before, or packets before it are missing.
            meta.age = meta.last - hdr.lock.number;
            meta.answer = answers_read.execute(meta.answer_at);
            if (meta.age >= WINDOW || meta.answer & RECORDED == 0) { drop(); return; }
            hdr.lock.verdict = meta.answer[24:22];
            hdr.lock.agent = (bit<16>)meta.answer[21:16];
            hdr.lock.count = meta.answer[15:0];
            hdr.lock.token = (meta.token_high ++ meta.token_low)[60:0];
            answer_sender();
            return;
        }
        count_step.apply();
        if (hdr.lock.lock[31:18] == 0) {
            if (meta.count_op == 0) { meta.old_count = count_0_read.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 1) { meta.old_count = count_0_add.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 2) { meta.old_count = count_0_add_if_equal.execute(hdr.lock.lock[17:0]); }
            else { meta.old_count = count_0_add_if_other.execute(hdr.lock.lock[17:0]); }
        }
        if (hdr.lock.lock[31:18] == 1) {
            if (meta.count_op == 0) { meta.old_count = count_1_read.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 1) { meta.old_count = count_1_add.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 2) { meta.old_count = count_1_add_if_equal.execute(hdr.lock.lock[17:0]); }
            else { meta.old_count = count_1_add_if_other.execute(hdr.lock.lock[17:0]); }
        }
        if (hdr.lock.lock[31:18] == 2) {
            if (meta.count_op == 0) { meta.old_count = count_2_read.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 1) { meta.old_count = count_2_add.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 2) { meta.old_count = count_2_add_if_equal.execute(hdr.lock.lock[17:0]); }
            else { meta.old_count = count_2_add_if_other.execute(hdr.lock.lock[17:0]); }
        }
        if (hdr.lock.lock[31:18] == 3) {
            if (meta.count_op == 0) { meta.old_count = count_3_read.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 1) { meta.old_count = count_3_add.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 2) { meta.old_count = count_3_add_if_equal.execute(hdr.lock.lock[17:0]); }
            else { meta.old_count = count_3_add_if_other.execute(hdr.lock.lock[17:0]); }
        }
        if (hdr.lock.lock[31:18] == 4) {
            if (meta.count_op == 0) { meta.old_count = count_4_read.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 1) { meta.old_count = count_4_add.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 2) { meta.old_count = count_4_add_if_equal.execute(hdr.lock.lock[17:0]); }
            else { meta.old_count = count_4_add_if_other.execute(hdr.lock.lock[17:0]); }
        }
        if (hdr.lock.lock[31:18] == 5) {
            if (meta.count_op == 0) { meta.old_count = count_5_read.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 1) { meta.old_count = count_5_add.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 2) { meta.old_count = count_5_add_if_equal.execute(hdr.lock.lock[17:0]); }
            else { meta.old_count = count_5_add_if_other.execute(hdr.lock.lock[17:0]); }
        }
        meta.is_equal = 0;
        if (meta.old_count == hdr.lock.count) { meta.is_equal = 1; }
        meta.new_count = meta.old_count;
        if (meta.count_op == 1 || (meta.count_op == 2 && meta.is_equal == 1) ||
            (meta.count_op == 3 && meta.is_equal == 0)) {
            meta.new_count = meta.old_count + 1;
        }
        cell_step.apply();
        if (hdr.lock.lock[31:19] == 0) {
            if (meta.is_write == 1) { meta.old_cell = cell_0_write.execute(hdr.lock.lock[18:0]); }
            else { meta.old_cell = cell_0_enter.execute(hdr.lock.lock[18:0]); }
        }
        if (hdr.lock.lock[31:19] == 1) {
            if (meta.is_write == 1) { meta.old_cell = cell_1_write.execute(hdr.lock.lock[18:0]); }
            else { meta.old_cell = cell_1_enter.execute(hdr.lock.lock[18:0]); }
        }
        if (hdr.lock.lock[31:19] == 2) {
            if (meta.is_write == 1) { meta.old_cell = cell_2_write.execute(hdr.lock.lock[18:0]); }
            else { meta.old_cell = cell_2_enter.execute(hdr.lock.lock[18:0]); }
        }
        meta.new_cell = meta.when_free;
        if (meta.is_write == 0 && meta.old_cell != 0) { meta.new_cell = meta.old_cell | meta.added_bits; }
        meta.agent = meta.new_cell[7:2];
        outcome.apply();
        meta.answer = RECORDED | 7w0 ++ hdr.lock.verdict ++ meta.agent ++ meta.new_count;
        answers_write.execute(meta.answer_at);
        hdr.lock.count = meta.new_count;
        hdr.lock.token = (meta.token_high ++ meta.token_low)[60:0];
        hdr.lock.agent = (bit<16>)meta.agent;
        if (meta.is_reply == 1) { answer_sender(); } else { route.apply(); }
    }
}

control LockDeparser(packet_out packet, inout headers_t hdr, in meta_t meta,
                     in ingress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply { packet.emit(hdr); }
}

// Egress forwards: a second packet for `is_copied` is a clone session of the control plane.
parser NoParser(packet_in packet, out headers_t hdr, out meta_t meta, out egress_intrinsic_metadata_t eg) {
    state start { packet.extract(eg); transition accept; }
}
control NoControl(inout headers_t hdr, inout meta_t meta, in egress_intrinsic_metadata_t eg,
                  in egress_intrinsic_metadata_from_parser_t from_parser,
                  inout egress_intrinsic_metadata_for_deparser_t to_deparser,
                  inout egress_intrinsic_metadata_for_output_port_t to_port) {
    apply { }
}
control NoDeparser(packet_out packet, inout headers_t hdr, in meta_t meta,
                   in egress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply { packet.emit(hdr); }
}

Pipeline(LockParser(), Decider(), LockDeparser(), NoParser(), NoControl(), NoDeparser()) pipe;
Switch(pipe) main;
