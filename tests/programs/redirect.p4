// What a program can ask of the target: clones, resubmit, recirculate, multicast, digests, truncation, drops, exit.
#include <core.p4>
#include <v1model.p4>

header command_t { bit<8> op; bit<8> count; bit<16> tag; bit<8> seen_type; bit<8> seen_kept; bit<16> seen_rid; bit<16> seen_length; }
header extra_t { bit<32> filler; }
struct headers_t { command_t command; extra_t extra; }
struct metadata_t {
    @field_list(1) bit<8> kept;
    @field_list(1, 2) bit<16> tag;
    bit<8> lost;
}
struct digest_t { bit<16> tag; bit<9> port; bit<1> flag; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.command); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        meta.lost = 0x77;
        if (standard.instance_type == 6) {
            // a second time: what the field list kept
            standard.egress_spec = 6;
        } else if (standard.instance_type == 4) {
            standard.egress_spec = 4;
            hdr.command.op = 0;
        } else {
            meta.kept = 0x99;
            meta.tag = hdr.command.tag;
            hdr.command.count = hdr.command.count + 1;
            if (hdr.command.op == 1) { clone_preserving_field_list(CloneType.I2E, 32w5, 8w1); }
            else if (hdr.command.op == 2) { clone(CloneType.I2E, 32w5); mark_to_drop(standard); }
            else if (hdr.command.op == 3) { resubmit_preserving_field_list(8w2); }
            else if (hdr.command.op == 4) { standard.mcast_grp = 7; }
            else if (hdr.command.op == 5) { digest<digest_t>(1, { hdr.command.tag, standard.ingress_port, 1w1 }); }
            else if (hdr.command.op == 6) { truncate(32w12); }
            else if (hdr.command.op == 7) { mark_to_drop(standard); }
            else if (hdr.command.op == 8) { hdr.extra.setValid(); hdr.extra.filler = 0x01020304; }
            else if (hdr.command.op == 9) { standard.mcast_grp = 7; mark_to_drop(standard); }
            else if (hdr.command.op == 10) { standard.egress_spec = 511; }
            else if (hdr.command.op == 11) { exit; }
            else if (hdr.command.op == 12) { standard.mcast_grp = 99; }
            hdr.command.count = hdr.command.count + 0x10;
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.command.seen_type = (bit<8>)standard.instance_type;
        hdr.command.seen_kept = meta.kept;
        hdr.command.seen_rid = standard.egress_rid;
        hdr.command.seen_length = (bit<16>)standard.packet_length;
        if (standard.instance_type == 6 || standard.instance_type == 1) { hdr.command.tag = meta.tag; }
        if (standard.instance_type == 0) {
            if (hdr.command.op == 20) { clone_preserving_field_list(CloneType.E2E, 32w5, 8w1); hdr.command.tag = 0xAAAA; }
            else if (hdr.command.op == 21) {
                meta.kept = 0x55;
                recirculate_preserving_field_list(8w1);
            }
            else if (hdr.command.op == 22) { mark_to_drop(standard); }
            else if (hdr.command.op == 23) { truncate(32w5); }
        }
        if (standard.instance_type == 2) { hdr.command.seen_kept = meta.kept | meta.lost; }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.extra); packet.emit(hdr.command); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
