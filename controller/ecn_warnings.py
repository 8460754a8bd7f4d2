"""Where ECN and PFC of a config contradict each other: a queue that begins to mark above what XOFF lets it become.

Pure functions over the config. A queue is fed by the ingress groups of the other ports; what one of them holds, it
holds in such queues. With Kmin at or above the level at which the least of them says XOFF, a congestion that comes in
by that port is paused before a frame is marked, and DCQCN learns nothing (requirement R20.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from controller.buffer_config import DEFAULT_POOL_BYTES, BufferProfile, pools_of
from dcb.buffers.alpha import threshold

if TYPE_CHECKING:
    from controller.config import Config, Switch


def warnings(config: Config) -> Iterator[str]:
    """One `field: reason` line for each queue whose Kmin is not below the XOFF of a group that feeds it."""
    for name, switch in config.switches.items():
        levels = list(_levels(config, switch))
        for number, port in switch.ports.items():
            for queue, profile in config.ecn_of(port).items():
                feeding = [(xoff, source, pg) for xoff, source, pg, to in levels if queue in to and source != number]
                if feeding and profile.kmin_bytes >= (least := min(feeding))[0]:
                    xoff, source, pg = least
                    yield (
                        f"switches.{name}.ports.{number}.ecn.{queue}: kmin {profile.kmin_bytes} is not below {xoff}, "
                        f"at which group {pg} of port {source} is XOFF: PFC pauses before ECN marks"
                    )


def _levels(config: Config, switch: Switch) -> Iterator[tuple[int, int, int, set[int]]]:
    """(XOFF level, port, group, queues that its lossless priorities wait in) of each group that can say XOFF."""
    pools = {0: DEFAULT_POOL_BYTES} | pools_of(switch)
    for number, port in switch.ports.items():
        qos, buffers = config.qos_of(port), config.buffers_of(port)
        groups: dict[int, set[int]] = {}
        for priority in set(port.pfc) & set(qos.lossless):
            groups.setdefault(qos.pg_of(priority), set()).add(qos.queue_of(priority))
        for pg, queues in groups.items():
            if pg in buffers:
                yield _xoff(buffers[pg], pools), number, pg, queues


def _xoff(profile: BufferProfile, pools: dict[int, int]) -> int:
    """What a group holds when it becomes XOFF; of a dynamic one: alone in its pool."""
    if profile.xoff is not None:
        return profile.xoff
    assert profile.alpha is not None
    return profile.reserved + threshold(pools.get(profile.pool, 0), profile.alpha, 1)
