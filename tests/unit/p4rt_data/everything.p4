/* One of everything that P4Runtime can name on v1model; test_p4rt*.py drive it. */
#include <core.p4>
#include <v1model.p4>

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
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ipv4_t {
    bit<8>  version_ihl;
    bit<8>  tos;
    bit<16> length;
    bit<32> id_frag;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    ipv4_t       ipv4;
}

struct metadata_t {
    bit<2>  color;
    bit<2>  color2;
    bit<16> group;
}

struct learn_t {
    bit<48> mac;
    bit<9>  port;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t smeta) {
    value_set<bit<16>>(4) routed_types;
    state start {
        transition select(smeta.ingress_port) {
            510: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            routed_types: parse_ipv4;
            0x0800: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t smeta) {
    direct_counter(CounterType.packets_and_bytes) acl_counter;
    direct_meter<bit<2>>(MeterType.bytes) acl_meter;
    counter(16, CounterType.packets_and_bytes) port_counter;
    counter(8, CounterType.packets) packet_counter;
    meter(8, MeterType.bytes) port_meter;
    register<bit<48>>(16) last_seen;
    register<int<12>>(4) balance;
    action_profile(8) shared;
    action_selector(HashAlgorithm.crc32, 16, 16) ecmp;

    action drop() { mark_to_drop(smeta); }
    action forward(bit<9> port) { smeta.egress_spec = port; }
    action route(bit<9> port, bit<48> dst) {
        smeta.egress_spec = port;
        hdr.ethernet.dst = dst;
    }
    action punt(bit<4> reason) {
        smeta.egress_spec = 510;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = smeta.ingress_port;
        hdr.packet_in.reason = reason;
    }
    action learn() { digest<learn_t>(1, { hdr.ethernet.src, smeta.ingress_port }); }
    action acl_permit() { acl_meter.read(meta.color); acl_counter.count(); }
    action acl_deny() { acl_meter.read(meta.color); acl_counter.count(); mark_to_drop(smeta); }

    table l2 {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; @tableonly punt; @defaultonly NoAction; }
        default_action = NoAction();
        size = 4;
        support_timeout = true;
    }
    table smac {
        key = { hdr.ethernet.src: exact; }
        actions = { NoAction; learn; }
        const default_action = learn();
        size = 64;
    }
    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { route; drop; }
        default_action = drop();
        size = 64;
    }
    table acl {
        key = {
            smeta.ingress_port: ternary;
            hdr.ipv4.src: ternary;
            hdr.ipv4.protocol: optional;
            hdr.ipv4.length: range;
        }
        actions = { acl_permit; acl_deny; }
        const default_action = acl_permit();
        size = 64;
        counters = acl_counter;
        meters = acl_meter;
    }
    table indirect {
        key = { hdr.ipv4.tos: exact; }
        actions = { forward; drop; }
        implementation = shared;
        size = 64;
    }
    table balanced {
        key = {
            hdr.ipv4.dst: exact;
            hdr.ipv4.src: selector;
            hdr.ipv4.protocol: selector;
        }
        actions = { route; drop; }
        implementation = ecmp;
        size = 64;
    }
    table fixed {
        key = { hdr.ethernet.ether_type: ternary; }
        actions = { punt; NoAction; }
        const entries = {
            0x88CC: punt(1);
            0x8800 &&& 0xff00: punt(2);
        }
    }
    table keyless {
        actions = { forward; NoAction; }
        default_action = NoAction();
    }

    apply {
        smac.apply();
        keyless.apply();
        if (hdr.packet_out.isValid()) {
            smeta.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            fixed.apply();
            l2.apply();
            if (hdr.ipv4.isValid()) {
                routes.apply();
                indirect.apply();
                balanced.apply();
                acl.apply();
            }
        }
        port_counter.count((bit<32>) smeta.ingress_port & 15);
        packet_counter.count((bit<32>) smeta.ingress_port & 7);
        port_meter.execute_meter((bit<32>) smeta.ingress_port & 7, meta.color2);
        last_seen.write((bit<32>) smeta.ingress_port & 15, smeta.ingress_global_timestamp);
        int<12> b;
        balance.read(b, 0);
        balance.write(0, b - 1);
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t smeta) { apply { } }

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
