// A stack of labels: next and last in the parser, push, pop, lastIndex, an index known at run time, too many labels.
#include <core.p4>
#include <v1model.p4>

header command_t { bit<8> op; bit<8> index; bit<16> result; }
header label_t { bit<8> value; bit<7> hops; bit<1> bottom; }
struct headers_t { command_t command; label_t[3] labels; label_t[3] saved; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.command); transition labels; }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.bottom) { 0: labels; 1: accept; }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error != error.NoError) { hdr.command.result = 0xEEEE; }
        else if (hdr.command.op == 1) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].value = 0xAA;
        } else if (hdr.command.op == 2) { hdr.labels.pop_front(1); }
        else if (hdr.command.op == 3) { hdr.labels.pop_front(2); }
        else if (hdr.command.op == 4) { hdr.command.result = (bit<16>)hdr.labels[hdr.command.index].value; }
        else if (hdr.command.op == 5) { hdr.labels[hdr.command.index].value = 0xCC; }
        else if (hdr.command.op == 6) { hdr.saved = hdr.labels; hdr.labels.pop_front(3); }
        else if (hdr.command.op == 7) { hdr.labels.push_front(2); }
        if (hdr.labels[1].isValid()) { hdr.command.index = 0x11; }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.command); packet.emit(hdr.labels); packet.emit(hdr.saved); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
