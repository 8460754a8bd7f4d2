"""The other end of the control socket: one request, one answer, blocking. What `dcbctl` uses; scripts may too."""

from __future__ import annotations

import json
import socket
from typing import Any

from controller.paths import control_socket

_TIMEOUT_SECONDS = 60.0


class ClientError(RuntimeError):
    """No answer, or an answer that says no. `code`: 2 wrong use, 1 failed."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def request(lab: str, method: str, **params: Any) -> Any:
    """Ask the controller of a lab. Raises ClientError."""
    path = control_socket(lab)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps({"method": method, "params": params}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline()
        except (FileNotFoundError, ConnectionRefusedError):
            raise ClientError(
                f"no controller answers at {path}: start one with `dcbctl run CONFIG --lab {lab}` or `dcblab run`"
            ) from None
        except OSError as error:
            raise ClientError(f"control socket {path}: {error}") from None
    if not line:
        raise ClientError(f"control socket {path}: closed without an answer")
    answer = json.loads(line)
    if not answer["ok"]:
        raise ClientError(answer["error"], answer["code"])
    return answer["result"]
