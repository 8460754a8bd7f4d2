// Indirect and direct meters and counters, registers from the control plane and back.
#include <core.p4>
#include <v1model.p4>

header command_t { bit<8> op; bit<8> index; bit<16> key; bit<32> result; }
struct headers_t { command_t c; }
struct metadata_t { bit<8> colour; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.c); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    meter(4, MeterType.packets) by_packets;
    meter(4, MeterType.bytes) by_bytes;
    counter(4, CounterType.packets_and_bytes) seen;
    register<bit<32>>(4) memory;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<8>>(MeterType.packets) colours;
    action counted(bit<32> value) { hdr.c.result = value; hits.count(); }
    action metered(bit<24> value) { colours.read(meta.colour); hdr.c.result = meta.colour ++ value; }
    table with_counter { key = { hdr.c.key: exact; } actions = { counted; NoAction; } default_action = NoAction(); counters = hits; }
    table with_meter { key = { hdr.c.key: exact; } actions = { metered; NoAction; } default_action = NoAction(); meters = colours; }
    apply {
        standard.egress_spec = 1;
        meta.colour = 0xEE;
        if (hdr.c.op == 0) { by_packets.execute_meter((bit<32>)hdr.c.index, hdr.c.result); }
        else if (hdr.c.op == 1) { by_bytes.execute_meter((bit<32>)hdr.c.index, hdr.c.result); }
        else if (hdr.c.op == 2) { seen.count((bit<32>)hdr.c.index); }
        else if (hdr.c.op == 3) {
            memory.read(hdr.c.result, (bit<32>)hdr.c.index);
            memory.write((bit<32>)hdr.c.index, hdr.c.result + (bit<32>)hdr.c.key);
        } else if (hdr.c.op == 4) { with_counter.apply(); }
        else if (hdr.c.op == 5) { with_meter.apply(); }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
