"""Scapy layers of 802.1Qau for the tests: CN-TAG and congestion notification message (reference/dcb.md 6.4)."""

from __future__ import annotations

from scapy.fields import (
    BitField,
    LenField,
    MACField,
    ShortField,
    SignedShortField,
    StrLenField,
    XLongField,
    XShortEnumField,
)
from scapy.layers.l2 import ETHER_TYPES, Dot1Q, Ether
from scapy.packet import Packet, bind_layers

CNM = 0x22E7
CN_TAG = 0x22E9


class CnTag(Packet):  # type: ignore[misc]
    name = "CN-TAG"
    fields_desc = [ShortField("flow_id", 0), XShortEnumField("type", 0x0800, ETHER_TYPES)]  # noqa: RUF012


class Cnm(Packet):  # type: ignore[misc]
    name = "Congestion notification message"
    fields_desc = [  # noqa: RUF012 (scapy's way)
        BitField("version", 0, 4),
        BitField("reserved", 0, 6),
        BitField("feedback", 0, 6),
        XLongField("cpid", 0),
        SignedShortField("q_offset", 0),  # 64 bytes
        SignedShortField("q_delta", 0),
        BitField("priority", 0, 3),
        BitField("reserved_priority", 0, 13),
        MACField("dst", None),
        LenField("msdu_len", None),
        StrLenField("msdu", b"", length_from=lambda cnm: cnm.msdu_len),
    ]


bind_layers(Ether, CnTag, type=CN_TAG)
bind_layers(Dot1Q, CnTag, type=CN_TAG)
for lower in (Ether, Dot1Q, CnTag):
    bind_layers(lower, Cnm, type=CNM)
