// MAC control: PFC (802.1Qbb) and PAUSE (802.3 Annex 31B) received, PFC sent.

#ifndef DCB_PFC_P4
#define DCB_PFC_P4

// Counts priority n of a frame once, by what the frame says about it.
#define COUNT_RECEIVED(n) \
    if (hdr.pfc.vector[n:n] == 1 && hdr.pfc.time##n != 0) { \
        pfc_rx_xoff.count(base + n); \
    } else if (hdr.pfc.vector[n:n] == 1 || DIALECT_CLEARED_BIT_RESUMES(meta.pfc_dialect)) { \
        pfc_rx_xon.count(base + n); \
    }
#define RESUME_IF_CLEARED(n) \
    if (hdr.pfc.vector[n:n] == 0) { meta.tm.pause_time##n = 0; }
#define COUNT_SENT(n) \
    if (meta.tm.pfc_vector[n:n] == 1) { \
        if (meta.tm.pfc_time##n == 0) { pfc_tx_xon.count(base + n); } else { pfc_tx_xoff.count(base + n); } \
    }
// XON says nothing about a time, so only XOFF can be forever.
#define SAY_FOREVER(n) \
    if (hdr.pfc.time##n != 0) { hdr.pfc.time##n = TIME_FOREVER; }
#define CLEAR_IF_XON(n) \
    if (hdr.pfc.time##n == 0) { hdr.pfc.vector[n:n] = 0; }

// Every MAC control frame ends here; a valid one becomes a pause request to the traffic manager for the ingress port.
control MacControlReceive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std, in bit<32> base) {
    @name(".ingress.pfc_rx_frames") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_frames;
    @name(".ingress.pfc_rx_xoff") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_xoff;
    @name(".ingress.pfc_rx_xon") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_xon;
    @name(".ingress.pfc_rx_invalid") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_invalid;
    @name(".ingress.pause_rx_frames") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pause_rx_frames;

    @name(".ingress.pfc_rx_storm") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_rx_storm;
    @name(".ingress.pfc_rx_meter") meter(512, MeterType.packets) pfc_rx_meter; // not configured: all is green

    @name(".ingress.set_pfc_policy")
    action set_pfc_policy(bit<2> dialect, bit<2> storm_action) {
        meta.pfc_dialect = dialect;
        meta.pfc_storm_action = storm_action;
    }

    @name(".ingress.pfc_policy")
    table pfc_policy {
        key = { std.ingress_port: exact @name("ingress_port"); }
        actions = { set_pfc_policy; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

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

    // D2: what the frame leaves out is resumed, so it speaks about all that is enabled.
    @name(".ingress.resume_cleared_bits")
    action resume_cleared_bits() {
        meta.tm.pause_vector = meta.pfc_rx_enable;
        RESUME_IF_CLEARED(0)
        RESUME_IF_CLEARED(1)
        RESUME_IF_CLEARED(2)
        RESUME_IF_CLEARED(3)
        RESUME_IF_CLEARED(4)
        RESUME_IF_CLEARED(5)
        RESUME_IF_CLEARED(6)
        RESUME_IF_CLEARED(7)
    }

    // D1: the other 15 bits count only where the top bit is clear.
    @name(".ingress.pause_until_resumed")
    action pause_until_resumed() {
        meta.tm.pause_forever = (hdr.pfc.time7[15:15] ++ hdr.pfc.time6[15:15] ++ hdr.pfc.time5[15:15]
            ++ hdr.pfc.time4[15:15] ++ hdr.pfc.time3[15:15] ++ hdr.pfc.time2[15:15] ++ hdr.pfc.time1[15:15]
            ++ hdr.pfc.time0[15:15]) & hdr.pfc.vector[7:0] & meta.pfc_rx_enable;
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
            pfc_policy.apply();
            if (hdr.pfc.pad0 != 0 || hdr.pfc.pad1 != 0 || hdr.pfc.pad2 != 0 || hdr.pfc.pad3 != 0) {
                pfc_rx_invalid.count(base + PFC_INVALID_PAD);
            } else if (hdr.pfc.vector[7:0] == 0 && !(DIALECT_CLEARED_BIT_RESUMES(meta.pfc_dialect))) {
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
                bit<2> color;
                pfc_rx_meter.execute_meter((bit<32>)std.ingress_port, color);
                bool heard = true;
                if (color == METER_RED) {
                    if (meta.pfc_storm_action == STORM_IGNORE) {
                        pfc_rx_storm.count(base + STORM_IGNORED);
                        heard = false;
                    } else if (meta.pfc_storm_action == STORM_COUNT) {
                        pfc_rx_storm.count(base + STORM_COUNTED);
                    }
                }
                if (heard) {
                    if (hdr.pfc.vector[7:0] & meta.pfc_rx_enable != 0
                        || DIALECT_CLEARED_BIT_RESUMES(meta.pfc_dialect) && meta.pfc_rx_enable != 0) {
                        request_priority_pause();
                    }
                    if (DIALECT_CLEARED_BIT_RESUMES(meta.pfc_dialect)) {
                        resume_cleared_bits();
                    }
                    if (DIALECT_TOP_BIT_FOREVER(meta.pfc_dialect)) {
                        pause_until_resumed();
                    }
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
control PfcTransmit(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std, in bit<32> base) {
    @name(".egress.pfc_tx_frames") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_tx_frames;
    @name(".egress.pfc_tx_xoff") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_tx_xoff;
    @name(".egress.pfc_tx_xon") counter(PORT_N_CELLS, CounterType.packets_and_bytes) pfc_tx_xon;

    @name(".egress.set_pfc_dialect")
    action set_pfc_dialect(bit<2> dialect) {
        meta.pfc_dialect = dialect;
    }

    @name(".egress.pfc_tx_dialect")
    table pfc_tx_dialect {
        key = { std.egress_port: exact @name("egress_port"); }
        actions = { set_pfc_dialect; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    @name(".egress.say_forever")
    action say_forever() {
        SAY_FOREVER(0)
        SAY_FOREVER(1)
        SAY_FOREVER(2)
        SAY_FOREVER(3)
        SAY_FOREVER(4)
        SAY_FOREVER(5)
        SAY_FOREVER(6)
        SAY_FOREVER(7)
    }

    @name(".egress.resume_by_cleared_bits")
    action resume_by_cleared_bits() {
        CLEAR_IF_XON(0)
        CLEAR_IF_XON(1)
        CLEAR_IF_XON(2)
        CLEAR_IF_XON(3)
        CLEAR_IF_XON(4)
        CLEAR_IF_XON(5)
        CLEAR_IF_XON(6)
        CLEAR_IF_XON(7)
    }

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
        if (pfc_tx_dialect.apply().hit) {
            if (DIALECT_TOP_BIT_FOREVER(meta.pfc_dialect)) {
                say_forever();
            }
            if (DIALECT_CLEARED_BIT_RESUMES(meta.pfc_dialect)) {
                resume_by_cleared_bits();
            }
        }
    }
}

#endif
