#!/usr/bin/env python3
"""Compiles dcb.p4 with stock p4c into p4src/build and writes the manifest: what `make p4` runs.

Sources and p4c in, `dcb.json`, `dcb.p4info.txtpb` and `manifest.json` out. The same sources and p4c give the same
bytes wherever the repository and p4c lie: the compiler runs in the repository with relative paths, and the names of its
own include files are cut down to their base names. Only the standard library, so that it runs before the environment is
made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE_DIRECTORY = Path("p4src")
BUILD_DIRECTORY = SOURCE_DIRECTORY / "build"
JSON_NAME = "dcb.json"
P4INFO_NAME = "dcb.p4info.txtpb"
MANIFEST_NAME = "manifest.json"
OUTPUT_NAMES = (JSON_NAME, P4INFO_NAME)
# As typed at the root of the repository.
COMMAND = (
    f"p4c --target bmv2 --arch v1model --p4runtime-files {BUILD_DIRECTORY}/{P4INFO_NAME} "
    f"-o {BUILD_DIRECTORY} {SOURCE_DIRECTORY}/dcb.p4"
)
# The one warning that is no mistake: BMv2 takes no default action with a selector, and ours asks for none.
EXPECTED_WARNING = "does not support default_action for .ingress.nexthop (due to action profiles)"


class BuildError(Exception):
    """p4c is missing, failed, or warned."""


def source_paths(repository: Path = REPOSITORY) -> list[Path]:
    """Every P4 source, sorted, relative to the repository."""
    return sorted(path.relative_to(repository) for path in (repository / SOURCE_DIRECTORY).glob("*.p4"))


def sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def meaning_sha256(json_text: str) -> str:
    """SHA-256 of a BMv2 JSON without its source positions: what it does, whatever comments the sources hold."""

    def stripped(node: object) -> object:
        if isinstance(node, dict):
            return {key: stripped(value) for key, value in node.items() if key != "source_info"}
        return [stripped(item) for item in node] if isinstance(node, list) else node

    text = json.dumps(stripped(json.loads(json_text)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def p4c_version(p4c: str) -> str:
    """The version line that `p4c --version` prints last, as `1.2.5 (SHA: ... BUILD: ...)`.

    Raises BuildError where p4c does not run or says nothing of a version.
    """
    result = subprocess.run([p4c, "--version"], capture_output=True, text=True, check=False)
    match = re.search(
        r"Version (\S+(?: \([^)]*\))?)|^p4c (\S+(?: \([^)]*\))?)", result.stdout + result.stderr, re.MULTILINE
    )
    if match is None:
        raise BuildError(f"{p4c} --version: no version in {result.stdout + result.stderr!r}")
    return match.group(1) or match.group(2)


def relocate(text: str) -> str:
    """Cuts what depends on the machine out of the JSON of p4c: paths of its include files and of its input."""
    text = re.sub(r'"[^"\n]*/p4include/([^"/\n]+)"', r'"\1"', text)
    return re.sub(r'^(  "program" : )"[^"\n]*"', rf'\1"{SOURCE_DIRECTORY}/dcb.p4"', text, flags=re.MULTILINE)


def compile_into(directory: Path, repository: Path = REPOSITORY) -> None:
    """Compiles the program and leaves the two outputs in `directory`.

    Raises BuildError where p4c is not on the PATH, fails, or warns: a warning in this program is a mistake in it.
    """
    p4c = shutil.which("p4c")
    if p4c is None:
        raise BuildError("p4c: not on the PATH; see docs/p4.md")
    with tempfile.TemporaryDirectory(prefix="dcb-p4-") as scratch_name:
        scratch = Path(scratch_name)
        command = [p4c, "--target", "bmv2", "--arch", "v1model"]
        command += ["--p4runtime-files", str(scratch / P4INFO_NAME), "-o", str(scratch), f"{SOURCE_DIRECTORY}/dcb.p4"]
        result = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        diagnostics = (result.stdout + result.stderr).strip()
        reported = [line for line in diagnostics.splitlines() if "warning:" in line or "error:" in line]
        if result.returncode != 0 or any(EXPECTED_WARNING not in line for line in reported):
            raise BuildError(f"p4c: exit code {result.returncode}\n{diagnostics}")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / JSON_NAME).write_text(relocate((scratch / JSON_NAME).read_text()))
        (directory / P4INFO_NAME).write_text((scratch / P4INFO_NAME).read_text())


def manifest(version: str, directory: Path, repository: Path = REPOSITORY) -> str:
    """The text of the manifest for the sources as they are and the outputs in `directory`."""
    content = {
        "p4c": version,
        "command": COMMAND,
        "sources": {str(path): sha256(repository / path) for path in source_paths(repository)},
        "outputs": {name: sha256(directory / name) for name in OUTPUT_NAMES},
    }
    return json.dumps(content, indent=2) + "\n"


def main() -> int:
    """Builds; exit code 1 and one message on stderr where that fails."""
    parser = argparse.ArgumentParser(description=f"Compile the data plane into {BUILD_DIRECTORY} with p4c.")
    parser.parse_args()
    build = REPOSITORY / BUILD_DIRECTORY
    try:
        compile_into(build)
        version = p4c_version("p4c")
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    (build / MANIFEST_NAME).write_text(manifest(version, build))
    print(f"{BUILD_DIRECTORY}: built with p4c {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
