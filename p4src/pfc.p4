// MAC control: PFC (802.1Qbb) and PAUSE (802.3 Annex 31B) received, PFC sent.

#ifndef DCB_PFC_P4
#define DCB_PFC_P4

// Counts priority n of a frame once, by what its time says.
#define COUNT_RECEIVED(n) \
    if (hdr.pfc.vector[n:n] == 1) { \
        if (hdr.pfc.time##n == 0) { pfc_rx_xon.count(base + n); } else { pfc_rx_xoff.count(base + n); } \
    }
#define COUNT_SENT(n) \
    if (meta.tm.pfc_vector[n:n] == 1) { \
        if (meta.tm.pfc_time##n == 0) { pfc_tx_xon.count(base + n); } else { pfc_tx_xoff.count(base + n); } \
    }

// Every MAC control frame ends here; a valid one becomes a pause request to the traffic manager for the ingress port.
control MacControlReceive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std, in bit<32> base) {
    @name(".ingress.pfc_rx_frames") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_frames;
    @name(".ingress.pfc_rx_xoff") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_xoff;
    @name(".ingress.pfc_rx_xon") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_xon;
    @name(".ingress.pfc_rx_invalid") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_invalid;
    @name(".ingress.pause_rx_frames") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pause_rx_frames;

    // Effective vector = vector AND what is enabled here; a priority that is not enabled feels nothing.
    @name(".ingress.request_priority_pause")
    action request_priority_pause() {
        meta.tm.pause_valid = 1;
        meta.tm.pause_vector = hdr.pfc.vector[7:0] & meta.pfc_rx_enable;
        meta.tm.pause_time0 = hdr.pfc.time0;
        meta.tm.pause_time1 = hdr.pfc.time1;
        meta.tm.pause_time2 = hdr.pfc.time2;
        meta.tm.pause_time3 = hdr.pfc.time3;
        meta.tm.pause_time4 = hdr.pfc.time4;
        meta.tm.pause_time5 = hdr.pfc.time5;
        meta.tm.pause_time6 = hdr.pfc.time6;
        meta.tm.pause_time7 = hdr.pfc.time7;
    }

    @name(".ingress.request_port_pause")
    action request_port_pause() {
        meta.tm.pause_valid = 1;
        meta.tm.pause_vector = 0xFF;
        meta.tm.pause_time0 = hdr.pause.time;
        meta.tm.pause_time1 = hdr.pause.time;
        meta.tm.pause_time2 = hdr.pause.time;
        meta.tm.pause_time3 = hdr.pause.time;
        meta.tm.pause_time4 = hdr.pause.time;
        meta.tm.pause_time5 = hdr.pause.time;
        meta.tm.pause_time6 = hdr.pause.time;
        meta.tm.pause_time7 = hdr.pause.time;
    }

    apply {
        // The order decides which reason a frame with several faults is counted under.
        if (hdr.ethernet.dst_addr != MAC_CONTROL_ADDRESS) {
            pfc_rx_invalid.count(base + PFC_INVALID_DESTINATION);
        } else if (std.packet_length != MAC_CONTROL_FRAME_BYTES) {
            pfc_rx_invalid.count(base + PFC_INVALID_LENGTH);
        } else if (hdr.pfc.isValid()) {
            if (hdr.pfc.pad0 != 0 || hdr.pfc.pad1 != 0 || hdr.pfc.pad2 != 0 || hdr.pfc.pad3 != 0) {
                pfc_rx_invalid.count(base + PFC_INVALID_PAD);
            } else if (hdr.pfc.vector[7:0] == 0) {
                pfc_rx_invalid.count(base + PFC_INVALID_ZERO_VECTOR);
            } else {
                if (hdr.pfc.vector[15:8] != 0) {
                    pfc_rx_invalid.count(base + PFC_INVALID_HIGH_BYTE);
                }
                pfc_rx_frames.count(base);
                COUNT_RECEIVED(0)
                COUNT_RECEIVED(1)
                COUNT_RECEIVED(2)
                COUNT_RECEIVED(3)
                COUNT_RECEIVED(4)
                COUNT_RECEIVED(5)
                COUNT_RECEIVED(6)
                COUNT_RECEIVED(7)
                if (hdr.pfc.vector[7:0] & meta.pfc_rx_enable != 0) {
                    request_priority_pause();
                }
            }
        } else if (hdr.pause.isValid()) {
            if (hdr.pause.pad0 != 0 || hdr.pause.pad1 != 0 || hdr.pause.pad2 != 0 || hdr.pause.pad3 != 0
                || hdr.pause.pad4 != 0 || hdr.pause.pad5 != 0) {
                pfc_rx_invalid.count(base + PFC_INVALID_PAD);
            } else {
                pause_rx_frames.count(base);
                if (meta.pause_rx_enable == 1) {
                    request_port_pause();
                }
            }
        } else {
            pfc_rx_invalid.count(base + PFC_INVALID_OPCODE);
        }
        mark_to_drop(std);
    }
}

// Makes the frame that the traffic manager asked for out of an empty packet. egress.port_mac fills in the source.
control PfcTransmit(inout headers_t hdr, inout metadata_t meta, in bit<32> base) {
    @name(".egress.pfc_tx_frames") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_tx_frames;
    @name(".egress.pfc_tx_xoff") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_tx_xoff;
    @name(".egress.pfc_tx_xon") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_tx_xon;

    @name(".egress.build_pfc_frame")
    action build_pfc_frame() {
        hdr.ethernet.setValid();
        hdr.ethernet.dst_addr = MAC_CONTROL_ADDRESS;
        hdr.ethernet.src_addr = 0;
        hdr.ethernet.ether_type = ETHERTYPE_MAC_CONTROL;
        hdr.mac_control.setValid();
        hdr.mac_control.opcode = OPCODE_PFC;
        hdr.pfc.setValid();
        hdr.pfc.vector = (bit<16>)meta.tm.pfc_vector;
        hdr.pfc.time0 = meta.tm.pfc_time0;
        hdr.pfc.time1 = meta.tm.pfc_time1;
        hdr.pfc.time2 = meta.tm.pfc_time2;
        hdr.pfc.time3 = meta.tm.pfc_time3;
        hdr.pfc.time4 = meta.tm.pfc_time4;
        hdr.pfc.time5 = meta.tm.pfc_time5;
        hdr.pfc.time6 = meta.tm.pfc_time6;
        hdr.pfc.time7 = meta.tm.pfc_time7;
        hdr.pfc.pad0 = 0;
        hdr.pfc.pad1 = 0;
        hdr.pfc.pad2 = 0;
        hdr.pfc.pad3 = 0;
    }

    apply {
        build_pfc_frame();
        pfc_tx_frames.count(base);
        COUNT_SENT(0)
        COUNT_SENT(1)
        COUNT_SENT(2)
        COUNT_SENT(3)
        COUNT_SENT(4)
        COUNT_SENT(5)
        COUNT_SENT(6)
        COUNT_SENT(7)
    }
}

#endif
