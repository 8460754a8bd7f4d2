"""Buffer planning: what a switch has to set aside for its ports, and whether its buffer carries it. Sans-IO, exact.

The buffer of our switch has three parts (docs/contract.md, 3 and 4), all in bytes of frames without FCS:

    reserved of every group + headroom (each group's own, or pools that groups share) + shared pools <= buffer

Headroom has to be there when a group is XOFF; it is never counted on twice, unless an over-subscription is asked for,
and then it is said. Static thresholds have to fit their pool all at once: a group that finds the pool empty is XOFF
before it has reached its threshold. Lossless groups have a pool of their own, so that lossy traffic cannot do that to
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dcb.buffers.alpha import ALPHA_MAX, ALPHA_MIN, threshold
from dcb.headroom.budget import Budget, ceil_div
from dcb.headroom.constants import HeadroomError, at_least, fraction

LOSSY_POOL, LOSSLESS_POOL, HEADROOM_POOL = 0, 1, 0


class PlanError(ValueError):
    """The buffer cannot carry the plan, or a value is wrong; the message has the numbers, one line for each reason."""


@dataclass(frozen=True, slots=True)
class PortSpec:
    """A port: rate, cable length in metres, and its lossless priority groups (0..7)."""

    name: str
    rate_bps: int
    length_m: Fraction
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How lossless groups are told to stop. Either xoff_bytes (static) or alpha (dynamic).

    xon_gap_bytes: XON is so far below XOFF. reserved_bytes: of each lossless group, part of xoff_bytes. alpha 0 is
    SONiC's default_dynamic_th.
    """

    alpha: int | None = 0
    xoff_bytes: int | None = None
    xon_gap_bytes: int = 3000
    reserved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What one group of one port gets. xoff_bytes, xon_bytes: static; alpha, xon_offset_bytes: dynamic."""

    port: str
    pg: int
    profile: str
    headroom_bytes: int
    reserved_bytes: int
    alpha: int | None
    xoff_bytes: int | None
    xon_bytes: int | None
    xon_offset_bytes: int | None
    pool: int
    headroom_pool: int | None

    def profile_data(self) -> dict[str, Any]:
        """As a buffer profile of the controller's config."""
        data: dict[str, Any] = {"reserved": self.reserved_bytes, "headroom": self.headroom_bytes, "pool": self.pool}
        if self.headroom_pool is not None:
            data["headroom_pool"] = self.headroom_pool
        if self.alpha is None:
            return data | {"xoff": self.xoff_bytes, "xon": self.xon_bytes}
        return data | {"alpha": self.alpha, "xon_offset": self.xon_offset_bytes}


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """The plan of a switch. `parts`: what the buffer is spent on, in order; they add up to buffer_bytes."""

    buffer_bytes: int
    parts: tuple[tuple[str, int], ...]
    pools: Mapping[int, int]
    headroom_pools: Mapping[int, int]
    groups: tuple[GroupPlan, ...]
    headroom_sum_bytes: int
    notes: tuple[str, ...] = field(default=())

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "buffer_bytes": self.buffer_bytes,
            "parts": [{"name": name, "bytes": value} for name, value in self.parts],
            "pools": {str(pool): size for pool, size in self.pools.items()},
            "headroom_pools": {str(pool): size for pool, size in self.headroom_pools.items()},
            "headroom_sum_bytes": self.headroom_sum_bytes,
            "groups": [{"port": g.port, "pg": g.pg, "profile": g.profile} | g.profile_data() for g in self.groups],
            "notes": list(self.notes),
        }


def profile_name(rate_text: str, length_m: Fraction) -> str:
    """Name of a profile, as SONiC names its own by speed and cable: `lossless-100G-40m`."""
    length = f"{length_m.numerator}" if length_m.denominator == 1 else f"{float(length_m):g}"
    return f"lossless-{rate_text}-{length}m"


def plan_buffers(
    ports: Sequence[PortSpec],
    headroom: Callable[[PortSpec], Budget],
    *,
    buffer_bytes: int,
    thresholds: Thresholds = Thresholds(),
    over_subscription: Fraction | int | str | None = None,
    margin_bytes: int = 0,
    lossy_bytes: int | None = None,
    min_threshold_bytes: int = 1,
    xon_gap: Callable[[PortSpec], int] | None = None,
    rate_text: Callable[[int], str] = str,
) -> BufferPlan:
    """Plan a switch. Raises PlanError with every reason and the numbers, HeadroomError from a formula.

    headroom: the budget of a port's groups. over_subscription: share headroom in a pool of sum / ratio bytes (1: a pool
    that holds it all; None: each group has its own); the pool never falls below the largest headroom. margin_bytes is
    added to every headroom. lossy_bytes: the pool for everything lossy, default half of what is left.
    min_threshold_bytes: what a lossless group must at least be able to hold when all of them are congested (dynamic).
    xon_gap: of a port's groups, instead of the one in thresholds.
    """
    at_least("buffer_bytes", buffer_bytes, 1)
    at_least("margin_bytes", margin_bytes, 0)
    ratio = None if over_subscription is None else fraction("over_subscription", over_subscription)
    if ratio is not None and ratio < 1:
        raise PlanError(f"over_subscription: {ratio}: at least 1 is wanted")
    _check(thresholds)
    needed = [(port, pg, headroom(port).headroom_bytes + margin_bytes) for port in ports for pg in port.groups]
    count = len(needed)
    reserved = thresholds.reserved_bytes * count
    total = sum(size for _, _, size in needed)
    largest = max((size for _, _, size in needed), default=0)
    spent = total if ratio is None else max(ceil_div(total / ratio), largest)
    static = 0
    if thresholds.xoff_bytes is not None:
        static = (thresholds.xoff_bytes - thresholds.reserved_bytes) * count
    left = buffer_bytes - reserved - spent
    problems: list[str] = []
    want = static + (lossy_bytes or 0)
    if left < want or (count and left <= 0):
        what = f"{count} lossless groups of {len(ports)} ports"
        problems.append(
            f"buffer: {buffer_bytes} bytes: {what} need {reserved} reserved + {spent} headroom"
            + (f" (a pool for {total}, {ratio} : 1)" if ratio is not None else "")
            + (f" + {static} up to XOFF" if static else "")
            + (f" + {lossy_bytes} lossy" if lossy_bytes else "")
            + f" = {reserved + spent + want}: {max(reserved + spent + want - buffer_bytes, 1)} bytes short"
        )
        room = buffer_bytes - reserved - want - 1
        if room >= largest > 0:
            problems.append(
                f"over_subscription: {ceil_div(Fraction(total, room))}: would make the headroom fit in {room} bytes"
            )
        raise PlanError("\n".join(problems))
    lossy = left // 2 if lossy_bytes is None else lossy_bytes
    if not count:
        lossy = left
    lossless = left - lossy
    if static > lossless:  # the default half is not a wish
        lossless, lossy = static, left - static
    notes: list[str] = []
    if thresholds.alpha is not None and count:
        least = thresholds.reserved_bytes + threshold(lossless, thresholds.alpha, count)
        alone = thresholds.reserved_bytes + threshold(lossless, thresholds.alpha, 1)
        notes.append(
            f"a lossless group is XOFF at {alone} bytes when it is alone, at {least} when all {count} are congested"
        )
        if least < min_threshold_bytes:
            raise PlanError(
                f"alpha: {thresholds.alpha}: with {count} lossless groups congested each holds {least} of the pool's "
                f"{lossless} bytes: below the {min_threshold_bytes} that are wanted"
            )
    if ratio is not None and spent < total:
        notes.append(f"headroom is over-subscribed: groups may need {total} bytes together, the pool has {spent}")
    groups = tuple(
        _group(
            port,
            pg,
            size,
            thresholds if xon_gap is None else replace(thresholds, xon_gap_bytes=xon_gap(port)),
            ratio is not None,
            rate_text,
        )
        for port, pg, size in needed
    )
    parts = (
        ("reserved of lossless groups", reserved),
        ("headroom pool" if ratio is not None else "headroom of lossless groups", spent),
        ("shared pool of lossless groups", lossless),
        ("shared pool of lossy groups", lossy),
    )
    pools = {LOSSY_POOL: lossy} | ({LOSSLESS_POOL: lossless} if count else {})
    headroom_pools = {HEADROOM_POOL: spent} if ratio is not None and count else {}
    return BufferPlan(buffer_bytes, parts, pools, headroom_pools, groups, total, tuple(notes))


def _check(thresholds: Thresholds) -> None:
    if (thresholds.alpha is None) == (thresholds.xoff_bytes is None):
        raise PlanError("thresholds: exactly one of alpha (dynamic) and xoff_bytes (static) is wanted")
    at_least("reserved_bytes", thresholds.reserved_bytes, 0)
    at_least("xon_gap_bytes", thresholds.xon_gap_bytes, 1)
    if thresholds.alpha is not None and not ALPHA_MIN <= thresholds.alpha <= ALPHA_MAX:
        raise PlanError(f"alpha: {thresholds.alpha}: {ALPHA_MIN}..{ALPHA_MAX}")
    if thresholds.xoff_bytes is not None and thresholds.xoff_bytes < max(thresholds.reserved_bytes, 1):
        raise PlanError(
            f"xoff_bytes: {thresholds.xoff_bytes}: at least 1, and reserved {thresholds.reserved_bytes} is part of it"
        )


def _group(
    port: PortSpec, pg: int, size: int, of: Thresholds, pooled: bool, rate_text: Callable[[int], str]
) -> GroupPlan:
    xoff = of.xoff_bytes
    return GroupPlan(
        port.name,
        pg,
        profile_name(rate_text(port.rate_bps), port.length_m),
        size,
        of.reserved_bytes,
        of.alpha,
        xoff,
        None if xoff is None else max(0, xoff - of.xon_gap_bytes),
        None if of.alpha is None else of.xon_gap_bytes,
        LOSSLESS_POOL,
        HEADROOM_POOL if pooled else None,
    )


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A group as it is configured, for `check_static`: bytes, and the shared pool that it takes from."""

    name: str
    reserved_bytes: int
    headroom_bytes: int
    pool: int
    headroom_pool: int | None
    xoff_bytes: int | None  # None: dynamic


def check(
    groups: Sequence[HeldGroup],
    pools: Mapping[int, int],
    headroom_pools: Mapping[int, int],
    buffer_bytes: int | None = None,
) -> list[str]:
    """What is unsafe in a configured buffer, one `field: reason` line each. Lossless groups only are to be given."""
    found: list[str] = []
    for pool, size in sorted(pools.items()):
        static = [g for g in groups if g.pool == pool and g.xoff_bytes is not None]
        asked = sum((g.xoff_bytes or 0) - g.reserved_bytes for g in static)
        if asked > size:
            found.append(
                f"pools.{pool}: {size} bytes: {len(static)} groups may take {asked} bytes of it before they are XOFF: "
                "one that finds it empty is XOFF before its threshold"
            )
    for pool, size in sorted(headroom_pools.items()):
        members = [g for g in groups if g.headroom_pool == pool]
        asked = sum(g.headroom_bytes for g in members)
        largest = max((g.headroom_bytes for g in members), default=0)
        if largest > size:
            found.append(f"headroom_pools.{pool}: {size} bytes: below the headroom of a single group, {largest}")
        elif asked > size:
            found.append(f"headroom_pools.{pool}: {size} bytes: its {len(members)} groups may need {asked} together")
    if buffer_bytes is not None:
        own = sum(g.headroom_bytes for g in groups if g.headroom_pool is None)
        reserved = sum(g.reserved_bytes for g in groups)
        shared, pooled = sum(pools.values()), sum(headroom_pools.values())
        if (total := own + reserved + shared + pooled) > buffer_bytes:
            found.append(
                f"buffer: {buffer_bytes} bytes: {reserved} reserved + {own} headroom + {pooled} headroom pools "
                f"+ {shared} pools = {total}"
            )
    return found


__all__ = [
    "BufferPlan",
    "GroupPlan",
    "HeadroomError",
    "HeldGroup",
    "PlanError",
    "PortSpec",
    "Thresholds",
    "check",
    "plan_buffers",
]
