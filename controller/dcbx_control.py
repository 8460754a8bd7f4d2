"""What the control socket answers about DCBX: `show`, `mismatch`, `events`; and the edits of `set dcbx ...`.

Requests come from `controller.daemon`, agents from `controller.dcbx_service`. Edits are functions Config -> Config,
as in `controller.edit`: what they make is checked as a file is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from controller.config import Config, ConfigError, parse, to_data
from controller.control import Controller
from controller.dcbx import DcbxAgent
from controller.dcbx_config import ATTRIBUTES
from controller.dcbx_overlay import local_settings
from controller.edit import select
from dcb.dcbx import report, show
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.summary import app_data, ets_data, screen, summary
from dcb.dcbx.tlv import bits

Json = dict[str, Any]
FORMATS = ("table", "lldptool", "dcb")
_LONGEST_WAIT_S = 30.0


class DcbxRequestError(ValueError):
    """A request that cannot be answered as it stands."""


def _ports(controller: Controller, target: str | None) -> Iterator[tuple[DcbxAgent, int]]:
    found = False
    for switch, ports in select(controller.config, target):
        agent = controller.dcbx.agents.get(switch)
        for number in ports:
            if agent is not None and number in agent.names:
                found = True
                yield agent, number
    if not found and target:
        raise DcbxRequestError(f"{target}: no port there speaks DCBX (key dcbx of the config)")


async def answer(controller: Controller, params: Mapping[str, Any]) -> Json:
    """`what`: show, mismatch, or events. Raises DcbxRequestError, SelectionError."""
    target, what = params.get("target"), params.get("what")
    if what == "show":
        return _show(controller, target, str(params.get("format", "table")), bool(params.get("local")))
    if what == "mismatch":
        return _mismatch(controller, target)
    if what == "events":
        return await _events(controller, target, params)
    raise DcbxRequestError(f"what: {what!r}: show, mismatch or events is wanted")


def _show(controller: Controller, target: str | None, style: str, local: bool) -> Json:
    if style not in FORMATS:
        raise DcbxRequestError(f"format: {style!r}: one of {', '.join(FORMATS)} is wanted")
    now_ns = controller.dcbx.clock_ns()
    rows = []
    for agent, number in _ports(controller, target):
        port, view = agent.port(number), _view(controller, agent, number, now_ns)
        if style == "lldptool":
            view["text"] = show.lldptool_local(port) if local else show.lldptool_neighbor(port)
        elif style == "dcb":
            view["text"] = show.dcb_ets_show(port) + show.dcb_pfc_show(port) + show.dcb_app_show(port)
        else:
            title = f"{agent.names[number]} ({agent.name}:{number})"
            view["text"] = screen(view, title, [_role_text(view)])
        rows.append(view)
    sources = {
        name: {"source": agent.switch.election.source, "why": agent.switch.election.why}
        for name, agent in controller.dcbx.agents.items()
        if agent.names
    }
    return {"sources": sources, "ports": rows}


def _role_text(view: Json) -> str:
    source = f"source of {view['switch']}: {view['source'] or 'none'} ({view['source_why']})"
    hold = "; goes on with what the switch held before the controller started" if view["restarting"] else ""
    return f"role {view['role']}: {view['role_why']}; {source}{hold}"


def _view(controller: Controller, agent: DcbxAgent, number: int, now_ns: int) -> Json:
    name, election = agent.names[number], agent.switch.election
    held = controller.running.switches[agent.name].ports[number]
    return {
        "switch": agent.name,
        "port": number,
        "name": name,
        "peer": held.peer,
        "role": agent.switch.role(name).value,
        "role_why": election.ports[name],
        "source": election.source,
        "source_why": election.why,
        "restarting": agent.holding,
        "configured": _configured(agent.local(number)),
        "data_plane": {"pfc": list(held.pfc), "synced": controller.session(agent.name).synced},
        **summary(agent.port(number), now_ns),
    }


def _configured(settings: DcbxSettings) -> Json:
    """Before the role and the source have their say."""
    return {
        "ets": ets_data(settings.ets),
        "pfc": list(bits(settings.pfc_enable)),
        "app": app_data(settings.app),
        "willing": [
            name
            for name, willing in zip(
                ATTRIBUTES, (settings.ets_willing, settings.pfc_willing, settings.app_accept), strict=True
            )
            if willing
        ],
    }


def _mismatch(controller: Controller, target: str | None) -> Json:
    links = []
    for agent, number in _ports(controller, target):
        found = report.link_report(agent.port(number))
        there = found.there
        links.append(
            {
                "switch": agent.name,
                "port": number,
                "name": agent.names[number],
                "peer": controller.config.switches[agent.name].ports[number].peer,
                "agrees": found.agrees,
                "here": {"sends": found.here.sends, "accepts": found.here.accepts, "runs": found.here.runs},
                "there": None
                if there is None
                else {"sends": there.sends, "accepts": there.accepts, "runs": there.runs},
                "findings": [
                    {
                        "severity": one.severity.value,
                        "attribute": one.attribute,
                        "here": one.here,
                        "there": one.there,
                        "advice": one.advice,
                        "text": one.text,
                    }
                    for one in found.findings
                ],
                "text": found.text,
            }
        )
    return {"links": links}


async def _events(controller: Controller, target: str | None, params: Mapping[str, Any]) -> Json:
    """What was logged since `seen` (switch -> number); waits `wait_s` for something where there is nothing."""
    given = params.get("seen")
    seen = {str(k): int(v) for k, v in given.items()} if isinstance(given, dict) else {}
    wait_s = min(float(params.get("wait_s", 0)), _LONGEST_WAIT_S)
    chosen = {switch: set(ports) for switch, ports in select(controller.config, target)}
    service = controller.dcbx
    if wait_s > 0:
        await service.wait_news(seen, wait_s)
    offset_ns = time.time_ns() - service.clock_ns()
    events: list[Json] = []
    for name, agent in service.agents.items():
        names = {agent.names[number] for number in chosen.get(name, ()) if number in agent.names}
        for line in agent.log:
            if line.number > seen.get(name, 0) and name in chosen and (line.port in names or not line.port):
                at_s = (line.time_ns + offset_ns) / 1e9
                events.append({"time": at_s, "switch": name, "port": line.port, "kind": line.kind, "text": line.text})
    events.sort(key=lambda event: event["time"])
    return {"events": events, "seen": {name: agent.logged for name, agent in service.agents.items()}}


# ---- set ------------------------------------------------------------------------------------------------------------


def edit(config: Config, params: Mapping[str, Any]) -> Config:
    """`set dcbx KEY TARGET VALUE [map]`. Raises ConfigError, SelectionError."""
    target, key, value = str(params.get("target")), str(params.get("key")), str(params.get("value"))
    parsers = {"ets": None, "pfc": _pfc, "app": _app, "willing": _willing, "enabled": _on_off}
    plain = ("role", "mode", "tie_break", "app_dialect", "lossless_buffers")
    if key not in parsers and key not in plain:
        raise ConfigError("set dcbx", [f"key: {key!r}: one of {', '.join((*parsers, *plain))} is wanted"])
    data = to_data(config)
    for switch, ports in select(config, target):
        for number in ports:
            if config.switches[switch].dcbx_of(number) is None and key != "enabled":
                continue
            dcbx = data["switches"][switch]["ports"][number].setdefault("dcbx", {})
            if value == "default":
                dcbx.pop(key, None)
            elif key == "ets":
                dcbx["ets"] = _ets(config, switch, number, value, params.get("map"))
            elif key in plain:
                dcbx[key] = value
            else:
                parser = parsers[key]
                assert parser is not None
                dcbx[key] = parser(value)
    new = parse(data, f"set dcbx {target}")
    if (
        key != "enabled"
        and new == config
        and not any(
            config.switches[switch].dcbx_of(number) is not None
            for switch, ports in select(config, target)
            for number in ports
        )
    ):
        raise ConfigError("set dcbx", [f"target: {target!r}: no port there speaks DCBX (set enabled on first)"])
    return new


def _pairs(key: str, text: str) -> Iterator[tuple[int, str]]:
    for item in text.split(","):
        left, equals, right = item.partition("=")
        if not equals or not left.strip().isdigit():
            raise ConfigError("set dcbx", [f"{key}: {item!r}: NUMBER=VALUE is wanted"])
        yield int(left), right.strip()


def _ets(config: Config, switch: str, port: int, spec: str, mapping: object) -> Json:
    """`0=40,1=60,2=strict`, and `3=1,6=2` for priorities; priorities not named keep their traffic class."""
    now = local_settings(config, switch, port).ets
    to_tc = dict(enumerate(now.priority_tc))
    if mapping:
        for priority, text in _pairs("map", str(mapping)):
            if priority > 7 or not text.isdigit():
                raise ConfigError("set dcbx", [f"map: {priority}={text}: PRIORITY=CLASS, each 0..7, is wanted"])
            to_tc[priority] = int(text)
    bandwidth, strict = {}, []
    for tc, value in _pairs("ets", spec):
        if value == "strict":
            strict.append(tc)
        elif value.isdigit():
            bandwidth[tc] = int(value)
        else:
            raise ConfigError("set dcbx", [f"ets: {tc}={value}: per cent 0..100 or strict is wanted"])
    return {"priority_to_tc": to_tc, "bandwidth": bandwidth, "strict": strict}


def _pfc(text: str) -> list[int]:
    if text == "none":
        return []
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ConfigError("set dcbx", [f"pfc: {text!r}: priorities such as 3,4, or none"]) from None


def _app(text: str) -> list[Json]:
    """`udp:4791=3,dscp:26=3,ethertype:0x8906=3,port:3260=4,default=0`."""
    entries: list[Json] = []
    for item in [] if text == "none" else text.split(","):
        left, equals, priority = item.partition("=")
        kind, colon, number = left.partition(":")
        kind = {"ethertype": "ether_type"}.get(kind, kind)
        known = not colon if kind == "default" else kind in ("ether_type", "tcp", "udp", "port", "dscp")
        try:
            if not equals or not known:
                raise ValueError
            entries.append({kind: True if kind == "default" else int(number, 0), "priority": int(priority)})
        except ValueError:
            wanted = "udp:PORT=PRIO, tcp:, port:, dscp:, ethertype:, default=PRIO, or none"
            raise ConfigError("set dcbx", [f"app: {item!r}: {wanted}"]) from None
    return entries


def _willing(text: str) -> list[str]:
    return [] if text == "none" else list(ATTRIBUTES) if text == "all" else text.split(",")


def _on_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise ConfigError("set dcbx", [f"enabled: {text!r}: on or off is wanted"])
    return text == "on"
