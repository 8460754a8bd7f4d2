// Registers, counters, meters, random numbers and hashes, with indexes in and out of range.
#include <core.p4>
#include <v1model.p4>

header command_t { bit<8> op; bit<32> index; bit<48> value; bit<32> result; }
struct headers_t { command_t command; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.command); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<20>>(4) cells;
    register<bit<100>>(2) wide_cells;
    counter(4, CounterType.packets_and_bytes) count;
    meter(4, MeterType.packets) packet_meter;
    meter(4, MeterType.bytes) byte_meter;
    bit<20> cell = 0;
    bit<100> wide = 0;
    apply {
        standard.egress_spec = 1;
        hdr.command.result = 0xFFFFFFFF;
        if (hdr.command.op == 0) {
            cells.read(cell, hdr.command.index);
            hdr.command.result = (bit<32>)cell;
            cells.write(hdr.command.index, (bit<20>)hdr.command.value);
        } else if (hdr.command.op == 1) { count.count(hdr.command.index); }
        else if (hdr.command.op == 2) { packet_meter.execute_meter(hdr.command.index, hdr.command.result); }
        else if (hdr.command.op == 3) { byte_meter.execute_meter(hdr.command.index, hdr.command.result); }
        else if (hdr.command.op == 4) { random(hdr.command.result, hdr.command.index, hdr.command.value[31:0]); }
        else if (hdr.command.op == 5) { hash(hdr.command.result, HashAlgorithm.crc32, 32w0, { hdr.command.value }, 64w0x1_0000_0000); }
        else if (hdr.command.op == 6) { hash(hdr.command.result, HashAlgorithm.crc16, 32w5, { hdr.command.index, hdr.command.value }, 32w1000); }
        else if (hdr.command.op == 7) { hash(hdr.command.result, HashAlgorithm.csum16, 32w0, { hdr.command.value, 4w0xA }, 32w0x10000); }
        else if (hdr.command.op == 8) { hash(hdr.command.result, HashAlgorithm.xor16, 32w0, { hdr.command.value }, 32w0x10000); }
        else if (hdr.command.op == 9) { hash(hdr.command.result, HashAlgorithm.identity, 32w0, { hdr.command.value }, 64w0x1_0000_0000); }
        else if (hdr.command.op == 10) { hash(hdr.command.result, HashAlgorithm.crc32_custom, 32w7, { hdr.command.value }, 32w0); }
        else if (hdr.command.op == 11) {
            wide_cells.read(wide, hdr.command.index);
            hdr.command.result = wide[99:68];
            wide_cells.write(hdr.command.index, hdr.command.value ++ 52w0);
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
