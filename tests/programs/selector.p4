// An action profile and an action selector.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> table_; bit<8> key; bit<16> flow; bit<16> result; }
struct headers_t { key_t key; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.key); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action_profile(4) profile;
    action_selector(HashAlgorithm.crc16, 16, 14) choice;
    action send(bit<9> port, bit<16> result) { standard.egress_spec = port; hdr.key.result = result; }
    action discard() { mark_to_drop(standard); }
    table by_profile {
        key = { hdr.key.key: exact; }
        actions = { send; discard; }
        implementation = profile;
    }
    table by_selector {
        key = { hdr.key.key: exact; hdr.key.flow: selector; }
        actions = { send; discard; }
        implementation = choice;
    }
    apply {
        standard.egress_spec = 9;
        if (hdr.key.table_ == 0) { by_profile.apply(); } else { by_selector.apply(); }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
