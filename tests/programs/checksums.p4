// Checksums: verification with and without a condition, update, a checksum over the payload.
#include <core.p4>
#include <v1model.p4>

header ip_t { bit<4> version; bit<4> words; bit<8> tos; bit<16> total; bit<8> ttl; bit<8> proto; bit<16> checksum; bit<32> address; }
header udp_t { bit<16> port; bit<16> checksum; }
struct headers_t { ip_t ip; udp_t udp; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ip);
        transition select(hdr.ip.proto) { 17: udp; default: accept; }
    }
    state udp { packet.extract(hdr.udp); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ip.isValid() && hdr.ip.version == 4,
            { hdr.ip.version, hdr.ip.words, hdr.ip.tos, hdr.ip.total, hdr.ip.ttl, hdr.ip.proto, hdr.ip.address },
            hdr.ip.checksum, HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.udp.isValid(), { hdr.ip.address, hdr.udp.port }, hdr.udp.checksum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.checksum_error == 1) { standard.egress_spec = 2; }
        hdr.ip.ttl = hdr.ip.ttl - 1;
        if (hdr.ip.tos == 0xFF) { hdr.udp.port = 0x4321; }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ip.isValid(),
            { hdr.ip.version, hdr.ip.words, hdr.ip.tos, hdr.ip.total, hdr.ip.ttl, hdr.ip.proto, hdr.ip.address },
            hdr.ip.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.udp.isValid(), { hdr.ip.address, hdr.udp.port }, hdr.udp.checksum, HashAlgorithm.csum16);
    }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
