#!/usr/bin/env python3
"""Compiles dcb.p4 with stock p4c into p4src/build and writes the manifest: what `make p4` runs.

Sources and p4c in; `dcb.json`, `dcb.p4info.txtpb`, the same of `dcb_bmv2` (-DTM_EMULATION, for a target without our
traffic manager) and `manifest.json` out. The same sources and p4c give the same
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
# name of a build -> flags of its own
VARIANTS = {"dcb": (), "dcb_bmv2": ("-DTM_EMULATION",)}
MANIFEST_NAME = "manifest.json"
OUTPUT_NAMES = tuple(name + ending for name in VARIANTS for ending in (".json", ".p4info.txtpb"))
# As typed at the root of the repository.
COMMAND = (
    f"p4c --target bmv2 --arch v1model --p4runtime-files {BUILD_DIRECTORY}/{P4INFO_NAME} "
    f"-o {BUILD_DIRECTORY} {SOURCE_DIRECTORY}/dcb.p4"
)
EMULATION_COMMAND = COMMAND.replace("dcb.p4info", "dcb_bmv2.p4info").replace(
    f"-o {BUILD_DIRECTORY} ", f"-o {BUILD_DIRECTORY}/dcb_bmv2.json -DTM_EMULATION "
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
    """SHA-256 of a BMv2 JSON without its source positions: what it does, wherever its lines are in the sources.

    p4c names what it makes of plain statements by file and line (`egress116`, `tbl_egress116`): these are numbered
    in the order in which they come.
    """
    stems = "|".join(path.stem for path in source_paths())
    by_line = re.compile(rf"(?:tbl_)?((?:{stems})\d+)(?:_\d+)?")
    numbers: dict[str, int] = {}

    def stripped(node: object) -> object:
        if isinstance(node, dict):
            return {str(stripped(key)): stripped(value) for key, value in node.items() if key != "source_info"}
        if isinstance(node, str) and (match := by_line.fullmatch(node)):
            return node.replace(match.group(1), f"line{numbers.setdefault(match.group(1), len(numbers))}")
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
    """Compiles every variant and leaves the outputs in `directory`.

    Raises BuildError where p4c is not on the PATH, fails, or warns: a warning in this program is a mistake in it.
    """
    p4c = shutil.which("p4c")
    if p4c is None:
        raise BuildError("p4c: not on the PATH; see docs/p4.md")
    for variant, flags in VARIANTS.items():
        _compile(p4c, variant, flags, directory, repository)


def _compile(p4c: str, variant: str, flags: tuple[str, ...], directory: Path, repository: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="dcb-p4-") as scratch_name:
        scratch = Path(scratch_name)
        command = [
            p4c,
            *flags,
            "--target",
            "bmv2",
            "--arch",
            "v1model",
            "--p4runtime-files",
            str(scratch / P4INFO_NAME),
        ]
        command += ["-o", str(scratch), f"{SOURCE_DIRECTORY}/dcb.p4"]
        result = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        diagnostics = (result.stdout + result.stderr).strip()
        reported = [line for line in diagnostics.splitlines() if "warning:" in line or "error:" in line]
        if result.returncode != 0 or any(EXPECTED_WARNING not in line for line in reported):
            raise BuildError(f"p4c: {variant}: exit code {result.returncode}\n{diagnostics}")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{variant}.json").write_text(relocate((scratch / JSON_NAME).read_text()))
        (directory / f"{variant}.p4info.txtpb").write_text((scratch / P4INFO_NAME).read_text())


def manifest(version: str, directory: Path, repository: Path = REPOSITORY) -> str:
    """The text of the manifest for the sources as they are and the outputs in `directory`."""
    content = {
        "p4c": version,
        "command": COMMAND,
        "command of dcb_bmv2": EMULATION_COMMAND,
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
