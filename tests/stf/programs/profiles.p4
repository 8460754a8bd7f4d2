// An action profile, and a selector that hashes two fields with crc16.
#include <core.p4>
#include <v1model.p4>

header flow_t { bit<8> which; bit<8> key; bit<16> one; bit<16> two; bit<8> result; }
struct headers_t { flow_t f; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.f); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action_profile(4) shared;
    action_selector(HashAlgorithm.crc16, 16, 16) choice;
    action send(bit<9> port, bit<8> value) { standard.egress_spec = port; hdr.f.result = value; }
    action discard() { mark_to_drop(standard); }
    table by_member { key = { hdr.f.key: exact; } actions = { send; discard; NoAction; } implementation = shared; }
    table by_group {
        key = { hdr.f.key: exact; hdr.f.one: selector; hdr.f.two: selector; }
        actions = { send; discard; NoAction; }
        implementation = choice;
    }
    apply {
        standard.egress_spec = 9;
        if (hdr.f.which == 0) { by_member.apply(); } else { by_group.apply(); }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
