"""`@tm` objects: tables, counters and registers of P4Info that are really the traffic manager (docs/contract.md, 3).

An entry of an `@tm` table is a setting: writing it sets the traffic manager, deleting it brings the default back. Only
handles are kept here; the entries themselves are in the P4Runtime store. Values are checked by name before the core
sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from switch.api import ActionCall, CounterValue, EntryAction, KeyMatch, PipelineError
from switch.p4rt.errors import Code
from switch.p4rt.schema import Schema, Table
from switch.tm_settings import (
    COUNTER_KINDS,
    DEFAULT_POOL_BYTES,
    HISTOGRAM_KINDS,
    MAX_RATE_BPS,
    OWN_HEADROOM,
    POOLS,
    STATE_KINDS,
    WATERMARK_KINDS,
    WIDE_KIND,
    Cbs,
    DynamicGroup,
    DynamicLimit,
    Ets,
    Qcn,
    StaticGroup,
    StaticLimit,
    StormAction,
    Strict,
    Watchdog,
)

if TYPE_CHECKING:
    from switch.core import TrafficManager

REGISTER_KINDS = (*STATE_KINDS, WIDE_KIND)
CLEARABLE_KINDS = WATERMARK_KINDS + HISTOGRAM_KINDS
ALPHA_MIN, ALPHA_MAX = -8, 7
ETS_WEIGHT_MIN, ETS_WEIGHT_MAX = 1, 100


class ReadOnly(PipelineError):
    """A write to state that only the traffic manager writes."""

    code = Code.PERMISSION_DENIED


def _in_range(field: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise PipelineError(f"{field} {value}: must be {low}..{high}")
    return value


def _alpha(raw: int) -> int:
    """An 8-bit two's complement exponent."""
    return _in_range("alpha", raw - 256 if raw >= 128 else raw, ALPHA_MIN, ALPHA_MAX)


Key = tuple[int, ...]
Apply = Callable[["TrafficManager", Key, tuple[int, ...]], None]


def _port(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_port(key[0], _in_range("rate_bps", params[0], 0, MAX_RATE_BPS))


def _pfc(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tx_enable, quanta, queue_map = params
    if tx_enable and quanta == 0:
        raise PipelineError("quanta 0: must be 1..65535 where tx_enable is not 0 (0 would resume instead of pause)")
    tm.set_pfc(key[0], tx_enable, quanta, queue_map)


def _strict(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_scheduler(key[0], key[1], Strict())


def _ets(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    weight = _in_range("weight", params[0], ETS_WEIGHT_MIN, ETS_WEIGHT_MAX)
    tm.set_scheduler(key[0], key[1], Ets(weight))


def _cbs(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    slope = _in_range("idle_slope_bps", params[0], 1, MAX_RATE_BPS)
    tm.set_scheduler(key[0], key[1], Cbs(slope))


def _pg_static(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    reserved, xoff, xon, headroom, priorities = params
    if xon >= xoff:
        raise PipelineError(f"xon {xon}: must be below xoff {xoff}")
    if reserved > xoff:
        raise PipelineError(f"reserved {reserved}: must not exceed xoff {xoff} (xoff contains the reserved part)")
    tm.set_priority_group(key[0], key[1], StaticGroup(reserved, xoff, xon, headroom, priorities))


def _pg_dynamic(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    reserved, alpha, xon_offset, headroom, priorities = params
    tm.set_priority_group(key[0], key[1], DynamicGroup(reserved, _alpha(alpha), xon_offset, headroom, priorities))


def _queue_static(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_queue(key[0], key[1], StaticLimit(params[0]))


def _queue_dynamic(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_queue(key[0], key[1], DynamicLimit(_alpha(params[0])))


def _pool_number(field: str, number: int) -> int:
    if number >= POOLS:
        raise PipelineError(f"{field} {number}: must be 0..{POOLS - 1}")
    return number


def _pool(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_pool(params[0], _pool_number("pool", key[0]))


def _headroom_pool(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_headroom_pool(_pool_number("pool", key[0]), params[0])


def _pg_pool(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    pool, headroom_pool = params
    if headroom_pool >= POOLS and headroom_pool != OWN_HEADROOM:
        raise PipelineError(
            f"headroom_pool {headroom_pool}: must be 0..{POOLS - 1}, or {OWN_HEADROOM} for headroom of the group's own"
        )
    tm.set_pg_pool(key[0], key[1], _pool_number("pool", pool), headroom_pool)


def _storm_drop(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_storm(key[0], key[1], StormAction.DROP)


def _storm_forward(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    tm.set_storm(key[0], key[1], StormAction.FORWARD)


def _watchdog(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    detect_us, restore_us, action, empty_queue = params
    if detect_us == 0:
        raise PipelineError("detect_us 0: must be 1..4294967295")
    if action > max(StormAction):
        raise PipelineError(f"action {action}: must be 0 (alert), 1 (forward) or 2 (drop)")
    tm.set_watchdog(key[0], key[1], Watchdog(detect_us, restore_us, StormAction(action), bool(empty_queue)))


def _qcn(tm: TrafficManager, key: Key, params: tuple[int, ...]) -> None:
    qeq, weight, sample, jitter, priority, cpid = params
    signed = weight - 256 if weight >= 128 else weight
    tm.set_qcn(
        key[0],
        key[1],
        Qcn(
            _in_range("qeq", qeq, 1, 0xFFFFFFFF),
            _in_range("weight", signed, -10, 10),
            _in_range("sample", sample, 1, 0xFFFFFFFF),
            _in_range("jitter", jitter, 0, 50),
            priority,
            cpid,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """An `@tm` table: widths of its key, what each action does, what the default is."""

    key_bits: tuple[int, ...]
    actions: Mapping[str, tuple[tuple[int, ...], Apply]]  # last part of the name -> (widths of parameters, effect)
    reset: Callable[[TrafficManager, Key], None]


_KINDS: Mapping[str, _Kind] = {
    "port": _Kind((9,), {"tm_set_port": ((64,), _port)}, lambda tm, key: tm.set_port(key[0])),
    "pfc": _Kind((9,), {"tm_set_pfc": ((8, 16, 24), _pfc)}, lambda tm, key: tm.set_pfc(key[0])),
    "scheduler": _Kind(
        (9, 3),
        {"tm_strict": ((), _strict), "tm_ets": ((8,), _ets), "tm_cbs": ((64,), _cbs)},
        lambda tm, key: tm.set_scheduler(key[0], key[1], Ets()),
    ),
    "priority_group": _Kind(
        (9, 3),
        {"tm_pg_static": ((32, 32, 32, 32, 8), _pg_static), "tm_pg_dynamic": ((32, 8, 32, 32, 8), _pg_dynamic)},
        lambda tm, key: tm.set_priority_group(key[0], key[1], DynamicGroup()),
    ),
    "queue": _Kind(
        (9, 3),
        {"tm_queue_static": ((32,), _queue_static), "tm_queue_dynamic": ((8,), _queue_dynamic)},
        lambda tm, key: tm.set_queue(key[0], key[1], StaticLimit()),
    ),
    "pool": _Kind(
        (8,),
        {"tm_set_pool": ((32,), _pool)},
        lambda tm, key: tm.set_pool(0 if key[0] else DEFAULT_POOL_BYTES, key[0]),
    ),
    "headroom_pool": _Kind(
        (8,),
        {"tm_set_headroom_pool": ((32,), _headroom_pool)},
        lambda tm, key: tm.set_headroom_pool(key[0]),
    ),
    "pg_pool": _Kind(
        (9, 3),
        {"tm_set_pg_pool": ((8, 8), _pg_pool)},
        lambda tm, key: tm.set_pg_pool(key[0], key[1]),
    ),
    "storm": _Kind(
        (9, 3),
        {"tm_storm_drop": ((), _storm_drop), "tm_storm_forward": ((), _storm_forward)},
        lambda tm, key: tm.set_storm(key[0], key[1]),
    ),
    "watchdog": _Kind(
        (9, 3),
        {"tm_set_watchdog": ((32, 32, 2, 1), _watchdog)},
        lambda tm, key: tm.set_watchdog(key[0], key[1]),
    ),
    "qcn": _Kind(
        (9, 3),
        {"tm_set_qcn": ((32, 8, 32, 8, 3, 64), _qcn)},
        lambda tm, key: tm.set_qcn(key[0], key[1]),
    ),
}


def table_problems(table: Table) -> Iterable[str]:
    """What keeps a table from being the `@tm` table that it says it is."""
    kind = _KINDS.get(table.tm)
    if kind is None:
        yield f'table {table.name}: @tm("{table.tm}"): unknown; known: {", ".join(_KINDS)}'
        return
    key_bits = tuple(field.bits for field in table.fields)
    if key_bits != kind.key_bits or any(field.kind.value != "exact" for field in table.fields):
        yield f'table {table.name}: @tm("{table.tm}"): its key must be exact, of {list(kind.key_bits)} bits'
    for ref in table.actions.values():
        name = _last(ref.action.name)
        if name == "NoAction":
            continue
        widths = tuple(param.bits for param in ref.action.params)
        if name not in kind.actions:
            yield f"table {table.name}: action {ref.action.name}: unknown; known: {', '.join(kind.actions)}"
        elif widths != kind.actions[name][0]:
            yield (
                f"action {ref.action.name}: its parameters must have {list(kind.actions[name][0])} bits, "
                f"not {list(widths)}"
            )


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class TrafficManagerTables:
    """The `@tm` objects of one program on one traffic manager."""

    def __init__(self, schema: Schema, tm: TrafficManager) -> None:
        self._tm = tm
        self._kinds = {table.name: _KINDS[table.tm] for table in schema.tables.values() if table.tm in _KINDS}
        self._keys: dict[int, Key] = {}  # by handle
        self._next_handle = 1

    # --- tables, with the signatures of switch.api.PipelineControl ---

    def table_insert(self, table: str, keys: Sequence[KeyMatch], priority: int, action: EntryAction) -> int:
        """Apply a setting; returns its handle."""
        key = tuple(match.value for match in keys)
        self._apply(table, key, action)
        handle = self._next_handle
        self._next_handle += 1
        self._keys[handle] = key
        return handle

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        """Apply another setting."""
        self._apply(table, self._keys[handle], action)

    def table_delete(self, table: str, handle: int) -> None:
        """Bring the default back."""
        key = self._keys[handle]
        _checked(lambda: self._kinds[table].reset(self._tm, key))
        del self._keys[handle]

    def table_set_default(self, table: str, action: EntryAction | None) -> None:
        """The default of an `@tm` table is the traffic manager's; it cannot be changed for all ports at once."""
        if action is None or (isinstance(action, ActionCall) and _last(action.name) == "NoAction"):
            return
        raise PipelineError("default action: an @tm table has the traffic manager's defaults; write entries instead")

    def _apply(self, table: str, key: Key, action: EntryAction) -> None:
        assert isinstance(action, ActionCall)
        kind = self._kinds[table]
        name = _last(action.name)
        if name == "NoAction":
            _checked(lambda: kind.reset(self._tm, key))
            return
        effect = kind.actions[name][1]
        _checked(lambda: effect(self._tm, key, action.params))

    # --- counters and registers, by kind ---

    def counter_read(self, kind: str, index: int) -> CounterValue:
        """A cell now."""
        return self._tm.read_counter(kind, index)

    def counter_write(self, kind: str, index: int, value: CounterValue) -> None:
        """Only zero can be written: it clears the cell."""
        if value.packets or value.bytes:
            raise PipelineError(f"data {value.packets} packets, {value.bytes} bytes: only 0 can be written (clear)")
        self._tm.clear_counter(kind, index)

    def register_read(self, kind: str, index: int) -> int:
        """A cell now."""
        return self._tm.read_state(kind, index)

    def register_write(self, kind: str, index: int, value: int) -> None:
        """Watermarks and histograms can be cleared by writing 0; everything else is read only."""
        if kind not in CLEARABLE_KINDS:
            raise ReadOnly(f"@tm register {kind} is read only")
        if value:
            what = "watermark" if kind in WATERMARK_KINDS else "histogram"
            raise PipelineError(f"data {value}: only 0 can be written to a {what} (clear)")
        self._tm.clear_watermark(kind, index)


def _checked(call: Callable[[], None]) -> None:
    """A value that slips past the checks here is refused by the core, as a plain ValueError."""
    try:
        call()
    except PipelineError:
        raise
    except ValueError as error:
        raise PipelineError(str(error)) from error


__all__ = [
    "ALPHA_MAX",
    "ALPHA_MIN",
    "COUNTER_KINDS",
    "REGISTER_KINDS",
    "ReadOnly",
    "TrafficManagerTables",
    "table_problems",
]
