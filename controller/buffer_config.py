"""Buffer keys of the config file: buffer profiles, pools, headroom pools, cable lengths; and what is unsafe about them.

Models and pure functions; `controller.config` has the keys, `entries` makes table entries of them (docs/contract.md,
3). Bytes are bytes of frames without FCS.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from controller.entries import Action, TableEntry, match
from controller.thresholds_config import ThresholdPolicy
from controller.values import U32_MAX, Bytes, no_bool
from dcb.buffers.alpha import ALPHA_MAX, ALPHA_MIN, parse_alpha
from dcb.buffers.plan import HeldGroup, check

if TYPE_CHECKING:
    from controller.config import Config, Port, Switch

POOLS = 8
OWN_HEADROOM = 255  # headroom_pool of a group whose headroom is its own
DEFAULT_POOL_BYTES = 16 << 20  # of pool 0; the other pools hold nothing (contract, section 3)
EDGE_LENGTH_M, FABRIC_LENGTH_M = Fraction(5), Fraction(40)  # as SONiC's CABLE_LENGTH: server - ToR, ToR - leaf
BUFFER_TABLES = ("egress.tm_pool", "egress.tm_headroom_pool", "egress.tm_pg_pool")

AlphaKey = Annotated[int, BeforeValidator(no_bool), BeforeValidator(parse_alpha), Field(ge=ALPHA_MIN, le=ALPHA_MAX)]
PoolNumber = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=POOLS - 1)]
PoolBytes = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=U32_MAX)]
BufferBytes = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=2**48)]
LengthM = Annotated[float, BeforeValidator(no_bool), Field(ge=0, le=100_000, allow_inf_nan=False)]


class BufferProfile(BaseModel):
    """An ingress priority group: static (xoff, xon) or dynamic (alpha, xon_offset). All in bytes.

    xoff counts from zero occupancy, it contains `reserved`. alpha is the exponent: threshold = 2^alpha * free pool.
    pool: which shared pool; headroom_pool: which headroom pool the headroom is taken from as well, none: it is the
    group's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reserved: Bytes = 0
    headroom: Bytes = 0
    xoff: Bytes | None = None
    xon: Bytes | None = None
    alpha: AlphaKey | None = None
    xon_offset: Bytes | None = None
    pool: PoolNumber = 0
    headroom_pool: PoolNumber | None = None
    threshold_policy: ThresholdPolicy | None = None

    @model_validator(mode="after")
    def _kind(self) -> Self:
        if (self.xoff is None) == (self.alpha is None):
            raise ValueError("exactly one of xoff (static) and alpha (dynamic) is wanted")
        if self.xoff is not None:
            if self.xon_offset is not None:
                raise ValueError("xon_offset belongs to a dynamic profile (alpha)")
            if self.xon is None:
                raise ValueError("xon is wanted beside xoff")
            if self.xon >= self.xoff:
                raise ValueError(f"xon {self.xon} must be below xoff {self.xoff}")
            if self.reserved > self.xoff:
                raise ValueError(f"reserved {self.reserved} must not be above xoff {self.xoff}, which contains it")
        elif self.xon is not None:
            raise ValueError("xon belongs to a static profile (xoff); a dynamic one has xon_offset")
        if self.threshold_policy is not None:
            if self.xoff is None:
                raise ValueError("threshold_policy moves the xoff of a static profile; alpha is a policy of its own")
            if self.headroom == 0:
                raise ValueError("threshold_policy is for lossless groups: headroom is 0")
            if self.headroom_pool is not None:
                raise ValueError("threshold_policy wants headroom of the group's own, no headroom_pool")
        return self


def pools_of(switch: Switch) -> dict[int, int]:
    """Sizes of the shared pools that the config names; `pool` is another word for pool 0."""
    return ({} if switch.pool is None else {0: switch.pool}) | switch.pools


def problems(switch: Switch) -> Iterator[str]:
    """What no reading makes sense of, `key: value: rule`."""
    if switch.pool is not None and switch.pools.get(0, switch.pool) != switch.pool:
        yield f"pools.0: {switch.pools[0]}: pool says {switch.pool} for the same pool"


def length_m(config: Config, switch: Switch, port: int) -> Fraction:
    """Cable of a port: its key, else 5 m to a host and 40 m to another switch of the config."""
    settings = switch.ports[port]
    if settings.length_m is not None:
        return Fraction(str(settings.length_m))
    return FABRIC_LENGTH_M if settings.peer in config.switches else EDGE_LENGTH_M


# ---- entries ----------------------------------------------------------------------------------------------------


def pool_entries(switch: Switch) -> Iterator[TableEntry]:
    """`tm_pool` and `tm_headroom_pool`; a pool that the config does not name keeps the target's default."""
    for pool, size in pools_of(switch).items():
        yield TableEntry("egress.tm_pool", match({"pool": pool}), Action.of("egress.tm_set_pool", size=size))
    for pool, size in switch.headroom_pools.items():
        action = Action.of("egress.tm_set_headroom_pool", size=size)
        yield TableEntry("egress.tm_headroom_pool", match({"pool": pool}), action)


def group_pool_entry(port: int, pg: int, profile: BufferProfile) -> Iterator[TableEntry]:
    """`tm_pg_pool` of a group that has other pools than the default."""
    headroom_pool = OWN_HEADROOM if profile.headroom_pool is None else profile.headroom_pool
    if (profile.pool, headroom_pool) != (0, OWN_HEADROOM):
        action = Action.of("egress.tm_set_pg_pool", pool=profile.pool, headroom_pool=headroom_pool)
        yield TableEntry("egress.tm_pg_pool", match({"port": port, "pg": pg}), action)


# ---- warnings ---------------------------------------------------------------------------------------------------


def held_groups(config: Config, switch: Switch) -> list[HeldGroup]:
    """The groups of a switch that are lossless: headroom, or a priority with PFC that is lossless."""
    held = []
    for number, port in switch.ports.items():
        qos = config.qos_of(port)
        lossless = {qos.pg_of(priority) for priority in set(port.pfc) & set(qos.lossless)}
        for pg, profile in config.buffers_of(port).items():
            if profile.headroom or pg in lossless:
                name = f"{port.name or number} pg {pg}"
                held.append(
                    HeldGroup(
                        name, profile.reserved, profile.headroom, profile.pool, profile.headroom_pool, profile.xoff
                    )
                )
    return held


def warnings(config: Config) -> list[str]:
    """Buffers that lose frames though every key of them is legal, one `field: reason` line each."""
    found: list[str] = []
    for name, switch in config.switches.items():
        base = f"switches.{name}"
        pools = {0: DEFAULT_POOL_BYTES} | pools_of(switch)
        held = held_groups(config, switch)
        for line in check(held, pools, switch.headroom_pools, switch.buffer):
            found.append(f"{base}.{line}")
        for number, port in switch.ports.items():
            where = f"{base}.ports.{number}"
            for pg, profile in config.buffers_of(port).items():
                if profile.pool not in pools:
                    found.append(f"{where}.buffers.{pg}: pool {profile.pool} has no size: it holds nothing")
                if profile.threshold_policy is not None and profile.pool == 0:
                    found.append(
                        f"{where}.buffers.{pg}: threshold_policy: pool 0 is also that of lossy groups, which can take "
                        "what a higher XOFF counts on; a pool of its own is wanted"
                    )
                pooled = profile.headroom_pool
                if pooled is not None and profile.headroom and pooled not in switch.headroom_pools:
                    found.append(f"{where}.buffers.{pg}: headroom pool {pooled} has no size: there is no headroom")
            found += dcbx_warnings(config, switch, number, port, where)
    return found


def dcbx_warnings(config: Config, switch: Switch, number: int, port: Port, where: str) -> Iterator[str]:
    """Priorities that DCBX may make lossless on a port whose groups have no headroom for them."""
    dcbx = switch.dcbx_of(number)
    if dcbx is None:
        return
    qos, buffers = config.qos_of(port), config.buffers_of(port)
    if dcbx.lossless_buffers is not None:
        if config.buffer_profiles[dcbx.lossless_buffers].headroom == 0:
            yield f"{where}.dcbx.lossless_buffers: profile {dcbx.lossless_buffers} has no headroom"
        return
    own = set(port.pfc if dcbx.pfc is None else dcbx.pfc)
    bare = [p for p in range(8) if (pg := qos.pg_of(p)) not in buffers or buffers[pg].headroom == 0]
    for priority in sorted(own & set(bare)):
        yield (
            f"{where}.dcbx.lossless_buffers: not given: DCBX may make priority {priority} lossless, and its group "
            f"{qos.pg_of(priority)} has no headroom"
        )
    willing = dcbx.role == "auto-upstream" if dcbx.willing is None else "pfc" in dcbx.willing
    if willing and (others := sorted(set(bare) - own)):
        listed = ",".join(str(priority) for priority in others)
        yield (
            f"{where}.dcbx.lossless_buffers: not given: the peer may make priorities {listed} lossless, and their "
            "groups have no headroom"
        )
