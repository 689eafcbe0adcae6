        meta.is_equal = 0;
        if (meta.old_count == hdr.lock.count) { meta.is_equal = 1; }
        meta.new_count = meta.old_count;
        if (meta.count_op == 1 || (meta.count_op == 2 && meta.is_equal == 1) ||
            (meta.count_op == 3 && meta.is_equal == 0)) {
            meta.new_count = meta.old_count + 1;
        }
        cell_step.apply();
