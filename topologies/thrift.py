"""The few calls of BMv2's Thrift services that a lab needs, spoken directly: strict binary protocol over TCP.

BMv2's own Python modules need Debian's `thrift` package and the interpreter that BMv2 was installed for; these
calls have three types of argument. Values go in as (type, value), the result comes back decoded. The formats are those
of the Thrift specification (binary protocol) and of simple_switch.thrift and standard.thrift.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
_VERSION_CALL = 0x80010001
_REPLY, _EXCEPTION = 2, 3
_CLONE_NEWNET = 0x40000000
_FIXED = {BOOL: ">?", BYTE: ">b", DOUBLE: ">d", I16: ">h", I32: ">i", I64: ">q"}

Value = int | str | bytes | dict[int, "Argument"] | tuple[int, list["Value"]]
Argument = tuple[int, Value]  # (type, value); a struct is {field id: argument}, a list (type, values)


class ThriftError(OSError):
    """The server refused a call or answered what is no Thrift message; the text names the call."""


def encode_struct(fields: dict[int, Argument]) -> bytes:
    """Fields by id, and the stop byte."""
    parts = [struct.pack(">bh", kind, number) + _encode(kind, value) for number, (kind, value) in fields.items()]
    return b"".join(parts) + b"\0"


def _encode(kind: int, value: Value) -> bytes:
    if isinstance(value, dict):
        return encode_struct(value)
    if isinstance(value, tuple):
        item, values = value
        return struct.pack(">bi", item, len(values)) + b"".join(_encode(item, each) for each in values)
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return struct.pack(">i", len(data)) + data
    return struct.pack(_FIXED[kind], value)


def encode_call(name: str, sequence: int, arguments: Sequence[Argument]) -> bytes:
    """A call message; arguments are numbered from 1."""
    text = name.encode()
    head = struct.pack(">Ii", _VERSION_CALL, len(text)) + text + struct.pack(">i", sequence)
    return head + encode_struct(dict(enumerate(arguments, 1)))


class Client:
    """One connection, for one thread: `call("simple_switch", "set_...", (I32, 1), ...)`.

    Raises ThriftError and other OSErrors.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._stream = connection.makefile("rb")
        self._sequence = 0

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def call(self, service: str, method: str, *arguments: Argument) -> Any:
        """The result of a call: None, an integer, a list, or {field id: value} for a struct."""
        name = f"{service}:{method}"  # as Thrift's multiplexed protocol has it
        self._sequence += 1
        self._socket.sendall(encode_call(name, self._sequence, arguments))
        (version,) = self._unpack(">I")
        self._text()
        (sequence,) = self._unpack(">i")
        if version & 0xFFFF0000 != 0x80010000 or sequence != self._sequence:
            raise ThriftError(f"Thrift {name}: answer {version:#x} with sequence number {sequence}")
        result = self._struct()
        if version & 0xFF != _REPLY:
            raise ThriftError(f"Thrift {name}: {result.get(1, 'refused')}")
        if any(number != 0 for number in result):
            raise ThriftError(f"Thrift {name}: refused: {result}")
        return result.get(0)

    def _read(self, length: int) -> bytes:
        data = self._stream.read(length)
        if len(data) != length:
            raise ThriftError("Thrift: connection closed by the switch")
        return data

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._read(struct.calcsize(layout)))

    def _text(self) -> str:
        (length,) = self._unpack(">i")
        return self._read(length).decode(errors="replace")

    def _struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        while (kind := self._read(1)[0]) != 0:
            (number,) = self._unpack(">h")
            fields[number] = self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _FIXED:
            return self._unpack(_FIXED[kind])[0]
        if kind == STRING:
            return self._text()
        if kind == STRUCT:
            return self._struct()
        if kind in (LIST, SET):
            item, length = self._unpack(">bi")
            if item in _FIXED and item != BOOL:
                return list(self._unpack(f">{length}{_FIXED[item][1:]}"))
            return [self._value(item) for _ in range(length)]
        raise ThriftError(f"Thrift: type {kind} is not known here")


def connect_in_namespace(pid: int, port: int, timeout_s: float) -> socket.socket:
    """A TCP connection to 127.0.0.1:port in the network namespace of a process. Raises OSError.

    A socket stays in the namespace that its thread was in, so a thread goes there, connects and ends.
    """
    made: list[socket.socket | OSError] = []

    def connect() -> None:
        try:
            descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
            finally:
                os.close(descriptor)
            connection = socket.create_connection(("127.0.0.1", port), timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.append(connection)
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
