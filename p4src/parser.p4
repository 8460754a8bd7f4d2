// Parser, checksum controls and deparser.

#ifndef DCB_PARSER_P4
#define DCB_PARSER_P4

parser DcbParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CPU_PORT_ID: parse_packet_out;
            default: parse_ethernet;
        }
    }

    // The frame behind the header is not looked at: it leaves as the controller made it.
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition accept;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        meta.ether_type = hdr.ethernet.ether_type;
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_CN_TAG: parse_cn_tag;
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_SVLAN: parse_vlan;
            ETHERTYPE_MAC_CONTROL: parse_mac_control;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        meta.ether_type = hdr.vlan.ether_type;
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_CN_TAG: parse_cn_tag;
            ETHERTYPE_VLAN: parse_vlan_inner;
            ETHERTYPE_SVLAN: parse_vlan_inner;
            default: accept;
        }
    }

    state parse_vlan_inner {
        packet.extract(hdr.vlan_inner);
        meta.ether_type = hdr.vlan_inner.ether_type;
        transition select(hdr.vlan_inner.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_CN_TAG: parse_cn_tag;
            default: accept;
        }
    }

    state parse_cn_tag {
        packet.extract(hdr.cn_tag);
        meta.ether_type = hdr.cn_tag.ether_type;
        transition select(hdr.cn_tag.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_ARP: parse_arp;
            default: accept;
        }
    }

    // MAC control frames carry no tag (802.3 clause 31). A frame too short for its opcode ends in a parser error,
    // which ingress counts as a wrong length.
    state parse_mac_control {
        packet.extract(hdr.mac_control);
        transition select(hdr.mac_control.opcode) {
            OPCODE_PFC: parse_pfc;
            OPCODE_PAUSE: parse_pause;
            default: accept;
        }
    }

    state parse_pfc {
        packet.extract(hdr.pfc);
        transition accept;
    }

    state parse_pause {
        packet.extract(hdr.pause);
        transition accept;
    }

    // Other than IPv4 over Ethernet: the addresses have other widths, and nothing here reads them.
    state parse_arp {
        packet.extract(hdr.arp);
        transition select(hdr.arp.hardware_type, hdr.arp.protocol_type, hdr.arp.hardware_len, hdr.arp.protocol_len) {
            (ARP_HARDWARE_ETHERNET, ETHERTYPE_IPV4, 6, 4): parse_arp_ipv4;
            default: accept;
        }
    }

    state parse_arp_ipv4 {
        packet.extract(hdr.arp_ipv4);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4 && hdr.ipv4.ihl >= 5, error.BadIpv4Header);
        meta.dscp = hdr.ipv4.dscp;
        meta.ttl = hdr.ipv4.ttl;
        meta.ip_proto = hdr.ipv4.protocol;
        meta.src_ip4 = hdr.ipv4.src_addr;
        meta.dst_ip4 = hdr.ipv4.dst_addr;
        transition select(hdr.ipv4.ihl) {
            5: parse_ipv4_payload;
            default: parse_ipv4_options;
        }
    }

    state parse_ipv4_options {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.ihl - 5) << 5);
        transition parse_ipv4_payload;
    }

    // No part of a fragmented datagram gets ports, the first neither: all of it takes one path and one ACL verdict.
    state parse_ipv4_payload {
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_UDP): parse_udp;
            (0, 0, PROTOCOL_TCP): parse_tcp;
            default: accept;
        }
    }

    // Extension headers are not walked: behind one there are no ports.
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        verify(hdr.ipv6.version == 6, error.BadIpv6Header);
        meta.dscp = hdr.ipv6.dscp;
        meta.ttl = hdr.ipv6.hop_limit;
        meta.ip_proto = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_TCP: parse_tcp;
            PROTOCOL_ICMPV6: parse_icmpv6;
            default: accept;
        }
    }

    state parse_icmpv6 {
        packet.extract(hdr.icmpv6);
        transition accept;
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        meta.l4_src_port = hdr.tcp.src_port;
        meta.l4_dst_port = hdr.tcp.dst_port;
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.l4_src_port = hdr.udp.src_port;
        meta.l4_dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port) {
            UDP_PORT_ROCEV2: parse_bth;
            default: accept;
        }
    }

    state parse_bth {
        packet.extract(hdr.bth);
        meta.roce_qp = hdr.bth.dst_qp;
        transition accept;
    }
}

#define IPV4_CHECKED_FIELDS \
    hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, \
    hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr

control DcbVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && !hdr.ipv4_options.isValid(),
            { IPV4_CHECKED_FIELDS }, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4_options.isValid(),
            { IPV4_CHECKED_FIELDS, hdr.ipv4_options.options }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

// Only what was routed: a punted or mirrored frame reaches the controller as it came.
control DcbComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.routed == 1 && hdr.ipv4.isValid() && !hdr.ipv4_options.isValid(),
            { IPV4_CHECKED_FIELDS }, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.routed == 1 && hdr.ipv4.isValid() && hdr.ipv4_options.isValid(),
            { IPV4_CHECKED_FIELDS, hdr.ipv4_options.options }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control DcbDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.vlan_inner);
        packet.emit(hdr.cn_tag);
        packet.emit(hdr.cnm);
        packet.emit(hdr.mac_control);
        packet.emit(hdr.pfc);
        packet.emit(hdr.pause);
        packet.emit(hdr.arp);
        packet.emit(hdr.arp_ipv4);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.icmpv6);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
    }
}

#endif
