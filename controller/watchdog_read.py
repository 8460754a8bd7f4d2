"""What the watchdog reads of a switch, and the `tm_storm` entries that it writes. Sans-IO but for `read`.

One ReadRequest brings the cells of all that is watched, counters and registers together: a switch answers it at one
time, and a poll costs one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from finsy.proto import p4r

from controller.codec import Codec
from controller.diff import Kind, Update
from controller.entries import Action as TableAction
from controller.entries import TableEntry, match
from controller.program import P4Program, data_int
from controller.state import CELLS_PER_PORT, CELLS_PER_READ, Reader
from controller.watchdog import Pair, State, Watch
from dcb.watchdog import Action, Sample

STORM_TABLE = "egress.tm_storm"
_STORM_ACTIONS = {Action.DROP: "egress.tm_storm_drop", Action.FORWARD: "egress.tm_storm_forward"}
_BY_QUEUE = ("egress.tm_dequeued", "egress.tm_queue_depth")
_PAUSE = "ingress.pause_rx_frames"  # of a port, not of a priority
_COUNTERS = (
    _PAUSE,
    "egress.tm_dequeued",
    "ingress.pfc_rx_xoff",
    "egress.tx",
    "ingress.rx",
    "egress.tm_drop_storm_tx",
    "egress.tm_drop_storm_rx",
)
_REGISTERS = (
    "egress.tm_queue_depth",
    "egress.tm_pause_left",
    "egress.tm_paused_ns",
    "egress.tm_pause_count",
    "egress.tm_storm_state",
    "egress.tm_storm_count",
)


def can_watch(program: P4Program) -> bool:
    """Whether the program has what the watchdog needs."""
    arrays = program.counters.keys() | program.registers.keys()
    return STORM_TABLE in program.tables and arrays >= {*_COUNTERS, *_REGISTERS}


async def read_states(
    read: Reader, program: P4Program, watches: Iterable[Watch], clock_ns: Callable[[], int]
) -> dict[Pair, State]:
    """State of each (port, priority), with the times of asking and answer. Raises what `read` raises, ProgramError."""
    chosen = list(watches)
    counters = {program.counter(name).id: name for name in _COUNTERS}
    registers = {program.register(name).id: name for name in _REGISTERS}

    def index(name: str, watch: Watch) -> int:
        n = 0 if name == _PAUSE else watch.of.queue if name in _BY_QUEUE else watch.of.priority
        return watch.of.port * CELLS_PER_PORT + n

    wanted: dict[tuple[str, int], p4r.Entity] = {}
    for watch in chosen:
        for array_id, name in counters.items():
            cell = p4r.Index(index=index(name, watch))
            wanted[name, cell.index] = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=array_id, index=cell))
        for array_id, name in registers.items():
            cell = p4r.Index(index=index(name, watch))
            wanted[name, cell.index] = p4r.Entity(register_entry=p4r.RegisterEntry(register_id=array_id, index=cell))
    values: dict[tuple[str, int], int] = {}
    asked = list(wanted.values())
    asked_ns = clock_ns()
    for first in range(0, len(asked), CELLS_PER_READ):
        for answer in await read(asked[first : first + CELLS_PER_READ]):
            if answer.WhichOneof("entity") == "counter_entry":
                entry = answer.counter_entry
                values[counters[entry.counter_id], entry.index.index] = entry.data.packet_count
            else:
                register = answer.register_entry
                values[registers[register.register_id], register.index.index] = data_int(register.data)
    answered_ns = clock_ns()

    def state(watch: Watch) -> State:
        def value(name: str) -> int:
            return values.get((name, index(name, watch)), 0)

        return State(
            Sample(
                time_ns=asked_ns,
                answered_ns=answered_ns,
                depth_bytes=value("egress.tm_queue_depth"),
                dequeued=value("egress.tm_dequeued"),
                xoff_rx=value("ingress.pfc_rx_xoff") + (value(_PAUSE) if watch.of.pause_rx else 0),
                paused=value("egress.tm_pause_left") > 0,
                paused_ns=value("egress.tm_paused_ns"),
                pauses=value("egress.tm_pause_count"),
                tx=value("egress.tx"),
                rx=value("ingress.rx"),
                drop_tx=value("egress.tm_drop_storm_tx"),
                drop_rx=value("egress.tm_drop_storm_rx"),
            ),
            value("egress.tm_storm_state"),
            value("egress.tm_storm_count"),
        )

    return {(watch.of.port, watch.of.priority): state(watch) for watch in chosen}


def _entry(pair: Pair, action: Action) -> TableEntry:
    port, priority = pair
    return TableEntry(STORM_TABLE, match({"port": port, "priority": priority}), TableAction.of(_STORM_ACTIONS[action]))


async def read_storms(read: Reader, codec: Codec) -> dict[Pair, Action]:
    """The `tm_storm` entries that a switch holds."""
    wanted = p4r.Entity(table_entry=p4r.TableEntry(table_id=codec.program.table(STORM_TABLE).id))
    by_name = {name: action for action, name in _STORM_ACTIONS.items()}
    held: dict[Pair, Action] = {}
    for message in await read([wanted]):
        entry = codec.decode(message)
        if isinstance(entry, TableEntry) and isinstance(entry.action, TableAction):
            fields = dict(entry.match)
            port, priority = fields["port"], fields["priority"]
            assert isinstance(port, int)
            assert isinstance(priority, int)
            held[port, priority] = by_name[entry.action.name]
    return held


def storm_updates(codec: Codec, held: Mapping[Pair, Action], wanted: Mapping[Pair, Action]) -> Sequence[p4r.Update]:
    """What turns the entries `held` into those that are `wanted`."""
    updates = []
    for pair, action in wanted.items():
        if pair not in held:
            updates.append(Update(Kind.INSERT, _entry(pair, action)))
        elif held[pair] is not action:
            updates.append(Update(Kind.MODIFY, _entry(pair, action)))
    updates += [Update(Kind.DELETE, _entry(pair, action)) for pair, action in held.items() if pair not in wanted]
    return [codec.update(update) for update in updates]
