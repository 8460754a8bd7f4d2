"""`dcbctl set buffer`, `set pool`, `show buffer`, `show thresholds` and `clear watermarks` on a fake switch."""

from __future__ import annotations

from pathlib import Path

import pytest
from controller_fakes import CONFIG, FakeSwitch
from finsy.proto import p4r
from test_dcbctl import TIMEOUT, dcbctl, fabric, lab, lines, program, put_register  # noqa: F401

from controller import Controller, P4Program
from controller.buffer_edit import set_buffer, set_pool
from controller.config import ConfigError, load, parse_text


def cells(switch: FakeSwitch, program: P4Program, name: str) -> list[int]:  # noqa: F811
    """Indexes of a register's cells that were written."""
    number = program.register(name).id
    written = [u.entity.register_entry for u in switch.updates() if u.entity.WhichOneof("entity") == "register_entry"]
    return sorted(entry.index.index for entry in written if entry.register_id == number)


def test_keys_of_a_group_change_and_the_others_stay() -> None:
    config = parse_text(CONFIG)
    new = set_buffer(config, "leaf1:1", 3, {"headroom": "90000", "pool": "2"})
    profile = new.buffers_of(new.switches["leaf1"].ports[1])[3]
    assert (profile.reserved, profile.xoff, profile.xon, profile.headroom, profile.pool) == (
        3000,
        60000,
        40000,
        90000,
        2,
    )
    dynamic = set_buffer(new, "leaf1:1", 3, {"alpha": "1/4"})
    profile = dynamic.buffers_of(dynamic.switches["leaf1"].ports[1])[3]
    assert (profile.alpha, profile.xoff, profile.xon, profile.headroom) == (-2, None, None, 90000)
    back = set_buffer(dynamic, "leaf1:1", 3, {"profile": "lossless"})
    assert back.switches["leaf1"].ports == config.switches["leaf1"].ports
    assert set_buffer(config, "leaf1", 3, {"off": ""}).switches["leaf1"].ports[1].buffers == {}
    assert set_buffer(new, "leaf1:2", 5, {"alpha": "-1"}).switches["leaf1"].ports[2].buffers[5]
    pools = set_pool(set_pool(config, "leaf1", 0, 7000), "leaf1", 2, 100, headroom=True)
    assert (pools.switches["leaf1"].pools, pools.switches["leaf1"].headroom_pools) == ({0: 7000}, {2: 100})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"size": "1"}, "size: '1': unknown key"),
        ({"xoff": "many"}, "xoff: 'many': a number is wanted"),
        ({"xoff": "1000"}, "xon 40000 must be below xoff 1000"),
        ({"profile": "no"}, "not in buffer_profiles"),
        ({"alpha": "1/3"}, "an exponent -8..7"),
    ],
)
def test_what_is_refused(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        set_buffer(parse_text(CONFIG), "leaf1:1", 3, values)
    assert problem in str(error.value)


async def test_set_live_and_save(fabric: tuple[Controller, FakeSwitch], lab: Path) -> None:  # noqa: F811
    _, switch = fabric
    code, out, _ = await dcbctl("set", "buffer", "leaf1:1", "3", "headroom=90000", "--save")
    assert (code, out) == (0, "leaf1: 1 updates\n")
    (update,) = switch.updates()
    assert update.type == p4r.Update.MODIFY
    config = load(lab)
    assert config.buffers_of(config.switches["leaf1"].ports[1])[3].headroom == 90000
    code, out, _ = await dcbctl("set", "pool", "leaf1", "0", "8MiB")
    assert (code, out) == (0, "leaf1: 1 updates\n")
    code, _, error = await dcbctl("set", "buffer", "leaf1:1", "3", "xoff=1")
    assert code == 2
    assert "xon 40000 must be below xoff 1" in error
    assert (await dcbctl("set", "buffer", "leaf1:1", "3", "off", "xoff=1"))[0] == 2


async def test_pools_are_shown_and_their_watermarks_cleared(
    fabric: tuple[Controller, FakeSwitch],  # noqa: F811
    program: P4Program,  # noqa: F811
) -> None:
    controller, switch = fabric
    await controller.apply(set_pool(controller.config, "leaf1", 0, 9000))
    await controller.wait_synced(TIMEOUT)
    put_register(switch, program, "egress.tm_pool_used", 0, 57001)
    put_register(switch, program, "egress.tm_pool_used", 3, 12)  # of pool 3, which the config does not name
    _, out, _ = await dcbctl("show", "buffer", "leaf1")
    rows = [row for row in lines(out) if row[:2] == ["leaf1", "shared"]]
    assert [(row[2], row[3], row[-1]) for row in rows] == [("0", "57,001", "9,000"), ("3", "12", "default")]
    _, out, _ = await dcbctl("show", "thresholds")
    assert "no group has a policy" in out
    switch.writes.clear()
    assert (await dcbctl("clear", "watermarks", "leaf1:1"))[0] == 0
    assert cells(switch, program, "egress.tm_pg_watermark") == list(range(8, 16))
    if "egress.tm_pool_watermark" in program.registers:
        assert cells(switch, program, "egress.tm_pool_watermark") == []
        assert (await dcbctl("clear", "watermarks", "leaf1"))[0] == 0
        assert cells(switch, program, "egress.tm_pool_watermark") == list(range(8))
        assert cells(switch, program, "egress.tm_headroom_pool_watermark") == list(range(8))
