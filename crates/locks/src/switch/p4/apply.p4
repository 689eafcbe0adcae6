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
