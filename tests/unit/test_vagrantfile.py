"""The Vagrantfile is Ruby that parses, and the script in it is shell that parses and does what the README needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

VAGRANTFILE = Path(__file__).resolve().parents[2] / "Vagrantfile"


def provisioning() -> str:
    found = re.search(r"inline: <<~'SHELL'\n(.*?)^\s*SHELL$", VAGRANTFILE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, "no inline provisioning script"
    return textwrap.dedent(found[1])


@pytest.mark.skipif(
    shutil.which("ruby") is None, reason="ruby is not installed: the Vagrantfile's syntax is not checked"
)
def test_the_vagrantfile_is_ruby() -> None:
    done = subprocess.run(["ruby", "-wc", VAGRANTFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "Syntax OK", "")


def test_the_provisioning_script_is_shell() -> None:
    done = subprocess.run(["bash", "-n"], input=provisioning(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    command = ["shellcheck", "--shell=bash", "--exclude=SC1091", "-"]  # SC1091: os-release is the machine's own
    done = subprocess.run(command, input=provisioning(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_repository_is_written_as_p4lang_documents_it(tmp_path: Path) -> None:
    """The key and the list line that the script makes, with curl and gpg replaced by words that say what they got.

    Their README files (p4c, behavioral-model, July 2026) have `home:p4lang` for the key, `home:/p4lang` for the list.
    """
    lines = provisioning().replace("\\\n", " ").splitlines()
    chosen = [line for line in lines if line.startswith(("repositories=", "curl ", "echo "))]
    assert len(chosen) == 3
    script = "\n".join(chosen).replace("/usr/share/keyrings/p4lang.gpg", f"{tmp_path}/key", 1)
    script = script.replace("/etc/apt/sources.list.d", str(tmp_path))
    words = f'VERSION_ID=24.04; curl() {{ echo "$2"; }}; gpg() {{ cat > "$4"; }}\n{script}'
    subprocess.run(["bash", "-euo", "pipefail", "-c", words], check=True)
    base = "https://download.opensuse.org/repositories"
    assert (tmp_path / "key").read_text() == f"{base}/home:p4lang/xUbuntu_24.04/Release.key\n"
    signed = "[signed-by=/usr/share/keyrings/p4lang.gpg]"
    assert (tmp_path / "p4lang.list").read_text() == f"deb {signed} {base}/home:/p4lang/xUbuntu_24.04/ /\n"


def test_it_installs_p4langs_packages_and_this_project() -> None:
    script = provisioning()
    assert "apt-get install -y -qq p4lang-p4c p4lang-bmv2" in script
    assert "make -C /home/vagrant/dcblab setup" in script
