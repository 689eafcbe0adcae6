        if (hdr.lock.lock[31:19] == BANK) {
            if (meta.is_write == 1) { meta.old_cell = cell_BANK_write.execute(hdr.lock.lock[18:0]); }
            else { meta.old_cell = cell_BANK_enter.execute(hdr.lock.lock[18:0]); }
        }
