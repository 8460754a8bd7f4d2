"""Chaos (requirement R24) as data: the steps by name, and a plan of actions drawn from a seed or read from a file.

    plan(topology, ["nic-storm", "link-flap"], seed=7) -> [Action(...), Action(...)]

Pure. An `Action` says what is done to which host, link or switch, and for how long; times are of virtual labs at 100
Gb/s, `Action.real` makes those of a lab in real time. The same seed gives the same plan on every machine; a step's draw
depends on its place and name alone, so a plan that is cut short, or lengthened, begins alike. Who carries plans out:
`topologies.scenarios.chaos` (virtual time), `topologies.chaos_lab` (Mininet).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from topologies.description import Topology


class ChaosError(ValueError):
    """A step or a plan that is not right; names the step, the field and the rule."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a name stands for. `lossless`: nothing lossless may be lost meanwhile; `real`: also on Mininet."""

    name: str
    summary: str
    target: str  # host, link, switch, or nothing
    lossless: bool
    real: bool = False


STEPS: Mapping[str, Step] = {
    step.name: step
    for step in (
        Step("nic-storm", "a host's NIC pauses priority 3 without end", "host", lossless=False, real=True),
        Step("link-flap", "a link between switches goes down and up, several times", "link", False, real=True),
        Step("link-jitter", "frames on a link are late by a random time, within the headroom", "link", True),
        Step("pfc-loss", "a link loses PFC frames", "link", lossless=False),
        Step("slow-pfc-response", "a link's ends take long to obey PFC, within the headroom", "link", True),
        Step("controller-restart", "the controller is killed, and started again later", "", lossless=True, real=True),
        Step("switch-restart", "a switch is killed, and started again later, empty", "switch", False, real=True),
    )
}


@dataclass(frozen=True, slots=True)
class Action:
    """One step with everything drawn. What a step does not use is 0 or empty."""

    step: str
    target: tuple[str, ...] = ()  # one node, or the two ends of a link (the first one's direction, where it is one)
    duration_us: int = 1000
    times: int = 1  # flaps
    jitter_ns: int = 0
    loss_percent: int = 0  # of PFC frames
    response_us: int = 0
    interval_us: int = 50  # between XOFF frames of a storm

    def __str__(self) -> str:
        where = "-".join(self.target)
        details = {
            "nic-storm": f"XOFF each {self.interval_us} us",
            "link-flap": f"{self.times} times",
            "link-jitter": f"up to {self.jitter_ns} ns",
            "pfc-loss": f"{self.loss_percent}%",
            "slow-pfc-response": f"{self.response_us} us",
        }.get(self.step, "")
        return " ".join(part for part in (self.step, where, details, f"for {self.duration_us} us") if part)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"target": list(self.target)}


def names(text: str) -> list[str]:
    """The steps of `a,b,c`; nothing: all of them. ChaosError naming the one that there is not."""
    chosen = [name.strip() for name in text.split(",") if name.strip()] or list(STEPS)
    for name in chosen:
        if name not in STEPS:
            raise ChaosError(f"steps: {name!r}: not one of {', '.join(STEPS)}")
    return chosen


def plan(topology: Topology, steps: Sequence[str], seed: int, *, response_us: int = 9) -> list[Action]:
    """Actions for these steps. response_us: the longest response that slow-pfc-response draws."""
    return [_draw(topology, name, random.Random(f"{seed}/{n}/{name}"), response_us) for n, name in enumerate(steps)]


def _draw(topology: Topology, name: str, generator: random.Random, response_us: int) -> Action:
    step = STEPS[name]
    uplinks = sorted((link.a.node, link.b.node) for link in topology.links if link.a.port)
    target: tuple[str, ...] = ()
    if step.target == "host":
        target = (generator.choice([host.name for host in topology.hosts]),)
    elif step.target == "switch":
        target = (generator.choice([switch.name for switch in topology.switches]),)
    elif step.target == "link":
        ends = generator.choice(uplinks)
        target = ends if generator.randrange(2) else ends[::-1]
    duration_us = generator.randrange(5, 16) * 100
    return Action(
        step=name,
        target=target,
        duration_us=duration_us,
        times=generator.randrange(2, 5) if name == "link-flap" else 1,
        jitter_ns=generator.randrange(500, 2001) if name == "link-jitter" else 0,
        loss_percent=generator.randrange(10, 51) if name == "pfc-loss" else 0,
        response_us=generator.randrange(min(5, response_us), response_us + 1) if name == "slow-pfc-response" else 0,
        interval_us=generator.randrange(20, 81) if name == "nic-storm" else 50,
    )


def from_data(topology: Topology, data: object) -> list[Action]:
    """A plan from a file: a list of mappings with the fields of `Action`. ChaosError naming entry, field and rule."""
    if not isinstance(data, list) or not data:
        raise ChaosError("plan: a list of actions is wanted")
    return [_action(topology, n, entry) for n, entry in enumerate(data)]


def _action(topology: Topology, n: int, entry: object) -> Action:
    known = {field.name for field in fields(Action)}
    if not isinstance(entry, Mapping) or "step" not in entry:
        raise ChaosError(f"plan[{n}]: {entry!r}: a mapping with the key step is wanted")
    if unknown := sorted(set(entry) - known):
        raise ChaosError(f"plan[{n}].{unknown[0]}: not one of {', '.join(sorted(known))}")
    step = STEPS.get(str(entry["step"]))
    if step is None:
        raise ChaosError(f"plan[{n}].step: {entry['step']!r}: not one of {', '.join(STEPS)}")
    target = entry.get("target", [])
    target = tuple(target) if isinstance(target, list | tuple) else (str(target),)
    nodes: dict[str, list[tuple[str, ...]]] = {
        "host": [(host.name,) for host in topology.hosts],
        "switch": [(switch.name,) for switch in topology.switches],
        "link": [ends for k in topology.links for ends in ((k.a.node, k.b.node), (k.b.node, k.a.node))],
        "": [()],
    }
    if target not in nodes[step.target]:
        raise ChaosError(
            f"plan[{n}].target: {list(target)}: {step.name} wants a {step.target or 'target of none'} of the lab"
        )
    numbers = {key: value for key, value in entry.items() if key not in ("step", "target")}
    for key, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ChaosError(f"plan[{n}].{key}: {value!r}: a whole number, 0 or more, is wanted")
    if numbers.get("loss_percent", 0) > 100:
        raise ChaosError(f"plan[{n}].loss_percent: {numbers['loss_percent']}: at most 100 is wanted")
    for key in ("duration_us", "times", "interval_us"):
        if numbers.get(key, 1) < 1:
            raise ChaosError(f"plan[{n}].{key}: {numbers[key]}: at least 1 is wanted")
    return Action(step=step.name, target=target, **numbers)
