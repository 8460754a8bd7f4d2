"""The C interface of the event engine for ctypes: structures of `fabric/native/fabric.h`, prototypes, the loader."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any, Final

from fabric.build import build_engine

NEVER_PS: Final = (1 << 64) - 1
MAX_PORTS: Final = 512
PRIORITIES: Final = 8
STOP_TIME, STOP_EVENT, STOP_SLICE, STOP_BROKEN = range(4)

P = ctypes.c_void_p
U32, U64 = ctypes.c_uint32, ctypes.c_uint64


class Ops(ctypes.Structure):
    """fab_ops_t: addresses of functions of the part's own library; 0: none."""

    _fields_ = tuple(
        (name, P)
        for name in (
            *("receive", "next_deadline", "advance", "events", "wait", "release"),
            *("check", "check_arg", "read_stats", "live"),
        )
    )


class Stats(ctypes.Structure):
    """fab_stats_t."""

    _fields_ = (
        *(
            (name, U64)
            for name in (
                *("sent_frames", "sent_bytes", "delivered_frames", "delivered_bytes"),
                *("lost_error", "lost_pfc", "lost_down", "lost_unknown"),
                *("in_flight", "late_frames", "wire_bits", "pfc_frames"),
            )
        ),
        *((name, U64 * PRIORITIES) for name in ("xoff", "xon", "pauses", "paused_ps")),
    )


class Source(ctypes.Structure):
    """fab_source_t."""

    _fields_ = (("read", P), ("object", P), ("kind", U32), ("index", U32))


class Closed:
    """In place of the library of a fabric that is closed: whatever it is asked, it raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


@cache
def load(sanitize: bool | None = None) -> ctypes.CDLL:
    """The engine; `sanitize` None: as $DCB_TEST_SANITIZE says."""
    if sanitize is None:
        sanitize = os.environ.get("DCB_TEST_SANITIZE") == "1"
    lib = ctypes.CDLL(str(build_engine(sanitize=sanitize)), use_errno=True)
    text = ctypes.c_char_p
    flag, i32, i64 = ctypes.c_bool, ctypes.c_int, ctypes.c_int64
    pointer = ctypes.POINTER
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "fab_create": (P, [U64, U64, flag, flag]),
        "fab_destroy": (None, [P]),
        "fab_add_part": (i64, [P, pointer(Ops), P]),
        "fab_get_part": (P, [P, U32]),
        "fab_forget_part": (None, [P, U32]),
        "fab_replace_part": (i32, [P, U32, pointer(Ops), P]),
        "fab_connect": (i64, [P, U32, U32, U32, U32, U64, U64]),
        "fab_run": (i32, [P, U64, U64]),
        "fab_wait": (None, [P, U64]),
        "fab_now": (U64, [P]),
        "fab_next": (U64, [P]),
        "fab_error": (text, [P]),
        "fab_take_events": (U32, [P, pointer(U32), U32]),
        "fab_check": (text, [P]),
        "fab_totals": (None, [P, pointer(U64)]),
        "fab_get_dir": (P, [P, U32]),
        "fab_set_wire": (i32, [P, U32, U64, U64, U64, U64]),
        "fab_set_errors": (i32, [P, U32, U64, U64, U64]),
        "fab_set_paired": (None, [P, U32, flag]),
        "fab_set_up": (i32, [P, U32, flag]),
        "fab_read_stats": (None, [P, U32, pointer(Stats)]),
        "fab_capture": (i32, [P, U32, text]),
        "fab_dir_read": (U64, [P, U32, U32, U64]),
        "fab_add_sampler": (i64, [P, U64, U64, U64, pointer(Source), U32]),
        "fab_take_samples": (U64, [P, U32, P, U64]),
        "fab_sample_rows": (U64, [P, U32]),
        "fab_point_source": (i32, [P, U32, U32, pointer(Source)]),
        "tester_create": (P, [U64, U32, U32]),
        "tester_destroy": (None, [P]),
        "tester_set_output": (None, [P, P, P]),
        "tester_add_flow": (i32, [P, pointer(text), pointer(U32), U32, U32, U64, U64, U64, U32]),
        "tester_stop_flow": (i32, [P, U32]),
        "tester_set_record": (None, [P, U64]),
        "tester_take": (U64, [P, P, U64]),
        "tester_read": (U64, [P, U32, U32, U64]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib


def address(lib: ctypes.CDLL, name: str) -> int:
    """Where a function of a library is; 0 where the library has none of that name."""
    function = getattr(lib, name, None)
    return 0 if function is None else ctypes.cast(function, P).value or 0
