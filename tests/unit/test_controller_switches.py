"""Sessions against a P4Runtime server that remembers: start, restart, reconnect, backup, refusals, packets, reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from controller_fakes import CONFIG, FakeSwitch, serving
from finsy.proto import p4r

from controller import Controller, NotConnectedError, P4Program, PacketIn, ProgramError, SwitchState
from controller.codec import Codec
from controller.config import Config, parse, parse_text, to_data
from controller.desired import build
from controller.entries import Action, Group, TableEntry
from controller.state import CounterValue

TIMEOUT = 20.0


@pytest.fixture(scope="module")
def program() -> P4Program:
    return P4Program.load()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "leaf1.sock"


@pytest.fixture
def config(socket: Path) -> Config:
    return parse_text(CONFIG.replace("ADDRESS", str(socket)))


def held(switch: FakeSwitch, program: P4Program) -> set[object]:
    codec = Codec(program)
    return {codec.decode(entity) for entity in switch.entities.values()}


async def test_start_writes_everything_and_a_restart_nothing(config: Config, socket: Path, program: P4Program) -> None:
    switch = FakeSwitch()
    async with serving(switch, socket):
        async with Controller(config, p4=program) as controller:
            await controller.wait_synced(TIMEOUT)
            [status] = controller.status()
        wanted = build(config, "leaf1")
        assert held(switch, program) == set(wanted)
        assert (status.state, status.updates_written, status.pipeline_pushes) == (SwitchState.SYNCED, len(wanted), 1)
        assert switch.cookie == program.cookie

        switch.writes.clear()
        async with Controller(config, p4=program) as controller:
            await controller.wait_synced(TIMEOUT)
            [status] = controller.status()
        assert switch.writes == []
        assert (switch.pushes, status.pipeline_pushes, status.updates_written) == (1, 0, 0)


async def test_a_switch_that_comes_back_empty_gets_everything_again(
    config: Config, socket: Path, program: P4Program
) -> None:
    async with Controller(config, p4=program) as controller:  # started before the switch
        with pytest.raises(
            TimeoutError, match=r"not synced after 0\.2 s: leaf1: disconnected: cannot connect: No such"
        ):
            await controller.wait_synced(0.2)
        first, second = FakeSwitch(), FakeSwitch()
        async with serving(first, socket):
            await controller.wait_synced(TIMEOUT)
        await asyncio.wait_for(controller.session("leaf1").wait_state(SwitchState.DISCONNECTED), TIMEOUT)
        with pytest.raises(NotConnectedError, match="switch leaf1: not connected to unix:"):
            await controller.read_counters("leaf1", ["ingress.rx"])
        async with serving(second, socket):
            await controller.wait_synced(TIMEOUT)
            assert held(second, program) == held(first, program) == set(build(config, "leaf1"))
            assert controller.status()[0].connects == 2


async def test_what_drifted_is_put_right_and_strangers_are_removed(
    config: Config, socket: Path, program: P4Program
) -> None:
    switch, codec = FakeSwitch(), Codec(program)
    stranger = TableEntry(
        "ingress.dscp_to_priority", (("dscp", 9), ("qos_profile", 7)), Action.of("ingress.set_priority", priority=1)
    )
    async with serving(switch, socket), Controller(config, p4=program) as controller:
        await controller.wait_synced(TIMEOUT)
        for key, entity in list(switch.entities.items()):
            if entity.table_entry.table_id == program.table("egress.tm_port").id:
                del switch.entities[key]
        switch._apply(p4r.Update(type=p4r.Update.INSERT, entity=codec.entity(stranger)))
        switch.writes.clear()
        controller.session("leaf1").resync()
        await controller.wait_synced(TIMEOUT)
        kinds = [p4r.Update.Type.Name(update.type) for update in switch.updates()]
        assert kinds == ["INSERT", "INSERT", "INSERT", "DELETE"]
        assert held(switch, program) == set(build(config, "leaf1"))


async def test_a_live_change_writes_only_the_difference(config: Config, socket: Path, program: P4Program) -> None:
    switch = FakeSwitch()
    async with serving(switch, socket), Controller(config, p4=program) as controller:
        await controller.wait_synced(TIMEOUT)
        switch.writes.clear()
        data = to_data(config)
        data["switches"]["leaf1"]["ports"][2]["pfc"] = [3]
        await controller.apply(parse(data))
        await controller.wait_synced(TIMEOUT)
        changed = {(u.type, program.table_by_id[u.entity.table_entry.table_id].name) for u in switch.updates()}
        assert changed == {(p4r.Update.MODIFY, "ingress.port_config"), (p4r.Update.MODIFY, "egress.tm_pfc")}
        assert len(switch.updates()) == 2
        assert controller.status()[0].last_sync_updates == 2


async def test_a_refused_update_is_named_and_tried_again(
    config: Config, socket: Path, program: P4Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.switches._RESYNC_AFTER_FAILURE_SECONDS", 0.05)
    switch = FakeSwitch()
    scheduler = program.table("egress.tm_scheduler").id
    switch.refuse = lambda u: "weight is out of range" if u.entity.table_entry.table_id == scheduler else None
    async with serving(switch, socket), Controller(config, p4=program) as controller:
        session = controller.session("leaf1")
        await asyncio.wait_for(session.wait_state(SwitchState.FAILED), TIMEOUT)
        await asyncio.wait_for(session.wait_settled(), TIMEOUT)
        assert session.status.last_error.splitlines()[0] == (
            "insert egress.tm_scheduler[port=1, tc=0]: INVALID_ARGUMENT: weight is out of range"
        )
        switch.refuse = lambda update: None
        await controller.wait_synced(TIMEOUT)
        assert session.status.last_error == ""
        assert held(switch, program) == set(build(config, "leaf1"))


async def test_a_switch_that_alters_what_it_was_given_is_not_synced(
    config: Config, socket: Path, program: P4Program
) -> None:
    switch = FakeSwitch()
    mac = program.table("egress.port_mac").id

    def alter(update: p4r.Update) -> None:
        if update.entity.table_entry.table_id == mac:
            update.entity.table_entry.action.action.params[0].value = b"\x01"

    switch.refuse = alter
    async with serving(switch, socket), Controller(config, p4=program) as controller:
        session = controller.session("leaf1")
        await asyncio.wait_for(session.wait_state(SwitchState.FAILED), TIMEOUT)
        assert session.status.last_error.startswith(
            "egress.port_mac[egress_port=1]: read back differs after it was written"
        )


async def test_a_backup_waits_and_takes_over_without_a_write(config: Config, socket: Path, program: P4Program) -> None:
    switch = FakeSwitch()
    async with serving(switch, socket):
        async with Controller(config, p4=program, election_id=7) as backup:
            async with Controller(config, p4=program, election_id=9) as primary:
                await primary.wait_synced(TIMEOUT)
                await asyncio.wait_for(backup.session("leaf1").wait_state(SwitchState.BACKUP), TIMEOUT)
                with pytest.raises(TimeoutError, match="leaf1: backup"):
                    await backup.wait_synced(0.05)
                counters = await backup.read_counters("leaf1", ["rx"], [1])  # a backup may read
                assert len(counters["rx"]) == 8
                before = len(switch.writes)
            await backup.wait_synced(TIMEOUT)
        assert len(switch.writes) == before


async def test_an_election_id_in_use_makes_a_backup(config: Config, socket: Path, program: P4Program) -> None:
    switch = FakeSwitch()
    async with (
        serving(switch, socket),
        Controller(config, p4=program) as primary,
        Controller(config, p4=program) as other,
    ):
        await asyncio.wait_for(
            asyncio.gather(
                *(c.session("leaf1").wait_state(SwitchState.SYNCED, SwitchState.BACKUP) for c in (primary, other))
            ),
            TIMEOUT,
        )
        statuses = [primary.status()[0], other.status()[0]]
        assert sorted(status.election_id for status in statuses) == [99, 100]
        assert {status.state for status in statuses} == {SwitchState.SYNCED, SwitchState.BACKUP}


async def test_packets_go_to_the_handler_and_out(config: Config, socket: Path, program: P4Program) -> None:
    seen: asyncio.Queue[tuple[str, PacketIn]] = asyncio.Queue()

    async def handler(name: str, packet: PacketIn) -> None:
        if packet.payload == b"bad":
            raise RuntimeError("a handler's own fault")
        await seen.put((name, packet))

    switch = FakeSwitch()
    ids = {field.name: field.id for field in program.packet_in}
    async with serving(switch, socket), Controller(config, p4=program, packet_handler=handler) as controller:
        await controller.wait_synced(TIMEOUT)
        await switch.packet_in(b"bad", {})
        await switch.packet_in(b"lldp", {ids["ingress_port"]: 2, ids["priority"]: 7, ids["reason"]: 0})
        assert await asyncio.wait_for(seen.get(), TIMEOUT) == ("leaf1", PacketIn(b"lldp", 2, 7, 0))
        assert controller.status()[0].packets_in == 2
        await controller.packet_out("leaf1", 3, b"frame", queue=5)
        while not switch.packets_out:
            await asyncio.sleep(0)
        names = {field.id: field.name for field in program.packet_out}
        [packet] = switch.packets_out
        assert packet.payload == b"frame"
        assert {names[item.metadata_id]: item.value for item in packet.metadata} == {
            "egress_port": b"\x03",
            "queue": b"\x05",
            "pad": b"\x00",
        }


async def test_reads_ask_for_the_cells_of_the_ports_in_few_requests(
    config: Config, socket: Path, program: P4Program
) -> None:
    switch = FakeSwitch()
    async with serving(switch, socket), Controller(config, p4=program) as controller:
        await controller.wait_synced(TIMEOUT)
        rx = program.counter("ingress.rx").id
        entry = p4r.CounterEntry(
            counter_id=rx, index=p4r.Index(index=2 * 8 + 3), data=p4r.CounterData(packet_count=5, byte_count=640)
        )
        switch._apply(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=entry)))
        switch.reads.clear()
        counters = await controller.read_counters("leaf1", ["ingress.rx", "rx", "tm_drop_queue"], [2, 3])
        assert len(switch.reads) == 1
        assert len(switch.reads[0].entities) == 2 * 2 * 8
        assert counters["rx"] == counters["ingress.rx"]
        assert counters["rx"][2, 3] == CounterValue(5, 640)
        assert set(counters["tm_drop_queue"]) == {(port, n) for port in (2, 3) for n in range(8)}
        assert {value for cell, value in counters["rx"].items() if cell != (2, 3)} == {CounterValue()}
        await controller.clear_counters("leaf1", ["rx"], [2])
        counters = await controller.read_counters("leaf1", ["rx"], [2])
        assert set(counters["rx"].values()) == {CounterValue()}
        registers = await controller.read_registers("leaf1", ["tm_queue_depth"])
        assert registers == {"tm_queue_depth": {(port, n): 0 for port in (1, 2, 3) for n in range(8)}}
        with pytest.raises(ProgramError, match="counter nonsense: not in the P4 program"):
            await controller.read_counters("leaf1", ["nonsense"])
        with pytest.raises(KeyError, match=r"switch leaf9: not in the config \(known: leaf1\)"):
            await controller.read_counters("leaf9", ["rx"])


async def test_another_address_moves_the_session_and_a_removed_switch_is_let_go(
    config: Config, socket: Path, program: P4Program, tmp_path: Path
) -> None:
    first, second = FakeSwitch(), FakeSwitch()
    other = tmp_path / "other.sock"
    async with serving(first, socket), serving(second, other), Controller(config, p4=program) as controller:
        await controller.wait_synced(TIMEOUT)
        data = to_data(config)
        data["switches"]["leaf1"]["address"] = f"unix:{other}"
        await controller.apply(parse(data))
        await controller.wait_synced(TIMEOUT)
        assert held(second, program) == held(first, program)
        data["switches"] = {}
        await controller.apply(parse(data))
        assert controller.status() == []
        assert held(second, program) == held(first, program)


async def test_a_config_that_the_program_cannot_take_changes_nothing(
    config: Config, socket: Path, program: P4Program
) -> None:
    p4info = type(program.p4info)()
    p4info.CopyFrom(program.p4info)
    [table] = [table for table in p4info.tables if table.preamble.name == "egress.tm_pool"]
    p4info.tables.remove(table)
    smaller = P4Program(p4info, program.device_config)
    assert smaller.cookie != program.cookie
    switch = FakeSwitch()
    async with serving(switch, socket), Controller(config, p4=smaller) as controller:
        await controller.wait_synced(TIMEOUT)
        data = to_data(config)
        data["switches"]["leaf1"] |= {"pool": 1000, "routes": []}
        with pytest.raises(ProgramError, match=r"table egress\.tm_pool: not in the P4 program"):
            await controller.apply(parse(data))
        assert controller.config == config
        assert held(switch, program) == set(build(config, "leaf1"))


def test_values_that_do_not_fit_are_named(program: P4Program) -> None:
    codec = Codec(program)
    entry = TableEntry("egress.tm_port", (("port", 512),), Action.of("egress.tm_set_port", rate_bps=1))
    with pytest.raises(ProgramError, match=r"egress\.tm_port\[port=512\]: key port: 512 does not fit in 9 bits"):
        codec.entity(entry)
    entry = TableEntry("egress.tm_port", (("port", 1),), Action.of("egress.tm_set_port", speed=1))
    with pytest.raises(ProgramError, match=r"action egress\.tm_set_port: parameter rate_bps has no value"):
        codec.entity(entry)
    entry = TableEntry("egress.tm_port", (("prt", 1),), Action.of("egress.tm_set_port", rate_bps=1))
    with pytest.raises(ProgramError, match=r"table egress\.tm_port: field prt: not in the P4 program \(known: port\)"):
        codec.entity(entry)


def test_groups_that_are_too_heavy_are_named(program: P4Program) -> None:
    group = Group("ingress.ecmp", 5, ((1, 40), (2, 25)))
    with pytest.raises(ProgramError, match="ecmp group 5: 65: the weights of a group must not sum to more than 64"):
        Codec(program).entity(group)


def test_entries_survive_the_codec(program: P4Program) -> None:
    text = CONFIG + (
        "    acl:\n"
        "      - {in_port: 0, src_ip4: 10.1.0.0/16, l4_dst_port: 1000-2000, drop: true}\n"
        "      - {dscp: 0, l4_dst_port: 4791, mirror: 7}\n"
        "      - {punt: true}\n"
        "    clone_sessions: {7: {port: 510, length: 128, class_of_service: 1}}\n"
    )
    codec = Codec(program)
    entities = build(parse_text(text), "leaf1")
    assert [codec.decode(codec.entity(entity)) for entity in entities] == entities


def test_byte_strings_are_canonical(program: P4Program) -> None:
    entry = Codec(program).entity(
        TableEntry(
            "egress.tm_pfc", (("port", 0),), Action.of("egress.tm_set_pfc", tx_enable=0, quanta=256, queue_map=1)
        )
    )
    assert entry.table_entry.match[0].exact.value == b"\x00"
    assert [param.value for param in entry.table_entry.action.action.params] == [b"\x00", b"\x01\x00", b"\x01"]


def test_a_missing_program_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=rf"P4 program dcb in {tmp_path}: cannot be read: .*dcb\.p4info\.txtpb"):
        P4Program.load(tmp_path)
    (tmp_path / "dcb.p4info.txtpb").write_text("tables { nonsense: 1 }")
    (tmp_path / "dcb.json").write_text("{}")
    with pytest.raises(ProgramError, match=r"P4Info: .*nonsense"):
        P4Program.load(tmp_path)
