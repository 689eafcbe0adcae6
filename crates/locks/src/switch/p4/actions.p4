
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

