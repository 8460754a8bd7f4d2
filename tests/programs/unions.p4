// Header unions: one member valid at a time, a union by itself and a stack of unions.
#include <core.p4>
#include <v1model.p4>

header kind_t { bit<8> kind; bit<8> op; bit<8> count; }
header short_t { bit<8> tag; bit<8> value; }
header long_t { bit<8> tag; bit<24> value; }
header_union option_t { short_t s; long_t l; }
struct headers_t { kind_t kind; option_t first; option_t[2] options; }
struct metadata_t { bit<8> left; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.kind);
        meta.left = hdr.kind.count;
        transition select(hdr.kind.kind) { 1: first_short; 2: first_long; default: options; }
    }
    state first_short { packet.extract(hdr.first.s); transition options; }
    state first_long { packet.extract(hdr.first.l); transition options; }
    state options {
        transition select(meta.left, packet.lookahead<bit<8>>()) {
            (0, _): accept;
            (_, 1): short_option;
            (_, 2): long_option;
        }
    }
    state short_option { packet.extract(hdr.options.next.s); meta.left = meta.left - 1; transition options; }
    state long_option { packet.extract(hdr.options.next.l); meta.left = meta.left - 1; transition options; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (hdr.kind.op == 1) {
            // making one member valid makes the other invalid
            hdr.first.l.setValid();
            hdr.first.l.tag = 9;
        } else if (hdr.kind.op == 2) { hdr.first.s.setInvalid(); }
        if (hdr.first.s.isValid()) { hdr.kind.kind = 0x51; }
        else if (hdr.first.l.isValid()) { hdr.kind.kind = 0x71; }
        else { hdr.kind.kind = 0x00; }
        if (hdr.options[0].l.isValid()) { hdr.options[0].l.value = 0xABCDEF; }
        if (standard.parser_error != error.NoError) { hdr.kind.count = 0xEE; }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.kind); packet.emit(hdr.first); packet.emit(hdr.options); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
