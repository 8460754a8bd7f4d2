"""A switch core on the hand-written pipeline `l2_pipeline.c`, and its frames. Compiled once per content."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from switch.core import SwitchCore

NATIVE = Path(__file__).resolve().parents[2] / "switch" / "native"
PIPELINE = Path(__file__).with_name("l2_pipeline.c")
SANITIZE = os.environ.get("DCB_TEST_SANITIZE") == "1"
WIRE_OVERHEAD = 24  # FCS, preamble, inter-frame gap
UNITS = tuple(path.name for path in sorted(NATIVE.glob("*.c")) if not path.name.startswith("pl_"))


def library(*, debug: bool = True, defines: tuple[str, ...] = ()) -> Path:
    """The shared object; `debug`: with tm_check() at every event."""
    flags = ["-std=gnu11", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror"]
    flags += ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZE else ["-O2"]
    flags += ["-DDCB_DEBUG"] if debug and not SANITIZE else []  # the plain run has checked the invariants
    flags += [f"-D{name}" for name in defines]
    units = [PIPELINE, *(NATIVE / name for name in UNITS)]
    digest = hashlib.sha256(" ".join(flags).encode())
    for path in [*units, *sorted(NATIVE.glob("*.h"))]:
        digest.update(path.read_bytes())
    cache = Path(tempfile.gettempdir()) / f"dcblab-tests-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    out = cache / f"l2_{digest.hexdigest()[:16]}.so"
    if not out.exists():
        partial = out.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", *flags, f"-I{NATIVE}", "-o", partial, *units], check=True)
        partial.rename(out)
    return out


def make(ports: range | tuple[int, ...] = range(1, 9), **arguments: int) -> SwitchCore:
    """A core with unlimited ports."""
    core = SwitchCore.from_library(library(), **arguments)
    for port in ports:
        core.tm.add_port(port)
    return core


LOSSLESS, CLONE_I2E, RESUBMIT, RECIRCULATE, CLONE_E2E, DIGEST, EGRESS_DROP, PRESERVE = (1 << n for n in range(8))
STAMP, TRUNCATE, PUSH = 1, 2, 4


def frame(
    length: int = 100,
    *,
    to: int = 2,
    priority: int = 0,
    pg: int = 0,
    flags: int = 0,
    group: int = 0,
    flags2: int = 0,
    tag: int = 0,
) -> bytes:
    """A frame of `length` bytes whose first address is `tag`."""
    head = tag.to_bytes(6, "big") + bytes(6) + struct.pack(">HHBBBHB", 0x88B5, to, priority, pg, flags, group, flags2)
    assert length >= len(head)
    return head + bytes(length - len(head))


def tag_of(data: bytes) -> int:
    return int.from_bytes(data[:6], "big")


def pfc(times: dict[int, int], vector: int | None = None) -> bytes:
    """A PFC frame that enables the priorities of `times` (or `vector`)."""
    enable = sum(1 << n for n in times) if vector is None else vector
    head = bytes.fromhex("0180c2000001020000000099880801010000")[:16] + struct.pack(">H", enable)
    return (head + struct.pack(">8H", *(times.get(n, 0) for n in range(8)))).ljust(60, b"\0")


def read_pfc(data: bytes) -> dict[int, int]:
    """Times by enabled priority."""
    assert len(data) == 60
    assert data[12:17] == bytes.fromhex("8808010100")
    times = struct.unpack(">8H", data[18:34])
    return {n: times[n] for n in range(8) if data[17] >> n & 1}


def is_pfc(data: bytes) -> bool:
    return data[12:16] == bytes.fromhex("88080101")


@dataclass(frozen=True)
class Stamp:
    """What egress saw."""

    instance: int
    rid: int
    keep: int
    enq_bytes: int
    deq_bytes: int
    enq_packets: int
    deq_packets: int
    enq_us: int
    wait_us: int
    egress_port: int
    ingress_port: int
    length: int
    priority: int


def stamp(data: bytes, offset: int = 0) -> Stamp:
    return Stamp(*struct.unpack_from(">BHBIIHHIIHHHB", data, 22 + offset))


def wire_ps(length: int, rate_bps: int) -> int:
    """Time that a frame takes on the wire, rounded down."""
    return (max(length, 60) + WIRE_OVERHEAD) * 8 * 10**12 // rate_bps


def fresh_tm_state(core: SwitchCore) -> None:
    """Every occupancy is 0 and no packet is held."""
    core.tm.check()
    assert core.packets_held == 0
    for number in range(8):
        assert core.tm.read_state("pool_used", number) == core.tm.read_state("headroom_pool_used", number) == 0
    for port in range(10):
        for n in range(8):
            for kind in ("queue_depth", "queue_packets", "pg_depth", "pg_headroom", "pg_xoff"):
                assert core.tm.read_state(kind, port * 8 + n) == 0, (kind, port, n)
