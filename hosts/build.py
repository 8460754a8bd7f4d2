"""Compiles the C programs of the end stations and keeps them, named by the hash of everything that made them.

Sources are package data in `hosts/native`; results go to `$DCBLAB_CACHE` (default `~/.cache/dcblab`). Two processes
that build at once do the work twice and the second rename wins: both files are the same.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

NATIVE = Path(__file__).parent / "native"
PROGRAMS: dict[str, tuple[str, ...]] = {
    "roce": (
        *("roce.c", "send_main.c", "send.c", "recv.c", "replay.c"),
        *("frame.c", "crc.c", "pfc.c", "socket.c", "util.c"),
    ),
    "forwarder": ("forwarder.c", "pfc.c", "socket.c", "util.c"),
    "flood": ("flood.c", "pfc.c", "socket.c", "util.c"),
}
LIBRARIES: dict[str, tuple[str, ...]] = {
    "nic": (
        *("nic.c", "nic_books.c", "nic_raw.c", "nic_pfc.c", "nic_rdma.c", "nic_responder.c", "nic_dcqcn.c"),
        *("nic_qcn.c", "nic_cnm.c", "nic_tcp.c", "crc.c", "pfc.c"),
    ),
}
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
SANITIZE = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


class BuildError(OSError):
    """No C compiler, or it refused a source; the message carries what it said."""


def cache_dir() -> Path:
    """Where built programs are kept: $DCBLAB_CACHE, else ~/.cache/dcblab (as in `switch.build`)."""
    given = os.environ.get("DCBLAB_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "dcblab"


def build(program: str, *, sanitize: bool = False) -> Path:
    """The executable of a program in `PROGRAMS`, or the shared object of one in `LIBRARIES`, from the cache or new.

    `sanitize`: with AddressSanitizer and UndefinedBehaviorSanitizer. Raises `BuildError`.
    """
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    library = program in LIBRARIES
    sources = [NATIVE / name for name in (LIBRARIES if library else PROGRAMS)[program]]
    command = [*compiler, *FLAGS, *(("-fPIC", "-shared") if library else ()), *(SANITIZE if sanitize else ())]
    digest = hashlib.sha256("\0".join([platform.machine(), *command]).encode())
    for path in sorted([*sources, *NATIVE.glob("*.h")]):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    directory = cache_dir()
    target = directory / f"{program}-{digest.hexdigest()[:20]}"
    if target.exists():
        return target
    if shutil.which(compiler[0]) is None:
        raise BuildError(
            f"there is no C compiler: {compiler[0]!r} is not on the PATH. Install one (apt install gcc), or set CC"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"the cache directory {directory} cannot be made: {error}; set DCBLAB_CACHE") from error
    handle, temporary = tempfile.mkstemp(prefix=f"{program}-", dir=directory)
    os.close(handle)
    try:
        everything = [*command, *map(str, sources), "-o", temporary]
        done = subprocess.run(everything, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command)} failed for {program}:\n{done.stderr.strip()}")
        Path(temporary).chmod(0o755)
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target
