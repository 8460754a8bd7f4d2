// Classification: port, PCP or DSCP -> priority -> queue, priority group, losslessness.
// Names start with a dot: they are absolute, so what P4Info calls a table does not depend on where it is instantiated.

#ifndef DCB_CLASSIFY_P4
#define DCB_CLASSIFY_P4

// What the controller said about the port. Without an entry: priority 0, no PFC.
control PortConfig(inout metadata_t meta, inout standard_metadata_t std) {
    @name(".ingress.set_port")
    action set_port(bit<2> trust, bit<3> default_priority, bit<8> qos_profile, bit<8> pfc_rx_enable,
                    bit<1> pause_rx_enable) {
        meta.trust = trust;
        meta.tm.priority = default_priority;
        meta.qos_profile = qos_profile;
        meta.pfc_rx_enable = pfc_rx_enable;
        meta.pause_rx_enable = pause_rx_enable;
    }

    @name(".ingress.port_config")
    table port_config {
        key = { std.ingress_port: exact @name("ingress_port"); }
        actions = { set_port; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        port_config.apply();
    }
}

control Classify(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @name(".ingress.set_priority")
    action set_priority(bit<3> priority) {
        meta.tm.priority = priority;
    }

    @name(".ingress.pcp_to_priority")
    table pcp_to_priority {
        key = {
            meta.qos_profile: exact @name("qos_profile");
            hdr.vlan.pcp: exact @name("pcp");
            hdr.vlan.dei: exact @name("dei");
        }
        actions = { set_priority; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    @name(".ingress.dscp_to_priority")
    table dscp_to_priority {
        key = {
            meta.qos_profile: exact @name("qos_profile");
            meta.dscp: exact @name("dscp");
        }
        actions = { set_priority; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    // What DCBX App TLVs say about protocols; overrides trust.
    @name(".ingress.app_priority")
    table app_priority {
        key = {
            meta.qos_profile: exact @name("qos_profile");
            meta.ether_type: ternary @name("ether_type");
            meta.ip_proto: ternary @name("ip_proto");
            meta.l4_dst_port: ternary @name("l4_dst_port");
        }
        actions = { set_priority; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    // A request to answer is of priority 0, whatever its port or tag says: the answer leaves in that class.
    @name(".ingress.arp_reply")
    action arp_reply(bit<48> mac) {
        meta.arp_answer = 1;
        meta.arp_mac = mac;
        meta.tm.priority = 0;
    }

    @name(".ingress.arp_proxy")
    table arp_proxy {
        key = { std.ingress_port: exact @name("ingress_port"); }
        actions = { arp_reply; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    @name(".ingress.set_class")
    action set_class(bit<3> queue, bit<3> pg, bit<1> lossless) {
        std.priority = queue;
        meta.tm.pg = pg;
        meta.tm.lossless = lossless;
    }

    @name(".ingress.priority_map")
    table priority_map {
        key = {
            meta.qos_profile: exact @name("qos_profile");
            meta.tm.priority: exact @name("priority");
        }
        actions = { set_class; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    apply {
        // A trusted field that the frame lacks leaves the port default in place.
        if (meta.trust == TRUST_DSCP) {
            if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
                dscp_to_priority.apply();
            }
        } else if (meta.trust == TRUST_PCP) {
            if (hdr.vlan.isValid()) {
                pcp_to_priority.apply();
            }
        }
        app_priority.apply();
        // Neither an announcement (sender and target are the same) nor a probe (sender 0.0.0.0, RFC 5227) wants an answer.
        if (hdr.arp_ipv4.isValid() && hdr.arp.operation == ARP_REQUEST && hdr.arp_ipv4.sender_ip != 0
            && hdr.arp_ipv4.sender_ip != hdr.arp_ipv4.target_ip) {
            arp_proxy.apply();
        }
        std.priority = meta.tm.priority; // on a miss: queue = priority, priority group 0, lossy
        priority_map.apply();
    }
}

#endif
