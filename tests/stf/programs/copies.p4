// Multicast with replica ids, clones of both kinds to multicast groups, resubmit and recirculate with field lists, digest, truncate.
#include <core.p4>
#include <v1model.p4>

header command_t { bit<8> op; bit<8> rounds; bit<16> tag; bit<8> kind; bit<8> kept; bit<16> rid; bit<16> port; }
struct headers_t { command_t c; }
struct metadata_t {
    @field_list(1) bit<8> kept;
    @field_list(2) bit<8> rounds;
}
struct report_t { bit<16> tag; bit<9> port; bit<7> zero; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.c); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action to(bit<9> port) { standard.egress_spec = port; }
    action group(bit<16> id) { standard.mcast_grp = id; }
    table forward { key = { hdr.c.tag: exact; } actions = { to; group; NoAction; } default_action = to(1); }
    apply {
        forward.apply();
        if (standard.instance_type == 0) { meta.kept = 0x40; }
        if (hdr.c.op == 1 && standard.instance_type == 0) { clone_preserving_field_list(CloneType.I2E, 5, 1); }
        else if (hdr.c.op == 3 && meta.rounds < hdr.c.rounds) {
            meta.rounds = meta.rounds + 1;
            resubmit_preserving_field_list(2);
        } else if (hdr.c.op == 5) { digest<report_t>(1, { hdr.c.tag, standard.ingress_port, 0 }); }
        else if (hdr.c.op == 6) { truncate(6); }
        else if (hdr.c.op == 7) { mark_to_drop(standard); }
        hdr.c.kept = meta.rounds;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.c.op == 2 && standard.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 6, 1); }
        else if (hdr.c.op == 4 && hdr.c.rounds != 0) {
            hdr.c.rounds = hdr.c.rounds - 1;
            meta.rounds = meta.rounds + 1;
            recirculate_preserving_field_list(2);
        }
        hdr.c.kind = (bit<8>)standard.instance_type;
        hdr.c.kept = hdr.c.kept | meta.kept;
        hdr.c.rid = standard.egress_rid;
        hdr.c.port = (bit<16>)standard.egress_port;
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
