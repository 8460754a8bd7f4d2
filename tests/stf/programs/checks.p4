// verify and parser errors, value sets, assert, assume, log_msg, random within bounds.
#include <core.p4>
#include <v1model.p4>

error { TooBig, Odd }
header start_t { bit<8> op; bit<8> size; bit<16> low; bit<16> high; bit<8> failed; bit<8> result; }
header tail_t { bit<16> rest; }
struct headers_t { start_t s; tail_t t; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<8>>(4) special;
    state start {
        packet.extract(hdr.s);
        verify(hdr.s.size < 0x80, error.TooBig);
        verify(hdr.s.size & 1 == 0, error.Odd);
        transition select(hdr.s.op) { special: marked; 1: tail; default: accept; }
    }
    state marked { hdr.s.result = 0x55; transition accept; }
    state tail { packet.extract(hdr.t); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    bit<16> drawn = 0;
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error == error.NoError) { hdr.s.failed = 0; }
        else if (standard.parser_error == error.TooBig) { hdr.s.failed = 1; }
        else if (standard.parser_error == error.Odd) { hdr.s.failed = 2; }
        else if (standard.parser_error == error.PacketTooShort) { hdr.s.failed = 3; }
        else { hdr.s.failed = 0xFF; }
        if (hdr.s.op == 2) {
            assert(hdr.s.low < hdr.s.high);
            assume(hdr.s.high != 0);
            log_msg("low {} high {}", { hdr.s.low, hdr.s.high });
            log_msg("no arguments");
        } else if (hdr.s.op == 3) {
            random<bit<16>>(drawn, hdr.s.low, hdr.s.high);
            if (drawn >= hdr.s.low && drawn <= hdr.s.high) { hdr.s.result = 1; } else { hdr.s.result = 2; }
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
