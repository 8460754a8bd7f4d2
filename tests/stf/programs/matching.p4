// Every kind of key in one table each, with priorities; a stack element and a validity bit as keys.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> which; bit<16> a; bit<8> b; bit<8> result; }
header more_t { bit<8> last; bit<8> value; }
struct headers_t { key_t k; more_t[2] more; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.k); transition select(hdr.k.which) { 5: next; default: accept; } }
    state next { packet.extract(hdr.more.next); transition select(hdr.more.last.last) { 0: next; default: accept; } }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action give(bit<8> value) { hdr.k.result = value; }
    table exact_keys { key = { hdr.k.a: exact; hdr.k.b: exact; } actions = { give; } default_action = give(0xDD); }
    table prefixes { key = { hdr.k.a: lpm; hdr.k.b: exact; } actions = { give; } default_action = give(0xDD); }
    table masks { key = { hdr.k.a: ternary; hdr.k.b: ternary; } actions = { give; } default_action = give(0xDD); }
    table ranges { key = { hdr.k.a: range; hdr.k.b: range; } actions = { give; } default_action = give(0xDD); }
    table options { key = { hdr.k.a: optional; hdr.k.b: optional; } actions = { give; } default_action = give(0xDD); }
    table elements {
        key = { hdr.more[0].value: exact; hdr.more[1].isValid(): exact; hdr.more[1].value: ternary; }
        actions = { give; }
        default_action = give(0xDD);
    }
    apply {
        standard.egress_spec = 1;
        if (hdr.k.which == 0) { exact_keys.apply(); }
        else if (hdr.k.which == 1) { prefixes.apply(); }
        else if (hdr.k.which == 2) { masks.apply(); }
        else if (hdr.k.which == 3) { ranges.apply(); }
        else if (hdr.k.which == 4) { options.apply(); }
        else if (hdr.k.which == 5) { elements.apply(); }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
