// Parser features: varbit, lookahead, advance, verify, value sets, masks and defaults in select, parser errors.
#include <core.p4>
#include <v1model.p4>

error { BadMagic }

header fixed_t { bit<8> magic; bit<4> words; bit<4> kind; bit<16> code; }
header options_t { varbit<96> data; }
header tail_t { bit<8> value; }
struct headers_t { fixed_t fixed; options_t options; options_t copy; tail_t tail; }
struct metadata_t { bit<8> path; bit<8> peeked; }
struct pair_t { bit<4> kind; bit<16> code; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) codes;
    value_set<pair_t>(4) pairs;
    state start {
        packet.extract(hdr.fixed);
        verify(hdr.fixed.magic == 0x5A, error.BadMagic);
        transition select(hdr.fixed.kind) {
            0: options;
            1: skip;
            2: peek;
            3: by_set;
            4 &&& 0xC: by_pair;
            8..9: ranged;
            default: accept;
        }
    }
    state options {
        packet.extract(hdr.options, (bit<32>)hdr.fixed.words * 32);
        transition tail;
    }
    state tail { packet.extract(hdr.tail); transition accept; }
    state skip { packet.advance((bit<32>)hdr.fixed.words * 8); meta.path = 1; transition tail; }
    state peek {
        meta.peeked = packet.lookahead<bit<12>>()[11:4];
        meta.path = 2;
        transition select(packet.lookahead<bit<8>>()) { 0xFF: tail; default: accept; }
    }
    state by_set { transition select(hdr.fixed.code) { codes: in_set; 0x0100 &&& 0xFF00: masked; default: accept; } }
    state by_pair { transition select(hdr.fixed.kind, hdr.fixed.code) { pairs: in_set; default: accept; } }
    state in_set { meta.path = 3; transition accept; }
    state masked { meta.path = 4; transition accept; }
    state ranged { meta.path = 5; transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error == error.PacketTooShort) { meta.path = 0xE1; }
        else if (standard.parser_error == error.HeaderTooShort) { meta.path = 0xE4; }
        else if (standard.parser_error == error.BadMagic) { meta.path = 0xEB; }
        else if (standard.parser_error == error.NoMatch) { meta.path = 0xE2; }
        else if (standard.parser_error != error.NoError) { meta.path = 0xEF; }
        hdr.fixed.code = meta.path ++ meta.peeked;
        if (hdr.options.isValid()) {
            hdr.copy.setValid();
            hdr.copy = hdr.options;
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.fixed); packet.emit(hdr.options); packet.emit(hdr.copy); packet.emit(hdr.tail); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
