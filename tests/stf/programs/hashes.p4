// Every hash algorithm of v1model over the nine bytes of `data`, and the base and max of hash().
#include <core.p4>
#include <v1model.p4>

header hash_t { bit<8> which; bit<72> data; bit<32> result; }
struct headers_t { hash_t h; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (hdr.h.which == 0) { hash(hdr.h.result, HashAlgorithm.crc32, 32w0, { hdr.h.data }, 64w0x1_0000_0000); }
        else if (hdr.h.which == 1) { hash(hdr.h.result, HashAlgorithm.crc32_custom, 32w0, { hdr.h.data }, 64w0x1_0000_0000); }
        else if (hdr.h.which == 2) { hash(hdr.h.result, HashAlgorithm.crc16, 32w0, { hdr.h.data }, 32w0x10000); }
        else if (hdr.h.which == 3) { hash(hdr.h.result, HashAlgorithm.crc16_custom, 32w0, { hdr.h.data }, 32w0x10000); }
        else if (hdr.h.which == 4) { hash(hdr.h.result, HashAlgorithm.csum16, 32w0, { hdr.h.data }, 32w0x10000); }
        else if (hdr.h.which == 5) { hash(hdr.h.result, HashAlgorithm.xor16, 32w0, { hdr.h.data }, 32w0x10000); }
        else if (hdr.h.which == 6) { hash(hdr.h.result, HashAlgorithm.identity, 32w0, { hdr.h.data[31:0] }, 64w0x1_0000_0000); }
        else if (hdr.h.which == 7) { hash(hdr.h.result, HashAlgorithm.crc32, 32w1000, { hdr.h.data }, 32w7); }
        else if (hdr.h.which == 8) { hash(hdr.h.result, HashAlgorithm.crc16, 32w5, { hdr.h.data[71:40], 8w0xFF }, 32w100); }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
