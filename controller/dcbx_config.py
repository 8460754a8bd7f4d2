"""The key `dcbx` of the config file: DCBX and LLDP of a switch, and of single ports. Models only; no I/O.

`switches.<name>.dcbx` holds for every port of the switch, `ports.<n>.dcbx` replaces single keys of it. A switch without
either speaks no LLDP. What a key leaves open (`ets`, `pfc`, `app`) is what the port is configured with anyway:
`controller.dcbx_overlay` derives it. Values are checked by the rules of `dcb.dcbx`, with its messages.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from controller.values import U16, Dscp, Name, Priority, no_bool
from dcb.dcbx.machines import TieBreak
from dcb.dcbx.settings import AppDialect, ModeSetting
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector, Tsa
from dcb.lldp.tlv import TlvError

Attribute = Literal["ets", "pfc", "app"]
ATTRIBUTES: tuple[Attribute, ...] = ("ets", "pfc", "app")
Role = Literal["manual", "auto-upstream", "auto-downstream", "configuration-source"]
Percent = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=100)]


def _number(low: int, high: int) -> Any:
    return Annotated[int, BeforeValidator(no_bool), Field(ge=low, le=high)]


def _address(value: object) -> str:
    try:
        return str(ipaddress.ip_address(value))  # type: ignore[arg-type]
    except ValueError:
        raise ValueError("an IPv4 or IPv6 address is wanted") from None


def _ether_type(value: object) -> object:
    return int(value, 16) if isinstance(value, str) and value.lower().startswith("0x") else value


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DcbxEts(_Model):
    """An ETS table: traffic class of each priority (others: 0), per cent of each ETS class, and the strict ones."""

    priority_to_tc: dict[Priority, Priority] = Field(default_factory=dict)
    bandwidth: dict[Priority, Percent] = Field(default_factory=dict)
    strict: list[Priority] = Field(default_factory=list)

    @model_validator(mode="after")
    def _valid(self) -> Self:
        both = sorted(set(self.strict) & set(self.bandwidth))
        if both:
            raise ValueError(f"traffic class {both[0]} is in bandwidth and in strict")
        try:
            self.table()
        except TlvError as error:
            raise ValueError(f"{error.field} is {error.value}, {error.rule}") from None
        return self

    def table(self) -> EtsTable:
        """As DCBX knows it. A class with a bandwidth is ETS; one that nothing is said of is strict, the default."""
        return EtsTable.build(
            [self.priority_to_tc.get(priority, 0) for priority in range(8)],
            [self.bandwidth.get(tc, 0) for tc in range(8)],
            [Tsa.ETS if tc in self.bandwidth else Tsa.STRICT for tc in range(8)],
        )


class DcbxApp(_Model):
    """One application: what it is, and its priority. default: frames that nothing else says anything of."""

    priority: Priority
    ether_type: Annotated[U16, BeforeValidator(_ether_type)] | None = None
    tcp: U16 | None = None
    udp: U16 | None = None
    port: U16 | None = None
    dscp: Dscp | None = None
    default: Literal[True] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = (self.ether_type, self.tcp, self.udp, self.port, self.dscp, self.default)
        if sum(value is not None for value in given) != 1:
            raise ValueError("exactly one of ether_type, tcp, udp, port, dscp, default: true is wanted")
        if self.ether_type is not None and self.ether_type < 0x600:
            raise ValueError("an EtherType is 0x600..0xffff (0 means default: true)")
        return self

    def entry(self) -> AppEntry:
        """As DCBX knows it."""
        for selector, value in (
            (Selector.ETHER_TYPE, self.ether_type),
            (Selector.TCP, self.tcp),
            (Selector.UDP, self.udp),
            (Selector.ANY_PORT, self.port),
            (Selector.DSCP, self.dscp),
        ):
            if value is not None:
                return AppEntry(selector, value, self.priority)
        return AppEntry(Selector.ETHER_TYPE, 0, self.priority)

    @classmethod
    def data(cls, entry: AppEntry) -> dict[str, Any]:
        """The other way round, as plain data of the config file."""
        key = {1: "ether_type", 2: "tcp", 3: "udp", 4: "port", 5: "dscp"}[entry.selector]
        if (entry.selector, entry.protocol) == (Selector.ETHER_TYPE, 0):
            return {"default": True, "priority": entry.priority}
        return {key: entry.protocol, "priority": entry.priority}


class Dcbx(_Model):
    """Every key may be left out: of a port, for what the switch says; of a switch, for the default in brackets.

    enabled [true]; role [manual]; mode [auto]; tie_break [lower-mac]; willing: of which attributes [none; of an
    auto-upstream port all]; ets, pfc, app: local administrative configuration [what the port is configured with];
    max_tcs [8]; pfc_cap [8]; mbc [false]; app_dialect [informational]; lossless_buffers: buffer profile of priority
    groups that become lossless [what `buffers` says]; management_address, system_name [the switch's name].
    tx_interval_s [30], tx_hold [4], fast_tx_s [1]: of LLDP.
    """

    enabled: bool | None = None
    role: Role | None = None
    mode: Literal["auto", "ieee", "cee"] | None = None
    tie_break: Literal["lower-mac", "higher-mac"] | None = None
    willing: list[Attribute] | None = None
    ets: DcbxEts | None = None
    pfc: list[Priority] | None = None
    app: list[DcbxApp] | None = None
    max_tcs: _number(1, 8) | None = None  # type: ignore[valid-type]
    pfc_cap: _number(0, 8) | None = None  # type: ignore[valid-type]
    mbc: bool | None = None
    app_dialect: Literal["informational", "app-symmetric"] | None = None
    lossless_buffers: Name | None = None
    system_name: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    management_address: Annotated[str, BeforeValidator(_address)] | None = None
    tx_interval_s: _number(1, 3600) | None = None  # type: ignore[valid-type]
    tx_hold: _number(1, 100) | None = None  # type: ignore[valid-type]
    fast_tx_s: _number(1, 3600) | None = None  # type: ignore[valid-type]

    @property
    def mode_setting(self) -> ModeSetting:
        """The dialect, default AUTO."""
        return ModeSetting(self.mode or "auto")

    @property
    def tie(self) -> TieBreak:
        """Who keeps its own where both ends are willing."""
        return TieBreak(self.tie_break or "lower-mac")

    @property
    def dialect(self) -> AppDialect:
        """What Application Priority is."""
        return AppDialect(self.app_dialect or "informational")


def resolve(of_switch: Dcbx | None, of_port: Dcbx | None) -> Dcbx | None:
    """What holds for a port; None where it speaks no LLDP."""
    if of_switch is None and of_port is None:
        return None
    merged = of_switch or Dcbx()
    if of_port is not None:
        merged = merged.model_copy(update={k: v for k in Dcbx.model_fields if (v := getattr(of_port, k)) is not None})
    return None if merged.enabled is False else merged
