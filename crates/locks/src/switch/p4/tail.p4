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
