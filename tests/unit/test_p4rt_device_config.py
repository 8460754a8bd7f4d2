"""p4_device_config as JSON and as p4.tmp.P4DeviceConfig, whose bytes are written out here by the wire format."""

from __future__ import annotations

import pytest

from switch.p4rt.device_config import program_of

JSON = b'{"program": "' + b"x" * 200 + b'"}'
LENGTH = bytes((0x80 | len(JSON) & 0x7F, len(JSON) >> 7))  # a varint of two bytes: 215 is 0xD7 0x01
REASSIGN = b"\x08\x01"  # field 1, varint, true
EXTRAS = b"\x12\x02\x0a\x00"  # field 2, two bytes
DATA = b"\x1a" + LENGTH + JSON  # field 3


def test_json_is_taken_as_it_is() -> None:
    assert LENGTH == b"\xd7\x01"
    assert program_of(JSON) == JSON
    assert program_of(b"\n  " + JSON) == b"\n  " + JSON


@pytest.mark.parametrize("message", [DATA, REASSIGN + DATA, EXTRAS + DATA + REASSIGN])
def test_json_inside_the_message_is_found(message: bytes) -> None:
    assert program_of(message) == JSON


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\x08",
        b"\x1a\xff",
        b"\x1a\x05abc",
        b"\x22\x01a",
        b"\x0a\x01a",
        REASSIGN,
        b"\xff" * 12,
        DATA[:-1],
        b"hello",
    ],
)
def test_anything_else_is_left_for_the_loader_to_refuse(junk: bytes) -> None:
    assert program_of(junk) == junk
