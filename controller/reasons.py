"""What the cells of drop counters and of `pfc_rx_invalid` stand for (docs/contract.md, 2 and 3), in words."""

from __future__ import annotations

DROPS = {
    "ingress.drops": (
        "no route",
        "parser error",
        "not forwardable",
        "ACL",
        "IPv4 header checksum",
        "egress not configured",
        "multicast or broadcast MAC",
        "other",
    ),
    "egress.tm_drop_rx": ("receive ring overrun", "frame too long", "no memory", "", "", "", "", ""),
}
DROPS_BY_QUEUE = {"egress.tm_drop_queue": "queue limit", "egress.tm_drop_port": "egress port unknown or down"}
DROPS_BY_GROUP = {
    "egress.tm_drop_pg": "priority group limit",
    "egress.tm_drop_headroom": "headroom",
    "egress.tm_drop_pool": "pool",
}
PFC_INVALID = ("destination", "length", "pad", "opcode", "zero vector", "high byte set (accepted)", "", "")
DROPS_BY_PRIORITY = {
    "egress.ecn_dropped": "ECN, not ECT",
    "egress.tm_drop_storm_tx": "PFC storm, egress",
    "egress.tm_drop_storm_rx": "PFC storm, ingress",
}
