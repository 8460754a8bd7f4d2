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


def test_it_installs_p4langs_packages_and_this_project() -> None:
    script = provisioning()
    assert "apt-get install -y -qq p4lang-p4c p4lang-bmv2" in script
    assert "make -C /home/vagrant/dcblab setup" in script
