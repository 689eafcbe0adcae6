    Register<bit<16>, bit<18>>(262144) count_BANK;
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_BANK) count_BANK_read = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_BANK) count_BANK_add = {
        void apply(inout bit<16> count, out bit<16> old) { old = count; count = count + 1; }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_BANK) count_BANK_add_if_equal = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count == hdr.lock.count) { count = count + 1; }
        }
    };
    RegisterAction<bit<16>, bit<18>, bit<16>>(count_BANK) count_BANK_add_if_other = {
        void apply(inout bit<16> count, out bit<16> old) {
            old = count;
            if (count != hdr.lock.count) { count = count + 1; }
        }
    };
