"""The desired state of a fabric as one YAML file, checked in full before anything acts on it.

Shape: YAML text -> `parse` -> `Config` (immutable pydantic models) -> `dump` -> YAML text. No I/O besides `load` and
`save`, no clock, no switch. Every problem of a file is reported at once, each as `field: value: rule`.
Bytes are bytes of a frame without FCS, rates are bit/s ("100M", "10G" or an integer). docs/controller.md has the
reference of every key.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from controller.buffer_config import AlphaKey, BufferBytes, LengthM, PoolBytes, PoolNumber
from controller.buffer_config import BufferProfile as BufferProfile  # others know it by this module
from controller.buffer_config import problems as buffer_problems
from controller.buffer_config import warnings as buffer_warnings
from controller.dcbx_config import Dcbx, resolve
from controller.deadlock_config import DeadlockDetection
from controller.ecn_warnings import warnings as ecn_warnings
from controller.pfc_config import DialectKey, StormControl
from controller.qcn_config import CongestionPoint
from controller.telemetry_config import Telemetry
from controller.values import (
    U8,
    U16,
    U32_MAX,
    Bytes,
    Dscp,
    Mac,
    Name,
    PortNumber,
    PortRange,
    Prefix,
    Prefix4,
    Priority,
    Rate,
    Weight,
    no_bool,
)
from controller.watchdog_config import FabricWatchdog, PortWatchdog
from controller.watchdog_config import problems as watchdog_problems
from controller.watchdog_config import warnings as watchdog_warnings
from dcb.units import format_rate as format_rate  # others know the two by this module
from dcb.units import parse_rate as parse_rate


class ConfigError(ValueError):
    """A config that is refused as a whole; `problems` holds one `field: value: rule` line for each fault."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.source = source
        self.problems = problems
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))


class _Model(BaseModel):
    """Immutable, and a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# ---- profiles -------------------------------------------------------------------------------------------------------


class AppPriority(_Model):
    """What DCBX Application Priority says: frames that match get this priority, after trust."""

    priority: Priority
    ether_type: U16 | None = None
    ip_proto: U8 | None = None
    l4_dst_port: U16 | None = None

    @model_validator(mode="after")
    def _one_selector(self) -> Self:
        if self.ether_type is None and self.ip_proto is None and self.l4_dst_port is None:
            raise ValueError("at least one of ether_type, ip_proto, l4_dst_port is wanted")
        return self


class QosProfile(_Model):
    """Classification of a port: trust, the maps to priority, and priority to queue and priority group.

    Maps are partial. PCP, queue and priority group: identity elsewhere; DSCP: `default_priority` elsewhere.
    """

    trust: Literal["port", "pcp", "dscp"] = "dscp"
    default_priority: Priority = 0
    pcp_to_priority: dict[Priority, Priority] = Field(default_factory=dict)
    dscp_to_priority: dict[Dscp, Priority] = Field(default_factory=dict)
    app_priority: list[AppPriority] = Field(default_factory=list)
    priority_to_queue: dict[Priority, Priority] = Field(default_factory=dict)
    priority_to_pg: dict[Priority, Priority] = Field(default_factory=dict)
    lossless: list[Priority] = Field(default_factory=list)

    def queue_of(self, priority: int) -> int:
        """Queue (traffic class) 0..7 of a priority."""
        return self.priority_to_queue.get(priority, priority)

    def pg_of(self, priority: int) -> int:
        """Ingress priority group 0..7 of a priority."""
        return self.priority_to_pg.get(priority, priority)


class EcnProfile(_Model):
    """WRED marking at dequeue: none below kmin, always from kmax on, up to pmax in between (linear)."""

    kmin_bytes: Bytes
    kmax_bytes: Bytes
    pmax: Annotated[float, BeforeValidator(no_bool), Field(gt=0, le=1)] = 1.0
    drop_non_ect: bool = False

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.kmin_bytes > self.kmax_bytes:
            raise ValueError(f"kmin_bytes {self.kmin_bytes} must not be above kmax_bytes {self.kmax_bytes}")
        return self


class EtsWeight(_Model):
    """A queue scheduled by deficit round robin; the share is its weight over the sum of the weights."""

    ets: Weight


class CbsSlope(_Model):
    """A queue behind a credit-based shaper."""

    cbs: Rate


def _scheduler_tag(value: object) -> str | None:
    if value == "strict":
        return "strict"
    if isinstance(value, EtsWeight) or (isinstance(value, Mapping) and "ets" in value):
        return "ets"
    if isinstance(value, CbsSlope) or (isinstance(value, Mapping) and "cbs" in value):
        return "cbs"
    return None


Scheduler = Annotated[
    Annotated[Literal["strict"], Tag("strict")] | Annotated[EtsWeight, Tag("ets")] | Annotated[CbsSlope, Tag("cbs")],
    Discriminator(
        _scheduler_tag,
        custom_error_type="scheduler",
        custom_error_message="strict, {ets: 1..100} or {cbs: rate} is wanted",
    ),
]
EtsProfile = dict[Priority, Scheduler]


class DynamicLimit(_Model):
    """Egress queue limit of 2^alpha * free pool (of pool 0)."""

    alpha: AlphaKey


def _choice(kind: type, scalar: type, wanted: str) -> Any:
    """A field that is either a scalar (a name or a number) or a mapping; errors say which are allowed."""

    def tag(value: object) -> str | None:
        if isinstance(value, bool):
            return None
        if isinstance(value, scalar):
            return "scalar"
        return "mapping" if isinstance(value, Mapping | BaseModel) else None

    return Discriminator(tag, custom_error_type="choice", custom_error_message=f"{wanted} is wanted")


QueueLimit = Annotated[
    Annotated[Bytes, Tag("scalar")] | Annotated[DynamicLimit, Tag("mapping")],
    _choice(DynamicLimit, int, "a number of bytes or {alpha: exponent}"),
]
EcnRef = Annotated[
    Annotated[Name, Tag("scalar")] | Annotated[EcnProfile, Tag("mapping")],
    _choice(EcnProfile, str, "the name of an ECN profile or a profile in place"),
]
BufferRef = Annotated[
    Annotated[Name, Tag("scalar")] | Annotated[BufferProfile, Tag("mapping")],
    _choice(BufferProfile, str, "the name of a buffer profile or a profile in place"),
]
EtsRef = Annotated[
    Annotated[Name, Tag("scalar")] | Annotated[EtsProfile, Tag("mapping")],
    _choice(dict, str, "the name of an ETS profile or a profile in place"),
]


# ---- switches -------------------------------------------------------------------------------------------------------


class Port(_Model):
    """One port of a switch. `name` (the interface) and `peer` are for people; nothing is derived from them."""

    name: str | None = None
    mac: Mac
    rate: Rate
    length_m: LengthM | None = None
    peer: str | None = None
    qos: Name = "default"
    trust: Literal["port", "pcp", "dscp"] | None = None  # None: what the QoS profile says
    pfc: list[Priority] = Field(default_factory=list)
    pfc_quanta: Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=65535)] = 65535
    pfc_asymmetric: bool = False
    pfc_dialect: DialectKey = "standard"
    pfc_storm_control: StormControl | None = None
    pause_rx: bool = False
    arp_proxy: bool = False
    ets: EtsRef | None = None
    ecn: dict[Priority, EcnRef] = Field(default_factory=dict)
    buffers: dict[Priority, BufferRef] = Field(default_factory=dict)
    queue_limits: dict[Priority, QueueLimit] = Field(default_factory=dict)
    qcn: dict[Priority, CongestionPoint] = Field(default_factory=dict)
    pcp_rewrite: dict[Priority, Priority] = Field(default_factory=dict)
    dscp_rewrite: dict[Priority, Dscp] = Field(default_factory=dict)
    dcbx: Dcbx | None = None
    pfc_watchdog: PortWatchdog | None = None


class NextHop(_Model):
    """One way to a prefix: out of `port`, to the MAC address of the neighbour."""

    port: PortNumber
    mac: Mac
    weight: Weight = 1


class Route(_Model):
    """A prefix and what becomes of it: next hops (more than one: ECMP), `drop: true` or `punt: true` (to the CPU)."""

    prefix: Prefix
    via: list[NextHop] = Field(default_factory=list)
    drop: bool = False
    punt: bool = False

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if sum((bool(self.via), self.drop, self.punt)) != 1:
            raise ValueError("exactly one of via (not empty), drop: true, punt: true is wanted")
        seen = [(hop.port, hop.mac) for hop in self.via]
        if len(set(seen)) != len(seen):
            raise ValueError("a next hop (port, mac) must not be listed twice; use weight")
        return self


class TrafficClass(_Model):
    """Where an ACL puts a frame, past the priority map."""

    queue: Priority
    pg: Priority
    lossless: bool = False


class AclRule(_Model):
    """A rule of the access list; first match wins unless `priority` says otherwise (larger wins)."""

    priority: Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=2**31 - 1)] | None = None
    in_port: PortNumber | None = None
    ether_type: U16 | None = None
    src_ip4: Prefix4 | None = None
    dst_ip4: Prefix4 | None = None
    ip_proto: U8 | None = None
    l4_dst_port: PortRange | None = None
    dscp: Dscp | None = None
    drop: bool = False
    punt: bool = False
    mirror: Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=32767)] | None = None
    set_class: TrafficClass | None = None

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        if sum((self.drop, self.punt, self.mirror is not None, self.set_class is not None)) != 1:
            raise ValueError("exactly one of drop: true, punt: true, mirror: session, set_class: {...} is wanted")
        return self


class CloneSession(_Model):
    """Where clones of a session go. length 0: whole frames."""

    port: Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=510)]
    length: U16 = 0
    class_of_service: Priority = 0


class Switch(_Model):
    """One switch: how to reach it over P4Runtime, its ports, routes and mirror sessions."""

    device_id: Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=2**64 - 1)]
    address: Annotated[str, Field(min_length=1)]
    pool: Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=U32_MAX)] | None = None
    pools: dict[PoolNumber, PoolBytes] = Field(default_factory=dict)
    headroom_pools: dict[PoolNumber, PoolBytes] = Field(default_factory=dict)
    buffer: BufferBytes | None = None  # all of the switch's packet buffer: for warnings and `dcbctl plan`
    ports: dict[PortNumber, Port] = Field(default_factory=dict)
    routes: list[Route] = Field(default_factory=list)
    acl: list[AclRule] = Field(default_factory=list)
    clone_sessions: dict[Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=32767)], CloneSession] = Field(
        default_factory=dict
    )
    dcbx: Dcbx | None = None

    def dcbx_of(self, port: int) -> Dcbx | None:
        """DCBX of a port: the switch's with what the port says itself; None where it speaks no LLDP."""
        return resolve(self.dcbx, self.ports[port].dcbx)


class Config(_Model):
    """The whole file. Use `parse` or `load`: they also turn errors into `ConfigError`."""

    qos_profiles: Annotated[dict[Name, QosProfile], Field(max_length=255)] = Field(default_factory=dict)
    ecn_profiles: dict[Name, EcnProfile] = Field(default_factory=dict)
    ets_profiles: dict[Name, EtsProfile] = Field(default_factory=dict)
    buffer_profiles: dict[Name, BufferProfile] = Field(default_factory=dict)
    switches: dict[Name, Switch] = Field(default_factory=dict)
    pfc_watchdog: FabricWatchdog = FabricWatchdog()
    telemetry: Telemetry | None = None
    deadlock_detection: DeadlockDetection | None = None

    @model_validator(mode="after")
    def _references(self) -> Self:
        problems = list(_check_references(self))
        problems += [] if problems else watchdog_problems(self)
        if problems:
            raise ValueError("\n".join(problems))
        from controller.dcbx_overlay import problems as dcbx_problems  # which needs this module

        if problems := list(dcbx_problems(self)):
            raise ValueError("\n".join(problems))
        return self

    def qos_of(self, port: Port) -> QosProfile:
        """The QoS profile of a port."""
        return self.qos_profiles[port.qos]

    def ets_of(self, port: Port) -> Mapping[int, Literal["strict"] | EtsWeight | CbsSlope]:
        """Scheduler of each queue that the config names; the others keep the target's default (ETS, weight 1)."""
        if port.ets is None:
            return {}
        return self.ets_profiles[port.ets] if isinstance(port.ets, str) else port.ets

    def ecn_of(self, port: Port) -> dict[int, EcnProfile]:
        """ECN profile of each queue that has one."""
        return {q: self.ecn_profiles[ref] if isinstance(ref, str) else ref for q, ref in port.ecn.items()}

    def buffers_of(self, port: Port) -> dict[int, BufferProfile]:
        """Buffer profile of each priority group that has one."""
        return {pg: self.buffer_profiles[ref] if isinstance(ref, str) else ref for pg, ref in port.buffers.items()}


def _check_references(config: Config) -> Iterator[str]:
    """What only the whole file can tell: references, duplicates. Yields `field: value: rule`."""

    def known(path: str, name: object, kind: str, names: Mapping[str, object]) -> Iterator[str]:
        if isinstance(name, str) and name not in names:
            yield f"{path}: {name!r}: not in {kind} (known: {', '.join(sorted(names)) or 'none'})"

    addresses: dict[str, str] = {}
    for switch_name, switch in config.switches.items():
        base = f"switches.{switch_name}"
        if switch.address in addresses:
            yield f"{base}.address: {switch.address!r}: already the address of {addresses[switch.address]}"
        addresses.setdefault(switch.address, switch_name)
        yield from (f"{base}.{problem}" for problem in buffer_problems(switch))
        for number, port in switch.ports.items():
            where = f"{base}.ports.{number}"
            yield from known(f"{where}.qos", port.qos, "qos_profiles", config.qos_profiles)
            yield from known(f"{where}.ets", port.ets, "ets_profiles", config.ets_profiles)
            for queue, ref in port.ecn.items():
                yield from known(f"{where}.ecn.{queue}", ref, "ecn_profiles", config.ecn_profiles)
            for pg, profile in port.buffers.items():
                yield from known(f"{where}.buffers.{pg}", profile, "buffer_profiles", config.buffer_profiles)
        for where, dcbx in [(base, switch.dcbx), *((f"{base}.ports.{n}", p.dcbx) for n, p in switch.ports.items())]:
            if dcbx is not None:
                path = f"{where}.dcbx.lossless_buffers"
                yield from known(path, dcbx.lossless_buffers, "buffer_profiles", config.buffer_profiles)
        prefixes: set[str] = set()
        for index, route in enumerate(switch.routes):
            where = f"{base}.routes.{index}"
            if route.prefix in prefixes:
                yield f"{where}.prefix: {route.prefix!r}: listed twice on {switch_name}"
            prefixes.add(route.prefix)
            for hop_index, hop in enumerate(route.via):
                if hop.port not in switch.ports:
                    yield f"{where}.via.{hop_index}.port: {hop.port}: not a port of {switch_name}"
        listed: set[int] = set()
        for index, rule in enumerate(switch.acl):
            if (rule.priority is None) != (switch.acl[0].priority is None):
                yield f"{base}.acl.{index}.priority: {rule.priority}: either every rule of a list has one, or none has"
            elif rule.priority is not None and rule.priority in listed:
                yield f"{base}.acl.{index}.priority: {rule.priority}: already the priority of another rule"
            listed.add(rule.priority or 0)
            if rule.mirror is not None and rule.mirror not in switch.clone_sessions:
                yield f"{base}.acl.{index}.mirror: {rule.mirror}: not in clone_sessions of {switch_name}"


def warnings(config: Config) -> list[str]:
    """Legal configs that lose frames or pause for nothing, one `field: reason` line each."""
    found: list[str] = []
    for switch_name, switch in config.switches.items():
        for number, port in switch.ports.items():
            where = f"switches.{switch_name}.ports.{number}"
            qos, buffers = config.qos_of(port), config.buffers_of(port)
            if switch.dcbx_of(number) is not None:
                continue  # DCBX makes lossless what it agrees on
            if port.pfc_asymmetric and not set(port.pfc) & set(qos.lossless):
                found.append(f"{where}.pfc_asymmetric: no priority of pfc is lossless: PFC is obeyed and never sent")
            for priority in sorted(set(port.pfc)):
                pg = qos.pg_of(priority)
                if priority not in qos.lossless:
                    found.append(f"{where}.pfc: priority {priority} is not lossless in QoS profile {port.qos}")
                elif pg not in buffers or buffers[pg].headroom == 0:
                    found.append(f"{where}.buffers.{pg}: priority {priority} has PFC but its group has no headroom")
    found += buffer_warnings(config)
    found += ecn_warnings(config)
    found += watchdog_warnings(config)
    return found


# ---- text -----------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where YAML would silently keep the last."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    loader.flatten_mapping(node)
    result: dict[Hashable, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", key_node.start_mark)
        if key in result:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
        result[key] = loader.construct_object(value_node, deep=True)
    return result


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def _problems(error: ValidationError) -> list[str]:
    lines: list[str] = []
    for item in error.errors(include_url=False):
        # tags of unions and "[key]" markers are pydantic's, not the user's
        path = [str(part) for part in item["loc"] if part not in ("scalar", "mapping", "[key]")]
        if len(path) > 1 and path[-1] in ("ets", "cbs") and path[-2] == path[-1]:
            path.pop()
        where = ".".join(path) or "config"
        kind, message = item["type"], item["msg"].removeprefix("Value error, ")
        if not path and kind == "value_error":  # already `field: value: rule`
            lines.extend(message.splitlines())
        elif kind == "extra_forbidden":
            lines.append(f"{where}: {item['input']!r}: unknown key")
        elif kind == "missing":
            lines.append(f"{where}: missing: this key is required")
        else:
            lines.append(f"{where}: {_short(item['input'])}: {message}")
    return lines


def _short(value: object) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_none=True)
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def parse(data: object, source: str = "config") -> Config:
    """A mapping as YAML or JSON gives it -> Config. Raises ConfigError with every problem found."""
    if not isinstance(data, Mapping):
        raise ConfigError(source, [f"config: {_short(data)}: a mapping with the key switches is wanted"])
    try:
        return Config.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(source, _problems(error)) from None


def parse_text(text: str, source: str = "config") -> Config:
    """YAML text -> Config. Raises ConfigError."""
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(source, [f"{where}not YAML: {error.problem or error.context}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError(source, [f"not YAML: {' '.join(str(error).split())}"]) from None
    return parse(data, source)


def load(path: str | os.PathLike[str]) -> Config:
    """Read and check a config file. Raises ConfigError, also when the file cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [f"cannot be read: {error}"]) from None
    return parse_text(text, str(path))


def to_data(config: Config) -> dict[str, Any]:
    """Plain data that `parse` reads back to an equal Config; what has its default value is left out."""
    return config.model_dump(mode="python", exclude_defaults=True)


class _Dumper(yaml.SafeDumper):
    """SafeDumper without anchors: each value is written where it stands."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def dump(config: Config) -> str:
    """Config -> YAML text that `parse_text` reads back to an equal Config."""
    return yaml.dump(to_data(config), Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=160)


def save(config: Config, path: str | os.PathLike[str]) -> None:
    """Write a config so that a reader never sees half of it (a new file, then a rename). Comments are lost."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(dump(config), encoding="utf-8")
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
