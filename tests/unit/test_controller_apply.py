"""`Controller.apply` beside what goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from controller_fakes import CONFIG

import controller.control
from controller import Controller
from controller.config import Config, parse_text, to_data


class SlowToClose:
    """A client that never connects; closing it takes a while, in which `meanwhile` happens."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    async def open(self, **_: Any) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._meanwhile()
        await asyncio.sleep(0)


def two_switches() -> tuple[Config, Config]:
    """leaf1 and leaf2; leaf1 alone."""
    one = parse_text(CONFIG)
    data = to_data(one)
    data["switches"]["leaf2"] = data["switches"]["leaf1"] | {"device_id": 2, "address": "unix:OTHER"}
    return Config.model_validate(data), one


async def test_what_dcbx_learns_while_a_switch_is_let_go_is_kept(monkeypatch: Any) -> None:
    """apply() waits until the session of a switch that leaves has ended. What DCBX agrees on in that time holds."""
    both, one = two_switches()
    agreed = False
    made: list[Controller] = []

    def overlay(config: Config, _: object) -> Config:
        data = to_data(config)
        if agreed:
            data["switches"]["leaf1"]["ports"][2]["pfc"] = [3]
        return Config.model_validate(data)

    def meanwhile() -> None:
        nonlocal agreed
        if not agreed:
            agreed = True
            made[0]._refresh("leaf1")

    monkeypatch.setattr(controller.control, "overlay", overlay)
    async with Controller(both, client=lambda _name, _address: SlowToClose(meanwhile)) as running:  # type: ignore[return-value]
        made.append(running)
        await asyncio.sleep(0)
        await running.apply(one)
        assert agreed
        assert running.config == one
        assert running.running.switches["leaf1"].ports[2].pfc == [3]
        assert running.session("leaf1")._desired == tuple(running._entities["leaf1"])
        assert running._entities["leaf1"] == running._build(running.running)["leaf1"]
