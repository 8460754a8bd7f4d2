"""p4runtime-shell, P4.org's interactive client, drives a switch on veth (tests/ptf/shell_session.py).

The shell needs other protobuf classes than ours, so it runs in an environment of its own (tests/ptf/shell_venv.py).
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from client_lab import PORTS, REPOSITORY, Lab
from scapy.all import IP, UDP, Ether  # type: ignore[attr-defined]
from shell_venv import NoShellError, shell_python

DATA = REPOSITORY / "tests/unit/p4rt_data"
SESSION = Path(__file__).with_name("shell_session.py")
LLDP = bytes.fromhex("0180c200000e02000000000188cc") + bytes(46)
FLOWS = 40
CLONE = {"embedded": (2, 64), "bmv2": (0, 0)}
"""Class of service and length of a clone session. PI refuses both: UNIMPLEMENTED, 'COS for clone sessions not supported
yet'; UNKNOWN, 'Error when creating clone session in target'."""
BMV2S_OWN = {"members": [1, 2, 2, 2], "multicast": [[2, 7], [1, 1]]}
"""PI makes a member of weight 3 three members, and reads back all of them; it turns replicas round."""


@pytest.fixture(scope="module")
def python() -> Path:
    """The shell's own Python."""
    try:
        return shell_python()
    except NoShellError as error:
        pytest.skip(str(error))


def udp(dst: str, source_port: int = 1000, eth_dst: str = "02:00:00:00:00:99") -> bytes:
    """60 bytes."""
    head = Ether(src="02:00:00:00:00:01", dst=eth_dst) / IP(src=f"10.8.0.{source_port % 250}", dst=dst)
    return bytes(head / UDP(sport=source_port, dport=4791) / bytes(18))


def next_frame(source: socket.socket) -> bytes:
    """The next that came in (a packet socket also sees what goes out)."""
    while True:
        data, address = source.recvfrom(2048)
        if address[2] != socket.PACKET_OUTGOING:
            return data


def test_a_session_of_the_shell(lab: Lab, python: Path) -> None:
    cos, length = CLONE[lab.target]
    command = [
        python, SESSION, lab.address, str(lab.device_id),
        DATA / "everything.p4info.txtpb", DATA / "everything.json", str(cos), str(length),
    ]  # fmt: skip
    with ExitStack() as stack:
        h = {port: stack.enter_context(lab.raw_socket(f"h{port}")) for port in PORTS}
        shell = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(shell.kill)
        assert shell.stdout is not None
        first = shell.stdout.readline()
        assert first == "ready\n", first + shell.communicate(timeout=20)[1]
        assert next_frame(h[3]) == bytes.fromhex("02000000000102000000000288b5") + bytes(46)  # the packet-out

        for port in (1, 3, 3):
            h[port].send(udp("10.9.1.2"))
            assert next_frame(h[2]) == udp("10.9.1.2", eth_dst="02:00:00:00:00:42")
        for flow in range(FLOWS):
            h[1].send(udp("10.7.0.1", flow))
        h[1].send(LLDP)  # behind the others: once it is there, they have left
        out, errors = shell.communicate("\n", timeout=30)
        assert shell.returncode == 0, errors
        found = json.loads(out)

        used: Counter[int] = Counter()
        for port in (2, 3):
            h[port].settimeout(0.2)
            try:
                while frame := next_frame(h[port]):
                    assert frame[:6] == bytes.fromhex("000000000002")
                    used[port] += 1
            except TimeoutError:
                pass
    assert used.total() == FLOWS
    assert used[3] > used[2] > 0  # weights 3 and 1

    (route,) = found.pop("routes")
    assert 'value: "\\n\\t\\000\\000" prefix_len: 16' in route
    assert "At index 0: ALREADY_EXISTS, '" in found.pop("twice")
    expected = {
        "members": [1, 2],
        "group": [[1, 1], [2, 3]],
        "multicast": [[1, 1], [2, 7]],
        "clone": [3, 4, cos, length],
        "meter": [1000, 100, 2000, 200],
        "punted": [[LLDP.hex(), ["01", "00", "01"]]],
        "counted": [1 + FLOWS + 1, 60 * (1 + FLOWS + 1)],
        "acl": [2, 2 * 60],
        "left": [0, 0, 1],
    }
    if lab.target == "bmv2":
        expected |= BMV2S_OWN
    assert found == expected
