// The parts of the kernel's interface that the program uses. They are stable, and written out here so that
// clang alone builds the program.
// Source: include/uapi/linux/bpf.h, if_ether.h, ip.h and udp.h of Linux.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

struct xdp_md {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
    u32 egress_ifindex;
};

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX };

struct bpf_spin_lock {
    u32 val;
};

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
// A process may map the values into its memory.
#define BPF_F_MMAPABLE (1 << 10)

// A map is described by the types of a struct's members.
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name
#define SECTION(name) __attribute__((section(name), used))
#define INLINED static __attribute__((always_inline))
// A global function is verified once and by itself, for all arguments.
#define VERIFIED_ALONE __attribute__((noinline))
// The compiler knows the range of a global function's result, the verifier does not: a check of the range
// has to stay in the program.
#define HIDE_RANGE(number) asm volatile("" : "+r"(number))

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *context, int delta) = (void *)65;
static long (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *context) = (void *)188;
static long (*const bpf_xdp_load_bytes)(struct xdp_md *context, u32 from, void *to, u32 bytes) = (void *)189;
static long (*const bpf_xdp_store_bytes)(struct xdp_md *context, u32 to, void *from, u32 bytes) = (void *)190;

// Headers of a frame. Numbers of more than one byte are big-endian.
struct ethernet {
    u8 to[6];
    u8 from[6];
    u16 kind;
};
struct ipv4 {
    u8 version_and_words;
    u8 service;
    u16 bytes;
    u16 id;
    u16 fragment;
    u8 lives;
    u8 protocol;
    u16 checksum;
    u32 from;
    u32 to;
};
struct udp {
    u16 from;
    u16 to;
    u16 bytes;
    u16 checksum;
};
// An IPv4 header is not aligned to its words within a frame.
struct frame {
    struct ethernet ethernet;
    struct ipv4 ipv4;
    struct udp udp;
} __attribute__((packed, aligned(2)));

#define BIG16(number) __builtin_bswap16(number)
#define ETHERNET_IPV4 0x0800
#define PROTOCOL_UDP 17
#define IPV4_WITHOUT_OPTIONS 0x45
#define IPV4_BYTES 20
#define UDP_BYTES 8
#define FRAGMENT_MASK 0x3fff
#define FRAME_BYTES 42
#define LIVES 64
