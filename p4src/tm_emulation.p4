// The traffic manager for a target that has none (BMv2), in P4: built with -DTM_EMULATION alone. docs/targets.md says what it can do.
//
// Each frame that is to leave by a port takes a ticket of its cell (egress port, priority), and frames of a cell leave in the
// order of their tickets. tickets given - turn = frames of the cell in the switch: the occupancy that XOFF, XON and the
// queue limit are decided by, in frames of NOMINAL bytes. A frame whose turn it is not, or whose cell is paused, goes round:
//
//   fresh -> ticket -> its turn to enter the queue? -> queue -> paused, or not its turn? -> out
//                        | no                                     | yes
//                        +-> HOLD_PORT -> recirculated -> <-------+
//
// XOFF and XON start as clones to NOTICE_PORT, where nothing else queues. They come back to ingress, which makes
// the frame and puts it into queue 7 of its port: a clone as such would wait in queue 0.
//
// Ingress has one thread and alone writes what its comment says so; each cell has one egress thread.

#ifndef DCB_TM_EMULATION_P4
#define DCB_TM_EMULATION_P4

// A frame counts as 1024 bytes.
#define NOMINAL_SHIFT 10
const bit<9> HOLD_PORT = 508; // no interface has these numbers
const bit<9> NOTICE_PORT = 509;
const bit<32> NOTICE_SESSION = 509;
const bit<3> NOTICE_QUEUE = 7;

const bit<2> ROUND_NONE = 0;
const bit<2> ROUND_HELD = 1;   // a frame that waits
const bit<2> ROUND_NOTICE = 2; // a copy that is to become a PFC frame

const bit<2> ROUND_NEVER = 3;

#include "tm.p4"

// A ticket whose holder is lost (dropped unseen by a full buffer) is given up after this time without a frame sent.
const bit<48> GIVE_UP_US = 1000000;
const bit<48> FOREVER_US = 48w1 << 40; // 12 days
const bit<32> DEFAULT_QUEUE_LIMIT = 256; // frames; the contract's 256 KiB

#define TIME_FRACTION_BITS 12
#define NUMERATOR (512 * 1000000) // bit times of a quantum, times microseconds of a second

register<bit<32>>(PORT_N_CELLS) emu_ticket;   // next ticket to give; ingress
register<bit<32>>(PORT_N_CELLS) emu_release;  // the ticket that may enter the queue next; ingress
register<bit<32>>(PORT_N_CELLS) emu_turn;     // the ticket that leaves next; egress, and ingress when it gives one up
register<bit<48>>(PORT_N_CELLS) emu_moved;    // when egress sent the last one, microseconds
register<bit<32>>(PORT_N_CELLS) emu_low;      // smallest ticket seen waiting since emu_low_since; ingress
register<bit<48>>(PORT_N_CELLS) emu_low_since;
register<bit<48>>(PORT_N_CELLS) emu_until;    // end of the pause received, microseconds; ingress
register<bit<48>>(PORT_N_CELLS) emu_paused;   // sum of all pauses, the rest of a running one included; ingress
register<bit<32>>(PORT_N_CELLS) emu_pauses;   // how many began; ingress
register<bit<64>>(PORT_N_CELLS) emu_told;     // ingress ports (bit n: port n) told XOFF because of this cell; ingress
register<bit<32>>(PORT_N_CELLS) emu_xon;      // frames at which they are told XON; ingress
register<bit<48>>(PORT_N_CELLS) emu_refresh_at; // of (ingress port, priority): when XOFF is to be said again, 0 after XON; ingress
register<bit<32>>(PORT_N_CELLS) emu_given_up; // tickets given up; ingress

// --- pause received -----------------------------------------------------------------------------------------------

#define DIVIDE_STEP(k) \
    if (rest >= (rate << k)) { rest = rest - (rate << k); meta.emu_quantum = meta.emu_quantum | (1 << k); }

// Microseconds of a quantum of 512 bit times, in units of 2^-TIME_FRACTION_BITS: long division, since P4 has none of variables.
control QuantumTime(inout metadata_t meta) {
    @name(".ingress.emu_divide")
    action divide() {
        bit<64> rest = (bit<64>)NUMERATOR << TIME_FRACTION_BITS;
        bit<64> rate = meta.emu_rate_bps;
        meta.emu_quantum = 0;
        DIVIDE_STEP(21) DIVIDE_STEP(20) DIVIDE_STEP(19) DIVIDE_STEP(18) DIVIDE_STEP(17) DIVIDE_STEP(16)
        DIVIDE_STEP(15) DIVIDE_STEP(14) DIVIDE_STEP(13) DIVIDE_STEP(12) DIVIDE_STEP(11) DIVIDE_STEP(10)
        DIVIDE_STEP(9) DIVIDE_STEP(8) DIVIDE_STEP(7) DIVIDE_STEP(6) DIVIDE_STEP(5) DIVIDE_STEP(4)
        DIVIDE_STEP(3) DIVIDE_STEP(2) DIVIDE_STEP(1) DIVIDE_STEP(0)
    }

    apply {
        if (meta.emu_rate_bps == 0) {
            meta.emu_rate_bps = 10000000000; // what veth reports
        }
        divide();
    }
}

// A new time replaces the running one; 0 ends it. The sum of pauses takes back what is left of the running one.
#define PAUSE_CELL(n) \
    if (meta.tm.pause_vector[n:n] == 1) { pause_cell(base + n, meta.tm.pause_time##n, meta.tm.pause_forever[n:n]); }

control EmulatedPause(inout metadata_t meta, in bit<32> base) {
    @name(".ingress.emu_pause_cell")
    action pause_cell(bit<32> cell, bit<16> time, bit<1> forever) {
        bit<48> now = meta.emu_now;
        bit<48> old_end;
        emu_until.read(old_end, cell);
        bit<48> length = (bit<48>)(((bit<64>)time * (bit<64>)meta.emu_quantum
            + ((1 << TIME_FRACTION_BITS) - 1)) >> TIME_FRACTION_BITS);
        bit<48> end = now + (forever == 1 ? FOREVER_US : length);
        emu_until.write(cell, end);
        bit<48> sum;
        emu_paused.read(sum, cell);
        bit<48> running = old_end > now ? old_end - now : 0;
        emu_paused.write(cell, sum + (end - now) - running);
        bit<32> count;
        emu_pauses.read(count, cell);
        emu_pauses.write(cell, count + (old_end <= now && end > now ? 32w1 : 32w0));
    }

    apply {
        PAUSE_CELL(0)
        PAUSE_CELL(1)
        PAUSE_CELL(2)
        PAUSE_CELL(3)
        PAUSE_CELL(4)
        PAUSE_CELL(5)
        PAUSE_CELL(6)
        PAUSE_CELL(7)
    }
}

// --- XOFF and XON sent --------------------------------------------------------------------------------------------

#define NOTICE_TIME(n) \
    meta.tm.pfc_time##n = meta.emu_priority == n ? meta.emu_pfc_time : 0;

// The lowest port of a bitmap: entry n matches bit n with nothing below it.
#define PORT_ENTRY(n) (64w1 << (n)) &&& ((64w1 << (n)) | ((64w1 << (n)) - 1)): lowest_is(n);
#define PORT_ENTRIES(n) PORT_ENTRY(n) PORT_ENTRY(n + 1) PORT_ENTRY(n + 2) PORT_ENTRY(n + 3) \
    PORT_ENTRY(n + 4) PORT_ENTRY(n + 5) PORT_ENTRY(n + 6) PORT_ENTRY(n + 7)

// Turns a notice that came back into a PFC frame for its port, or drops it where there is nothing left to say.
control EmulatedNotice(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    bit<64> told;

    @name(".ingress.emu_lowest_is")
    action lowest_is(bit<9> port) {
        meta.emu_pfc_port = port;
    }

    @name(".ingress.emu_lowest_port") @hidden
    table lowest_port {
        key = { told: ternary; }
        actions = { lowest_is; }
        const default_action = lowest_is(0);
        const entries = {
            PORT_ENTRIES(0)
            PORT_ENTRIES(8)
            PORT_ENTRIES(16)
            PORT_ENTRIES(24)
            PORT_ENTRIES(32)
            PORT_ENTRIES(40)
            PORT_ENTRIES(48)
            PORT_ENTRIES(56)
        }
    }

    @name(".ingress.emu_forget")
    action forget(bit<32> cell) {
        told = told & ~(64w1 << (bit<8>)meta.emu_pfc_port);
        emu_told.write(cell, told);
        emu_refresh_at.write(((bit<32>)meta.emu_pfc_port << 3) + (bit<32>)meta.emu_priority, 0);
    }

    @name(".ingress.emu_notice_headers")
    action notice_headers() {
        hdr.ethernet.setInvalid();
        hdr.vlan.setInvalid();
        hdr.vlan_inner.setInvalid();
        hdr.mac_control.setInvalid();
        hdr.pfc.setInvalid();
        hdr.pause.setInvalid();
        hdr.arp.setInvalid();
        hdr.arp_ipv4.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.ipv4_options.setInvalid();
        hdr.ipv6.setInvalid();
        hdr.icmpv6.setInvalid();
        hdr.tcp.setInvalid();
        hdr.udp.setInvalid();
        hdr.bth.setInvalid();
        meta.routed = 0;
        meta.emu_ticketed = 0;
        meta.tm.pfc_request = 1;
        meta.tm.pfc_vector = 8w1 << (bit<8>)meta.emu_priority;
        NOTICE_TIME(0)
        NOTICE_TIME(1)
        NOTICE_TIME(2)
        NOTICE_TIME(3)
        NOTICE_TIME(4)
        NOTICE_TIME(5)
        NOTICE_TIME(6)
        NOTICE_TIME(7)
        std.priority = NOTICE_QUEUE;
        std.egress_spec = meta.emu_pfc_port;
    }

    apply {
        bit<32> cell = ((bit<32>)meta.emu_egress_port << 3) + (bit<32>)meta.emu_priority;
        bool speak = true;
        emu_told.read(told, cell);
        if (meta.emu_xon_notice == 1) {
            meta.emu_pfc_time = 0;
            if (told == 0) {
                speak = false;
            } else {
                lowest_port.apply();
                forget(cell);
                if (told != 0) { // the next port in another round
                    clone_preserving_field_list(CloneType.I2E, NOTICE_SESSION, FIELDS_OF_EMULATION);
                }
            }
        } else {
            // An XON that was on its way before this notice has spoken already: an XOFF after it would be taken back by none.
            meta.emu_pfc_port = meta.emu_ingress_port;
            speak = (told >> (bit<8>)meta.emu_pfc_port)[0:0] == 1;
        }
        if (speak) {
            notice_headers();
        } else {
            mark_to_drop(std);
        }
    }
}

// --- ingress ------------------------------------------------------------------------------------------------------

control EmulatedIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std, in bit<32> base) {
    TrafficManagerObjects() objects;
    EmulatedPause() pause;
    EmulatedNotice() notice;
    QuantumTime() quantum;

    bit<32> ticket;
    bit<32> turn;
    bit<32> release;
    bit<32> depth;
    bit<48> until;
    bit<48> now;

    // What a fresh frame is: kept while it goes round.
    @name(".ingress.emu_remember")
    action remember() {
        meta.emu_ingress_port = std.ingress_port;
        meta.emu_egress_port = std.egress_spec;
        meta.emu_queue = std.priority;
        meta.emu_priority = meta.tm.priority;
        meta.emu_pg = meta.tm.pg;
        meta.emu_lossless = meta.tm.lossless;
        meta.emu_routed = meta.routed;
    }

    @name(".ingress.emu_recall")
    action recall() {
        meta.tm.priority = meta.emu_priority;
        meta.tm.pg = meta.emu_pg;
        meta.tm.lossless = meta.emu_lossless;
        meta.routed = meta.emu_routed;
        std.priority = meta.emu_queue;
        std.egress_spec = meta.emu_egress_port;
    }

    @name(".ingress.emu_look")
    action look(bit<32> cell) {
        emu_ticket.read(ticket, cell);
        emu_turn.read(turn, cell);
        emu_release.read(release, cell);
        emu_until.read(until, cell);
        depth = ticket - turn;
        now = meta.emu_now;
    }

    @name(".ingress.emu_take_ticket")
    action take_ticket(bit<32> cell) {
        meta.emu_ticket = ticket;
        emu_ticket.write(cell, ticket + 1);
        depth = depth + 1;
    }

    // Behind what egress sent back nothing may enter the queue; what is behind the turn is late and bound to nothing.
    @name(".ingress.emu_step_back")
    action step_back(bit<32> cell) {
        bit<32> first = (meta.emu_ticket - turn)[31:31] == 1 ? turn : meta.emu_ticket;
        release = (first - release)[31:31] == 1 ? first : release;
        emu_release.write(cell, release);
        meta.emu_bounced = 0;
    }

    // The smallest ticket seen waiting since emu_low_since. Collecting starts anew when egress sent something or a pause
    // ended, when that ticket is gone, and after two periods, in case that its holder is lost as well.
    @name(".ingress.emu_note_waiting")
    action note_waiting(bit<32> cell) {
        bit<48> moved;
        bit<48> since;
        bit<32> low;
        emu_moved.read(moved, cell);
        emu_low_since.read(since, cell);
        emu_low.read(low, cell);
        bit<48> idle_from = until > moved ? until : moved;
        bool anew = since < idle_from || now > since + 2 * GIVE_UP_US || (low - turn)[31:31] == 1;
        low = anew || (meta.emu_ticket - low)[31:31] == 1 ? meta.emu_ticket : low;
        since = anew ? now : since;
        emu_low.write(cell, low);
        emu_low_since.write(cell, since);
        meta.emu_low_ticket = low;
        meta.emu_low_since = since;
    }

    @name(".ingress.emu_give_up")
    action give_up(bit<32> cell) {
        bit<32> count;
        emu_given_up.read(count, cell);
        emu_given_up.write(cell, count + (meta.emu_low_ticket - turn));
        emu_turn.write(cell, meta.emu_low_ticket);
        emu_release.write(cell, meta.emu_low_ticket);
        release = meta.emu_low_ticket;
        emu_moved.write(cell, now);
    }

    @name(".ingress.emu_enter_queue")
    action enter_queue(bit<32> cell) {
        emu_release.write(cell, meta.emu_ticket + 1);
        meta.emu_round = ROUND_NONE;
    }

    @name(".ingress.emu_hold")
    action hold() {
        meta.emu_round = ROUND_HELD;
        std.priority = meta.emu_priority;
        std.egress_spec = HOLD_PORT;
    }

    @name(".ingress.emu_raise_xoff")
    action raise_xoff(bit<32> cell, bit<32> source) {
        bit<64> told;
        emu_told.read(told, cell);
        emu_told.write(cell, told | (64w1 << (bit<8>)meta.emu_ingress_port));
        emu_xon.write(cell, meta.emu_xon_frames);
        emu_refresh_at.write(source, now + 1 + (bit<48>)(((bit<64>)meta.emu_quanta * (bit<64>)meta.emu_quantum)
            >> (TIME_FRACTION_BITS + 1)));
        meta.emu_xon_notice = 0;
        meta.emu_pfc_time = meta.emu_quanta;
    }

    apply {
        bool fresh = meta.emu_round == ROUND_NONE;
        bool ours = false; // something for an emulated queue
        meta.emu_limit_frames = DEFAULT_QUEUE_LIMIT;
        if (fresh) {
            meta.emu_now = std.ingress_global_timestamp;
            meta.emu_ingress_port = std.ingress_port;
            ours = !hdr.mac_control.isValid() && meta.verdict == VERDICT_FORWARD && std.egress_spec != CPU_PORT_ID;
            if (ours) {
                remember();
            }
        } else if (meta.emu_round == ROUND_HELD) {
            recall();
            ours = true;
        }
        if (ours || meta.tm.pause_valid == 1) {
            objects.apply(meta, std);
        }
        if (meta.emu_round == ROUND_NOTICE) {
            notice.apply(hdr, meta, std);
            meta.emu_round = ROUND_NONE;
        } else if (meta.tm.pause_valid == 1) {
            quantum.apply(meta);
            pause.apply(meta, base);
        } else if (ours) {
            bit<32> cell = ((bit<32>)meta.emu_egress_port << 3) + (bit<32>)meta.emu_priority;
            bit<32> source = ((bit<32>)meta.emu_ingress_port << 3) + (bit<32>)meta.emu_priority;
            look(cell);
            bool admitted = true;
            if (fresh) {
                if (meta.emu_lossless == 1 && meta.emu_static == 1) {
                    if (depth >= meta.emu_full_frames) {
                        tm_drop_headroom.count(((bit<32>)meta.emu_ingress_port << 3) + (bit<32>)meta.emu_pg);
                        admitted = false;
                    }
                } else if (depth >= meta.emu_limit_frames) {
                    tm_drop_queue.count(((bit<32>)meta.emu_egress_port << 3) + (bit<32>)meta.emu_queue);
                    admitted = false;
                }
                if (admitted) {
                    take_ticket(cell);
                    tm_enqueued.count(((bit<32>)meta.emu_egress_port << 3) + (bit<32>)meta.emu_queue);
                    meta.emu_ticketed = 1;
                }
            }
            if (admitted) {
                if (meta.emu_bounced == 1) {
                    step_back(cell);
                }
                bool late = (meta.emu_ticket - turn)[31:31] == 1;
                if (until > now) {
                    hold();
                } else {
                    if (!fresh && !late) {
                        note_waiting(cell);
                        if (now > meta.emu_low_since + GIVE_UP_US && meta.emu_low_ticket == meta.emu_ticket) {
                            give_up(cell);
                        }
                    }
                    if (late) {
                        meta.emu_round = ROUND_NONE;
                    } else if (meta.emu_ticket == release) {
                        enter_queue(cell);
                    } else {
                        hold();
                    }
                }
                if (meta.emu_lossless == 1 && meta.emu_static == 1
                    && (meta.emu_tx_enable >> (bit<8>)meta.emu_priority)[0:0] == 1 && meta.emu_ingress_port < 64) {
                    bit<48> refresh_at;
                    emu_refresh_at.read(refresh_at, source);
                    if (refresh_at == 0 && depth >= meta.emu_xoff_frames
                        || refresh_at != 0 && refresh_at < now && depth > meta.emu_xon_frames) {
                        quantum.apply(meta);
                        raise_xoff(cell, source);
                        clone_preserving_field_list(CloneType.I2E, NOTICE_SESSION, FIELDS_OF_EMULATION);
                    }
                }
            } else {
                mark_to_drop(std);
            }
        }
    }
}

// --- egress -------------------------------------------------------------------------------------------------------

control EmulatedEgress(inout metadata_t meta, inout standard_metadata_t std) {
    bit<32> next;
    bit<32> turn;
    bit<32> release;
    bit<32> xon;
    bit<48> until;
    bit<64> told;

    @name(".egress.emu_look")
    action look(bit<32> cell) {
        emu_ticket.read(next, cell);
        emu_turn.read(turn, cell);
        emu_release.read(release, cell);
        emu_until.read(until, cell);
        emu_told.read(told, cell);
        emu_xon.read(xon, cell);
        meta.emu_now = std.egress_global_timestamp;
    }

    @name(".egress.emu_take_turn")
    action take_turn(bit<32> cell) {
        emu_turn.write(cell, meta.emu_ticket + 1);
        emu_moved.write(cell, meta.emu_now);
    }

    @name(".egress.emu_go_back")
    action go_back() {
        meta.emu_round = ROUND_HELD;
        meta.emu_bounced = 1;
    }

    apply {
        meta.emu_now = std.egress_global_timestamp;
        if (std.egress_port == HOLD_PORT) {
            recirculate_preserving_field_list(FIELDS_OF_EMULATION);
        } else if (std.egress_port == NOTICE_PORT) {
            meta.emu_round = ROUND_NOTICE;
            recirculate_preserving_field_list(FIELDS_OF_EMULATION);
        } else if (meta.emu_ticketed == 1) {
            bit<32> cell = ((bit<32>)meta.emu_egress_port << 3) + (bit<32>)meta.emu_priority;
            look(cell);
            bit<32> ahead = meta.emu_ticket - turn;
            if (until > meta.emu_now || ahead != 0 && ahead[31:31] == 0) {
                go_back();
                recirculate_preserving_field_list(FIELDS_OF_EMULATION);
            } else {
                if (ahead == 0) {
                    take_turn(cell);
                }
                tm_dequeued.count(((bit<32>)std.egress_port << 3) + (bit<32>)meta.emu_queue);
                meta.tm.deq_depth_bytes = (bit<32>)std.deq_qdepth << NOMINAL_SHIFT;
                // Not while frames go round: what arrives meanwhile gets in between, and is in order a whole round later.
                if (told != 0 && next - meta.emu_ticket <= xon + 1 && release == next) {
                    meta.emu_xon_notice = 1;
                    clone_preserving_field_list(CloneType.E2E, NOTICE_SESSION, FIELDS_OF_EMULATION);
                }
            }
        } else if (meta.tm.pfc_request == 1) {
            truncate(MAC_CONTROL_FRAME_BYTES);
        }
    }
}

#endif
