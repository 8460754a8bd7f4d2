"""A session of p4runtime-shell for test_shell.py, run by the shell's own Python: drives the switch, prints JSON.

Arguments: address, device id, P4Info path, JSON path, class of service and length of a clone session (0: none). Only
the shell's own commands are used. Packets are the test's.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException


def plain(entry: Any) -> str:
    """An entity as one line of protobuf text."""
    entry._update_msg()
    return " ".join(str(entry._entry).split())


def session(found: dict[str, Any], cos: int, length: int) -> None:
    route = sh.TableEntry("IngressImpl.routes")(action="IngressImpl.route")
    route.match["hdr.ipv4.dst"] = "10.9.0.0/16"
    route.action["port"], route.action["dst"] = "2", "02:00:00:00:00:42"
    route.insert()
    found["routes"] = [plain(entry) for entry in sh.TableEntry("IngressImpl.routes").read()]
    try:
        route.insert()
    except P4RuntimeWriteException as error:
        found["twice"] = str(error)

    acl = sh.TableEntry("IngressImpl.acl")(action="IngressImpl.acl_deny")
    acl.match["smeta.ingress_port"] = "3 &&& 0x1ff"
    acl.priority = 10
    acl.insert()
    acl.action = sh.Action("IngressImpl.acl_permit")
    acl.modify()

    for number, port in ((1, "2"), (2, "3")):
        member = sh.ActionProfileMember("IngressImpl.ecmp")(member_id=number, action="IngressImpl.route")
        member.action["port"], member.action["dst"] = port, "2"
        member.insert()
    group = sh.ActionProfileGroup("IngressImpl.ecmp")(group_id=1)
    group.add(1, 1).add(2, 3)
    group.insert()
    found["members"] = sorted(m.member_id for m in sh.ActionProfileMember("IngressImpl.ecmp").read())
    (read,) = list(sh.ActionProfileGroup("IngressImpl.ecmp").read())
    found["group"] = [[m.member_id, m.weight] for m in read.members]
    balanced = sh.TableEntry("IngressImpl.balanced")(group_id=1)
    balanced.match["hdr.ipv4.dst"] = "10.7.0.1"
    balanced.insert()

    sh.MulticastGroupEntry(5).add(1, 1).add(2, 7).insert()
    (many,) = list(sh.MulticastGroupEntry(5).read())
    found["multicast"] = [[r.egress_port, r.instance] for r in many.replicas]
    clone = sh.CloneSessionEntry(9).add(3, 4)
    clone.cos, clone.packet_length_bytes = cos, length
    clone.insert()
    (copy,) = list(sh.CloneSessionEntry(9).read())
    found["clone"] = [copy.replicas[0].egress_port, copy.replicas[0].instance, copy.cos, copy.packet_length_bytes]

    meter = sh.MeterEntry("IngressImpl.port_meter")
    meter.index, meter.cir, meter.cburst, meter.pir, meter.pburst = 1, 1000, 100, 2000, 200
    meter.modify()
    (back,) = list(meter.read())
    found["meter"] = [back.cir, back.cburst, back.pir, back.pburst]

    packet_in = sh.PacketIn()
    out = sh.PacketOut(payload=bytes.fromhex("02000000000102000000000288b5") + bytes(46))
    out.metadata["egress_port"] = "3"
    out.send()
    print("ready", flush=True)  # the test sends its packets now, and then a line
    sys.stdin.readline()
    found["punted"] = [
        [message.packet.payload.hex(), [item.value.hex() for item in message.packet.metadata]]
        for message in packet_in.sniff(timeout=2)
    ]
    counter = sh.CounterEntry("IngressImpl.port_counter")
    counter.index = 1
    (count,) = list(counter.read())
    found["counted"] = [count.packet_count, count.byte_count]
    direct = sh.DirectCounterEntry("IngressImpl.acl_counter")
    direct.table_entry.match["smeta.ingress_port"] = "3 &&& 0x1ff"
    direct.table_entry.priority = 10
    (hits,) = list(direct.read())
    found["acl"] = [hits.packet_count, hits.byte_count]

    balanced.delete()
    group.delete()
    route.delete()
    found["left"] = [len(list(sh.TableEntry(f"IngressImpl.{name}").read())) for name in ("routes", "balanced", "acl")]


def main() -> None:
    address, device_id, p4info, program, cos, length = sys.argv[1:]
    config = sh.FwdPipeConfig(p4info, program)
    sh.setup(device_id=int(device_id), grpc_addr=address, election_id=(0, 1), config=config, verbose=False)
    found: dict[str, Any] = {}
    try:
        session(found, int(cos), int(length))
    finally:
        sh.teardown()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
