"""`dcbctl plan`: headroom and buffers of a config by the calculators of `dcb`, against what the config has. Pure
functions.

Config and options in; budgets, comparisons and a new Config out. `plan_cli` reads, prints and writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from controller.buffer_config import DEFAULT_POOL_BYTES, held_groups, length_m, pools_of
from controller.config import Config, parse, to_data
from dcb.buffers.plan import BufferPlan, PortSpec, Thresholds, plan_buffers
from dcb.headroom import DEFAULTS, Budget, Constants, HeadroomError, delay_headroom, exact_headroom, sonic_headroom
from dcb.headroom.budget import ceil_div
from dcb.headroom.exact import min_quanta
from dcb.headroom.sonic import asic
from dcb.units import format_rate

METHODS = ("exact", "delay", "sonic")
DEFAULT_MTU_BYTES = {"exact": 9216, "delay": 9216, "sonic": 9100}


@dataclass(frozen=True, slots=True)
class Options:
    """How headroom is computed. mtu_bytes: exact: largest frame without FCS; delay: with FCS; sonic: port's MTU."""

    method: str = "exact"
    mtu_bytes: int | None = None
    reverse_mtu_bytes: int | None = None  # exact, delay: largest frame that goes the other way; default mtu_bytes
    min_frame_bytes: int = 64
    response_ps: int = 0  # exact
    cell_bytes: int = 1  # delay
    asic: str = "spectrum-1"  # sonic
    lossless_mtu_bytes: int = 1024
    small_packet_percent: int = 50
    pooled: bool = False  # headroom pool
    dynamic: bool = True
    constants: Constants = DEFAULTS

    @property
    def mtu(self) -> int:
        """The MTU that holds."""
        return DEFAULT_MTU_BYTES[self.method] if self.mtu_bytes is None else self.mtu_bytes


def budget(options: Options, rate_bps: int, length: Fraction) -> Budget:
    """The headroom of one group of a port. Raises HeadroomError."""
    if options.method == "exact":
        return exact_headroom(
            rate_bps,
            length,
            mtu_bytes=options.mtu,
            reverse_mtu_bytes=options.reverse_mtu_bytes,
            min_frame_bytes=max(60, options.min_frame_bytes - 4),
            response_ps=options.response_ps,
            dynamic=options.dynamic,
            constants=options.constants,
        )
    if options.method == "delay":
        return delay_headroom(
            rate_bps,
            length,
            mtu_out_bytes=options.mtu if options.reverse_mtu_bytes is None else options.reverse_mtu_bytes,
            mtu_in_bytes=options.mtu,
            min_frame_bytes=options.min_frame_bytes,
            cell_bytes=options.cell_bytes,
            constants=options.constants,
        )
    if options.method == "sonic":
        return sonic_headroom(
            rate_bps,
            length,
            asic=asic(options.asic),
            mtu_bytes=options.mtu,
            lossless_mtu_bytes=options.lossless_mtu_bytes,
            small_packet_percent=options.small_packet_percent,
            shared_headroom_pool=options.pooled,
            constants=options.constants,
        )
    raise HeadroomError(f"method: {options.method!r}: one of {', '.join(METHODS)} is wanted")


def xon_gap(options: Options, rate_bps: int) -> int:
    """XON below XOFF by what goes out in the resume delay (R18); one frame at least, or every frame would toggle."""
    drained = ceil_div(options.constants.get("resume_delay_ns") * rate_bps / (8 * 10**9))
    return max(drained, options.mtu)


def lossless_groups(config: Config, switch: str, port: int) -> tuple[int, ...]:
    """Priority groups of a port that hold a lossless priority with PFC, those that DCBX is configured with included."""
    settings = config.switches[switch].ports[port]
    qos, dcbx = config.qos_of(settings), config.switches[switch].dcbx_of(port)
    priorities = set(settings.pfc) & set(qos.lossless)
    if dcbx is not None and dcbx.pfc is not None:
        priorities |= set(dcbx.pfc)
    return tuple(sorted({qos.pg_of(priority) for priority in priorities}))


def port_specs(config: Config, switch: str, lengths: Fraction | None = None) -> list[PortSpec]:
    """The ports of a switch as the planner takes them; `lengths` instead of those of the config."""
    of = config.switches[switch]
    return [
        PortSpec(
            str(number),
            port.rate,
            length_m(config, of, number) if lengths is None else lengths,
            lossless_groups(config, switch, number),
        )
        for number, port in sorted(of.ports.items())
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One lossless group: what it needs and what the config gives it."""

    switch: str
    port: int
    name: str
    pg: int
    rate_bps: int
    length_m: Fraction
    profile: str
    needed_bytes: int
    configured_bytes: int
    quanta: int
    needed_quanta: int

    @property
    def enough(self) -> bool:
        """True when nothing can be lost for want of headroom, or of pause time before the refresh."""
        return self.configured_bytes >= self.needed_bytes and self.quanta >= self.needed_quanta

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "switch": self.switch,
            "port": self.port,
            "name": self.name,
            "pg": self.pg,
            "rate_bps": self.rate_bps,
            "length_m": float(self.length_m),
            "profile": self.profile,
            "needed_bytes": self.needed_bytes,
            "configured_bytes": self.configured_bytes,
            "pfc_quanta": self.quanta,
            "needed_quanta": self.needed_quanta,
            "enough": self.enough,
        }


def compare(config: Config, options: Options, margin_bytes: int = 0, lengths: Fraction | None = None) -> list[Row]:
    """Every lossless group of the config. Raises HeadroomError."""
    rows = []
    for name, switch in config.switches.items():
        for spec in port_specs(config, name, lengths):
            number = int(spec.name)
            port = switch.ports[number]
            buffers = config.buffers_of(port)
            for pg in spec.groups:
                held, ref = buffers.get(pg), port.buffers.get(pg)
                kind = replace(options, dynamic=held is None or held.xoff is None)
                rows.append(
                    Row(
                        name,
                        number,
                        port.name or f"{name}:{number}",
                        pg,
                        spec.rate_bps,
                        spec.length_m,
                        ref if isinstance(ref, str) else ("in place" if ref else "-"),
                        budget(kind, spec.rate_bps, spec.length_m).headroom_bytes + margin_bytes,
                        0 if held is None else held.headroom,
                        port.pfc_quanta,
                        min_quanta(options.mtu if options.reverse_mtu_bytes is None else options.reverse_mtu_bytes),
                    )
                )
    return rows


def spent_bytes(config: Config, switch: str) -> int:
    """What the config spends of a switch's buffer now: reserved, headroom, pools. With `buffer`, that."""
    of = config.switches[switch]
    if of.buffer is not None:
        return of.buffer
    held = held_groups(config, of)
    own = sum(group.headroom_bytes for group in held if group.headroom_pool is None)
    pools = {0: DEFAULT_POOL_BYTES} | pools_of(of)
    return own + sum(g.reserved_bytes for g in held) + sum(pools.values()) + sum(of.headroom_pools.values())


def plan_switches(
    config: Config,
    options: Options,
    thresholds: Thresholds,
    *,
    buffer_bytes: int | None = None,
    over_subscription: Fraction | None = None,
    margin_bytes: int = 0,
    lossy_bytes: int | None = None,
    lengths: Fraction | None = None,
) -> dict[str, BufferPlan]:
    """A plan for every switch of the config. Raises PlanError and HeadroomError."""
    return {
        name: plan_buffers(
            port_specs(config, name, lengths),
            lambda port: budget(options, port.rate_bps, port.length_m),
            buffer_bytes=spent_bytes(config, name) if buffer_bytes is None else buffer_bytes,
            thresholds=thresholds,
            over_subscription=over_subscription,
            margin_bytes=margin_bytes,
            lossy_bytes=lossy_bytes,
            xon_gap=lambda port: xon_gap(options, port.rate_bps),
            rate_text=format_rate,
        )
        for name in config.switches
    }


def written(config: Config, plans: Mapping[str, BufferPlan]) -> Config:
    """The config with the plans in it: profiles, pools, headroom pools. Profiles that nothing names any more go."""
    data = to_data(config)
    profiles = data.setdefault("buffer_profiles", {})
    before = _named(data)
    for name, plan in plans.items():
        switch = data["switches"][name]
        switch.pop("pool", None)
        switch["pools"] = dict(plan.pools)
        switch.pop("headroom_pools", None)
        if plan.headroom_pools:
            switch["headroom_pools"] = dict(plan.headroom_pools)
        for group in plan.groups:
            profiles[group.profile] = group.profile_data()
            switch["ports"][int(group.port)].setdefault("buffers", {})[group.pg] = group.profile
    for unused in before - _named(data):
        del profiles[unused]
    return parse(data, "plan")


def _named(data: dict[str, Any]) -> set[str]:
    """Buffer profiles that something refers to."""
    found: set[str] = set()
    for switch in data["switches"].values():
        for settings in (switch, *switch.get("ports", {}).values()):
            found |= {ref for ref in settings.get("buffers", {}).values() if isinstance(ref, str)}
            if name := (settings.get("dcbx") or {}).get("lossless_buffers"):
                found.add(name)
    return found & set(data.get("buffer_profiles", {}))
