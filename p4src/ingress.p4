// Ingress: packet-out, MAC control, or a data frame that is classified, filtered and routed.

#ifndef DCB_INGRESS_P4
#define DCB_INGRESS_P4

#include "classify.p4"
#include "forward.p4"
#include "pfc.p4"
#ifdef TM_EMULATION
#include "tm_emulation.p4"
#endif

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(PORT_N_CELLS, CounterType.packets_and_bytes) rx;
    counter(PORT_N_CELLS, CounterType.packets_and_bytes) drops;
    counter(PORT_N_CELLS, CounterType.packets_and_bytes) cnm_rx;
    PortConfig() port;
    Classify() classify;
    MacControlReceive() mac_control;
    Acl() acl;
    Route() route;
#ifdef TM_EMULATION
    EmulatedIngress() emulation;
#endif

    // The request becomes its answer and goes back where it came from (RFC 826): every address is here.
    action answer_arp() {
        bit<32> asked = hdr.arp_ipv4.target_ip;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp_ipv4.target_mac = hdr.arp_ipv4.sender_mac;
        hdr.arp_ipv4.target_ip = hdr.arp_ipv4.sender_ip;
        hdr.arp_ipv4.sender_mac = meta.arp_mac;
        hdr.arp_ipv4.sender_ip = asked;
        hdr.ethernet.dst_addr = hdr.arp_ipv4.target_mac;
        hdr.ethernet.src_addr = meta.arp_mac;
        std.egress_spec = std.ingress_port;
    }

    apply {
        bit<32> base = (bit<32>)std.ingress_port << 3; // cells of this port
        meta.tm.setValid();
#ifdef TM_EMULATION
        meta.tm.model = 1;
        if (meta.emu_round != ROUND_NONE) {
            // Decided when it came in.
        } else
#endif
        if (hdr.packet_out.isValid()) {
            meta.tm.priority = hdr.packet_out.queue;
            std.priority = hdr.packet_out.queue;
            std.egress_spec = hdr.packet_out.egress_port;
            if (hdr.packet_out.egress_port == CPU_PORT_ID || hdr.packet_out.egress_port == DROP_PORT_ID) {
                meta.verdict = VERDICT_DROP;
                meta.reason = DROP_OTHER;
            }
            rx.count(base + (bit<32>)meta.tm.priority);
            hdr.packet_out.setInvalid();
        } else {
            port.apply(meta, std);
            if (hdr.ethernet.isValid() && hdr.ethernet.ether_type == ETHERTYPE_MAC_CONTROL) {
                mac_control.apply(hdr, meta, std, base);
            } else {
                classify.apply(hdr, meta, std);
                rx.count(base + (bit<32>)meta.tm.priority);
                if (meta.ether_type == ETHERTYPE_CNM) {
                    // For a source in another domain: a router does not pass it on (it is dropped as not forwardable).
                    cnm_rx.count(base + (bit<32>)meta.tm.priority);
                }
                if (std.parser_error != error.NoError) {
                    meta.verdict = VERDICT_DROP;
                    meta.reason = DROP_PARSER_ERROR;
                } else if (std.checksum_error == 1) {
                    meta.verdict = VERDICT_DROP;
                    meta.reason = DROP_CHECKSUM;
                } else if (meta.ether_type == ETHERTYPE_LLDP) {
                    meta.verdict = VERDICT_PUNT;
                    meta.reason = PUNT_LLDP;
                } else {
                    acl.apply(meta, std);
                    if (meta.verdict == VERDICT_FORWARD) {
                        // ARP is not IP. Neighbour discovery is, but does not cross a router.
                        if (meta.arp_answer == 1) {
                            answer_arp();
                        } else if (!hdr.ipv4.isValid() && !hdr.ipv6.isValid()
                            || hdr.icmpv6.isValid() && hdr.icmpv6.type >= ICMPV6_ROUTER_SOLICITATION
                            && hdr.icmpv6.type <= ICMPV6_REDIRECT) {
                            meta.verdict = VERDICT_DROP;
                            meta.reason = DROP_NOT_FORWARDABLE;
                        } else if (hdr.ethernet.dst_addr[40:40] == 1) {
                            meta.verdict = VERDICT_DROP;
                            meta.reason = DROP_GROUP_MAC;
                        } else {
                            route.apply(hdr, meta, std);
                        }
                    }
                }
            }
        }
        if (meta.verdict == VERDICT_DROP) {
            drops.count(base + (bit<32>)meta.reason);
            mark_to_drop(std);
        } else if (meta.verdict == VERDICT_PUNT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.priority = meta.tm.priority;
            hdr.packet_in.reason = meta.reason;
            std.egress_spec = CPU_PORT_ID;
        }
#ifdef TM_EMULATION
        emulation.apply(hdr, meta, std, base);
#endif
    }
}

#endif
