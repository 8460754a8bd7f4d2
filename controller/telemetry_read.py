"""Reads a `SwitchSample` over P4Runtime: counters, registers and pools of a switch in few requests.

Histograms have 32 cells each, so only those are read whose activity (frames sent, time paused, time in XOFF) has moved
since the sample before; the others are taken over from it. Objects that a program lacks are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from finsy import GRPCStatusCode, P4ClientError
from finsy.proto import p4r

from controller import state
from controller.histogram import BUCKETS, Histogram
from controller.program import P4Program, data_int
from controller.state import CELLS_PER_PORT, CELLS_PER_READ, Cell, CounterValue, Reader
from controller.telemetry import DELAY, PAUSE, STORM_COUNTER, XOFF, SwitchSample

COUNTERS = (
    *("ingress.rx", "egress.tx", "egress.ce_marked", "egress.ecn_dropped", "egress.tm_dequeued"),
    *("ingress.pfc_rx_xoff", "ingress.pfc_rx_xon", "egress.pfc_tx_xoff", "egress.pfc_tx_xon"),
    *("ingress.pfc_rx_invalid", "ingress.pause_rx_frames", STORM_COUNTER, "ingress.drops"),
    *("egress.tm_drop_queue", "egress.tm_drop_pg", "egress.tm_drop_headroom", "egress.tm_drop_pool"),
    *("egress.tm_drop_port", "egress.tm_drop_rx", "egress.tm_drop_storm_tx", "egress.tm_drop_storm_rx"),
)
REGISTERS = (
    *("egress.tm_queue_depth", "egress.tm_queue_watermark", "egress.tm_pg_depth", "egress.tm_pg_headroom"),
    *("egress.tm_pg_watermark", "egress.tm_pg_headroom_watermark", "egress.tm_pg_xoff", "egress.tm_pause_left"),
    *("egress.tm_paused_ns", "egress.tm_pause_count", "egress.tm_xoff_ns", "egress.tm_xoff_count"),
    *("egress.tm_storm_state", "egress.tm_storm_count"),
)
POOLS = (
    *("egress.tm_pool_used", "egress.tm_pool_watermark"),
    *("egress.tm_headroom_pool_used", "egress.tm_headroom_pool_watermark"),
)


async def read_sample(
    read: Reader,
    program: P4Program,
    ports: Sequence[int],
    clock_ns: Callable[[], int],
    earlier: SwitchSample | None = None,
    counters: Sequence[str] = COUNTERS,
    registers: Sequence[str] = REGISTERS,
) -> SwitchSample:
    """A sample of some ports. Raises NotConnectedError, P4ClientError. Without `registers`: counters alone."""
    counted = await state.read_counters(read, program, [n for n in counters if n in program.counters], ports)
    time_ns = clock_ns()  # a question may be long on its way to a switch that is busy; its answer is not
    wanted = [name for name in registers if name in program.registers]
    if not wanted:
        return SwitchSample(time_ns, counted)
    try:
        held = await state.read_registers(read, program, wanted, ports)
        pools = await state.read_registers(read, program, [n for n in POOLS if n in program.registers], [0])
    except P4ClientError as error:
        if error.code is not GRPCStatusCode.UNIMPLEMENTED:  # BMv2's server reads no registers
            raise
        return SwitchSample(time_ns, counted)
    histograms = {
        name: await _histograms(read, program, name, moved, {} if earlier is None else earlier.histograms.get(name, {}))
        for name, moved in _moved(counted, held, earlier).items()
        if name in program.registers
    }
    of_pools = {name: {n: value for (port, n), value in cells.items() if port == 0} for name, cells in pools.items()}
    return SwitchSample(time_ns, counted, held, histograms, of_pools)


def _moved(
    counters: Mapping[str, Mapping[Cell, CounterValue]],
    registers: Mapping[str, Mapping[Cell, int]],
    earlier: SwitchSample | None,
) -> dict[str, list[Cell]]:
    """Cells of each histogram that may have changed."""
    old = earlier or SwitchSample(0)
    paused, xoff = registers.get("egress.tm_paused_ns", {}), registers.get("egress.tm_xoff_ns", {})
    return {
        DELAY: [
            cell
            for cell, value in counters.get("egress.tm_dequeued", {}).items()
            if value.packets != old.packets("egress.tm_dequeued", *cell)
        ],
        # a pause that ended just after it was read has moved no time since
        PAUSE: [
            cell
            for cell, value in paused.items()
            if value != (old.register("egress.tm_paused_ns", *cell) or 0) or old.register("egress.tm_pause_left", *cell)
        ],
        XOFF: [
            cell
            for cell, value in xoff.items()
            if value != (old.register("egress.tm_xoff_ns", *cell) or 0) or old.register("egress.tm_pg_xoff", *cell)
        ],
    }


async def _histograms(
    read: Reader, program: P4Program, name: str, moved: Iterable[Cell], earlier: Mapping[Cell, Histogram]
) -> dict[Cell, Histogram]:
    array = program.register(name)
    counts: dict[Cell, list[int]] = {cell: [0] * BUCKETS for cell in moved}
    wanted = [
        p4r.Entity(
            register_entry=p4r.RegisterEntry(
                register_id=array.id, index=p4r.Index(index=(port * CELLS_PER_PORT + n) * BUCKETS + bucket)
            )
        )
        for port, n in counts
        for bucket in range(BUCKETS)
    ]
    for first in range(0, len(wanted), CELLS_PER_READ):
        for answer in await read(wanted[first : first + CELLS_PER_READ]):
            entry = answer.register_entry
            cell, bucket = divmod(entry.index.index, BUCKETS)
            counts[divmod(cell, CELLS_PER_PORT)][bucket] = data_int(entry.data)
    return dict(earlier) | {cell: Histogram(tuple(found)) for cell, found in counts.items()}
