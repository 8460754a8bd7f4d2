"""The one exception of the P4Runtime server: a canonical code and a message that names field, value and rule.

Everything below `service` raises `P4RuntimeError`; `service` turns it into an RPC status, an `p4.v1.Error` of one
update, or a `StreamError`. A `switch.api.PipelineError` that a target raises becomes INVALID_ARGUMENT, or the code it
carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from switch.api import PipelineError


class Code(IntEnum):
    """Canonical codes (google.rpc.Code) that this server uses."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class P4RuntimeError(Exception):
    """A refused request. `str()` is the message without the code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> P4RuntimeError:
    """INVALID_ARGUMENT: the request is malformed or breaks a rule of P4Info."""
    return P4RuntimeError(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> P4RuntimeError:
    """NOT_FOUND: no such entity."""
    return P4RuntimeError(Code.NOT_FOUND, message)


def unimplemented(message: str) -> P4RuntimeError:
    """UNIMPLEMENTED: P4Runtime has it, this server or target does not."""
    return P4RuntimeError(Code.UNIMPLEMENTED, message)


@contextmanager
def target_errors(what: str) -> Iterator[None]:
    """Turn the target's refusal into an RPC error; `what` names the object, for the message.

    A target may put a canonical code into the attribute `code` of its PipelineError.
    """
    try:
        yield
    except PipelineError as error:
        code = Code(getattr(error, "code", Code.INVALID_ARGUMENT))
        raise P4RuntimeError(code, f"{what}: {error}") from error
