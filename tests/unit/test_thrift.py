"""Thrift's strict binary protocol against bytes written by hand from its specification, and against a small server."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from topologies.thrift import I32, I64, STRING, STRUCT, Client, ThriftError, encode_call


def test_a_call_byte_by_byte() -> None:
    assert encode_call(
        "simple_switch:f", 7, [(I32, 1), (I64, -2), (STRING, "ab"), (STRUCT, {1: (I32, 5)})]
    ) == bytes.fromhex(
        "80010001 0000000f 73696d706c655f7377697463683a66 00000007"
        "08 0001 00000001 0a 0002 fffffffffffffffe 0b 0003 00000002 6162 0c 0004 08 0001 00000005 00 00"
    )


def answered(reply: bytes) -> Client:
    """A client whose first call gets `reply`."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        theirs.recv(4096)
        theirs.sendall(reply)
        theirs.close()

    threading.Thread(target=serve).start()
    return Client(ours)


def message(kind: int, body: str, sequence: int = 1) -> bytes:
    return struct.pack(">Ii", 0x80010000 | kind, 1) + b"f" + struct.pack(">i", sequence) + bytes.fromhex(body)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("00", None),
        ("08 0000 fffffffe 00", -2),
        ("0f 0000 0a 00000002 0000000000000001 7fffffffffffffff 00", [1, 2**63 - 1]),
        ("0c 0000 0a 0001 0000000000000010 0a 0002 0000000000000003 00 00", {1: 16, 2: 3}),
        ("0f 0000 0b 00000001 00000002 6162 00", ["ab"]),
    ],
)
def test_results(body: str, value: object) -> None:
    client = answered(message(2, body))
    assert client.call("s", "f") == value
    client.close()


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (message(3, "0b 0001 00000003 626164 08 0002 00000001 00"), "Thrift s:f: bad"),
        (message(2, "0c 0001 08 0001 00000003 00 00"), "Thrift s:f: refused: {1: {1: 3}}"),
        (message(2, "00", sequence=9), "sequence number 9"),
        (message(2, "08 0000 00"), "connection closed"),
        (b"", "connection closed"),
    ],
)
def test_refusals(reply: bytes, text: str) -> None:
    client = answered(reply)
    with pytest.raises(ThriftError, match=text.replace("{", r"\{")):
        client.call("s", "f")
    client.close()
