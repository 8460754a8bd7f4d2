// Egress: ECN and rewriting of what was routed, frames that the traffic manager asks for (PFC, CNM), copies for the controller.

#ifndef DCB_EGRESS_P4
#define DCB_EGRESS_P4

#include "pfc.p4"
#include "qcn.p4"
#ifdef TM_EMULATION
#include "tm_emulation.p4"
#else
#include "tm.p4"
#endif

// Congestion experienced by bytes left in the queue, WRED between Kmin and Kmax (docs/contract.md, section 2).
control EcnMark(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std, in bit<32> base) {
    @name(".egress.ce_marked") counter(PORT_N_CELLS, CounterType.packets_and_bytes) ce_marked;
    @name(".egress.ecn_dropped") counter(PORT_N_CELLS, CounterType.packets_and_bytes) ecn_dropped;

    // pmax is there to be read back: the slope already holds it.
    @name(".egress.set_ecn") @noWarn("unused")
    action set_ecn(bit<32> kmin_bytes, bit<32> kmax_bytes, bit<32> pmax, bit<48> slope, bit<1> drop_non_ect) {
        meta.kmin_bytes = kmin_bytes;
        meta.kmax_bytes = kmax_bytes;
        meta.ecn_slope = slope;
        meta.drop_non_ect = drop_non_ect;
    }

    @name(".egress.ecn_profile")
    table ecn_profile {
        key = {
            std.egress_port: exact @name("egress_port");
            std.priority: exact @name("queue");
        }
        actions = { set_ecn; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    apply {
        meta.kmin_bytes = 0xFFFFFFFF; // without a profile: never
        ecn_profile.apply();
        if (meta.tm.deq_depth_bytes >= meta.kmin_bytes) {
            bit<1> mark = 1;
            if (meta.tm.deq_depth_bytes < meta.kmax_bytes) {
                // (excess * slope) >> 16 in two halves of the slope: exact, and no product is wider than 64 bits.
                bit<64> excess = (bit<64>)(meta.tm.deq_depth_bytes - meta.kmin_bytes);
                bit<64> probability = (excess * (bit<64>)meta.ecn_slope[47:32] << 16)
                    + (excess * (bit<64>)meta.ecn_slope[31:0] >> 16);
                bit<32> draw;
                random<bit<32>>(draw, 0, 0xFFFFFFFF);
                if (probability <= (bit<64>)draw) {
                    mark = 0;
                }
            }
            if (mark == 1) {
                bit<2> ecn;
                if (hdr.ipv4.isValid()) {
                    ecn = hdr.ipv4.ecn;
                } else {
                    ecn = hdr.ipv6.ecn;
                }
                if (ecn == ECN_NOT_ECT) {
                    if (meta.drop_non_ect == 1) {
                        ecn_dropped.count(base + (bit<32>)meta.tm.priority);
                        mark_to_drop(std);
                        meta.verdict = VERDICT_DROP;
                    }
                } else if (ecn != ECN_CE) {
                    ce_marked.count(base + (bit<32>)meta.tm.priority);
                    if (hdr.ipv4.isValid()) {
                        hdr.ipv4.ecn = ECN_CE;
                    } else {
                        hdr.ipv6.ecn = ECN_CE;
                    }
                }
            }
        }
    }
}

control Rewrite(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @name(".egress.set_pcp")
    action set_pcp(bit<3> pcp, bit<1> dei) {
        hdr.vlan.pcp = pcp;
        hdr.vlan.dei = dei;
    }

    @name(".egress.pcp_rewrite")
    table pcp_rewrite {
        key = {
            std.egress_port: exact @name("egress_port");
            meta.tm.priority: exact @name("priority");
        }
        actions = { set_pcp; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    @name(".egress.set_dscp")
    action set_dscp(bit<6> dscp) {
        meta.new_dscp = dscp;
    }

    @name(".egress.dscp_rewrite")
    table dscp_rewrite {
        key = {
            std.egress_port: exact @name("egress_port");
            meta.tm.priority: exact @name("priority");
        }
        actions = { set_dscp; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    apply {
        if (hdr.vlan.isValid()) {
            pcp_rewrite.apply();
        }
        if (dscp_rewrite.apply().hit) {
            if (hdr.ipv4.isValid()) {
                hdr.ipv4.dscp = meta.new_dscp;
            } else {
                hdr.ipv6.dscp = meta.new_dscp;
            }
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(PORT_N_CELLS, CounterType.packets_and_bytes) tx;
    PfcTransmit() pfc;
    EcnMark() ecn;
    Rewrite() rewrite;
    CongestionNotification() cnm;
    LeaveCongestionDomain() leave_domain;
#ifdef TM_EMULATION
    EmulatedEgress() emulation;
#else
    TrafficManagerObjects() traffic_manager;
#endif

    action set_src_mac(bit<48> mac) {
        hdr.ethernet.src_addr = mac;
    }

    table port_mac {
        key = { std.egress_port: exact @name("egress_port"); }
        actions = { set_src_mac; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        bit<32> base = (bit<32>)std.egress_port << 3; // cells of this port
#ifdef TM_EMULATION
        emulation.apply(meta, std);
        if (meta.emu_round == ROUND_NONE) { // else it comes back and is not sent
#endif
        if (meta.routed == 1) {
            ecn.apply(hdr, meta, std, base);
            rewrite.apply(hdr, meta, std);
            leave_domain.apply(hdr);
        } else if (meta.tm.pfc_request == 1) {
            pfc.apply(hdr, meta, std, base);
        } else if (meta.tm.cnm_request == 1) {
            cnm.apply(hdr, meta, std, base);
        } else if (std.instance_type == INSTANCE_INGRESS_CLONE) {
            // What acl_mirror copied, as it came in. It is counted by the queue of its session.
            meta.tm.setValid();
            meta.tm.priority = std.priority;
            if (std.egress_port == CPU_PORT_ID) {
                hdr.packet_in.setValid();
                hdr.packet_in.ingress_port = meta.mirror_ingress_port;
                hdr.packet_in.priority = meta.mirror_priority;
                hdr.packet_in.reason = PUNT_ACL;
            }
        } else if (meta.tm.event != 0) {
            // Something that the traffic manager has to tell the controller: a packet-in with no frame.
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = meta.tm.event_port;
            hdr.packet_in.priority = meta.tm.event_priority;
            hdr.packet_in.reason = PUNT_EVENT_BASE + meta.tm.event;
        }
        if (meta.routed == 1 || meta.tm.pfc_request == 1 || meta.tm.cnm_request == 1) {
            port_mac.apply();
        }
        // MAC control is not data, and what ECN dropped is not sent.
        if (meta.tm.pfc_request == 0 && meta.verdict != VERDICT_DROP) {
            tx.count(base + (bit<32>)meta.tm.priority);
        }
#ifdef TM_EMULATION
        }
#else
        if (meta.tm.model == 1) {
            traffic_manager.apply(meta, std);
        }
#endif
    }
}

#endif
