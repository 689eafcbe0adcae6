    Register<bit<8>, bit<19>>(524288) cell_BANK;
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_BANK) cell_BANK_enter = {
        void apply(inout bit<8> cell, out bit<8> old) {
            old = cell;
            if (cell == 0) { cell = meta.when_free; } else { cell = cell | meta.added_bits; }
        }
    };
    RegisterAction<bit<8>, bit<19>, bit<8>>(cell_BANK) cell_BANK_write = {
        void apply(inout bit<8> cell, out bit<8> old) { old = cell; cell = meta.when_free; }
    };
