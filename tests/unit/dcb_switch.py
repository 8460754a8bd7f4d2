"""The bundled program as a whole, set up as a controller can: a native core behind P4Runtime.

`DcbSwitch` owns a service with a `Target` on a `SwitchCore`; entries go in as P4Runtime updates by name, state comes
out as P4Runtime reads by name, frames and integer picoseconds go to the core by hand. Ports 1..4 run at 40 Gb/s,
10.1.0.<n> is behind port n, DSCP 26 is priority 3 and lossless, DSCP 34 priority 4 and lossless.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from finsy.proto import p4i, p4r
from p4rt_client import DCB_JSON, DCB_P4INFO, DEVICE_ID, p4info
from p4rt_direct import Direct
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from switch.core import Output, SwitchCore
from switch.loader import load
from switch.model import Program
from switch.p4rt.service import BatchError
from switch.target import Target, TargetFactory

SANITIZE = os.environ.get("DCB_TEST_SANITIZE") == "1"  # set by the sanitized run of these tests
G = 10**9
RATE_BPS = 40 * G
PORTS = range(1, 5)
DSCP = {0: 0, 3: 26, 4: 34}
"""DSCP by priority."""
IDENTITY_MAP = sum(n << (3 * n) for n in range(8))
DROPS = (
    *("tm_drop_queue", "tm_drop_pg", "tm_drop_headroom", "tm_drop_pool", "tm_drop_port", "tm_drop_rx"),
    *("tm_drop_storm_tx", "tm_drop_storm_rx"),
)
OCCUPANCIES = (
    *("tm_queue_depth", "tm_queue_sources", "tm_pg_depth", "tm_pg_headroom", "tm_pg_xoff"),
    *("tm_pool_used", "tm_headroom_pool_used"),
)

Key = int | tuple[int, int]
"""An exact value, or (value, prefix length) or (value, mask)."""


def port_mac(port: int) -> str:
    return f"02:01:00:00:01:{port:02x}"


def number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


@cache
def data(length: int, *, priority: int = 3, to: int = 2, ecn: int = 0, source: int = 1) -> bytes:
    """A RoCEv2-like frame of `length` bytes for 10.1.0.<to>; `source` tells flows apart."""
    headers = (
        Ether(dst=port_mac(1), src="02:00:00:00:01:01")
        / IP(src=f"10.1.0.{source}", dst=f"10.1.0.{to}", tos=DSCP[priority] << 2 | ecn, id=7)
        / UDP(sport=1000, dport=9)
    )
    return bytes(headers / Raw(bytes(length - len(headers))))


def _bytes(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


_load = cache(load)


class _Factory(TargetFactory):
    """Reads the program once for all tests."""

    def _load(self, device_config: bytes) -> Program:
        return _load(device_config)


class DcbSwitch(Direct):
    """See the module. Close it after use."""

    def __init__(self) -> None:
        def made(text: bytes) -> SwitchCore:
            return SwitchCore(text, sanitize=SANITIZE, debug=not SANITIZE)

        super().__init__(DCB_JSON, DCB_P4INFO, factory=_Factory(core_factory=made))
        info = p4info(DCB_P4INFO)
        self.tables = {table.preamble.name: table for table in info.tables}
        self.actions = {action.preamble.name: action for action in info.actions}
        for port in PORTS:
            self.switch_core.tm.add_port(port)
            self.set_up_port(port)
        for priority in (3, 4):
            self.put("ingress.dscp_to_priority", (1, DSCP[priority]), "ingress.set_priority", priority)
            self.put("ingress.priority_map", (1, priority), "ingress.set_class", priority, priority, 1)

    def set_up_port(self, port: int, pfc_rx: int = 1 << 3, pause_rx: int = 0, rate_bps: int = RATE_BPS) -> None:
        self.put("ingress.port_config", (port,), "ingress.set_port", 2, 0, 1, pfc_rx, pause_rx)
        self.put("egress.port_mac", (port,), "egress.set_src_mac", number(port_mac(port)))
        self.put("egress.tm_port", (port,), "egress.tm_set_port", rate_bps)
        self.put_route(port)

    def put_route(self, port: int) -> None:
        """10.1.0.<port> through a one-shot set of one member."""
        action = self._action("ingress.forward", port, number(f"02:00:00:00:01:{port:02x}"))
        entity = self._entry("ingress.nexthop", (port,))
        entity.table_entry.action.action_profile_action_set.action_profile_actions.add(action=action, weight=1)
        self._put(entity)
        self.put("ingress.ipv4_lpm", ((0x0A010000 | port, 32),), "ingress.route", port)

    # --- entries by name ---

    def put(self, table: str, keys: Sequence[Key], action: str, *parameters: int) -> None:
        """Insert an entry, or modify the one of this key."""
        entity = self._entry(table, keys)
        entity.table_entry.action.action.CopyFrom(self._action(action, *parameters))
        self._put(entity)

    def remove(self, table: str, keys: Sequence[Key]) -> None:
        self._write(p4r.Update.DELETE, self._entry(table, keys))

    def _put(self, entity: p4r.Entity) -> None:
        query = p4r.Entity()
        query.CopyFrom(entity)
        query.table_entry.ClearField("action")
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=[query])
        found = any(response.entities for response in self.service.read(request))
        self._write(p4r.Update.MODIFY if found else p4r.Update.INSERT, entity)

    def _write(self, kind: p4r.Update.Type, entity: p4r.Entity) -> None:
        update = p4r.Update(type=kind, entity=entity)
        request = p4r.WriteRequest(device_id=DEVICE_ID, election_id=p4r.Uint128(low=1), updates=[update])
        try:
            self.service.write(request)
        except BatchError as error:
            raise AssertionError(f"{error}: {error.outcomes}") from error

    def _entry(self, table: str, keys: Sequence[Key]) -> p4r.Entity:
        entity = p4r.Entity()
        entry = entity.table_entry
        entry.table_id = self.tables[table].preamble.id
        for field, key in zip(self.tables[table].match_fields, keys, strict=True):
            match = entry.match.add(field_id=field.id)
            value, second = key if isinstance(key, tuple) else (key, 0)
            if field.match_type == p4i.MatchField.LPM:
                match.lpm.value, match.lpm.prefix_len = _bytes(value), second
            elif field.match_type == p4i.MatchField.EXACT:
                match.exact.value = _bytes(value)
            else:
                raise ValueError(f"{table}.{field.name}: kind of match not needed here")
        return entity

    def _action(self, name: str, *values: int) -> p4r.Action:
        action = p4r.Action(action_id=self.actions[name].preamble.id)
        for parameter, value in zip(self.actions[name].params, values, strict=True):
            action.params.add(param_id=parameter.id, value=_bytes(value))
        return action

    def static_group(self, port: int, pg: int, reserved: int, xoff: int, xon: int, headroom: int) -> None:
        """A lossless group that pauses the priority of its own number, with PFC on."""
        group = (reserved, xoff, xon, headroom, 1 << pg)
        self.put("egress.tm_priority_group", (port, pg), "egress.tm_pg_static", *group)

    def send_pfc(self, port: int, enable: int, quanta: int = 65535) -> None:
        """PFC that this switch sends."""
        self.put("egress.tm_pfc", (port,), "egress.tm_set_pfc", enable, quanta, IDENTITY_MAP)

    # --- cells by name ---

    def count(self, counter: str, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell."""
        (entity,) = self.read(f"counter_entry {{ counter_id: @{counter} index {{ index: {index} }} }}")
        return entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count

    def counts(self, counter: str) -> dict[int, int]:
        """Packets of every cell of ports 0..7 that is not zero, by index."""
        return {index: packets for index in range(64) if (packets := self.count(counter, index)[0])}

    def state(self, register: str, index: int) -> int:
        (entity,) = self.read(f"register_entry {{ register_id: @{register} index {{ index: {index} }} }}")
        return int.from_bytes(entity.register_entry.data.bitstring, "big")

    def drops(self) -> dict[str, dict[int, int]]:
        """What the traffic manager dropped, by reason and cell."""
        return {name: found for name in DROPS if (found := self.counts(f"egress.{name}"))}

    def assert_empty(self) -> None:
        """No packet is held, no byte is charged, nothing is XOFF: read as a controller reads it."""
        for name in OCCUPANCIES:
            assert [self.state(f"egress.{name}", index) for index in range(64)] == [0] * 64, name
        assert self.switch_core.packets_held == 0
        self.switch_core.tm.check()  # every group, queue and the pool against the packets

    def clear(self, register: str, index: int) -> None:
        """Write 0, which only watermarks and histograms take."""
        cell = f"register_id: @{register} index {{ index: {index} }}"
        assert self.modify(f'register_entry {{ {cell} data {{ bitstring: "\\x00" }} }}') == ("OK", "")

    def histogram(self, register: str, cell: int) -> dict[int, int]:
        """Buckets of a cell that are not zero."""
        found = {b: self.state(register, cell * 32 + b) for b in range(32)}
        return {bucket: count for bucket, count in found.items() if count}

    # --- frames ---

    @property
    def switch_core(self) -> SwitchCore:
        target = self.service.target
        assert isinstance(target, Target)
        return target.core

    def receive(self, port: int, frame: bytes, now_ps: int = 0) -> None:
        assert self.switch_core.receive(port, frame, now_ps)

    def hold(self, port: int, held: bool = True) -> None:
        """Let nothing leave a port, as a full socket does."""
        self.switch_core.tm.block_port(port, held)

    def until(self, now_ps: int) -> list[Output]:
        """What leaves up to and at a time."""
        self.switch_core.advance(now_ps)
        return self.switch_core.outputs()

    def drain(self) -> list[Output]:
        """Run until nothing is due."""
        left = self.switch_core.outputs()
        for _ in range(200_000):
            deadline = self.switch_core.next_deadline()
            if deadline is None:
                return left
            left += self.until(deadline)
        raise AssertionError("the switch does not come to rest")
