# ruff: noqa: PT009, PT027 (ptf runs unittest)
"""PTF test cases of P4Runtime: `ptf` runs them, tests/ptf/test_ptf.py starts it and the switch.

ptf owns the packets (its data plane is the far ends of the switch's veth pairs), this file the control plane: raw
P4Runtime messages over gRPC. Parameters: `address` (gRPC), `device_id`, `p4info` and `json` (paths). Ports 1 to 3.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import ptf
from finsy.proto import p4i, p4r, p4r_grpc
from google.protobuf import text_format
from ptf import testutils
from ptf.base_tests import BaseTest

TIMEOUT_S = 10
HOP_MAC, PORT_MAC = "02:00:00:00:00:42", "02:00:00:00:00:02"


def mac(text: str) -> bytes:
    """Canonical: P4Runtime has no leading zero bytes."""
    return bytes.fromhex(text.replace(":", "")).lstrip(b"\0")


class P4RuntimeTest(BaseTest):
    """A primary with the program committed anew, so that each test starts from empty tables."""

    def setUp(self) -> None:
        super().setUp()
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        parameter = testutils.test_param_get
        self.device_id = int(parameter("device_id"))
        self.info: p4i.P4Info = text_format.Parse(Path(parameter("p4info")).read_text(), p4i.P4Info())
        self.channel = grpc.insecure_channel(parameter("address"))
        self.addCleanup(self.channel.close)
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.requests: queue.Queue[p4r.StreamMessageRequest | None] = queue.Queue()
        self.responses: queue.Queue[p4r.StreamMessageResponse] = queue.Queue()
        self.addCleanup(self.requests.put, None)
        stream = self.stub.StreamChannel(iter(self.requests.get, None))
        threading.Thread(target=self._receive, args=(stream,), daemon=True).start()
        arbitration = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=p4r.Uint128(low=1))
        self.requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        answer = self.responses.get(timeout=TIMEOUT_S)
        self.assertEqual((answer.WhichOneof("update"), answer.arbitration.status.code), ("arbitration", 0))
        config = p4r.ForwardingPipelineConfig(p4info=self.info, p4_device_config=Path(parameter("json")).read_bytes())
        self.stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self.device_id,
                election_id=p4r.Uint128(low=1),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            ),
            timeout=60,  # the first time, the program's C is compiled
        )

    def _receive(self, stream: Iterator[p4r.StreamMessageResponse]) -> None:
        try:
            for message in stream:
                self.responses.put(message)
        except grpc.RpcError:
            pass  # the channel was closed

    def named(self, objects: Any, name: str) -> Any:
        (found,) = [item for item in objects if item.preamble.name == name]
        return found

    def action(self, name: str, *values: bytes) -> p4r.Action:
        found = self.named(self.info.actions, name)
        self.assertEqual(len(found.params), len(values))
        params = [p4r.Action.Param(param_id=p.id, value=v) for p, v in zip(found.params, values, strict=True)]
        return p4r.Action(action_id=found.preamble.id, params=params)

    def entry(self, table: str, match: list[p4r.FieldMatch], action: p4r.TableAction) -> p4r.Entity:
        table_id = self.named(self.info.tables, table).preamble.id
        return p4r.Entity(table_entry=p4r.TableEntry(table_id=table_id, match=match, action=action))

    def write(self, kind: p4r.Update.Type, *entities: p4r.Entity) -> None:
        self.stub.Write(
            p4r.WriteRequest(
                device_id=self.device_id,
                election_id=p4r.Uint128(low=1),
                updates=[p4r.Update(type=kind, entity=entity) for entity in entities],
            ),
            timeout=TIMEOUT_S,
        )

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=[entity])
        return [found for response in self.stub.Read(request, timeout=TIMEOUT_S) for found in response.entities]

    def count(self, counter: str, index: int) -> tuple[int, int]:
        """(packets, bytes)"""
        counter_id = self.named(self.info.counters, counter).preamble.id
        wanted = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=index)))
        (found,) = self.read(wanted)
        return found.counter_entry.data.packet_count, found.counter_entry.data.byte_count

    def route(self, net: bytes, length: int, port: int) -> list[p4r.Entity]:
        """Through `port` by next hop 7, a one-shot group of one."""
        hop = p4r.ActionProfileAction(action=self.action("ingress.forward", bytes([port]), mac(HOP_MAC)), weight=1)
        one_shot = p4r.ActionProfileActionSet(action_profile_actions=[hop])
        exact = p4r.FieldMatch.Exact
        lpm = p4r.FieldMatch.LPM(value=net, prefix_len=length)
        to_hop = p4r.TableAction(action=self.action("ingress.route", b"\7"))
        source = p4r.TableAction(action=self.action("egress.set_src_mac", mac(PORT_MAC)))
        return [
            self.entry(
                "ingress.nexthop",
                [p4r.FieldMatch(field_id=1, exact=exact(value=b"\7"))],
                p4r.TableAction(action_profile_action_set=one_shot),
            ),
            self.entry("ingress.ipv4_lpm", [p4r.FieldMatch(field_id=1, lpm=lpm)], to_hop),
            self.entry("egress.port_mac", [p4r.FieldMatch(field_id=1, exact=exact(value=bytes([port])))], source),
        ]


def udp(dst: str, ttl: int, eth_dst: str = PORT_MAC, eth_src: str = "02:00:00:00:00:99") -> Any:
    return testutils.simple_udp_packet(
        pktlen=142, eth_dst=eth_dst, eth_src=eth_src, ip_src="10.8.0.1", ip_dst=dst, ip_ttl=ttl
    )


class RouteTest(P4RuntimeTest):
    """A route forwards, rewrites and counts; once it is deleted nothing is forwarded."""

    def runTest(self) -> None:
        entries = self.route(bytes([10, 9, 0, 0]), 16, 2)
        self.write(p4r.Update.INSERT, *entries)
        for port, ttl in ((1, 64), (3, 2)):
            testutils.send_packet(self, port, udp("10.9.1.2", ttl))
            testutils.verify_packet(self, udp("10.9.1.2", ttl - 1, HOP_MAC, PORT_MAC), 2)
        testutils.verify_no_other_packets(self)
        testutils.send_packet(self, 1, udp("10.10.1.2", 64))  # no route
        testutils.verify_no_other_packets(self)
        self.assertEqual(self.count("ingress.rx", 1 * 8), (2, 284))
        self.assertEqual(self.count("ingress.rx", 3 * 8), (1, 142))
        self.assertEqual(self.count("egress.tx", 2 * 8), (2, 284))
        self.assertEqual(self.count("egress.tx", 1 * 8), (0, 0))

        self.write(p4r.Update.DELETE, entries[1])
        testutils.send_packet(self, 1, udp("10.9.1.2", 64))
        testutils.verify_no_other_packets(self)
        self.assertEqual(self.count("egress.tx", 2 * 8), (2, 284))


class ReadBackTest(P4RuntimeTest):
    """What was written is read, by a wildcard of the table; an entry twice is ALREADY_EXISTS with its own error."""

    def runTest(self) -> None:
        entries = self.route(bytes([10, 9, 0, 0]), 16, 2)
        self.write(p4r.Update.INSERT, *entries)
        for entry in entries:
            table = p4r.Entity(table_entry=p4r.TableEntry(table_id=entry.table_entry.table_id))
            self.assertEqual(self.read(table), [entry])
        with self.assertRaises(grpc.RpcError) as caught:
            self.write(p4r.Update.INSERT, entries[1])
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNKNOWN)


class PacketIoTest(P4RuntimeTest):
    """LLDP comes to the controller with its port, whole; a packet-out leaves as it is."""

    def runTest(self) -> None:
        lldp = testutils.simple_eth_packet(pktlen=60, eth_dst="01:80:c2:00:00:0e", eth_type=0x88CC)
        testutils.send_packet(self, 3, lldp)
        message = self.responses.get(timeout=TIMEOUT_S)
        self.assertEqual(message.packet.payload, bytes(lldp))
        self.assertEqual([item.value for item in message.packet.metadata], [b"\3", b"\0", b"\0"])
        testutils.verify_no_other_packets(self)
        # egress_port 2, queue 1, pad 0
        values = (b"\2", b"\1", b"\0")
        metadata = [p4r.PacketMetadata(metadata_id=i + 1, value=value) for i, value in enumerate(values)]
        packet = p4r.PacketOut(payload=bytes(udp("10.9.1.2", 9)), metadata=metadata)
        self.requests.put(p4r.StreamMessageRequest(packet=packet))
        testutils.verify_packet(self, udp("10.9.1.2", 9), 2)
        testutils.verify_no_other_packets(self)
