        if (hdr.lock.lock[31:18] == BANK) {
            if (meta.count_op == 0) { meta.old_count = count_BANK_read.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 1) { meta.old_count = count_BANK_add.execute(hdr.lock.lock[17:0]); }
            else if (meta.count_op == 2) { meta.old_count = count_BANK_add_if_equal.execute(hdr.lock.lock[17:0]); }
            else { meta.old_count = count_BANK_add_if_other.execute(hdr.lock.lock[17:0]); }
        }
