"""Threshold policies of a controller: one task per switch samples its groups, asks their policies, and writes new
XOFFs.

Samples come by P4Runtime reads in the policy's rhythm; what a policy decides becomes the desired entry of the group at
once (`laid_over`), so that a reconnect or a re-sync writes the threshold in force and not the baseline. The arithmetic,
and the bounds that keep headroom safe whatever a predictor says, are in `dcb.thresholds`. The clock is the event
loop's.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from finsy import GRPCStatusCode, P4ClientError

from controller import state
from controller.buffer_config import DEFAULT_POOL_BYTES, BufferProfile, held_groups, length_m, pools_of
from controller.config import Config, ConfigError
from controller.entries import Action, Entity, TableEntry, match
from controller.program import P4Program
from controller.switches import NotConnectedError, SwitchSession, describe
from controller.thresholds_config import ThresholdPolicy
from dcb.headroom.exact import link_ps, window_ps
from dcb.thresholds import Bounds, PlannedGroup, PredictivePolicy, Sample, Setting, plan_bounds, predictor

LOGGER = logging.getLogger("dcblab.controller")
GROUP_TABLE = "egress.tm_priority_group"
_PS_PER_US, _PS_PER_MS = 10**6, 10**9
_MTU_BYTES = 9216  # of the frame that a pause may have to wait for
_REGISTERS = ("egress.tm_pg_depth", "egress.tm_pg_watermark", "egress.tm_xoff_ns", "egress.tm_xoff_count")
_RX = "ingress.rx"

Pair = tuple[int, int]  # port, priority group


def check(config: Config) -> None:
    """Raises ConfigError where a profile wants a predictor that is not installed."""
    if importlib.util.find_spec("torch") is None:
        wanting = [
            f"buffer_profiles.{name}.threshold_policy.predictor: lstm: PyTorch is not installed: "
            "pip install dcblab[lstm]"
            for name, profile in config.buffer_profiles.items()
            if profile.threshold_policy is not None and profile.threshold_policy.predictor == "lstm"
        ]
        if wanting:
            raise ConfigError("config", wanting)


@dataclass
class Watched:
    """A group with a policy: what it is configured with, and what was last seen of it."""

    port: int
    pg: int
    profile: BufferProfile
    policy_config: ThresholdPolicy
    bounds: Bounds
    priorities: tuple[int, ...]
    rtt_ps: int  # computed, where no pause was measured
    policy: PredictivePolicy
    rx_bytes: int | None = None
    watermark: int = 0
    xoff: tuple[int, int] = (0, 0)  # ns in XOFF, transitions
    written: int = 0  # changes of the setting

    @property
    def same_as(self) -> tuple[Any, ...]:
        """Equal where a new config changes nothing of the policy."""
        return self.profile, self.policy_config, self.bounds, self.priorities, self.rtt_ps

    def laid_over(self, entry: TableEntry) -> TableEntry:
        """The group's entry with the thresholds in force."""
        assert isinstance(entry.action, Action)
        now = self.policy.setting
        changed = {"xoff": now.xoff_bytes, "xon": now.xon_bytes, "headroom": now.headroom_bytes}
        return TableEntry(
            entry.table,
            entry.match,
            Action.of(entry.action.name, **(dict(entry.action.params) | changed)),
            entry.priority,
        )


def watched_groups(config: Config, switch: str) -> dict[Pair, Watched]:
    """The groups of a switch that have a policy, with the planner's bounds; policies at their baselines."""
    of = config.switches[switch]
    pools = {0: DEFAULT_POOL_BYTES} | pools_of(of)
    by_pool: dict[int, dict[object, PlannedGroup]] = {}
    profiles: dict[Pair, BufferProfile] = {}
    held = {group.name: group for group in held_groups(config, of)}
    for number, port in of.ports.items():
        for pg, profile in config.buffers_of(port).items():
            policy = profile.threshold_policy
            if profile.xoff is None or f"{port.name or number} pg {pg}" not in held:
                continue
            by_pool.setdefault(profile.pool, {})[number, pg] = PlannedGroup(
                profile.xoff,
                profile.xon or 0,
                profile.reserved,
                profile.headroom,
                policy is not None,
                None if policy is None else policy.min_xoff,
                None if policy is None else policy.max_xoff,
            )
            if policy is not None:
                profiles[number, pg] = profile
    found: dict[Pair, Watched] = {}
    for pool, groups in by_pool.items():
        for key, bounds in plan_bounds(groups, pools.get(pool, 0)).items():
            assert isinstance(key, tuple)
            number, pg = key
            profile = profiles[number, pg]
            port, chosen = of.ports[number], profile.threshold_policy
            assert chosen is not None
            qos = config.qos_of(port)
            found[number, pg] = Watched(
                number,
                pg,
                profile,
                chosen,
                bounds,
                tuple(priority for priority in range(8) if qos.pg_of(priority) == pg),
                window_ps(port.rate, link_ps(length_m(config, of, number)), reverse_mtu_bytes=_MTU_BYTES),
                PredictivePolicy(
                    bounds,
                    profile.xoff or 0,
                    predictor(chosen.predictor),
                    factor=Fraction(str(chosen.factor)),
                    horizon_ps=int(Fraction(str(chosen.horizon_ms)) * _PS_PER_MS),
                    interval_ps=int(Fraction(str(chosen.interval_ms)) * _PS_PER_MS),
                ),
            )
    return found


class ThresholdService:
    """The policies of a controller. `session(switch)` is the controller's, and may raise NotConnectedError."""

    def __init__(self, program: P4Program, session: Callable[[str], SwitchSession]) -> None:
        self.groups: dict[str, dict[Pair, Watched]] = {}
        self.faults: dict[str, str] = {}
        self._program = program
        self._session = session
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running = False

    def configure(self, running: Config) -> None:
        """Take the running config. A group whose policy stays the same keeps its state."""
        for name in list(self.groups):
            if name not in running.switches:
                del self.groups[name]
        for name in running.switches:
            before = self.groups.get(name, {})
            new = watched_groups(running, name)
            for key, group in new.items():
                if key in before and before[key].same_as == group.same_as:
                    new[key] = before[key]
            self.groups[name] = new
        if self._running:
            self._start_tasks()

    def laid_over(self, switch: str, entities: Iterable[Entity]) -> list[Entity]:
        """Desired entries of a switch with the thresholds in force in them."""
        groups = self.groups.get(switch, {})
        result = []
        for entity in entities:
            if groups and isinstance(entity, TableEntry) and entity.table == GROUP_TABLE:
                key = dict(entity.match)
                group = groups.get((_int(key["port"]), _int(key["pg"])))
                entity = entity if group is None else group.laid_over(entity)
            result.append(entity)
        return result

    # ---- the tasks ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a task for each switch that has policies."""
        self._running = True
        self._start_tasks()

    def _start_tasks(self) -> None:
        for name, task in list(self._tasks.items()):
            if not self.groups.get(name):
                task.cancel()
                del self._tasks[name]
        for name, groups in self.groups.items():
            if groups and (name not in self._tasks or self._tasks[name].done()):
                self._tasks[name] = asyncio.create_task(self._run(name), name=f"thresholds {name}")

    async def stop(self) -> None:
        """End the tasks. What the switches hold stays."""
        self._running = False
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _run(self, switch: str) -> None:
        loop = asyncio.get_running_loop()
        due: dict[Pair, float] = {}
        while True:
            now = loop.time()
            groups = self.groups.get(switch, {})
            ready = [group for key, group in groups.items() if due.get(key, now) <= now]
            try:
                await self.step(switch, ready, int(now * 10**6) * _PS_PER_US)
                self.faults.pop(switch, None)
            except (NotConnectedError, P4ClientError, OSError) as error:
                self._failed(switch, error)
            except Exception as error:  # a fault in one switch's policies must not end them
                LOGGER.exception("%s: threshold policies failed", switch)
                self._failed(switch, error)
            for group in ready:
                interval_s = group.policy_config.interval_ms / 1000
                last = due.get((group.port, group.pg), now)
                due[group.port, group.pg] = max(last + interval_s, now)  # a late one does not shift those that follow
            waits = [due.get(key, now) for key in groups]
            await asyncio.sleep(max(0.001, min(waits, default=now + 1) - loop.time()))

    def _failed(self, switch: str, error: BaseException) -> None:
        text = describe(error)
        if isinstance(error, P4ClientError) and error.code is GRPCStatusCode.UNIMPLEMENTED:
            text = "the switch serves no registers: thresholds stay"
        if self.faults.get(switch) != text and not isinstance(error, NotConnectedError):
            LOGGER.warning("%s: threshold policies: %s", switch, text)
        self.faults[switch] = text

    async def step(self, switch: str, groups: Sequence[Watched], now_ps: int) -> None:
        """Sample some groups, decide, write. Raises NotConnectedError, P4ClientError."""
        if not groups:
            return
        session = self._session(switch)
        if not session.synced:
            raise NotConnectedError(f"switch {switch}: not synced")
        ports = sorted({group.port for group in groups})
        known = [name for name in _REGISTERS if name in self._program.registers]
        registers = await state.read_registers(session.read, self._program, known, ports)
        counters = await state.read_counters(session.read, self._program, [_RX], ports)
        changed: list[Watched] = []
        for group in groups:
            before = group.policy.setting
            after = group.policy.sample(self._sample(group, registers, counters[_RX], now_ps))
            if _values(before) != _values(after):
                changed.append(group)
                LOGGER.debug("%s:%d pg %d: xoff %d: %s", switch, group.port, group.pg, after.xoff_bytes, after.reason)
        if changed:
            await session.modify([group_entry(group) for group in changed])
            for group in changed:
                group.written += 1

    @staticmethod
    def _sample(
        group: Watched,
        registers: dict[str, dict[state.Cell, int]],
        rx: dict[state.Cell, state.CounterValue],
        now_ps: int,
    ) -> Sample:
        cell = (group.port, group.pg)

        def value(name: str) -> int:
            return registers.get(name, {}).get(cell, 0)

        received = sum(rx[group.port, n].bytes for n in group.priorities if (group.port, n) in rx)
        arrived = max(0, received - group.rx_bytes) if group.rx_bytes is not None else 0
        group.rx_bytes = received
        # a watermark is others' to clear: it says something of this interval only where it has risen
        watermark = value("egress.tm_pg_watermark")
        peak = watermark if watermark > group.watermark else None
        group.watermark = watermark
        xoff = value("egress.tm_xoff_ns"), value("egress.tm_xoff_count")
        paused_ns, pauses = xoff[0] - group.xoff[0], xoff[1] - group.xoff[1]
        group.xoff = xoff
        rtt_ps = paused_ns * 1000 // pauses if pauses > 0 and paused_ns > 0 else group.rtt_ps
        return Sample(now_ps, value("egress.tm_pg_depth"), arrived, peak, rtt_ps)


def group_entry(group: Watched) -> TableEntry:
    """The `tm_priority_group` entry of a group with the thresholds in force."""
    priorities = sum(1 << priority for priority in group.priorities)
    plain = Action.of(
        "egress.tm_pg_static", reserved=group.profile.reserved, xoff=0, xon=0, headroom=0, priorities=priorities
    )
    return group.laid_over(TableEntry(GROUP_TABLE, match({"port": group.port, "pg": group.pg}), plain))


def _values(setting: Setting) -> tuple[int, int, int]:
    return setting.xoff_bytes, setting.xon_bytes, setting.headroom_bytes


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
