"""Anything in any order: after it, no byte is leaked, no frame is lost uncounted, and everything can drain.

The library is built with DCB_DEBUG: tm_check() runs at every event, inside.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from l2_core import (
    CLONE_E2E,
    CLONE_I2E,
    EGRESS_DROP,
    LOSSLESS,
    PRESERVE,
    RECIRCULATE,
    RESUBMIT,
    SANITIZE,
    frame,
    fresh_tm_state,
    is_pfc,
    make,
    pfc,
    read_pfc,
)

from switch.core import (
    Cbs,
    DynamicGroup,
    DynamicLimit,
    Ets,
    StaticGroup,
    StaticLimit,
    StormAction,
    Strict,
    SwitchCore,
    Watchdog,
)

PORTS = (1, 2, 3)
port = st.sampled_from(PORTS)
eight = st.integers(0, 7)
mask = st.integers(0, 255)
some_bytes = st.sampled_from([0, 1, 100, 1_000, 5_000, 20_000])
alpha = st.integers(-4, 4)
flags = st.sampled_from(
    [0, LOSSLESS, LOSSLESS, LOSSLESS | CLONE_I2E, CLONE_E2E | PRESERVE, RESUBMIT, RECIRCULATE | PRESERVE, EGRESS_DROP]
)
static = st.builds(
    lambda reserved, more, xon, headroom, priorities: StaticGroup(
        reserved, reserved + more + 1, min(xon, reserved + more), headroom, priorities
    ),
    some_bytes, some_bytes, some_bytes, some_bytes, mask,
)  # fmt: skip
dynamic = st.builds(DynamicGroup, some_bytes, alpha, some_bytes, some_bytes, mask)
scheduler = st.one_of(
    st.just(Strict()), st.builds(Ets, st.integers(1, 100)), st.builds(Cbs, st.sampled_from([10**6, 10**8, 10**9]))
)
watchdog = st.builds(
    Watchdog, st.sampled_from([1, 50, 1000]), st.sampled_from([0, 1, 100]), st.sampled_from(StormAction), st.booleans()
)
limit = st.one_of(st.builds(StaticLimit, some_bytes), st.builds(DynamicLimit, alpha))
burst = st.tuples(
    st.just("burst"), port, st.sampled_from([1, 2, 3, 9, 510]), eight, eight, flags,
    st.integers(60, 1600), st.integers(1, 30), st.sampled_from([0, 0, 0, 7]),
)  # fmt: skip
operation = st.one_of(
    burst,
    burst,
    st.tuples(st.just("advance"), st.sampled_from([0, 1, 1_000, 10**6, 10**8])),
    st.tuples(st.just("pause"), port, st.dictionaries(eight, st.sampled_from([0, 1, 100, 65535]), min_size=1), mask),
    st.tuples(st.just("set_port"), port, st.sampled_from([0, 10**6, 10**9, 40 * 10**9, 7_777_777_777])),
    st.tuples(st.just("set_pfc"), port, mask, st.sampled_from([1, 100, 65535]), st.integers(0, 0xFFFFFF)),
    st.tuples(st.just("set_scheduler"), port, eight, scheduler),
    st.tuples(st.just("set_priority_group"), port, eight, st.one_of(static, dynamic)),
    st.tuples(st.just("set_queue"), port, eight, limit),
    st.tuples(st.just("set_pool"), st.sampled_from([0, 1_000, 20_000, 1 << 24]), st.integers(0, 2)),
    st.tuples(st.just("set_headroom_pool"), st.integers(0, 1), st.sampled_from([0, 1_000, 20_000])),
    st.tuples(st.just("set_pg_pool"), port, eight, st.integers(0, 2), st.sampled_from([0, 1, 255])),
    st.tuples(st.just("set_storm"), port, eight, st.sampled_from([None, StormAction.FORWARD, StormAction.DROP])),
    st.tuples(st.just("set_watchdog"), port, eight, st.one_of(st.none(), watchdog)),
    st.tuples(st.just("block_port"), port, st.booleans()),
    st.tuples(st.just("replug"), port),
)


def conserved(core: SwitchCore) -> None:
    s = core.stats()
    made = s["received"] + s["copies"] + s["pfc_made"] + s["events_made"]
    gone = sum(s[name] for name in s if name.endswith("dropped")) + s["transmitted"] + s["to_cpu"]
    assert made == gone + core.packets_held, s


def apply(core: SwitchCore, name: str, arguments: tuple[Any, ...]) -> None:
    now = core.now_ps
    if name == "burst":
        source, to, priority, pg, bits, length, count, group = arguments
        for _ in range(count):
            core.receive(source, frame(length, to=to, priority=priority, pg=pg, flags=bits, group=group), now)
    elif name == "advance":
        core.advance(now + arguments[0])
    elif name == "pause":
        core.receive(arguments[0], pfc(arguments[1], vector=arguments[2]), now)
    elif name == "replug":
        core.tm.remove_port(arguments[0])
        core.tm.add_port(arguments[0])
    elif name in ("set_port", "block_port") or name.startswith("set_"):
        getattr(core.tm, name)(*arguments)
    else:
        raise AssertionError(name)


def run(operations: list[tuple[Any, ...]]) -> list[tuple[int, int, bytes]]:
    """The trace of what left."""
    core = make(PORTS)
    core.pre.set_multicast_group(7, [(1, 1), (2, 2), (3, 3), (9, 4)])
    core.pre.set_clone_session(1, [(3, 0), (510, 1)])
    core.pre.set_clone_session(2, [(1, 0)])
    trace: list[tuple[int, int, bytes]] = []
    told = dict.fromkeys(PORTS, 0)

    def collect() -> None:
        for out in core.outputs():
            trace.append((out.start_ps, out.port, out.frame))
            if is_pfc(out.frame):
                for priority, time in read_pfc(out.frame).items():
                    bit = 1 << priority
                    assert time or told[out.port] & bit, "a resume for a priority that was not told to stop"
                    told[out.port] = told[out.port] | bit if time else told[out.port] & ~bit

    for name, *arguments in operations:
        apply(core, name, tuple(arguments))
        if name == "replug":
            collect()
            told[arguments[0]] = 0
        core.tm.check()
        conserved(core)
        collect()
    for n in PORTS:  # let everything go
        for priority in range(8):
            core.tm.set_storm(n, priority)
            core.tm.set_watchdog(n, priority)
        core.tm.block_port(n, False)
        core.tm.set_port(n, 10**9)
        core.receive(n, pfc(dict.fromkeys(range(8), 0)), core.now_ps)
    core.advance(core.now_ps + 10**13)
    collect()
    conserved(core)
    fresh_tm_state(core)
    assert core.next_deadline() is None
    assert told == dict.fromkeys(PORTS, 0), "a peer is left paused"
    starts = [start for start, _, _ in trace]
    assert starts == sorted(starts)
    return trace


@settings(max_examples=25 if SANITIZE else 60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(operation, min_size=5, max_size=40))
def test_nothing_leaks_whatever_happens(operations: list[tuple[Any, ...]]) -> None:
    run(operations)


@settings(max_examples=2 if SANITIZE else 10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(operation, min_size=20, max_size=40))
def test_the_same_events_make_the_same_trace(operations: list[tuple[Any, ...]]) -> None:
    assert run(operations) == run(operations)
