"""Counters and registers of a switch, read in few RPCs.

A wildcard read of a counter would bring all its 4096 cells; here one ReadRequest asks for the cells of the wanted ports
only, of several counters at once. Cells are indexed `port * 8 + n`, n = priority, queue, priority group or reason
(docs/contract.md). Sans-IO but for the `read` that it is handed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from finsy.proto import p4r

from controller.program import ArrayInfo, P4Program, data_int

CELLS_PER_PORT = 8
CELLS_PER_READ = 1024

Cell = tuple[int, int]  # port, n
Value = TypeVar("Value")
Reader = Callable[[Sequence[p4r.Entity]], Awaitable[list[p4r.Entity]]]


@dataclass(frozen=True, slots=True)
class CounterValue:
    """A counter cell."""

    packets: int = 0
    bytes: int = 0


def cells(array: ArrayInfo, ports: Iterable[int]) -> list[int]:
    """Indexes of the cells of some ports that the array has."""
    wanted = [port * CELLS_PER_PORT + n for port in ports for n in range(CELLS_PER_PORT)]
    return [index for index in wanted if 0 <= index < array.size]


def _batches(entities: Iterator[p4r.Entity]) -> Iterator[list[p4r.Entity]]:
    while batch := list(islice(entities, CELLS_PER_READ)):
        yield batch


async def _read_cells(
    read: Reader,
    arrays: Mapping[str, ArrayInfo],
    ports: Sequence[int],
    entity: Callable[[int, p4r.Index], p4r.Entity],
    cell: Callable[[p4r.Entity], tuple[int, int, Value]],
) -> dict[str, dict[Cell, Value]]:
    """Cells of arrays, by the names they were asked for; an array of two names is read once.

    entity: what asks for a cell of an array id. cell: (array id, index, value) of an answer.
    """
    result: dict[str, dict[Cell, Value]] = {name: {} for name in arrays}
    names_by_id: dict[int, list[str]] = {}
    for name, array in arrays.items():
        names_by_id.setdefault(array.id, []).append(name)
    unique = {array.id: array for array in arrays.values()}
    wanted = (entity(array.id, p4r.Index(index=index)) for array in unique.values() for index in cells(array, ports))
    for batch in _batches(wanted):
        for answer in await read(batch):
            array_id, index, value = cell(answer)
            for name in names_by_id[array_id]:
                result[name][divmod(index, CELLS_PER_PORT)] = value
    return result


async def read_counters(
    read: Reader, program: P4Program, names: Iterable[str], ports: Sequence[int]
) -> dict[str, dict[Cell, CounterValue]]:
    """Cells of counters, by the names that were asked for. ProgramError on an unknown name."""

    def entity(counter_id: int, index: p4r.Index) -> p4r.Entity:
        return p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter_id, index=index))

    def cell(answer: p4r.Entity) -> tuple[int, int, CounterValue]:
        entry = answer.counter_entry
        return entry.counter_id, entry.index.index, CounterValue(entry.data.packet_count, entry.data.byte_count)

    return await _read_cells(read, {name: program.counter(name) for name in names}, ports, entity, cell)


async def read_registers(
    read: Reader, program: P4Program, names: Iterable[str], ports: Sequence[int]
) -> dict[str, dict[Cell, int]]:
    """Cells of registers, by the names that were asked for. ProgramError on an unknown name."""

    def entity(register_id: int, index: p4r.Index) -> p4r.Entity:
        return p4r.Entity(register_entry=p4r.RegisterEntry(register_id=register_id, index=index))

    def cell(answer: p4r.Entity) -> tuple[int, int, int]:
        entry = answer.register_entry
        return entry.register_id, entry.index.index, data_int(entry.data)

    return await _read_cells(read, {name: program.register(name) for name in names}, ports, entity, cell)


def clear_updates(
    program: P4Program, counters: Iterable[str], registers: Iterable[str], ports: Sequence[int]
) -> list[p4r.Update]:
    """Updates that set cells to 0: counters, and watermark registers (the only registers that may be written)."""
    updates = []
    for name in counters:
        array = program.counter(name)
        for index in cells(array, ports):
            entry = p4r.CounterEntry(counter_id=array.id, index=p4r.Index(index=index), data=p4r.CounterData())
            updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=entry)))
    for name in registers:
        array = program.register(name)
        for index in cells(array, ports):
            register = p4r.RegisterEntry(register_id=array.id, index=p4r.Index(index=index))
            register.data.bitstring = b"\0"
            updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=register)))
    return updates
