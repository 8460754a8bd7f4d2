"""The P4Runtime server over gRPC on a unix socket, with raw stubs.

Configuration, streams, arbitration of several clients, packets, digests, time-outs, error details.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4d, p4r, p4r_grpc, stratum
from google.protobuf import text_format
from p4rt_client import DCB_JSON, DCB_P4INFO, DEVICE_ID, Client, Failure, Lab, config, serve
from p4rt_fakes import FakeTargetFactory

from switch.core import DigestData, PacketIn
from switch.p4rt.server import OUTBOX_MESSAGES, P4RuntimeServer


@pytest.fixture
async def lab(tmp_path: Path):
    async with serve(tmp_path, FakeTargetFactory({1: "veth1", 2: "veth2"})) as made:
        yield made


def l2(lab: Lab, mac: int, port: int = 5) -> p4r.Entity:
    entry = p4r.TableEntry(table_id=lab.names["l2"])
    entry.match.add(field_id=1).exact.value = bytes([mac])
    entry.action.action.action_id = lab.names["forward"]
    entry.action.action.params.add(param_id=1, value=bytes([port]))
    return p4r.Entity(table_entry=entry)


# --- pipeline configuration ----------------------------------------------------------------------------------------


async def test_capabilities(lab: Lab) -> None:
    reply = await lab.client().call("Capabilities", p4r.CapabilitiesRequest())
    assert reply.p4runtime_api_version == "1.4.1"


async def test_commit_and_get(lab: Lab) -> None:
    client = await lab.primary()
    assert lab.factory.core.driver == {1: "veth1", 2: "veth2"}
    assert await client.get_config() == config()
    cookie = await client.get_config("COOKIE_ONLY")
    assert cookie == p4r.ForwardingPipelineConfig(cookie={"cookie": 5})
    info = await client.get_config("P4INFO_AND_COOKIE")
    assert (info.p4info, info.p4_device_config) == (config().p4info, b"")
    device = await client.get_config("DEVICE_CONFIG_AND_COOKIE")
    assert (device.HasField("p4info"), device.p4_device_config) == (False, config().p4_device_config)
    await client.set_config(config(cookie=None))
    assert not (await client.get_config("COOKIE_ONLY")).HasField("cookie")


async def test_nothing_set_yet(lab: Lab) -> None:
    client = lab.client()
    request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE_ID)
    assert not (await client.call("GetForwardingPipelineConfig", request)).HasField("config")
    await client.become_primary()
    for attempt in (client.insert(l2(lab, 1)), client.read(l2(lab, 1))):
        with pytest.raises(Failure) as caught:
            await attempt
        assert caught.value.code == grpc.StatusCode.FAILED_PRECONDITION
        assert "no forwarding pipeline config" in caught.value.message
    with pytest.raises(Failure) as caught:
        await client.set_config(None, "COMMIT")
    assert caught.value.code == grpc.StatusCode.NOT_FOUND


async def test_commit_clears_and_hands_the_ports_over(lab: Lab) -> None:
    client = await lab.primary()
    await client.insert(l2(lab, 1))
    await client.set_config(config(cookie=6))
    old, new = lab.factory.cores
    assert (old.closed, old.driver, new.closed) == (True, None, False)
    assert new.driver == {1: "veth1", 2: "veth2"}
    assert await client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=lab.names["l2"]))) == []


async def test_verify_changes_nothing(lab: Lab) -> None:
    client = await lab.primary()
    await client.insert(l2(lab, 1))
    await client.set_config(config(cookie=6), "VERIFY")
    assert (await client.get_config("COOKIE_ONLY")).cookie.cookie == 5
    running, verified = lab.factory.cores
    assert (running.closed, verified.closed) == (False, True)
    assert len(await client.read(l2(lab, 1))) == 1


async def test_save_write_commit(lab: Lab) -> None:
    client = await lab.primary()
    await client.insert(l2(lab, 1))
    await client.set_config(config(cookie=6), "VERIFY_AND_SAVE")
    running, saved = lab.factory.cores
    # Reads and writes refer to the saved configuration; the running one forwards as before.
    assert await client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=lab.names["l2"]))) == []
    await client.insert(l2(lab, 2))
    assert len(running.pipeline.entries["IngressImpl.l2"]) == 1
    assert saved.driver is None
    await client.set_config(None, "COMMIT")
    assert (running.closed, saved.driver) == (True, {1: "veth1", 2: "veth2"})
    assert await client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=lab.names["l2"]))) == [l2(lab, 2)]
    with pytest.raises(Failure) as caught:
        await client.set_config(None, "COMMIT")
    assert caught.value.code == grpc.StatusCode.NOT_FOUND


async def test_reconcile_with_the_same_program_only_takes_the_cookie(lab: Lab) -> None:
    client = await lab.primary()
    await client.insert(l2(lab, 1))
    await client.set_config(config(cookie=9), "RECONCILE_AND_COMMIT")
    assert len(lab.factory.cores) == 1
    assert (await client.get_config("COOKIE_ONLY")).cookie.cookie == 9
    assert len(await client.read(l2(lab, 1))) == 1


async def test_reconcile_moves_the_state(lab: Lab) -> None:
    client = await lab.primary()
    names = lab.names
    texts = [
        f"table_entry {{ table_id: {names['acl']} priority: 3 match {{ field_id: 1 ternary {{ value: "
        f'"1" mask: "1" }} }}'
        f" action {{ action {{ action_id: {names['acl_deny']} }} }} counter_data {{ packet_count: 2 byte_count: 9 }}"
        " meter_config { cir: 1 cburst: 1 pir: 2 pburst: 2 } metadata: 'x' }",
        "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 4 replicas "
        "{ egress_port: 1 } } }",
        f"digest_entry {{ digest_id: {names['learn_t']} config {{ max_list_size: 3 }} }}",
    ]
    await client.insert(l2(lab, 1), *(text_format.Parse(text, p4r.Entity()) for text in texts))
    await client.modify(
        text_format.Parse(
            f"register_entry {{ register_id: {names['last_seen']} index {{ index: 1 }} data {{ bitstring: '2' }} }}",
            p4r.Entity(),
        ),
        text_format.Parse(
            f"counter_entry {{ counter_id: {names['port_counter']} index {{ index: 1 }} data {{ packet_count: 2 }} }}",
            p4r.Entity(),
        ),
        text_format.Parse(
            f"meter_entry {{ meter_id: {names['port_meter']} index {{ index: 1 }} config {{ pir: 2 }} }}", p4r.Entity()
        ),
        text_format.Parse(
            f"table_entry {{ table_id: {names['l2']} is_default_action: true action {{ action {{ "
            f"action_id: {names['drop']} }} }} }}",
            p4r.Entity(),
        ),
    )

    async def state() -> list[str]:
        entry = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
        everything = [
            p4r.Entity(table_entry=entry),
            p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)),
            p4r.Entity(counter_entry={}),
            p4r.Entity(meter_entry={}),
            p4r.Entity(register_entry={}),
            p4r.Entity(digest_entry={}),
            p4r.Entity(packet_replication_engine_entry={"multicast_group_entry": {}}),
        ]
        return sorted(str(entity) for entity in await client.read(*everything))

    before = await state()
    changed = config(cookie=6)
    changed.p4_device_config = changed.p4_device_config + b"\n"  # other bytes: a new program
    await client.set_config(changed, "RECONCILE_AND_COMMIT")
    old, new = lab.factory.cores
    assert (old.closed, new.driver) == (True, {1: "veth1", 2: "veth2"})
    assert await state() == before
    # A program that cannot take the state is refused and the old one goes on.
    with pytest.raises(Failure, match="INVALID_ARGUMENT: config: the forwarding state cannot be preserved"):
        await client.set_config(config(DCB_JSON, DCB_P4INFO), "RECONCILE_AND_COMMIT")
    assert lab.factory.core.closed
    assert await state() == before


async def test_refused_programs_list_everything_and_the_old_one_stays(lab: Lab) -> None:
    client = await lab.primary()
    bad = config(cookie=8)
    bad.p4info.tables[0].match_fields[0].bitwidth = 47
    bad.p4info.registers[0].preamble.name = "nope"
    for message, said in (
        (bad, ["table IngressImpl.l2: its key is (exact 47) in P4Info and (exact 48) in the program", "register nope"]),
        (p4r.ForwardingPipelineConfig(p4info=bad.p4info, p4_device_config=b"{"), ["config: refused"]),
        (p4r.ForwardingPipelineConfig(p4info=bad.p4info), ["p4_device_config is empty"]),
        (None, ["config: must be set"]),
    ):
        with pytest.raises(Failure) as caught:
            await client.set_config(message)
        assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT
        for part in said:
            assert part in caught.value.message
    assert (await client.get_config("COOKIE_ONLY")).cookie.cookie == 5
    assert not lab.factory.cores[0].closed
    await client.insert(l2(lab, 1))


async def test_ports_that_cannot_be_taken_over(lab: Lab) -> None:
    client = await lab.primary()
    lab.factory.fail_next_start = "driver: no such device"
    with pytest.raises(Failure, match="could not take over the ports: driver: no such device"):
        await client.set_config(config(cookie=8))
    old, new = lab.factory.cores
    assert (old.closed, old.driver, new.closed) == (False, {1: "veth1", 2: "veth2"}, True)
    assert (await client.get_config("COOKIE_ONLY")).cookie.cookie == 5


@pytest.mark.parametrize(
    ("device_id", "election_id", "role", "code"),
    [
        (8, 1, "", grpc.StatusCode.NOT_FOUND),
        (DEVICE_ID, 2, "", grpc.StatusCode.PERMISSION_DENIED),
        (DEVICE_ID, None, "", grpc.StatusCode.PERMISSION_DENIED),
        (DEVICE_ID, 1, "qos", grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_only_the_primary(
    lab: Lab, device_id: int, election_id: int | None, role: str, code: grpc.StatusCode
) -> None:
    await lab.primary()
    other = lab.client(election_id, role, device_id)
    for attempt in (other.insert(l2(lab, 1)), other.set_config(config())):
        with pytest.raises(Failure) as caught:
            await attempt
        assert caught.value.code == code
        assert caught.value.errors == []
    if device_id != DEVICE_ID:
        for attempt in (other.read(l2(lab, 1)), other.get_config()):
            with pytest.raises(Failure) as caught:
                await attempt
            assert caught.value.code == code


# --- error details -------------------------------------------------------------------------------------------------


async def test_each_update_has_its_error(lab: Lab) -> None:
    client = await lab.primary()
    bad = l2(lab, 2)
    bad.table_entry.action.action.params[0].value = b"\x02\x00"
    with pytest.raises(Failure) as caught:
        await client.insert(l2(lab, 1), l2(lab, 1), bad)
    failure = caught.value
    assert failure.code == grpc.StatusCode.UNKNOWN
    assert failure.message == failure.status.message
    assert failure.message.startswith("2 of 3 updates failed, first updates[1]: ALREADY_EXISTS: table IngressImpl.l2")
    assert [error.canonical_code for error in failure.errors] == [0, 6, 3]
    assert failure.errors[0] == p4r.Error()
    assert failure.errors[2].message == (
        "action IngressImpl.forward: parameter port: value 0x200 does not fit in bit<9> (at most 0x1ff)"
    )
    assert {error.space for error in failure.errors[1:]} == {"dcbswitch-v1model-dcblab"}
    assert await client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=lab.names["l2"]))) == [l2(lab, 1)]


async def test_a_large_status_still_reaches_a_client_with_default_limits(lab: Lab) -> None:
    await lab.primary()
    request = p4r.WriteRequest(device_id=DEVICE_ID, election_id={"low": 1})
    for _ in range(100):
        request.updates.add(type=p4r.Update.DELETE, entity=l2(lab, 1))
    async with grpc.aio.insecure_channel(lab.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await p4r_grpc.P4RuntimeStub(channel).Write(request)
    failure = Failure(caught.value)
    assert failure.code == grpc.StatusCode.UNKNOWN
    assert [error.canonical_code for error in failure.errors] == [5] * 100
    assert failure.errors[0].message == "table IngressImpl.l2: no entry with this match and priority"
    assert failure.errors[99].message == ""


async def test_reads_answer_the_good_queries_and_name_the_bad(lab: Lab) -> None:
    client = await lab.primary()
    await client.insert(l2(lab, 1))
    with pytest.raises(Failure) as caught:
        await client.read(l2(lab, 1), p4r.Entity(), p4r.Entity(counter_entry={"counter_id": lab.names["port_counter"]}))
    assert caught.value.code == grpc.StatusCode.UNKNOWN
    assert [error.canonical_code for error in caught.value.errors] == [0, 3, 0]
    assert len(caught.value.found) == 1 + 16  # type: ignore[attr-defined]


async def test_a_large_read_comes_in_pieces(lab: Lab) -> None:
    client = lab.client()
    await client.become_primary()
    await client.set_config(config(DCB_JSON, DCB_P4INFO))
    sizes = []
    request = p4r.ReadRequest(device_id=DEVICE_ID, entities=[p4r.Entity(register_entry={})])
    async for response in client.stub.Read(request):
        sizes.append(len(response.entities))
    assert max(sizes) == 256
    assert sum(sizes) == sum(register.size for register in config(DCB_JSON, DCB_P4INFO).p4info.registers)


# --- arbitration over real streams ---------------------------------------------------------------------------------


async def expect(client: Client, code: int, election_id: int | None) -> None:
    update = (await client.receive()).arbitration
    got = update.election_id.low if update.HasField("election_id") else None
    assert (update.status.code, got, update.device_id) == (code, election_id, DEVICE_ID)


async def test_three_controllers(lab: Lab) -> None:
    a, b, c = lab.client(10), lab.client(20), lab.client(5)
    await a.arbitrate()
    await expect(a, 0, 10)
    await b.arbitrate()
    await expect(a, 6, 20)
    await expect(b, 0, 20)
    await c.arbitrate()
    await expect(c, 6, 20)
    await b.set_config(config())
    with pytest.raises(Failure) as caught:
        await a.insert(l2(lab, 1))
    assert caught.value.code == grpc.StatusCode.PERMISSION_DENIED
    await b.close()  # the primary dies
    await expect(a, 5, 20)
    await expect(c, 5, 20)
    await a.arbitrate(20)  # the highest id seen is enough
    await expect(c, 6, 20)
    await expect(a, 0, 20)
    await a.insert(l2(lab, 1))
    again = lab.client(20)
    await again.arbitrate()  # the old one comes back with an id that is taken now
    with pytest.raises(Failure, match="INVALID_ARGUMENT: election id 20 is already used"):
        await again.receive()
    await a.stream.done_writing()  # an orderly end counts as well
    await expect(c, 5, 20)


async def test_streams_that_end(lab: Lab) -> None:
    wrong = lab.client(1, device_id=99)
    await wrong.arbitrate()
    with pytest.raises(Failure, match="NOT_FOUND: device_id 99: this switch is device 7"):
        await wrong.receive()
    client = lab.client(1)
    await client.become_primary()
    client.role = "other"
    await client.arbitrate()
    with pytest.raises(Failure, match="FAILED_PRECONDITION: role 'other'"):
        await client.receive()


async def test_roles_write_and_receive_what_they_cover(lab: Lab) -> None:
    admin = await lab.primary()
    qos = lab.client(1, "qos")
    update = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id={"low": 1})
    update.role.name = "qos"
    update.role.config.Pack(stratum.P4RoleConfig(exclusive_p4_ids=[lab.names["l2"]]))
    await qos.send(p4r.StreamMessageRequest(arbitration=update))
    answer = (await qos.receive()).arbitration
    assert (answer.status.code, answer.role.name, answer.role.config) == (0, "qos", update.role.config)
    await qos.insert(l2(lab, 1))
    with pytest.raises(
        Failure, match=r"PERMISSION_DENIED: updates.0.: object .* outside the configuration of role 'qos'"
    ):
        await qos.modify(p4r.Entity(counter_entry={"counter_id": lab.names["port_counter"]}))
    with pytest.raises(Failure, match="PERMISSION_DENIED: role 'qos' may not push a pipeline"):
        await qos.set_config(config())
    await admin.insert(l2(lab, 2))
    table = p4r.Entity(table_entry=p4r.TableEntry(table_id=lab.names["l2"]))
    assert await admin.read(table, role="qos") == [l2(lab, 1)]
    assert len(await admin.read(table)) == 2
    lab.factory.core.happen(PacketIn(b"\0\0frame"))
    assert (await admin.receive()).packet.payload == b"frame"
    bad = lab.client(2, "qos")
    update.role.config.Pack(p4r.Uint128())
    await bad.send(p4r.StreamMessageRequest(arbitration=update))
    with pytest.raises(Failure, match=r"INVALID_ARGUMENT: role.config of type"):
        await bad.receive()


async def test_roles_of_clients_from_before_1_4_have_numbers(lab: Lab) -> None:
    await lab.primary()
    old = lab.client(1)
    update = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id={"low": 1}, role={"id": 5})
    await old.send(p4r.StreamMessageRequest(arbitration=update))
    answer = (await old.receive()).arbitration
    assert (answer.status.code, answer.role.id, answer.role.name) == (0, 5, "")
    request = p4r.WriteRequest(device_id=DEVICE_ID, election_id={"low": 1}, role_id=5)
    request.updates.add(type=p4r.Update.INSERT, entity=l2(lab, 1))
    await old.call("Write", request)
    request.role_id = 6
    with pytest.raises(Failure, match="NOT_FOUND: role 'role_id 6'"):
        await old.call("Write", request)


async def test_addresses_that_cannot_be_served(lab: Lab, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        for address, said in (
            (busy, "Address already in use"),
            (lab.address, "another process serves on it"),
            (f"unix:{tmp_path}/none/s", f"there is no directory {tmp_path}/none"),
            ("nonsense", "must be host:port or unix:PATH"),
        ):
            with pytest.raises(OSError, match="--grpc-server-addr") as caught:
                await P4RuntimeServer(1, 510, FakeTargetFactory()).start(address)
            assert str(caught.value).startswith(f"--grpc-server-addr {address}: ")
            assert said in str(caught.value)
    assert (await lab.client().call("Capabilities", p4r.CapabilitiesRequest())).p4runtime_api_version == "1.4.1"


# --- packets -------------------------------------------------------------------------------------------------------


def packet_out(payload: bytes, *metadata: tuple[int, bytes]) -> p4r.StreamMessageRequest:
    fields = [p4r.PacketMetadata(metadata_id=number, value=value) for number, value in metadata]
    return p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=payload, metadata=fields))


async def test_packets_in_and_out(lab: Lab) -> None:
    client, backup = await lab.primary(), lab.client(0)
    await backup.arbitrate()
    await backup.receive()
    core = lab.factory.core
    await client.send(packet_out(b"frame", (1, b"\x05"), (2, b"\x06"), (3, b"\x00")))
    core.happen(PacketIn(bytes([0b11111111, 0b01010011]) + b"up"))
    packet = (await client.receive()).packet
    assert packet.payload == b"up"
    assert [(m.metadata_id, m.value) for m in packet.metadata] == [(1, b"\x01\xfe"), (2, b"\x05"), (3, b"\x03")]
    async with asyncio.timeout(10):  # nothing answers a packet-out
        while not core.received:
            await asyncio.sleep(0)
    assert core.received == [(510, bytes([0b00000010, 0b11100000]) + b"frame")]
    # The backup neither hears nor speaks.
    await backup.send(packet_out(b"frame", (1, b"\x05"), (2, b"\x06"), (3, b"\x00")))
    error = (await backup.receive()).error
    assert (error.canonical_code, error.packet_out.packet_out.payload) == (7, b"frame")
    assert len(core.received) == 1


@pytest.mark.parametrize(
    ("message", "code", "said", "details"),
    [
        (packet_out(b"x", (1, b"\x05")), 3, "metadata queue (2) is missing", "packet_out"),
        (packet_out(b"x", (1, b"\x05"), (2, b"\x01"), (7, b"\x01")), 3, "metadata_id 7: not in P4Info", "packet_out"),
        (packet_out(b"", (1, b"\x05"), (2, b"\x01")), 3, "payload is empty", "packet_out"),
        (packet_out(bytes(9800), (1, b"\x05"), (2, b"\x01")), 3, "takes no frame of this size", "packet_out"),
        (p4r.StreamMessageRequest(digest_ack={"digest_id": 4}), 3, "digest_id 0x4: no such digest", "digest_list_ack"),
        (p4r.StreamMessageRequest(other={"type_url": "x"}), 12, "no architecture-specific", "other"),
        (p4r.StreamMessageRequest(), 3, "update: must be set", "other"),
    ],
)
async def test_stream_errors(lab: Lab, message: p4r.StreamMessageRequest, code: int, said: str, details: str) -> None:
    client = await lab.primary()
    await client.send(message)
    error = (await client.receive()).error
    assert (error.canonical_code, error.WhichOneof("details")) == (code, details)
    assert said in error.message
    core = lab.factory.core
    core.received.clear()
    await client.send(packet_out(b"frame", (1, b"\x05"), (2, b"\x06")))  # the stream lives on
    core.happen(PacketIn(b"\0\0up"))
    assert (await client.receive()).packet.payload == b"up"


async def test_a_slow_client_loses_packets_not_arbitration(lab: Lab) -> None:
    client = await lab.primary()
    core = lab.factory.core
    for _ in range(OUTBOX_MESSAGES + 50):
        core.happen(PacketIn(b"\0\0frame"))
    lab.server.poll()  # all at once: the sender has had no turn
    assert lab.server.dropped_messages == 50
    rival = lab.client(2)
    await rival.arbitrate()
    for _ in range(OUTBOX_MESSAGES):
        assert (await client.receive()).HasField("packet")
    assert (await client.receive()).arbitration.status.code == 6


async def test_runt_packet_in_is_counted(lab: Lab) -> None:
    await lab.primary()
    lab.factory.core.happen(PacketIn(b"\0"))
    lab.server.poll()
    assert lab.server.service.malformed_packet_ins == 1


# --- digests and idle time-outs ------------------------------------------------------------------------------------


def digest_data(mac: int, port: int) -> DigestData:
    return DigestData(1, mac.to_bytes(6, "big") + port.to_bytes(2, "big"))


async def test_digest_lists(lab: Lab) -> None:
    client = await lab.primary()
    core, digest_id = lab.factory.core, lab.names["learn_t"]
    core.happen(digest_data(1, 1))  # not enabled yet: nobody hears it
    entry = p4r.DigestEntry(digest_id=digest_id)
    entry.config.max_list_size = 2
    entry.config.max_timeout_ns = 20_000_000
    entry.config.ack_timeout_ns = 10**12
    lab.server.poll()
    await client.insert(p4r.Entity(digest_entry=entry))
    for event in (digest_data(2, 300), digest_data(2, 300), digest_data(3, 1)):
        core.happen(event)
    first = (await client.receive()).digest
    wanted = [
        p4d.P4Data(struct={"members": [{"bitstring": m}, {"bitstring": p}]})
        for m, p in ((b"\2", b"\1\x2c"), (b"\3", b"\1"))
    ]
    assert (first.digest_id, list(first.data), first.timestamp > 0) == (digest_id, wanted, True)
    core.happen(digest_data(2, 300))  # not acknowledged: held back
    core.happen(digest_data(4, 1))
    second = (await client.receive()).digest  # after max_timeout
    assert [data.struct.members[0].bitstring for data in second.data] == [b"\4"]
    assert second.list_id != first.list_id
    await client.send(p4r.StreamMessageRequest(digest_ack={"digest_id": digest_id, "list_id": first.list_id}))
    core.happen(PacketIn(b"\0\0sync"))
    assert (await client.receive()).HasField("packet")  # streams are ordered, so the ack has arrived
    core.happen(digest_data(2, 300))
    third = (await client.receive()).digest
    assert [data.struct.members[0].bitstring for data in third.data] == [b"\2"]


async def test_idle_timeouts(lab: Lab) -> None:
    client = await lab.primary()
    entity = l2(lab, 1)
    entity.table_entry.idle_timeout_ns = 30_000_000
    entity.table_entry.metadata = b"m"
    await client.insert(entity)
    lab.factory.core.pipeline.only("IngressImpl.l2").age_us = 10**9
    notice = (await client.receive()).idle_timeout_notification
    wanted = p4r.TableEntry()
    wanted.CopyFrom(entity.table_entry)
    wanted.ClearField("action")
    assert list(notice.table_entry) == [wanted]
    again = (await client.receive()).idle_timeout_notification
    assert again.timestamp - notice.timestamp >= 20_000_000
    await client.delete(entity)
    with pytest.raises(asyncio.TimeoutError):
        await client.receive(0.1)
