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
