"""`dcbswitch`: flags as simple_switch_grpc's users write them, the ready line, signals, exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc
from p4rt_client import EVERYTHING_JSON, EVERYTHING_P4INFO

from switch.cli import DEFAULT_ADDRESS, UsageError, parse

COMMAND = [sys.executable, "-m", "switch.cli"]


def test_defaults() -> None:
    options = parse(["--no-p4"])
    assert (options.address, options.device_id, options.cpu_port, options.drop_port, options.priority_queues) == (
        DEFAULT_ADDRESS, 0, 510, 511, 8,
    )  # fmt: skip
    assert DEFAULT_ADDRESS == "127.0.0.1:9559"  # never all addresses
    assert (options.interfaces, options.program, options.pcap_dir) == ({}, None, None)


def test_a_mininet_script_s_command_line() -> None:
    options = parse(
        [
            "-i",
            "1@s1-eth1",
            "-i",
            "2@s1-eth2",
            "--pcap",
            "pcaps",
            "--nanolog",
            "ipc:///tmp/bm.ipc",
            "--device-id",
            "3",
            "--log-console",
            "--log-file",
            "l",
            "--thrift-port",
            "9090",
            "build/basic.json",
            "--",
            "--grpc-server-addr",
            "127.0.0.1:50051",
            "--cpu-port",
            "255",
            "--priority-queues",
            "4",
        ]
    )
    assert options.interfaces == {1: "s1-eth1", 2: "s1-eth2"}
    assert (options.program, options.pcap_dir, options.device_id) == (Path("build/basic.json"), Path("pcaps"), 3)
    assert (options.address, options.cpu_port, options.priority_queues) == ("127.0.0.1:50051", 255, 4)
    assert [notice.partition(":")[0] for notice in options.notices] == ["--thrift-port", "--nanolog"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("--pcap x.json", "."),
        ("--pcap=d x.json", "d"),
        ("--pcap d x.json", "d"),
        ("x.json --pcap", "."),
        ("--pcap -L off x.json", "."),
    ],
)
def test_pcap_may_leave_its_directory_out(given: str, wanted: str) -> None:
    options = parse(given.split())
    assert (options.pcap_dir, options.program) == (Path(wanted), Path("x.json"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "program.json or --no-p4: one of them must be given"),
        ("--no-p4 x.json", "--no-p4 and x.json: only one"),
        ("--no-p4 --p4info f", "--p4info f: needs program.json"),
        ("--no-p4 -i veth0", "-i veth0: must be PORT@IFACE"),
        ("--no-p4 -i x@veth0", "-i x@veth0: must be PORT@IFACE"),
        ("--no-p4 -i 1@", "-i 1@: must be PORT@IFACE"),
        ("--no-p4 -i 512@v", "port must be 0..511"),
        ("--no-p4 -i 510@v", "not the CPU port 510"),
        ("--no-p4 -i 1@v -i 1@w", "port 1 is given twice"),
        ("--no-p4 -i 1@v -i 2@v", "interface v is given twice"),
        ("--no-p4 -- --cpu-port 600", "--cpu-port 600: must be 0..511"),
        ("--no-p4 -- --cpu-port 511", "must differ from --drop-port"),
        ("--no-p4 -- --priority-queues 9", "--priority-queues 9: must be 1..8"),
        ("--no-p4 --device-id -1", "--device-id -1"),
        ("--no-p4 --grpc-server-ssl", "needs --grpc-server-key and --grpc-server-cert"),
    ],
)
def test_wrong_use(given: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(given.split())
    assert said in str(caught.value)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_exit_statuses(tmp_path: Path) -> None:
    wrong = run("--no-p4", "-i", "veth0")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "dcbswitch: -i veth0: must be PORT@IFACE, as in 1@veth0\n"
    program = tmp_path / "bad.json"
    program.write_text("{}")
    failed = run(str(program), "--", "--grpc-server-addr", f"unix:{tmp_path}/s")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "dcbswitch: " in failed.stderr
    assert "Traceback" not in failed.stderr
    missing = run(str(tmp_path / "none.json"), "--", "--grpc-server-addr", f"unix:{tmp_path}/s")
    assert missing.returncode == 1
    assert "none.json" in missing.stderr


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (["--log-file", "/nonexistent/log"], 1, "--log-file /nonexistent/log: No such file or directory"),
        (["--ready-file", "/nonexistent/ready"], 1, "--ready-file /nonexistent/ready: No such file or directory"),
        (["--pcap", "/proc/nonexistent"], 1, "--pcap /proc/nonexistent: No such file or directory"),
        (["--ready-fd", "777"], 1, "--ready-fd 777: Bad file descriptor"),
        (["--ready-fd", "-1"], 2, "--ready-fd -1: must not be negative"),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path: Path, flags: list[str], status: int, said: str) -> None:
    failed = run("--no-p4", *flags, "--", "--grpc-server-addr", f"unix:{tmp_path}/s")
    assert (failed.returncode, failed.stderr) == (status, f"dcbswitch: {said}\n")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CC", "/nonexistent/cc", "there is no C compiler: '/nonexistent/cc' is not on the PATH. Install one"),
        ("DCBLAB_CACHE", "/proc/nonexistent", "the cache directory /proc/nonexistent cannot be made"),
    ],
)
def test_a_program_that_cannot_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv("DCBLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(name, value)
    failed = run(str(EVERYTHING_JSON), "--", "--grpc-server-addr", f"unix:{tmp_path}/s")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith(f"dcbswitch: {said}"), failed.stderr


def test_serves_until_sigterm(tmp_path: Path) -> None:
    socket, ready_file = tmp_path / "s.sock", tmp_path / "ready"
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "--no-p4", "--device-id", "3", "--ready-fd", str(writing), "--ready-file", str(ready_file),
         "--log-file", str(tmp_path / "log"), "--", "--grpc-server-addr", f"unix:{socket}"],
        stdout=subprocess.PIPE, pass_fds=[writing], text=True,
    )  # fmt: skip
    try:
        os.close(writing)
        with os.fdopen(reading) as pipe:
            line = pipe.read()  # until the switch closes it
        assert json.loads(line) == {
            "ready": True, "device_id": 3, "grpc": f"unix:{socket}", "ports": {}, "program": None, "pid": process.pid,
        }  # fmt: skip
        assert ready_file.read_text() == line
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            reply = p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=10)
        assert reply.p4runtime_api_version == "1.4.1"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
        assert (process.returncode, output) == (0, line)
        assert (socket.exists(), ready_file.exists()) == (False, False)
        assert "device 3 serves P4Runtime" in (tmp_path / "log.txt").read_text()
    finally:
        process.kill()


def test_a_program_and_its_p4info_from_the_command_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(EVERYTHING_JSON), "--p4info", str(EVERYTHING_P4INFO),
         "--", "--grpc-server-addr", f"unix:{tmp_path}/s"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["program"] == str(EVERYTHING_JSON)
        with grpc.insecure_channel(f"unix:{tmp_path}/s") as channel:
            request = p4r.GetForwardingPipelineConfigRequest(device_id=0)
            config = p4r_grpc.P4RuntimeStub(channel).GetForwardingPipelineConfig(request, timeout=10).config
        assert config.p4_device_config == EVERYTHING_JSON.read_bytes()
        assert not config.HasField("cookie")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
