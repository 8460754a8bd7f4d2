"""`python -m tests.stf DIRECTORY`: conformance of our switch to the packet tests of a directory of P4 programs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from . import engines, report, suite


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stf", description=__doc__)
    parser.add_argument("directory", type=Path, help="where .p4 files with .stf files beside them are, at any depth")
    parser.add_argument("--engine", choices=(*engines.NAMES, "both"), default="both")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at a time (default: 1)")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the results into this page, between its markers"
    )
    return parser.parse_args()


def _progress(result: suite.Result, done: int, total: int) -> None:
    reason = f": {result.reason}" if result.reason else ""
    print(f"[{done}/{total}] {result.name}: {result.status}{reason}", flush=True)


def main() -> int:
    """0: nothing failed; 1: something did; 2: wrong use."""
    arguments = _arguments()
    directory: Path = arguments.directory
    try:
        version = suite.compiler_version()
        if not directory.is_dir():
            raise NotADirectoryError(f"{directory} is not a directory")
        if arguments.jobs < 1:
            raise ValueError(f"--jobs {arguments.jobs}: must be at least 1")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"tests.stf: {error}", file=sys.stderr)
        return 2
    names = engines.NAMES if arguments.engine == "both" else (arguments.engine,)
    results = suite.run_directory(directory, names, arguments.jobs, _progress)
    print(report.totals(results))
    if arguments.write is not None:
        report.write(arguments.write, results, names, version)
    return 1 if any(result.status == suite.FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
