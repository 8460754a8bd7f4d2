// Operators of P4_16 on header fields: every result has a field of its own.
#include <core.p4>
#include <v1model.p4>

header input_t { bit<8> a; bit<8> b; int<8> c; int<8> d; bit<16> w; bit<40> x; bit<40> y; bit<128> z; }
header output_t {
    bit<8> sum; bit<8> difference; bit<8> product; bit<8> sat_sum; bit<8> sat_difference;
    int<8> signed_sum; int<8> signed_sat_sum; int<8> signed_sat_difference; bit<8> negated; bit<8> inverted;
    bit<16> concat; bit<4> slice; bit<4> written_slice; bit<8> shifted_left; bit<8> shifted_right; int<8> signed_shifted;
    bit<16> extended; int<16> signed_extended; bit<40> wide_sum; bit<128> huge; bit<8> chosen; bit<8> flags;
    bit<80> double_product;
}
struct headers_t { input_t input; output_t output; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.input); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        input_t i = hdr.input;
        hdr.output.setValid();
        hdr.output.sum = i.a + i.b;
        hdr.output.difference = i.a - i.b;
        hdr.output.product = i.a * i.b;
        hdr.output.sat_sum = i.a |+| i.b;
        hdr.output.sat_difference = i.a |-| i.b;
        hdr.output.signed_sum = i.c + i.d;
        hdr.output.signed_sat_sum = i.c |+| i.d;
        hdr.output.signed_sat_difference = i.c |-| i.d;
        hdr.output.negated = -i.a;
        hdr.output.inverted = ~i.a;
        hdr.output.concat = i.a ++ i.b;
        hdr.output.slice = i.w[9:6];
        hdr.output.written_slice = 4w0xF;
        hdr.output.written_slice[2:1] = i.a[1:0];
        hdr.output.shifted_left = i.a << i.b[2:0];
        hdr.output.shifted_right = i.a >> i.b[2:0];
        hdr.output.signed_shifted = i.c >> 2;
        hdr.output.extended = (bit<16>)i.a;
        hdr.output.signed_extended = (int<16>)i.c;
        hdr.output.wide_sum = i.x + i.y;
        hdr.output.huge = (i.z << 3) ^ (bit<128>)i.w;
        hdr.output.chosen = (i.a < i.b ? i.a : i.b);
        hdr.output.flags = 0;
        if (i.c < i.d) { hdr.output.flags = hdr.output.flags | 1; }
        if (i.a <= i.b && i.x != i.y) { hdr.output.flags = hdr.output.flags | 2; }
        if (!(i.a == i.b) || i.c == -1) { hdr.output.flags = hdr.output.flags | 4; }
        if (i.z > 128w0x8000_0000_0000_0000_0000_0000_0000_0000) { hdr.output.flags = hdr.output.flags | 8; }
        hdr.output.double_product = (bit<80>)i.x * (bit<80>)i.y;
        hdr.input.setInvalid();
        standard.egress_spec = 1;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
