// Headers on the wire, the header that carries what program and traffic manager tell each other, and user metadata.

#ifndef DCB_HEADERS_P4
#define DCB_HEADERS_P4

// Port that stands for the controller; `p4c -DCPU_PORT=...` changes it. Must equal --cpu-port of the switch.
#ifndef CPU_PORT
#define CPU_PORT 510
#endif
const bit<9> CPU_PORT_ID = CPU_PORT;
const bit<9> DROP_PORT_ID = 511;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_VLAN = 0x8100;  // customer tag
const bit<16> ETHERTYPE_SVLAN = 0x88A8; // service tag
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<16> ETHERTYPE_MAC_CONTROL = 0x8808;
const bit<16> ETHERTYPE_LLDP = 0x88CC;
const bit<16> ETHERTYPE_CNM = 0x22E7;    // 802.1Qau: congestion notification message
const bit<16> ETHERTYPE_CN_TAG = 0x22E9; // and the tag by which a source knows its flow again

const bit<48> MAC_CONTROL_ADDRESS = 0x0180C2000001;
const bit<16> OPCODE_PAUSE = 0x0001;
const bit<16> OPCODE_PFC = 0x0101;
const bit<32> MAC_CONTROL_FRAME_BYTES = 60; // 64 on the wire, without the FCS

const bit<16> ARP_HARDWARE_ETHERNET = 1;
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;

const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_ICMPV6 = 58;
const bit<16> UDP_PORT_ROCEV2 = 4791;
const bit<8> ICMPV6_ROUTER_SOLICITATION = 133; // first of neighbour discovery's five types
const bit<8> ICMPV6_REDIRECT = 137;            // last of them

const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_CE = 3;

const bit<32> INSTANCE_INGRESS_CLONE = 1; // standard_metadata.instance_type

// set_port: any other value trusts the port alone.
const bit<2> TRUST_PCP = 1;
const bit<2> TRUST_DSCP = 2;

// What ingress decided about a frame.
const bit<2> VERDICT_FORWARD = 0;
const bit<2> VERDICT_DROP = 1;
const bit<2> VERDICT_PUNT = 2;

// packet_in.reason
const bit<4> PUNT_LLDP = 0;
const bit<4> PUNT_ROUTE = 1;
const bit<4> PUNT_ACL = 2;
const bit<4> PUNT_TTL = 3;
const bit<4> PUNT_EVENT_BASE = 3; // plus tm.event: 4 storm detected, 5 storm restored

// Index of ingress.drops is port * 8 + one of these.
const bit<4> DROP_NO_ROUTE = 0;
const bit<4> DROP_PARSER_ERROR = 1;
const bit<4> DROP_NOT_FORWARDABLE = 2;
const bit<4> DROP_ACL = 3;
const bit<4> DROP_CHECKSUM = 4;
const bit<4> DROP_NO_EGRESS = 5;
const bit<4> DROP_GROUP_MAC = 6;
const bit<4> DROP_OTHER = 7;

// Index of ingress.pfc_rx_invalid is port * 8 + one of these; only the last is accepted all the same.
const bit<32> PFC_INVALID_DESTINATION = 0;
const bit<32> PFC_INVALID_LENGTH = 1;
const bit<32> PFC_INVALID_PAD = 2;
const bit<32> PFC_INVALID_OPCODE = 3;
const bit<32> PFC_INVALID_ZERO_VECTOR = 4;
const bit<32> PFC_INVALID_HIGH_BYTE = 5;

// Dialects of PFC, as bits: a cleared bit of the vector resumes (D2); the top bit of a time is 'until resumed' (D1).
#define DIALECT_CLEARED_BIT_RESUMES(dialect) dialect[0:0] == 1
#define DIALECT_TOP_BIT_FOREVER(dialect) dialect[1:1] == 1
const bit<16> TIME_FOREVER = 0x8000;

// set_pfc_policy: what a frame beyond ingress.pfc_rx_meter gets. Index of ingress.pfc_rx_storm is port * 8 + the last two.
const bit<2> STORM_COUNT = 1;
const bit<2> STORM_IGNORE = 2;
const bit<32> STORM_IGNORED = 0;
const bit<32> STORM_COUNTED = 1;
const bit<2> METER_RED = 2;

// 802.1Qau: a CNM quotes at most this much of the frame that it is about, EtherType included.
const bit<32> CNM_MSDU_BYTES = 64;
const bit<32> CNM_PDU_BYTES = 24;
const bit<32> ADDRESSES_BYTES = 12;
const bit<32> TAG_BYTES = 4;
const bit<32> ETHER_TYPE_BYTES = 2;

// Counters, registers and tables with an index or key of (port, n): 512 ports, 8 priorities, queues or groups.
const bit<32> PORT_N_CELLS = 4096;

error {
    BadIpv4Header,
    BadIpv6Header
}

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<3> priority;
    bit<4> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<3> queue;
    bit<4> pad;
}

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header vlan_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> ether_type;
}

// 802.1Qau, after EtherType 0x22E9.
header cn_tag_t {
    bit<16> flow_id;
    bit<16> ether_type;
}

// 802.1Qau, after EtherType 0x22E7: the PDU, and the EtherType that the quoted MSDU begins with. What follows it on the wire
// are the headers and the payload of the sampled frame.
header cnm_t {
    bit<4>  version;
    bit<6>  reserved;
    bit<6>  quantized_feedback;
    bit<64> cpid;
    bit<16> q_offset; // 64 bytes, two's complement
    bit<16> q_delta;
    bit<3>  encapsulated_priority;
    bit<13> reserved_priority;
    bit<48> encapsulated_dst;
    bit<16> msdu_len;
    bit<16> msdu_ether_type;
}

// RFC 826: what every ARP frame starts with, and the addresses of those for IPv4 over Ethernet.
header arp_t {
    bit<16> hardware_type;
    bit<16> protocol_type;
    bit<8>  hardware_len;
    bit<8>  protocol_len;
    bit<16> operation;
}

header arp_ipv4_t {
    bit<48> sender_mac;
    bit<32> sender_ip;
    bit<48> target_mac;
    bit<32> target_ip;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_len;
    bit<16> identification;
    bit<1>  reserved;
    bit<1>  dont_fragment;
    bit<1>  more_fragments;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

header ipv4_options_t {
    varbit<320> options;
}

header ipv6_t {
    bit<4>   version;
    bit<6>   dscp;
    bit<2>   ecn;
    bit<20>  flow_label;
    bit<16>  payload_len;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;
}

header icmpv6_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
}

header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> seq;
    bit<32> ack;
    bit<4>  data_offset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> len;
    bit<16> checksum;
}

// InfiniBand base transport header, as RoCEv2 carries it in UDP.
header bth_t {
    bit<8>  opcode;
    bit<1>  solicited;
    bit<1>  migration;
    bit<2>  pad_count;
    bit<4>  version;
    bit<16> pkey;
    bit<1>  fecn;
    bit<1>  becn;
    bit<6>  reserved6;
    bit<24> dst_qp;
    bit<1>  ack_request;
    bit<7>  reserved7;
    bit<24> psn;
}

header mac_control_t {
    bit<16> opcode;
}

// 802.1Qbb: bit n of the vector enables time n. The 26 bytes of pad are in fields of at most 64 bits.
header pfc_t {
    bit<16> vector;
    bit<16> time0;
    bit<16> time1;
    bit<16> time2;
    bit<16> time3;
    bit<16> time4;
    bit<16> time5;
    bit<16> time6;
    bit<16> time7;
    bit<64> pad0;
    bit<64> pad1;
    bit<64> pad2;
    bit<16> pad3;
}

// 802.3 Annex 31B: one time for the whole port, 42 bytes of pad.
header pause_t {
    bit<16> time;
    bit<64> pad0;
    bit<64> pad1;
    bit<64> pad2;
    bit<64> pad3;
    bit<64> pad4;
    bit<16> pad5;
}

// The contract with the traffic manager (docs/contract.md, section 1). A header and not a struct, because p4c keeps the names
// of a header's fields; it is never emitted. Ingress sets it valid, which zeroes it.
header tm_t {
    bit<8>  model;
    bit<3>  priority;
    bit<3>  pg;
    bit<1>  lossless;
    bit<1>  pause_valid;
    bit<8>  pause_vector;
    bit<16> pause_time0;
    bit<16> pause_time1;
    bit<16> pause_time2;
    bit<16> pause_time3;
    bit<16> pause_time4;
    bit<16> pause_time5;
    bit<16> pause_time6;
    bit<16> pause_time7;
    bit<1>  pfc_request;
    bit<7>  reserved;
    bit<8>  pfc_vector;
    bit<16> pfc_time0;
    bit<16> pfc_time1;
    bit<16> pfc_time2;
    bit<16> pfc_time3;
    bit<16> pfc_time4;
    bit<16> pfc_time5;
    bit<16> pfc_time6;
    bit<16> pfc_time7;
    bit<32> enq_depth_bytes;
    bit<32> deq_depth_bytes;
    bit<8>  pause_forever;
    bit<4>  event;
    bit<9>  event_port;
    bit<3>  event_priority;
    bit<1>  cnm_request;
    bit<6>  cnm_qfb;
    bit<3>  cnm_priority;
    bit<6>  reserved_cnm;
    bit<16> cnm_qoff;
    bit<16> cnm_qdelta;
    bit<64> cnm_cpid;
}

const bit<8> FIELDS_OF_MIRROR = 1;
#ifdef TM_EMULATION
const bit<8> FIELDS_OF_EMULATION = 2;
#endif

struct metadata_t {
    tm_t    tm;
    // Set by the parser, 0 where the frame has no such field.
    bit<16> ether_type;  // after the tags
    bit<6>  dscp;
    bit<8>  ttl;         // or hop limit
    bit<8>  ip_proto;
    bit<16> l4_src_port;
    bit<16> l4_dst_port;
    bit<24> roce_qp;
    bit<32> src_ip4;
    bit<32> dst_ip4;
    // Set by ingress.
    bit<32> flow_src;    // source and destination address for the ECMP hash
    bit<32> flow_dst;
    bit<2>  trust;
    bit<8>  qos_profile;
    bit<8>  pfc_rx_enable;
    bit<1>  pause_rx_enable;
    bit<2>  pfc_dialect;      // of the PFC frame that came in, or that is sent
    bit<2>  pfc_storm_action;
    bit<1>  arp_answer;  // an ARP request that the program answers
    bit<48> arp_mac;     // with this address
    bit<16> nexthop;
    bit<2>  verdict;
    bit<4>  reason;      // of a drop or a punt
    bit<1>  routed;      // egress rewrites only what was routed
    // Kept by a copy of acl_mirror: everything else starts at 0 there.
    @field_list(FIELDS_OF_MIRROR)
    bit<9>  mirror_ingress_port;
    @field_list(FIELDS_OF_MIRROR)
    bit<3>  mirror_priority;
    // Set by egress.
    bit<6>  new_dscp;
    bit<32> kmin_bytes;
    bit<32> kmax_bytes;
    bit<48> ecn_slope;
    bit<1>  drop_non_ect;
    bit<8>  tm_pool;
#ifdef TM_EMULATION
    // Kept by a frame that goes round and by the copies that become PFC frames (tm_emulation.p4).
    @field_list(FIELDS_OF_EMULATION)
    bit<2>  emu_round;
    @field_list(FIELDS_OF_EMULATION)
    bit<48> emu_now;          // microseconds
    @field_list(FIELDS_OF_EMULATION)
    bit<9>  emu_ingress_port;
    @field_list(FIELDS_OF_EMULATION)
    bit<9>  emu_egress_port;
    @field_list(FIELDS_OF_EMULATION)
    bit<3>  emu_queue;
    @field_list(FIELDS_OF_EMULATION)
    bit<3>  emu_priority;
    @field_list(FIELDS_OF_EMULATION)
    bit<3>  emu_pg;
    @field_list(FIELDS_OF_EMULATION)
    bit<1>  emu_lossless;
    @field_list(FIELDS_OF_EMULATION)
    bit<1>  emu_routed;
    @field_list(FIELDS_OF_EMULATION)
    bit<1>  emu_ticketed;
    @field_list(FIELDS_OF_EMULATION)
    bit<1>  emu_bounced;      // egress sent it back
    @field_list(FIELDS_OF_EMULATION)
    bit<32> emu_ticket;
    @field_list(FIELDS_OF_EMULATION)
    bit<1>  emu_xon_notice;   // the notice says XON, not XOFF
    @field_list(FIELDS_OF_EMULATION)
    bit<16> emu_pfc_time;
    bit<9>  emu_pfc_port;
    bit<48> emu_low_since;
    bit<32> emu_low_ticket;
    // From the tables of the traffic manager; sizes in frames.
    bit<64> emu_rate_bps;
    bit<32> emu_quantum;      // microseconds, in units of 2^-12
    bit<8>  emu_tx_enable;
    bit<16> emu_quanta;
    bit<1>  emu_static;
    bit<32> emu_xoff_frames;
    bit<32> emu_xon_frames;
    bit<32> emu_full_frames;  // XOFF and headroom
    bit<32> emu_limit_frames;
#endif
}

struct headers_t {
    packet_in_t    packet_in;
    packet_out_t   packet_out;
    ethernet_t     ethernet;
    vlan_t         vlan;
    vlan_t         vlan_inner;
    cn_tag_t       cn_tag;
    cnm_t          cnm;
    mac_control_t  mac_control;
    pfc_t          pfc;
    pause_t        pause;
    arp_t          arp;
    arp_ipv4_t     arp_ipv4;
    ipv4_t         ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t         ipv6;
    icmpv6_t       icmpv6;
    tcp_t          tcp;
    udp_t          udp;
    bth_t          bth;
}

#endif
