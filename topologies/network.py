"""A Mininet network from a `Topology`: `with FabricNetwork(topology) as net:`.

Every switch and every host has a network namespace of its own; links are veth pairs. The network owns its processes:
each dies with this process (parent-death signal; Mininet's shells die with their terminal), so even SIGKILL leaves no
namespace behind, and `clean()` takes away what an older crash may have left. It starts switches and hosts and nothing
else: the controller and traffic are the caller's.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from switch.build import BuildError, build_program
from topologies.description import GATEWAY_IP4, GATEWAY_IP6, Endpoint, Host, Switch, Topology
from topologies.paths import PIPELINE_JSON, run_dir, switch_socket

# util-linux; a preexec_fn would fork this process, which gRPC's threads do not survive
DIE_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]
CPU_PORT = 510
SWITCH_READY_TIMEOUT_S = 60.0  # the first start compiles the pipeline
STOP_TIMEOUT_S = 5.0
NIC_BURST_BYTES = 3_200  # two frames; above 25 Mb/s, what a millisecond carries
NIC_QUEUE_BYTES = 1_000_000
BMV2 = "simple_switch_grpc"
THRIFT_PORT = 9090  # of BMv2; each switch has a network namespace of its own
RETRY_S = 0.05  # between attempts to connect to a switch that is starting


class Target(StrEnum):
    """What runs as switch."""

    EMBEDDED = "embedded"  # dcbswitch
    BMV2 = "bmv2"  # simple_switch_grpc from the PATH


class NetworkError(RuntimeError):
    """The network cannot be built or a part of it died; the message names the part and shows what it said."""


def require_root() -> None:
    """Raise NetworkError where network namespaces cannot be made."""
    if os.geteuid() != 0:
        raise NetworkError(f"user id {os.geteuid()}: network namespaces need root (use sudo)")
    # Mininet waits for ever for the shell of a node that could not be made (in a plain chroot, say).
    try:
        tried = subprocess.run(["mnexec", "-cn", "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NetworkError("mnexec: not on the PATH (apt-get install mininet; make setup)") from None
    if tried.returncode:
        raise NetworkError(f"mnexec: no network namespace can be made here: {tried.stderr.strip()}")


def require_bmv2() -> None:
    """Raise NetworkError where simple_switch_grpc is not installed."""
    if shutil.which(BMV2) is None:
        raise NetworkError(f"--target bmv2: {BMV2} is not on the PATH (docs/targets.md says where to get it)")


class FabricNetwork:
    """The running switches and hosts of a topology. Use as a context manager, from the main thread, as root."""

    def __init__(
        self,
        topology: Topology,
        *,
        lab: str = "lab",
        start_switches: bool = True,
        target: Target = Target.EMBEDDED,
    ) -> None:
        self.topology = topology
        self.target = target
        self.lab = lab
        self._start_switches = start_switches
        self._net: Any = None
        self._switches: dict[str, subprocess.Popen[str]] = {}
        self._started: list[subprocess.Popen[Any]] = []

    # --- life cycle ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        require_root()
        if self.target is Target.BMV2:
            require_bmv2()
        directory = run_dir(self.lab)
        _refuse_if_running(directory)
        clean(self.lab)
        directory.mkdir(parents=True)
        try:
            self._build()
            if self._start_switches:
                self.start_switches()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop every process and remove every namespace; safe to call twice."""
        for process in [*self._started, *self._switches.values()]:
            if process.poll() is None:
                process.terminate()
        for process in [*self._started, *self._switches.values()]:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._started.clear()
        self._switches.clear()
        if self._net is not None:
            net, self._net = self._net, None
            net.stop()
        shutil.rmtree(run_dir(self.lab), ignore_errors=True)

    def _build(self) -> None:
        # Imported here: Mininet is Debian's, is needed by nothing else, and is absent where there is no root lab.
        from mininet.net import Mininet
        from mininet.node import Node
        from mininet.node import Switch as MininetSwitch

        self._net = Mininet(build=False, controller=None, waitConnected=False)
        for host in self.topology.hosts:
            self._net.addHost(host.name, cls=Node, ip=None)
        for switch in self.topology.switches:
            # Mininet's command line asks a switch for this before it leaves a switch's name in a command as it is
            self._net.addSwitch(switch.name, cls=MininetSwitch, inNamespace=True).controlIntf = None
        for link in self.topology.links:
            self._net.addLink(
                link.a.node,
                link.b.node,
                intfName1=link.a.interface,
                intfName2=link.b.interface,
                addr1=self._mac(link.a),
                addr2=self._mac(link.b),
            )
        for switch in self.topology.switches:
            self.shell(switch.name, _switch_script(switch))
        for host in self.topology.hosts:
            # Mininet's command line puts this address in place of the name
            self._net[host.name].intf().ip, self._net[host.name].intf().prefixLen = host.ip4, 32
            leaf = self.topology.switch(host.leaf)
            rate_bps = self.topology.rate_bps(host.leaf, host.number)
            self.shell(host.name, _host_script(host, leaf.port_mac(host.number), rate_bps))
        record = {"owner": _identity(os.getpid()), "processes": [_identity(n.pid) for n in self._net.values()]}
        (run_dir(self.lab) / "processes.json").write_text(json.dumps(record))

    def _mac(self, end: Endpoint) -> str:
        return self.topology.switch(end.node).port_mac(end.port) if end.port else self.topology.host(end.node).mac

    def start_switches(self) -> None:
        """Start the target in every switch's namespace and wait until all serve P4Runtime.

        For dcbswitch the program is compiled first, once: four switches would do it four times, and where it cannot be
        compiled that is known before anything waits for a controller.
        """
        start = self._start_bmv2
        if self.target is Target.EMBEDDED:
            start = self._start_switch
            try:
                build_program(PIPELINE_JSON.read_bytes())
            except BuildError as error:
                raise NetworkError(str(error)) from None
        for switch in self.topology.switches:
            start(switch)
        for name in self._switches:
            self._await_ready(name)

    def kill_switch(self, name: str) -> None:
        """SIGKILL; its entries and what it held are gone. The namespace and its links stay."""
        process = self._switches[name]
        process.kill()
        process.wait()

    def start_switch(self, name: str) -> None:
        """Start one that was killed, empty, and wait until it serves P4Runtime."""
        for stream in (self._switches[name].stdout, self._switches[name].stderr):
            if stream is not None:
                stream.close()
        start = self._start_switch if self.target is Target.EMBEDDED else self._start_bmv2
        start(self.topology.switch(name))
        self._await_ready(name)

    def _start_switch(self, switch: Switch) -> None:
        # Late switches cost headroom, so they go before hosts; where that is not allowed, nice says so and goes on.
        command = ["nice", "-n", "-10", sys.executable, "-m", "switch.cli"]
        command += ["--device-id", str(switch.device_id), "--no-p4"]
        command += ["--log-file", str(run_dir(self.lab) / f"{switch.name}.log")]
        for port in switch.ports:
            command += ["-i", f"{port}@{switch.name}-eth{port}"]
        command += ["--", "--grpc-server-addr", f"unix:{switch_socket(self.lab, switch.name)}"]
        command += ["--cpu-port", str(CPU_PORT), "--priority-queues", "8"]
        self._switches[switch.name] = self._popen(switch.name, command)

    def _start_bmv2(self, switch: Switch) -> None:
        # Nobody reads what it prints, and a full pipe would stop it: it goes to a file.
        command = ["nice", "-n", "-10", BMV2, "--device-id", str(switch.device_id), "--no-p4"]
        command += ["--log-level", "off", "--thrift-port", str(THRIFT_PORT)]
        for port in switch.ports:
            command += ["-i", f"{port}@{switch.name}-eth{port}"]
        command += ["--", "--grpc-server-addr", f"unix:{switch_socket(self.lab, switch.name)}"]
        command += ["--cpu-port", str(CPU_PORT), "--priority-queues", "8"]
        with (run_dir(self.lab) / f"{switch.name}.log").open("w") as log:
            self._switches[switch.name] = subprocess.Popen(
                self.command(switch.name, command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _await_socket(self, name: str) -> None:
        process = self._switches[name]
        deadline = time.monotonic() + SWITCH_READY_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(switch_socket(self.lab, name)))
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise NetworkError(f"switch {name}: exited with {process.wait(RETRY_S)}: {self._said(name)}")
        raise NetworkError(f"switch {name}: not ready within {SWITCH_READY_TIMEOUT_S:.0f} s: {self._said(name)}")

    def _said(self, name: str) -> str:
        """The end of what a switch that has ended said on its error output, or in its log."""
        process = self._switches[name]
        if process.stderr is not None:
            return process.stderr.read().strip()[-2000:]
        return (run_dir(self.lab) / f"{name}.log").read_text(errors="replace").strip()[-2000:]

    def _await_ready(self, name: str) -> None:
        process = self._switches[name]
        if self.target is Target.BMV2:
            self._await_socket(name)
            return
        deadline = time.monotonic() + SWITCH_READY_TIMEOUT_S
        assert process.stdout is not None
        while (left := deadline - time.monotonic()) > 0:
            if select.select([process.stdout], [], [], left)[0]:
                line = process.stdout.readline()
                if "ready" in line:
                    return
                if not line:
                    raise NetworkError(f"switch {name}: exited with {process.wait()}: {self._said(name)}")
        raise NetworkError(f"switch {name}: not ready within {SWITCH_READY_TIMEOUT_S:.0f} s")

    # --- use -----------------------------------------------------------------------------------------------------

    @property
    def mininet(self) -> Any:
        """The Mininet object, for its command line."""
        return self._net

    def pid(self, node: str) -> int:
        """Process id of the node's shell: its namespaces are /proc/<pid>/ns."""
        return int(self._net[node].pid)

    def command(self, node: str, arguments: Sequence[str]) -> list[str]:
        """`arguments` as a command that runs inside the node, for asyncio or subprocess."""
        return [*DIE_WITH_PARENT, "mnexec", "-a", str(self.pid(node)), *arguments]

    def shell(self, node: str, script: str) -> str:
        """Run a shell script inside the node and return its output; NetworkError where a command fails."""
        done = subprocess.run(
            self.command(node, ["sh", "-e"]), input=script, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NetworkError(f"node {node}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _popen(self, node: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(node, arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C at the prompt is for the prompt
        )

    def start(self, node: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
        """Start a process inside the node; it ends at the latest with the network."""
        process = self._popen(node, arguments)
        self._started.append(process)
        return process

    def check_switches(self) -> None:
        """NetworkError naming the first switch that is no longer running."""
        for name, process in self._switches.items():
            if process.poll() is not None:
                raise NetworkError(f"switch {name}: died with {process.returncode}: {self._said(name)}")


def _switch_script(switch: Switch) -> str:
    # Nothing but the data plane may speak on a switch port: no address, no IPv6 of the kernel's.
    lines = ["echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6", "ip link set lo up"]
    for port in switch.ports:
        interface = f"{switch.name}-eth{port}"
        lines += [f"ip link set {interface} up", _offloads_off(interface)]
    return "\n".join(lines)


def _host_script(host: Host, gateway_mac: str, rate_bps: int) -> str:
    # A veth takes what the kernel gives it at any speed; a NIC has a line rate. (The RoCE sender paces itself.)
    dev = host.interface
    burst_bytes = max(NIC_BURST_BYTES, rate_bps // 8 // 1000)
    return "\n".join(
        [
            "ip link set lo up",
            # Business TCP asks for ECN and heeds it, whatever the machine uses (BBR does not); reno is always there.
            "cd /proc/sys/net/ipv4",
            "echo 1 > tcp_ecn",
            "echo cubic > tcp_congestion_control 2>/dev/null || echo reno > tcp_congestion_control",
            f"ip link set {dev} addrgenmode none",
            f"ip -6 addr flush dev {dev} scope link",
            f"ip link set {dev} up",
            _offloads_off(dev),
            f"tc qdisc replace dev {dev} root tbf rate {rate_bps}bit burst {burst_bytes} limit {NIC_QUEUE_BYTES}",
            f"ip addr add {host.ip4}/32 dev {dev}",
            f"ip neigh replace {GATEWAY_IP4} lladdr {gateway_mac} dev {dev} nud permanent",
            f"ip route add {GATEWAY_IP4} dev {dev} src {host.ip4}",
            f"ip route add default via {GATEWAY_IP4} dev {dev} src {host.ip4}",
            f"ip -6 addr add {host.ip6}/128 dev {dev} nodad",
            f"ip -6 neigh replace {GATEWAY_IP6} lladdr {gateway_mac} dev {dev} nud permanent",
            f"ip -6 route add {GATEWAY_IP6} dev {dev}",
            f"ip -6 route add default via {GATEWAY_IP6} dev {dev} src {host.ip6}",
        ]
    )


def _offloads_off(interface: str) -> str:
    # A packet socket must see frames as they are on the wire: checksums filled in, tags in place, no super-frames.
    features = "rx off tx off sg off tso off gso off gro off rxvlan off txvlan off"
    return f"ethtool -K {interface} {features} >/dev/null 2>&1 || ethtool -K {interface} rx off tx off gro off"


# --- cleaning up after a crash --------------------------------------------------------------------------------


def _identity(pid: int) -> dict[str, int]:
    return {"pid": pid, "start": _start_time(pid)}


def _start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot (proc(5), field 22); 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError):
        return 0


def _alive(identity: dict[str, int]) -> bool:
    # A process id alone may have been given to somebody else since.
    return identity["start"] != 0 and _start_time(identity["pid"]) == identity["start"]


def _record(directory: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((directory / "processes.json").read_text())
    except (OSError, ValueError):
        return {"owner": {"pid": 0, "start": 0}, "processes": []}
    return record


def _refuse_if_running(directory: Path) -> None:
    owner = _record(directory)["owner"]
    if _alive(owner) and owner["pid"] != os.getpid():
        raise NetworkError(
            f"lab {directory.name}: already running as process {owner['pid']}; stop it or use --lab NAME"
        )


def clean(lab: str = "lab") -> list[int]:
    """Kill what a crashed lab left behind and remove its folder; returns the process ids that were killed."""
    directory = run_dir(lab)
    killed = []
    for identity in _record(directory)["processes"]:
        if _alive(identity):
            for pid in _namespace_members(identity["pid"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
    shutil.rmtree(directory, ignore_errors=True)
    return killed


def _namespace_members(pid: int) -> list[int]:
    """Every process in the network namespace of `pid`; none where that is ending."""
    try:
        namespace = Path(f"/proc/{pid}/ns/net").readlink()
    except OSError:  # it is ending: what is left of it has no namespace
        return []
    if namespace == Path("/proc/self/ns/net").readlink():
        return []
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "ns/net").readlink() == namespace:
                    members.append(int(entry.name))
    return members
