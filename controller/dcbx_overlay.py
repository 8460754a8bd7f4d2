"""Between a port's DCBX and the desired state. Sans-IO, pure functions.

    local_settings(config, switch, port)   config -> DcbxSettings (LocalAdminParam): what `dcbx` says, and where it is
                                           silent what the port is configured with
    overlay(config, {switch: {port: Run}}) config -> the config that the switches are to hold: DCBX ports schedule,
                                           classify and pause as negotiated, everything else is as it was
    restored(config, switch, port, held)   entries that a switch holds -> the Run that they came from, for a controller
                                           that starts on a fabric that works

A port that speaks DCBX has a QoS profile of its own (`<profile>~dcbx<port>`, a name that a file cannot have) with a
number of its own, so a change to one port modifies entries of that port alone, and of those only what differs.

    PFC    lossless, rx and tx: the priorities that both ends run, no others
    ETS    queue of a priority = its traffic class. ETS: weight = per cent (at least 1). CBS has no rate in DCBX: the
           queue keeps what `ets` says, or is strict. ECN profiles and queue limits go with their priorities
    App    EtherType, TCP, UDP -> app_priority, before the profile's own; DSCP -> dscp_to_priority, and the port trusts
           DSCP unless its `trust` says otherwise; EtherType 0 -> default priority
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from controller.config import AppPriority, CbsSlope, Config, EtsWeight, Port, QosProfile, Switch
from controller.dcbx_config import ATTRIBUTES, Dcbx
from controller.entries import Action, Entity, TableEntry, Ternary
from dcb.dcbx.settings import DcbxSettings, Operational
from dcb.dcbx.tlv import AppEntry, CongestionNotification, EtsTable, Selector, Tsa, bits
from dcb.lldp.tlv import TlvError

T = TypeVar("T")
MAX_DCBX_PROFILES = 128  # priority_map holds 1024 entries, 8 a profile
_TCP, _UDP = 6, 17


@dataclass(frozen=True, slots=True)
class Run:
    """What DCBX has a port run. pfc_enable: bit n is priority n, of those that are lossless over the link."""

    ets: EtsTable
    pfc_enable: int
    app: tuple[AppEntry, ...]

    @classmethod
    def of(cls, operational: Operational) -> Run:
        """Of a port's operational state: PFC only where the peer does it too."""
        return cls(operational.ets, operational.pfc_agreed, operational.app)


# ---- config -> LocalAdminParam --------------------------------------------------------------------------------------


def ets_table(qos: QosProfile, schedulers: Mapping[int, object]) -> EtsTable:
    """A port's queues and schedulers as DCBX says them: weights as per cent that sum to 100 (largest remainder)."""
    queues = [qos.queue_of(priority) for priority in range(8)]
    weights: dict[int, int] = {}
    tsa = [int(Tsa.STRICT)] * 8
    for queue in range(8):
        scheduler = schedulers.get(queue, EtsWeight(ets=1) if queue in queues else "strict")
        if isinstance(scheduler, EtsWeight):
            weights[queue], tsa[queue] = scheduler.ets, int(Tsa.ETS)
        elif isinstance(scheduler, CbsSlope):
            tsa[queue] = int(Tsa.CBS)
    bandwidth = [0] * 8
    total = sum(weights.values())
    for queue, weight in weights.items():
        bandwidth[queue] = 100 * weight // total
    by_remainder = sorted(weights, key=lambda queue: (-(100 * weights[queue] % total), queue))
    for queue in by_remainder[: 100 - sum(bandwidth)] if weights else []:
        bandwidth[queue] += 1
    return EtsTable.build(queues, bandwidth, tsa)


def app_entries(qos: QosProfile) -> tuple[AppEntry, ...]:
    """What of a QoS profile DCBX can say: rules of one EtherType, or one TCP or UDP port, and the DSCP map."""
    entries = []
    for rule in qos.app_priority:
        match (rule.ether_type, rule.ip_proto, rule.l4_dst_port):
            case (int(ether_type), None, None):
                entries.append(AppEntry(Selector.ETHER_TYPE, ether_type, rule.priority))
            case (None, protocol, int(port)) if protocol in (_TCP, _UDP, None):
                selector = {_TCP: Selector.TCP, _UDP: Selector.UDP, None: Selector.ANY_PORT}[protocol]
                entries.append(AppEntry(selector, port, rule.priority))
    entries += [AppEntry(Selector.DSCP, dscp, priority) for dscp, priority in qos.dscp_to_priority.items()]
    return tuple(entries)


def local_settings(config: Config, switch: str, port: int) -> DcbxSettings:
    """LocalAdminParam of a port that speaks DCBX. Raises TlvError where its parts do not go together."""
    settings, dcbx = config.switches[switch].ports[port], config.switches[switch].dcbx_of(port)
    assert dcbx is not None
    qos = config.qos_of(settings)
    ets = dcbx.ets.table() if dcbx.ets is not None else ets_table(qos, config.ets_of(settings))
    pfc = dcbx.pfc if dcbx.pfc is not None else settings.pfc
    willing = set(dcbx.willing) if dcbx.willing is not None else set[str]()
    if dcbx.willing is None and dcbx.role == "auto-upstream":
        willing = set(ATTRIBUTES)
    if dcbx.app is not None:
        app = tuple(one.entry() for one in dcbx.app)
    else:  # a port's own entries go before its peer's, and the profile's are there anyway
        app = () if "app" in willing else app_entries(qos)
    return DcbxSettings(
        ets=ets,
        ets_willing="ets" in willing,
        recommendation=None if "ets" in willing else ets,
        max_tcs=dcbx.max_tcs or 8,
        cbs=Tsa.CBS in ets.tsa,
        pfc_enable=sum(1 << priority for priority in set(pfc)),
        pfc_willing="pfc" in willing,
        pfc_cap=8 if dcbx.pfc_cap is None else dcbx.pfc_cap,
        mbc=bool(dcbx.mbc),
        app=app,
        app_accept="app" in willing,
        app_willing="app" in willing,
        app_dialect=dcbx.dialect,
        congestion=_congestion(config, switch),
        mode=dcbx.mode_setting,
        tie_break=dcbx.tie,
    )


def _congestion(config: Config, switch: str) -> CongestionNotification | None:
    """Congestion notification priorities are the switch's: those that some port has a congestion point for."""
    cnpv = 0
    for port in config.switches[switch].ports.values():
        qos = config.qos_of(port)
        cnpv |= sum(1 << priority for priority in range(8) if qos.queue_of(priority) in port.qcn)
    return CongestionNotification(cnpv, cnpv) if cnpv else None


def with_run(settings: DcbxSettings, run: Run) -> DcbxSettings:
    """A port's settings with what it ran before as its own configuration."""
    recommendation = None if settings.ets_willing else run.ets
    return replace(settings, ets=run.ets, recommendation=recommendation, pfc_enable=run.pfc_enable, app=run.app)


def problems(config: Config) -> Iterator[str]:
    """What cannot be, as `field: value: rule`."""
    for name, switch in config.switches.items():
        ports = dcbx_ports(switch)
        room = MAX_DCBX_PROFILES - len(config.qos_profiles)
        if len(ports) > room:
            yield f"switches.{name}.dcbx: {len(ports)} ports: the program has room for {room} that speak DCBX"
        for number in ports:
            try:
                local_settings(config, name, number)
            except TlvError as error:
                yield f"switches.{name}.ports.{number}.dcbx: {error.field}: {error.value}, {error.rule}"


def dcbx_ports(switch: Switch) -> dict[int, Dcbx]:
    """The ports that speak DCBX, by number."""
    return {number: dcbx for number in sorted(switch.ports) if (dcbx := switch.dcbx_of(number)) is not None}


# ---- operational -> desired -----------------------------------------------------------------------------------------


def profile_name(port: Port, number: int) -> str:
    """Name of the QoS profile that belongs to a DCBX port."""
    return f"{port.qos}~dcbx{number}"


def profile_ids(config: Config, switch: str) -> dict[str, int]:
    """Number of each QoS profile on a switch: those of the file count up from 1, those of DCBX ports down from 255.

    A DCBX profile's number follows from its port's, so it stays while others come and go.
    """
    named = [name for name in config.qos_profiles if "~" not in name]
    ids = {name: index for index, name in enumerate(named, start=1)}
    used = set(ids.values())
    for number, port in sorted(config.switches[switch].ports.items()):
        if "~" in port.qos:
            wanted = 255 - number % 255
            while wanted in used or wanted == 0:
                wanted = (wanted - 1) % 256
            used.add(wanted)
            ids[port.qos] = wanted
    return ids


def overlay(config: Config, runs: Mapping[str, Mapping[int, Run]]) -> Config:
    """The config with what DCBX says laid over it. Ports without a Run, and everything else, stay as they are."""
    switches, profiles = dict(config.switches), dict(config.qos_profiles)
    for name, of_port in runs.items():
        if name not in switches or not of_port:
            continue
        ports = dict(switches[name].ports)
        for number, run in of_port.items():
            dcbx = switches[name].dcbx_of(number) if number in ports else None
            if dcbx is None:
                continue
            port = ports[number]
            own = f"{profile_name(port, number)}.{name}"
            profiles[own] = _profile(config.qos_of(port), run)
            ports[number] = _port(config, port, run, dcbx, own)
        switches[name] = switches[name].model_copy(update={"ports": ports})
    return config.model_copy(update={"switches": switches, "qos_profiles": profiles})


def _profile(base: QosProfile, run: Run) -> QosProfile:
    dscp = {entry.protocol: entry.priority for entry in run.app if entry.selector == Selector.DSCP}
    default = [entry.priority for entry in run.app if entry.key == (Selector.ETHER_TYPE, 0)]
    return base.model_copy(
        update={
            "default_priority": default[0] if default else base.default_priority,
            "dscp_to_priority": base.dscp_to_priority | dscp,
            "app_priority": _rules(run.app, base.app_priority),
            "priority_to_queue": dict(enumerate(run.ets.priority_tc)),
            "lossless": list(bits(run.pfc_enable)),
        }
    )


def _rules(app: Iterable[AppEntry], base: Iterable[AppPriority]) -> list[AppPriority]:
    """DCBX's first; of two rules with the same match the first stands, as in the table."""
    rules: list[AppPriority] = []
    for entry in app:
        if entry.selector == Selector.ETHER_TYPE and entry.protocol:
            rules.append(AppPriority(priority=entry.priority, ether_type=entry.protocol))
        for selector, protocol in ((Selector.TCP, _TCP), (Selector.UDP, _UDP)):
            if entry.selector in (selector, Selector.ANY_PORT):
                rules.append(AppPriority(priority=entry.priority, ip_proto=protocol, l4_dst_port=entry.protocol))
    first: dict[tuple[int | None, int | None, int | None], AppPriority] = {}
    for rule in (*rules, *base):
        first.setdefault((rule.ether_type, rule.ip_proto, rule.l4_dst_port), rule)
    return list(first.values())


def _port(config: Config, port: Port, run: Run, dcbx: Dcbx, own: str) -> Port:
    base, lossless = config.qos_of(port), bits(run.pfc_enable)
    queues = [base.queue_of(priority) for priority in range(8)]
    buffers = dict(port.buffers)
    if dcbx.lossless_buffers is not None:
        buffers |= {base.pg_of(priority): dcbx.lossless_buffers for priority in lossless}
    update: dict[str, object] = {
        "qos": own,
        "pfc": list(lossless),
        "ets": _schedulers(run.ets, config.ets_of(port)),
        "buffers": buffers,
        "ecn": _moved(port.ecn, queues, run.ets.priority_tc, lossless),
        "queue_limits": _moved(port.queue_limits, queues, run.ets.priority_tc, lossless),
        "qcn": _moved(port.qcn, queues, run.ets.priority_tc, lossless),
    }
    if port.trust is None and any(entry.selector == Selector.DSCP for entry in run.app):
        update["trust"] = "dscp"
    return port.model_copy(update=update)


def _schedulers(table: EtsTable, base: Mapping[int, object]) -> dict[int, object]:
    """Schedulers of the queues that something is in or that have a share; the others as they were."""
    result = dict(base)
    for queue in range(8):
        if queue not in table.priority_tc and not table.bandwidth[queue]:
            continue
        if table.tsa[queue] == Tsa.ETS:
            result[queue] = EtsWeight(ets=max(1, table.bandwidth[queue]))
        elif table.tsa[queue] == Tsa.STRICT or not isinstance(base.get(queue), CbsSlope):
            result[queue] = "strict"
    return result


def _moved(
    by_queue: Mapping[int, T], before: list[int], after: tuple[int, ...], first: tuple[int, ...]
) -> dict[int, T]:
    """What belongs to queues, after priorities moved to other queues; where several meet, a lossless one decides."""
    result = {queue: value for queue, value in by_queue.items() if queue not in after}
    for priority in (*first, *(n for n in range(8) if n not in first)):
        if before[priority] in by_queue:
            result.setdefault(after[priority], by_queue[before[priority]])
    return result


# ---- entries -> what ran before -------------------------------------------------------------------------------------


def restored(config: Config, switch: str, port: int, held: Iterable[Entity]) -> Run | None:
    """What a port ran by the entries that its switch holds; None where DCBX did not configure it.

    Of a port whose profile number is that of a DCBX port. Writing what comes out changes nothing.
    """
    entries = [entity for entity in held if isinstance(entity, TableEntry) and isinstance(entity.action, Action)]
    marked = config.model_copy(
        update={"switches": {switch: _marked(config.switches[switch])}}  # every DCBX port with its own profile
    )
    own = profile_ids(marked, switch).get(marked.switches[switch].ports[port].qos)

    def found(table: str, **key: int) -> dict[tuple[tuple[str, object], ...], Action]:
        wanted = set(key.items())
        return {
            entry.match: entry.action
            for entry in sorted(entries, key=lambda entry: -entry.priority)
            if entry.table == table and wanted <= set(entry.match) and isinstance(entry.action, Action)
        }

    ports = list(found("ingress.port_config", ingress_port=port).values())
    if not ports or own is None or ports[0]["qos_profile"] != own:
        return None
    tc, lossless = [0] * 8, 0
    for match, action in found("ingress.priority_map", qos_profile=own).items():
        priority = dict(match)["priority"]
        assert isinstance(priority, int)
        tc[priority], lossless = action["queue"], lossless | action["lossless"] << priority
    bandwidth, tsa = [0] * 8, [int(Tsa.STRICT)] * 8
    for match, action in found("egress.tm_scheduler", port=port).items():
        queue = dict(match)["tc"]
        assert isinstance(queue, int)
        if action.name == "egress.tm_ets":
            bandwidth[queue], tsa[queue] = action["weight"], int(Tsa.ETS)
        elif action.name == "egress.tm_cbs":
            tsa[queue] = int(Tsa.CBS)
    app = [
        AppEntry(Selector.DSCP, dscp, action["priority"])
        for match, action in found("ingress.dscp_to_priority", qos_profile=own).items()
        if isinstance(dscp := dict(match)["dscp"], int)
    ]
    rules = [
        AppPriority(priority=action["priority"], **_rule(dict(match)))
        for match, action in found("ingress.app_priority", qos_profile=own).items()
    ]
    base = config.qos_of(config.switches[switch].ports[port])
    kept = QosProfile(app_priority=rules)
    if ports[0]["default_priority"] != base.default_priority:
        app.insert(0, AppEntry(Selector.ETHER_TYPE, 0, ports[0]["default_priority"]))
    try:
        table = EtsTable.build(tc, _hundred(bandwidth, tc, config.ets_of(config.switches[switch].ports[port])), tsa)
    except TlvError:
        return None  # somebody else's hand was in it
    return Run(table, lossless, (*app_entries(kept), *app))


def _marked(switch: Switch) -> Switch:
    ports = {
        number: port.model_copy(update={"qos": profile_name(port, number)}) if switch.dcbx_of(number) else port
        for number, port in switch.ports.items()
    }
    return switch.model_copy(update={"ports": ports})


def _hundred(bandwidth: list[int], tc: list[int], base: Mapping[int, object]) -> list[int]:
    """Weights as they were in per cent: some of 1 stand for 0, and unused queues may have what the file gives them."""
    of_file = {q for q in range(8) if q not in tc and base.get(q) == EtsWeight(ets=bandwidth[q] or 1)}
    ones = [q for q in range(8) if q in tc and bandwidth[q] == 1]
    for left_out in (set[int](), of_file):
        shares = [0 if queue in left_out else bandwidth[queue] for queue in range(8)]
        excess = sum(shares) - 100
        if 0 <= excess <= len(ones):
            for queue in ones[:excess]:
                shares[queue] = 0
            return shares
    return bandwidth


def _rule(match: Mapping[str, object]) -> dict[str, int]:
    return {name: value.value for name, value in match.items() if isinstance(value, Ternary)}
