"""Where a running lab keeps its sockets and process list, and where programs and results lie."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIPELINE_JSON = ROOT / "p4src" / "build" / "dcb.json"
LAB_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}")


def run_dir(lab: str) -> Path:
    """Folder of the lab's sockets: $DCBLAB_RUN (default /run/dcblab) / lab. ValueError for what is no name.

    A lab's folder is removed with the lab, so a name must not lead anywhere else.
    """
    if not LAB_NAME.fullmatch(lab):
        raise ValueError(f"lab {lab!r}: must be 1 to 32 of a-z, A-Z, 0-9, '_', '-', a letter or digit first")
    return Path(os.environ.get("DCBLAB_RUN", "/run/dcblab")) / lab


def switch_socket(lab: str, switch: str) -> Path:
    """P4Runtime socket of a switch; shorter than the 107 bytes that a Unix socket path may have."""
    return run_dir(lab) / f"{switch}.sock"


def results_dir(scenario: str) -> Path:
    """Folder for a scenario's results: $DCBLAB_RESULTS (default ./results) / scenario."""
    return Path(os.environ.get("DCBLAB_RESULTS", "results")) / scenario
