"""What a switch says by itself, over the virtual channel, at its exact time: digest lists, idle time-outs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bare_world import BareWorld
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format

from fabric.channel import VirtualClient
from fabric.control import ControlPlane, VirtualSwitch
from fabric.loop import VirtualLoop, run

DATA = Path(__file__).parents[1] / "unit" / "p4rt_data"
P4INFO = text_format.Parse((DATA / "everything.p4info.txtpb").read_text(), p4i.P4Info())
IDS = {
    item.preamble.alias: item.preamble.id
    for kind in ("tables", "actions", "digests")
    for item in getattr(P4INFO, kind)
}  # fmt: skip
US, MS = 1_000_000, 1_000_000_000
ONE_WAY, RTT = 100 * US, 200 * US
FRAME = bytes.fromhex("000000000002020000000009") + b"\x12\x34" + bytes(46)


async def primary(loop: VirtualLoop, switch: VirtualSwitch) -> VirtualClient:
    def complete(message: Any) -> None:
        message.device_id = 1
        if hasattr(message, "election_id"):
            message.election_id.CopyFrom(U128.encode(1))

    client = VirtualClient(switch, "virtual:s1")
    await client.open(complete_request=complete)
    bid = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
    await client.send(p4r.StreamMessageRequest(arbitration=bid))
    await client.receive()
    assert loop.now_ps == 2 * RTT
    config = p4r.ForwardingPipelineConfig(p4info=P4INFO, p4_device_config=(DATA / "everything.json").read_bytes())
    action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
    await client.push_pipeline(p4r.SetForwardingPipelineConfigRequest(action=action, config=config), 300)
    read = await client.request(p4r.GetForwardingPipelineConfigRequest())
    assert read.config == config
    assert loop.now_ps == 4 * RTT
    return client


async def insert(client: VirtualClient, text: str) -> None:
    entity = text_format.Parse(text, p4r.Entity())
    await client.request(p4r.WriteRequest(updates=[p4r.Update(type=p4r.Update.INSERT, entity=entity)]))


def test_digests_and_idle_timeouts_come_when_they_are_due() -> None:
    world = BareWorld()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        plane = ControlPlane(loop, world)
        client = await primary(loop, plane.add("s1", 1, [1, 2, 3]))

        await insert(
            client,
            f"digest_entry {{ digest_id: {IDS['learn_t']} config {{ max_timeout_ns: 2000000 max_list_size: 9 }} }}",
        )
        came_ps = loop.now_ps + 7 * US
        world.inject(came_ps, ("s1", 1), FRAME)
        digest = (await client.receive()).digest
        assert [[m.bitstring for m in d.struct.members] for d in digest.data] == [[FRAME[6:12].lstrip(b"\0"), b"\x01"]]
        assert loop.now_ps == came_ps + 2 * MS + ONE_WAY
        assert digest.timestamp == (came_ps + 2 * MS) // 1000

        asked_ps = loop.now_ps
        await insert(
            client,
            f'table_entry {{ table_id: {IDS["l2"]} match {{ field_id: 1 exact {{ value: "\\x05" }} }} '
            f"action {{ action {{ action_id: {IDS['drop']} }} }} idle_timeout_ns: 50000000 }}",
        )
        idle = (await client.receive()).idle_timeout_notification
        assert [bytes(entry.match[0].exact.value) for entry in idle.table_entry] == [b"\x05"]
        assert loop.now_ps == asked_ps + ONE_WAY + 50 * MS + ONE_WAY
        await client.close()
        plane.close()

    run(world, main())
