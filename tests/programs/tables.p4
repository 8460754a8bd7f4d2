// Every kind of key, entries of the program, default actions, hit and miss, action_run, direct counter and meter.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> which; bit<32> address; bit<16> port; bit<8> proto; bit<3> low; bit<5> rest; }
header result_t { bit<16> value; bit<8> colour; bit<8> flow; }
struct headers_t { key_t key; result_t result; }
struct metadata_t { bit<2> colour; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.key); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.bytes) colours;
    action give(bit<16> value) { hdr.result.value = value; }
    action give_metered(bit<16> value) { hdr.result.value = value; colours.read(meta.colour); }
    action give_counted(bit<16> value) { hdr.result.value = value; hits.count(); }
    action leave() { exit; }
    action nothing() { }
    table exact_table {
        key = { hdr.key.address: exact; hdr.key.low: exact; }
        actions = { give; nothing; leave; }
        default_action = give(0xD000);
        size = 4;
    }
    table lpm_table {
        key = { hdr.key.proto: exact; hdr.key.address: lpm; }
        actions = { give_counted; nothing; }
        default_action = nothing();
        counters = hits;
    }
    table ternary_table {
        key = { hdr.key.address: ternary; hdr.key.port: ternary; hdr.key.proto: optional; }
        actions = { give_metered; nothing; }
        default_action = nothing();
        meters = colours;
    }
    table range_table {
        key = { hdr.key.port: range; hdr.key.proto: ternary; }
        actions = { give; nothing; }
        const default_action = give(0xDEAD);
    }
    table const_table {
        key = { hdr.key.port: ternary; hdr.key.low: exact; }
        actions = { give; nothing; }
        default_action = nothing();
        const entries = {
            (0x1234 &&& 0xFFFF, 1): give(1);
            (0x1200 &&& 0xFF00, 1): give(2);
            (_, 1): give(3);
            (0x0007, 2): nothing();
        }
    }
    table valid_table {
        key = { hdr.key.isValid(): exact; hdr.key.address[15:8]: exact; }
        actions = { give; nothing; }
        default_action = nothing();
    }
    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        if (hdr.key.which == 0) {
            if (exact_table.apply().hit) { hdr.result.flow = 1; } else { hdr.result.flow = 2; }
        } else if (hdr.key.which == 1) {
            switch (lpm_table.apply().action_run) {
                give_counted: { hdr.result.flow = 3; }
                default: { hdr.result.flow = 4; }
            }
        } else if (hdr.key.which == 2) {
            ternary_table.apply();
            hdr.result.colour = (bit<8>)meta.colour;
        } else if (hdr.key.which == 3) { range_table.apply(); }
        else if (hdr.key.which == 4) { const_table.apply(); }
        else { valid_table.apply(); }
        hdr.key.rest = 0x1F;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
