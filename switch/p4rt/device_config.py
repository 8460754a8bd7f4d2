"""The program in a p4_device_config: BMv2's JSON itself, or inside p4.tmp.P4DeviceConfig.

The message (PI, proto/p4/tmp/p4config.proto) came before P4Runtime 1.0 and is deprecated, but p4lang's tutorials and
what was copied from them still send it. Of its fields (1 reassign: bool, 2 extras: message, 3 device_data: bytes) only
the last matters.
"""

from __future__ import annotations

_VARINT, _LENGTH = 0, 2
_WIRE_TYPES = {1: _VARINT, 2: _LENGTH, 3: _LENGTH}
_DEVICE_DATA = 3


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends). IndexError where the data end before, ValueError for more than ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("varint of more than ten bytes")


def program_of(config: bytes) -> bytes:
    """The JSON text. What is neither JSON nor that message comes back as it is, for the loader to refuse."""
    if not config or config.lstrip()[:1] == b"{":
        return config
    program, at = b"", 0
    try:
        while at < len(config):
            key, at = _varint(config, at)
            if _WIRE_TYPES.get(key >> 3) != key & 7:
                return config
            length, at = _varint(config, at)
            if key & 7 == _LENGTH:
                if at + length > len(config):
                    return config
                if key >> 3 == _DEVICE_DATA:
                    program = config[at : at + length]
                at += length
    except (IndexError, ValueError):
        return config
    return program or config
