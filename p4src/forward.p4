// ACL and routing: IPv4 and IPv6 longest prefix match, next hops shared by both, ECMP by an action selector.

#ifndef DCB_FORWARD_P4
#define DCB_FORWARD_P4

control Acl(inout metadata_t meta, inout standard_metadata_t std) {
    @name(".ingress.acl_hits") direct_counter(CounterType.packets_and_bytes) acl_hits;

    @name(".ingress.acl_drop")
    action acl_drop() {
        meta.verdict = VERDICT_DROP;
        meta.reason = DROP_ACL;
    }

    @name(".ingress.acl_punt")
    action acl_punt() {
        meta.verdict = VERDICT_PUNT;
        meta.reason = PUNT_ACL;
    }

    // The copy is the frame as it came in; the frame itself goes on.
    @name(".ingress.acl_mirror")
    action acl_mirror(bit<16> session) {
        meta.mirror_ingress_port = std.ingress_port;
        meta.mirror_priority = meta.tm.priority;
        clone_preserving_field_list(CloneType.I2E, (bit<32>)session, FIELDS_OF_MIRROR);
    }

    @name(".ingress.acl_set_class")
    action acl_set_class(bit<3> queue, bit<3> pg, bit<1> lossless) {
        std.priority = queue;
        meta.tm.pg = pg;
        meta.tm.lossless = lossless;
    }

    @name(".ingress.acl")
    table acl {
        key = {
            std.ingress_port: ternary @name("in_port");
            meta.ether_type: ternary @name("ether_type");
            meta.src_ip4: ternary @name("src_ip4");
            meta.dst_ip4: ternary @name("dst_ip4");
            meta.ip_proto: ternary @name("ip_proto");
            meta.l4_dst_port: range @name("l4_dst_port");
            meta.dscp: ternary @name("dscp");
        }
        actions = { acl_drop; acl_punt; acl_mirror; acl_set_class; @defaultonly NoAction; }
        const default_action = NoAction();
        counters = acl_hits;
        size = 1024;
    }

    apply {
        acl.apply();
    }
}

control Route(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // Hash of addresses, protocol, ports and RoCE destination queue pair: the path of a flow never changes by itself.
    @name(".ingress.ecmp") @max_group_size(64)
    action_selector(HashAlgorithm.crc32, 1024, 32) ecmp;

    @name(".ingress.route")
    action route(bit<16> nexthop) {
        meta.nexthop = nexthop;
    }

    @name(".ingress.drop_route")
    action drop_route() {
        meta.verdict = VERDICT_DROP;
        meta.reason = DROP_NO_ROUTE;
    }

    @name(".ingress.punt")
    action punt() {
        meta.verdict = VERDICT_PUNT;
        meta.reason = PUNT_ROUTE;
    }

    @name(".ingress.forward")
    action forward(bit<9> port, bit<48> dst_mac) {
        std.egress_spec = port;
        hdr.ethernet.dst_addr = dst_mac;
        meta.routed = 1;
    }

    @name(".ingress.ipv4_lpm")
    table ipv4_lpm {
        key = { meta.dst_ip4: lpm @name("dst"); }
        actions = { route; drop_route; punt; }
        default_action = drop_route();
        size = 16384;
    }

    @name(".ingress.ipv6_lpm")
    table ipv6_lpm {
        key = { hdr.ipv6.dst_addr: lpm @name("dst"); }
        actions = { route; drop_route; punt; }
        default_action = drop_route();
        size = 16384;
    }

    // No default action: BMv2 takes none with a selector (p4c warns of the one that the language implies).
    @name(".ingress.nexthop")
    table nexthop {
        key = {
            meta.nexthop: exact @name("nexthop");
            meta.flow_src: selector;
            meta.flow_dst: selector;
            meta.ip_proto: selector;
            meta.l4_src_port: selector;
            meta.l4_dst_port: selector;
            meta.roce_qp: selector;
        }
        actions = { forward; }
        implementation = ecmp;
        size = 4096;
    }

    // An IPv6 address in 32 bits, so that one selector serves both families. Rotations keep the words that vary in a
    // fabric (subnet, host) apart: a plain XOR would make fd00:1::2 and fd00:2::1 one flow.
    @name(".ingress.fold_ipv6")
    action fold_ipv6() {
        meta.flow_src = (hdr.ipv6.src_addr[111:96] ++ hdr.ipv6.src_addr[127:112])
            ^ (hdr.ipv6.src_addr[87:64] ++ hdr.ipv6.src_addr[95:88])
            ^ (hdr.ipv6.src_addr[39:32] ++ hdr.ipv6.src_addr[63:40])
            ^ hdr.ipv6.src_addr[31:0];
        meta.flow_dst = (hdr.ipv6.dst_addr[111:96] ++ hdr.ipv6.dst_addr[127:112])
            ^ (hdr.ipv6.dst_addr[87:64] ++ hdr.ipv6.dst_addr[95:88])
            ^ (hdr.ipv6.dst_addr[39:32] ++ hdr.ipv6.dst_addr[63:40])
            ^ hdr.ipv6.dst_addr[31:0];
    }

    @name(".ingress.use_ipv4_flow")
    action use_ipv4_flow() {
        meta.flow_src = meta.src_ip4;
        meta.flow_dst = meta.dst_ip4;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            use_ipv4_flow();
            ipv4_lpm.apply();
        } else {
            fold_ipv6();
            ipv6_lpm.apply();
        }
        if (meta.verdict == VERDICT_FORWARD) {
            if (meta.ttl <= 1) {
                meta.verdict = VERDICT_PUNT;
                meta.reason = PUNT_TTL;
            } else if (nexthop.apply().hit) {
                if (hdr.ipv4.isValid()) {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            } else {
                meta.verdict = VERDICT_DROP;
                meta.reason = DROP_NO_EGRESS;
            }
        }
    }
}

#endif
