"""The C interface of a built program for ctypes: structures of switch/native/abi.h and prototypes of pl_tables.h."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

ABI_VERSION: Final = 1
PKT_HEADROOM: Final = 256
WORD: Final = (1 << 64) - 1
KIND_ACTION, KIND_MEMBER, KIND_GROUP = 0, 1, 2

RULES: Final = {
    -1: "is full",
    -2: "no entry has this handle",
    -3: "the member does not exist",
    -4: "the group does not exist",
    -5: "is in use",
    -6: "out of memory",
    -7: "a value is out of range",
    -8: "an entry with this key exists",
    -9: "has no direct meter",
}


class PlRequests(ctypes.Structure):
    _fields_ = (
        ("clone", ctypes.c_uint8),
        ("resubmit", ctypes.c_uint8),
        ("recirculate", ctypes.c_uint8),
        ("exited", ctypes.c_uint8),
        ("clone_field_list", ctypes.c_int32),
        ("resubmit_field_list", ctypes.c_int32),
        ("recirculate_field_list", ctypes.c_int32),
        ("clone_session", ctypes.c_uint32),
        ("truncate_bytes", ctypes.c_uint32),
    )


class PlPacket(ctypes.Structure):
    """pkt_t of abi.h, without the PHV that follows it."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("buf", ctypes.c_void_p),
        ("buf_bytes", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("len", ctypes.c_uint32),
        ("payload_offset", ctypes.c_uint32),
        ("packet_length", ctypes.c_uint32),
        ("rx_ps", ctypes.c_uint64),
        ("req", PlRequests),
        ("enq_ps", ctypes.c_uint64),
        ("charged_bytes", ctypes.c_uint32),
        ("priority", ctypes.c_uint8),
        ("unsampled", ctypes.c_uint8),
        ("spare", ctypes.c_uint8 * 2),
        ("in_port", ctypes.c_uint16),
        ("out_port", ctypes.c_uint16),
        ("queue", ctypes.c_uint8),
        ("pg", ctypes.c_uint8),
        ("lossless", ctypes.c_uint8),
        ("refs_spare", ctypes.c_uint8),
    )


class PlField(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("cell", ctypes.c_uint32), ("bits", ctypes.c_uint32))


class PlCount(ctypes.Structure):
    _fields_ = (("packets", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


_P = ctypes.c_void_p
_PACKET_FN = ctypes.CFUNCTYPE(None, _P, _P)
DIGEST_SINK = ctypes.CFUNCTYPE(None, _P, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint8), ctypes.c_uint32)
LOG_SINK = ctypes.CFUNCTYPE(None, _P, ctypes.c_char_p)


class PlProgram(ctypes.Structure):
    """pl_program_t of abi.h."""

    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("phv_bytes", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("fields", ctypes.POINTER(PlField)),
        ("n_fields", ctypes.c_uint32),
        ("headroom_bytes", ctypes.c_uint32),
        ("create", ctypes.CFUNCTYPE(_P, ctypes.c_uint64)),
        ("destroy", ctypes.CFUNCTYPE(None, _P)),
        ("clock", ctypes.CFUNCTYPE(None, _P, ctypes.c_uint64)),
        ("set_drop_port", ctypes.CFUNCTYPE(None, _P, ctypes.c_uint32)),
        ("reset_phv", ctypes.CFUNCTYPE(None, _P)),
        ("reset_metadata", ctypes.CFUNCTYPE(None, _P)),
        ("parse", _PACKET_FN),
        ("ingress", _PACKET_FN),
        ("egress", _PACKET_FN),
        ("deparse", _PACKET_FN),
        ("copy_fields", ctypes.CFUNCTYPE(None, _P, ctypes.c_int32, _P, _P)),
        ("set_digest_sink", ctypes.CFUNCTYPE(None, _P, DIGEST_SINK, _P)),
        ("set_log_sink", ctypes.CFUNCTYPE(None, _P, LOG_SINK, _P)),
    )


_U64S: Final = ctypes.POINTER(ctypes.c_uint64)
_U32: Final = ctypes.c_uint32
_U64: Final = ctypes.c_uint64
_PROTOTYPES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "pl_program": (ctypes.POINTER(PlProgram), ()),
    "pl_table_insert": (
        ctypes.c_int64,
        (_P, _U32, _U64S, _U64S, _U64S, _U32, ctypes.c_int64, _U32, _U32, _U64S, _U32),
    ),
    "pl_table_modify": (ctypes.c_int, (_P, _U32, _U64, _U32, _U32, _U64S, _U32)),
    "pl_table_delete": (ctypes.c_int, (_P, _U32, _U64)),
    "pl_table_set_default": (ctypes.c_int, (_P, _U32, _U32, _U32, _U64S, _U32)),
    "pl_table_reset_default": (ctypes.c_int, (_P, _U32)),
    "pl_table_hit_age_us": (ctypes.c_int64, (_P, _U32, _U64)),
    "pl_direct_counter": (ctypes.c_int, (_P, _U32, _U64, ctypes.POINTER(PlCount), ctypes.c_int)),
    "pl_direct_meter": (ctypes.c_int, (_P, _U32, _U64, _U64S)),
    "pl_member_set": (ctypes.c_int, (_P, _U32, _U32, _U32, _U64S, _U32)),
    "pl_member_delete": (ctypes.c_int, (_P, _U32, _U32)),
    "pl_group_set": (ctypes.c_int, (_P, _U32, _U32, ctypes.POINTER(_U32), ctypes.POINTER(_U32), _U32)),
    "pl_group_delete": (ctypes.c_int, (_P, _U32, _U32)),
    "pl_counter": (ctypes.c_int, (_P, _U32, _U32, ctypes.POINTER(PlCount), ctypes.c_int)),
    "pl_counter_all": (ctypes.c_int, (_P, _U32, ctypes.POINTER(PlCount), _U32)),
    "pl_register": (ctypes.c_int, (_P, _U32, _U32, _U64S, ctypes.c_int)),
    "pl_meter_set": (ctypes.c_int, (_P, _U32, _U32, _U64S)),
    "pl_vset_write": (ctypes.c_int, (_P, _U32, _U64S, _U32)),
    "pl_failed_asserts": (ctypes.c_uint64, (_P,)),
    "pl_bench": (ctypes.c_uint64, (_P, ctypes.c_char_p, _U32, _U64, ctypes.POINTER(_U32), _U64, _U64S)),
}


def load_library(path: Path) -> ctypes.CDLL:
    """A built program as a library of its own; its prototypes are set."""
    library = ctypes.CDLL(str(path))
    prepare(library)
    return library


def prepare(library: ctypes.CDLL) -> None:
    """Sets the prototypes of the pipeline's functions on a loaded library."""
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
