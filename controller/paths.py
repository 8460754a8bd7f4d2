"""Where the files of a running lab are."""

from __future__ import annotations

import os
from pathlib import Path


def control_socket(lab: str = "lab") -> Path:
    """Path of the control socket of a lab: $DCBLAB_RUN (default /run/dcblab) / lab / controller.sock."""
    return Path(os.environ.get("DCBLAB_RUN") or "/run/dcblab") / lab / "controller.sock"
