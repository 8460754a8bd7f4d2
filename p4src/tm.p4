// The traffic manager as P4Runtime sees it: tables are its configuration, counters and registers its state.
//
// Nothing here runs in the base build: everything is applied under `tm.model == 1`, which is never true but which p4c cannot
// fold, so it keeps the objects. A target with our traffic manager finds them by their @tm annotation and keeps entries and
// cells itself; on BMv2 they are there and do nothing.

#ifndef DCB_TM_P4
#define DCB_TM_P4

// A counter or register of the traffic manager, and the line that keeps a register: p4c drops a read alone.
#define TM_COUNTER(kind, full_name, object) \
    @tm(kind) @name(full_name) counter(PORT_N_CELLS, CounterType.packets_and_bytes) object;
#define TM_REGISTER(kind, full_name, object) \
    @tm(kind) @name(full_name) register<bit<64>>(PORT_N_CELLS) object;
// 32 buckets of a cell: bucket 0 holds 0 ns, bucket b 2^(b-1) ns up to 2^b - 1, the last one all above.
#define TM_HISTOGRAM(kind, full_name, object) \
    @tm(kind) @name(full_name) register<bit<64>>(PORT_N_CELLS * 32) object;
#define TM_COUNTERS \
    TM_COUNTER("enqueued", ".egress.tm_enqueued", tm_enqueued) \
    TM_COUNTER("dequeued", ".egress.tm_dequeued", tm_dequeued) \
    TM_COUNTER("drop_queue_limit", ".egress.tm_drop_queue", tm_drop_queue) \
    TM_COUNTER("drop_pg_limit", ".egress.tm_drop_pg", tm_drop_pg) \
    TM_COUNTER("drop_headroom", ".egress.tm_drop_headroom", tm_drop_headroom) \
    TM_COUNTER("drop_pool", ".egress.tm_drop_pool", tm_drop_pool) \
    TM_COUNTER("drop_port", ".egress.tm_drop_port", tm_drop_port) \
    TM_COUNTER("drop_rx", ".egress.tm_drop_rx", tm_drop_rx) \
    TM_COUNTER("drop_storm_tx", ".egress.tm_drop_storm_tx", tm_drop_storm_tx) \
    TM_COUNTER("drop_storm_rx", ".egress.tm_drop_storm_rx", tm_drop_storm_rx) \
    TM_COUNTER("qcn_samples", ".egress.tm_qcn_samples", tm_qcn_samples) \
    TM_COUNTER("qcn_cnms", ".egress.tm_qcn_cnms", tm_qcn_cnms)
#define TM_KEEP(object) object.read(value, 0); object.write(0, value);

// The emulation of tm_emulation.p4 looks the tables up in ingress, for the port that a frame came in on and the queue that it
// goes to, and counts outside of this control.
#ifdef TM_EMULATION
#define TM_INGRESS_PORT meta.emu_ingress_port
#define TM_EGRESS_PORT meta.emu_egress_port
#define TM_QUEUE meta.emu_queue
#define EMULATED(statement) statement
TM_COUNTERS
#else
#define TM_INGRESS_PORT std.egress_port
#define TM_EGRESS_PORT std.egress_port
#define TM_QUEUE std.priority
#define EMULATED(statement)
#endif

control TrafficManagerObjects(inout metadata_t meta, inout standard_metadata_t std) {
    @name(".egress.tm_set_port") @noWarn("unused")
    action tm_set_port(bit<64> rate_bps) { EMULATED(meta.emu_rate_bps = rate_bps;) }

    @tm("port") @name(".egress.tm_port")
    table tm_port {
        key = { TM_INGRESS_PORT: exact @name("port"); }
        actions = { tm_set_port; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    @name(".egress.tm_set_pfc") @noWarn("unused")
    action tm_set_pfc(bit<8> tx_enable, bit<16> quanta, bit<24> queue_map) {
        EMULATED(meta.emu_tx_enable = tx_enable; meta.emu_quanta = quanta;)
    }

    @tm("pfc") @name(".egress.tm_pfc")
    table tm_pfc {
        key = { TM_INGRESS_PORT: exact @name("port"); }
        actions = { tm_set_pfc; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 512;
    }

    @name(".egress.tm_strict")
    action tm_strict() { }

    @name(".egress.tm_ets") @noWarn("unused")
    action tm_ets(bit<8> weight) { }

    @name(".egress.tm_cbs") @noWarn("unused")
    action tm_cbs(bit<64> idle_slope_bps) { }

    @tm("scheduler") @name(".egress.tm_scheduler")
    table tm_scheduler {
        key = {
            std.egress_port: exact @name("port");
            std.priority: exact @name("tc");
        }
        actions = { tm_strict; tm_ets; tm_cbs; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    @name(".egress.tm_pg_static") @noWarn("unused")
    action tm_pg_static(bit<32> reserved, bit<32> xoff, bit<32> xon, bit<32> headroom, bit<8> priorities) {
        EMULATED(meta.emu_static = 1;)
        EMULATED(meta.emu_xoff_frames = (xoff + (1 << NOMINAL_SHIFT) - 1) >> NOMINAL_SHIFT;)
        EMULATED(meta.emu_xon_frames = xon >> NOMINAL_SHIFT;)
        EMULATED(meta.emu_full_frames = (xoff + headroom) >> NOMINAL_SHIFT;)
    }

    @name(".egress.tm_pg_dynamic") @noWarn("unused")
    action tm_pg_dynamic(bit<32> reserved, bit<8> alpha, bit<32> xon_offset, bit<32> headroom, bit<8> priorities) { }

    @tm("priority_group") @name(".egress.tm_priority_group")
    table tm_priority_group {
        key = {
            TM_INGRESS_PORT: exact @name("port");
            meta.tm.pg: exact @name("pg");
        }
        actions = { tm_pg_static; tm_pg_dynamic; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    @name(".egress.tm_queue_static") @noWarn("unused")
    action tm_queue_static(bit<32> limit) { EMULATED(meta.emu_limit_frames = limit >> NOMINAL_SHIFT;) }

    @name(".egress.tm_queue_dynamic") @noWarn("unused")
    action tm_queue_dynamic(bit<8> alpha) { }

    @tm("queue") @name(".egress.tm_queue")
    table tm_queue {
        key = {
            TM_EGRESS_PORT: exact @name("port");
            TM_QUEUE: exact @name("queue");
        }
        actions = { tm_queue_static; tm_queue_dynamic; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    @name(".egress.tm_set_pool") @noWarn("unused")
    action tm_set_pool(bit<32> size) { }

    @tm("pool") @name(".egress.tm_pool")
    table tm_pool {
        key = { meta.tm_pool: exact @name("pool"); }
        actions = { tm_set_pool; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 8;
    }

    @name(".egress.tm_set_headroom_pool") @noWarn("unused")
    action tm_set_headroom_pool(bit<32> size) { }

    @tm("headroom_pool") @name(".egress.tm_headroom_pool")
    table tm_headroom_pool {
        key = { meta.tm_pool: exact @name("pool"); }
        actions = { tm_set_headroom_pool; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 8;
    }

    @name(".egress.tm_set_pg_pool") @noWarn("unused")
    action tm_set_pg_pool(bit<8> pool, bit<8> headroom_pool) { }

    @tm("pg_pool") @name(".egress.tm_pg_pool")
    table tm_pg_pool {
        key = {
            std.egress_port: exact @name("port");
            meta.tm.pg: exact @name("pg");
        }
        actions = { tm_set_pg_pool; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    @name(".egress.tm_storm_drop")
    action tm_storm_drop() { }

    @name(".egress.tm_storm_forward")
    action tm_storm_forward() { }

    @tm("storm") @name(".egress.tm_storm")
    table tm_storm {
        key = {
            std.egress_port: exact @name("port");
            meta.tm.priority: exact @name("priority");
        }
        actions = { tm_storm_drop; tm_storm_forward; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    @name(".egress.tm_set_watchdog") @noWarn("unused")
    action tm_set_watchdog(bit<32> detect_us, bit<32> restore_us, @name("action") bit<2> mitigation, bit<1> empty_queue) { }

    @tm("watchdog") @name(".egress.tm_watchdog")
    table tm_watchdog {
        key = {
            std.egress_port: exact @name("port");
            meta.tm.priority: exact @name("priority");
        }
        actions = { tm_set_watchdog; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    @name(".egress.tm_set_qcn") @noWarn("unused")
    action tm_set_qcn(bit<32> qeq, bit<8> weight, bit<32> sample, bit<8> jitter, bit<3> priority, bit<64> cpid) { }

    @tm("qcn") @name(".egress.tm_qcn")
    table tm_qcn {
        key = {
            std.egress_port: exact @name("port");
            std.priority: exact @name("queue");
        }
        actions = { tm_set_qcn; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

#ifndef TM_EMULATION
    TM_COUNTERS
#endif

    TM_REGISTER("queue_depth", ".egress.tm_queue_depth", tm_queue_depth)
    TM_REGISTER("queue_watermark", ".egress.tm_queue_watermark", tm_queue_watermark)
    TM_REGISTER("pg_depth", ".egress.tm_pg_depth", tm_pg_depth)
    TM_REGISTER("pg_headroom", ".egress.tm_pg_headroom", tm_pg_headroom)
    TM_REGISTER("pg_watermark", ".egress.tm_pg_watermark", tm_pg_watermark)
    TM_REGISTER("pg_headroom_watermark", ".egress.tm_pg_headroom_watermark", tm_pg_headroom_watermark)
    TM_REGISTER("pg_xoff", ".egress.tm_pg_xoff", tm_pg_xoff)
    TM_REGISTER("pause_left", ".egress.tm_pause_left", tm_pause_left)
    TM_REGISTER("paused_ns", ".egress.tm_paused_ns", tm_paused_ns)
    TM_REGISTER("pause_count", ".egress.tm_pause_count", tm_pause_count)
    TM_REGISTER("pool_used", ".egress.tm_pool_used", tm_pool_used)
    TM_REGISTER("pool_watermark", ".egress.tm_pool_watermark", tm_pool_watermark)
    TM_REGISTER("headroom_pool_used", ".egress.tm_headroom_pool_used", tm_headroom_pool_used)
    TM_REGISTER("headroom_pool_watermark", ".egress.tm_headroom_pool_watermark", tm_headroom_pool_watermark)
    TM_REGISTER("storm_state", ".egress.tm_storm_state", tm_storm_state)
    TM_REGISTER("storm_count", ".egress.tm_storm_count", tm_storm_count)
    TM_REGISTER("xoff_ns", ".egress.tm_xoff_ns", tm_xoff_ns)
    TM_REGISTER("xoff_count", ".egress.tm_xoff_count", tm_xoff_count)
    TM_HISTOGRAM("delay_histogram", ".egress.tm_delay_histogram", tm_delay_histogram)
    TM_HISTOGRAM("pause_histogram", ".egress.tm_pause_histogram", tm_pause_histogram)
    TM_HISTOGRAM("xoff_histogram", ".egress.tm_xoff_histogram", tm_xoff_histogram)
    @tm("queue_sources") @name(".egress.tm_queue_sources") register<bit<256>>(PORT_N_CELLS) tm_queue_sources;

    apply {
        bit<64> value;
        tm_port.apply();
        tm_pfc.apply();
        tm_priority_group.apply();
        tm_queue.apply();
#ifdef TM_EMULATION
        if (meta.emu_round != ROUND_NEVER) { // always: the rest is there to be seen
            return;
        }
#endif
        tm_scheduler.apply();
        tm_pool.apply();
        tm_headroom_pool.apply();
        tm_pg_pool.apply();
        tm_storm.apply();
        tm_watchdog.apply();
        tm_qcn.apply();
        tm_enqueued.count(0);
        tm_dequeued.count(0);
        tm_drop_queue.count(0);
        tm_drop_pg.count(0);
        tm_drop_headroom.count(0);
        tm_drop_pool.count(0);
        tm_drop_port.count(0);
        tm_drop_rx.count(0);
        tm_drop_storm_tx.count(0);
        tm_drop_storm_rx.count(0);
        tm_qcn_samples.count(0);
        tm_qcn_cnms.count(0);
        TM_KEEP(tm_queue_depth)
        TM_KEEP(tm_queue_watermark)
        TM_KEEP(tm_pg_depth)
        TM_KEEP(tm_pg_headroom)
        TM_KEEP(tm_pg_watermark)
        TM_KEEP(tm_pg_headroom_watermark)
        TM_KEEP(tm_pg_xoff)
        TM_KEEP(tm_pause_left)
        TM_KEEP(tm_paused_ns)
        TM_KEEP(tm_pause_count)
        TM_KEEP(tm_pool_used)
        TM_KEEP(tm_pool_watermark)
        TM_KEEP(tm_headroom_pool_used)
        TM_KEEP(tm_headroom_pool_watermark)
        TM_KEEP(tm_storm_state)
        TM_KEEP(tm_storm_count)
        TM_KEEP(tm_xoff_ns)
        TM_KEEP(tm_xoff_count)
        TM_KEEP(tm_delay_histogram)
        TM_KEEP(tm_pause_histogram)
        TM_KEEP(tm_xoff_histogram)
        bit<256> sources;
        tm_queue_sources.read(sources, 0);
        tm_queue_sources.write(0, sources);
    }
}

#endif
