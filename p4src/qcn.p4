// Congestion notification (802.1Qau): the congestion point's messages, and the end of a congestion-aware domain.
//
// The traffic manager samples frames and computes the feedback. For each message it hands over a copy of the sampled frame as it
// came in (its first 128 bytes), which goes back out of the port that the frame came in on.

#ifndef DCB_QCN_P4
#define DCB_QCN_P4

#include "headers.p4"

// Writes the EtherType that ends addresses and tags.
#define SET_LAST_ETHER_TYPE(value, without_cn_tag) \
    if (hdr.cn_tag.isValid() && !without_cn_tag) { \
        hdr.cn_tag.ether_type = value; \
    } else if (hdr.vlan_inner.isValid()) { \
        hdr.vlan_inner.ether_type = value; \
    } else if (hdr.vlan.isValid()) { \
        hdr.vlan.ether_type = value; \
    } else { \
        hdr.ethernet.ether_type = value; \
    }

// The copy becomes the message: its addresses and tags stay in front, the rest is what the message quotes. egress.port_mac fills
// in the source.
control CongestionNotification(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std, in bit<32> base) {
    @name(".egress.cnm_tx") counter(PORT_N_CELLS, CounterType.packets_and_bytes) cnm_tx;

    @name(".egress.build_cnm")
    action build_cnm() {
        hdr.cnm.setValid();
        hdr.cnm.version = 0;
        hdr.cnm.reserved = 0;
        hdr.cnm.quantized_feedback = meta.tm.cnm_qfb;
        hdr.cnm.cpid = meta.tm.cnm_cpid;
        hdr.cnm.q_offset = meta.tm.cnm_qoff;
        hdr.cnm.q_delta = meta.tm.cnm_qdelta;
        hdr.cnm.encapsulated_priority = meta.tm.cnm_priority;
        hdr.cnm.reserved_priority = 0;
        hdr.cnm.encapsulated_dst = hdr.ethernet.dst_addr;
        hdr.cnm.msdu_ether_type = meta.ether_type;
        hdr.ethernet.dst_addr = hdr.ethernet.src_addr;
        hdr.ethernet.src_addr = 0;
    }

    apply {
        bit<32> before = ADDRESSES_BYTES;
        if (hdr.vlan.isValid()) {
            before = before + TAG_BYTES;
            hdr.vlan.pcp = meta.tm.priority;
            hdr.vlan.dei = 0;
        }
        if (hdr.vlan_inner.isValid()) {
            before = before + TAG_BYTES;
        }
        if (hdr.cn_tag.isValid()) {
            before = before + TAG_BYTES;
        }
        bit<32> msdu_bytes = std.packet_length - before;
        if (msdu_bytes > CNM_MSDU_BYTES) {
            msdu_bytes = CNM_MSDU_BYTES;
        }
        build_cnm();
        hdr.cnm.msdu_len = (bit<16>)msdu_bytes;
        SET_LAST_ETHER_TYPE(ETHERTYPE_CNM, false)
        truncate(before + ETHER_TYPE_BYTES + CNM_PDU_BYTES + msdu_bytes);
        cnm_tx.count(base + (bit<32>)meta.tm.cnm_priority);
    }
}

// What is routed leaves the domain of its source: no message could find its way back from the next bridge.
control LeaveCongestionDomain(inout headers_t hdr) {
    apply {
        if (hdr.cn_tag.isValid()) {
            SET_LAST_ETHER_TYPE(hdr.cn_tag.ether_type, true)
            hdr.cn_tag.setInvalid();
        }
    }
}

#endif
