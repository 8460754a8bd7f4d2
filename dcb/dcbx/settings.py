"""What a port is told to do (`DcbxSettings`, LocalAdminParam in the standard's terms) and what it does (`Operational`).

Both are values: nothing here changes. Settings are checked when they are made, by the rules that received TLVs have to
keep, so a port never sends what it would refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dcb.dcbx.machines import State, TieBreak
from dcb.dcbx.tlv import (
    NAMES,
    AppEntry,
    ApplicationPriority,
    ApplicationVlan,
    AppVlanEntry,
    CongestionNotification,
    EtsConfiguration,
    EtsRecommendation,
    EtsTable,
    PfcConfiguration,
    Subtype,
    bits,
)

DEFAULT_ETS = EtsTable()


class Mode(Enum):
    """The dialect of DCBX that a link speaks."""

    IEEE = "ieee"
    CEE = "cee"
    CIN = "cin"  # pre-standard Cisco, Intel, Nuova: read and shown, never negotiated


class ModeSetting(Enum):
    """How the dialect is found. AUTO: IEEE, and CEE while the peer speaks only that, until the link goes down."""

    AUTO = "auto"
    IEEE = "ieee"
    CEE = "cee"


class AppDialect(Enum):
    """Application Priority: for information (802.1Qaz), or negotiated like PFC (article's variant, requirements D3)."""

    INFORMATIONAL = "informational"
    SYMMETRIC = "app-symmetric"


@dataclass(frozen=True, slots=True)
class DcbxSettings:
    """One port's administrative configuration. Raises `TlvError` where a received TLV with it would be refused.

    recommendation: the ETS table that the peer should run, None to recommend nothing. pfc_enable: bit n is priority n;
    pfc_cap: traffic classes that can do PFC at once. app_accept: also use what the peer announces, where this end has
    no entry for the same selector and protocol. app_willing: in the dialect `app-symmetric` only. suppressed: TLVs not
    to send.
    """

    ets: EtsTable = DEFAULT_ETS
    ets_willing: bool = False
    recommendation: EtsTable | None = None
    max_tcs: int = 8
    cbs: bool = False
    pfc_enable: int = 0
    pfc_willing: bool = False
    pfc_cap: int = 8
    mbc: bool = False
    app: tuple[AppEntry, ...] = ()
    app_accept: bool = False
    app_willing: bool = False
    app_dialect: AppDialect = AppDialect.INFORMATIONAL
    app_vlan: tuple[AppVlanEntry, ...] = ()
    congestion: CongestionNotification | None = None
    mode: ModeSetting = ModeSetting.AUTO
    tie_break: TieBreak = TieBreak.LOWER_MAC
    suppressed: frozenset[Subtype] = frozenset()

    def __post_init__(self) -> None:
        EtsConfiguration(self.ets, self.ets_willing, self.cbs, self.max_tcs)
        if self.recommendation is not None:
            self.recommendation.check(NAMES[Subtype.ETS_RECOMMENDATION])
        PfcConfiguration(self.pfc_enable, self.pfc_willing, self.mbc, self.pfc_cap).check_cap(self.ets.priority_tc)
        ApplicationPriority(self.app)
        ApplicationVlan(self.app_vlan)

    @classmethod
    def switch(cls, ets: EtsTable, pfc_enable: int, app: tuple[AppEntry, ...] = ()) -> DcbxSettings:
        """A port that configures its peer: not willing, recommends the ETS that it runs itself."""
        return cls(ets=ets, recommendation=ets, pfc_enable=pfc_enable, app=app)

    @classmethod
    def host(cls, ets: EtsTable | None = None, pfc_enable: int = 0) -> DcbxSettings:
        """A port that lets its peer configure it: willing, takes the peer's applications, recommends nothing."""
        return cls(
            ets=ets or DEFAULT_ETS,
            pfc_enable=pfc_enable,
            ets_willing=True,
            pfc_willing=True,
            app_accept=True,
            app_willing=True,
        )


@dataclass(frozen=True, slots=True)
class Operational:
    """What a port runs.

    ets: priority to traffic class, bandwidth, TSA. pfc_enable: OperParam of PFC, bit n is priority n. pfc_agreed: of
    those, what the one peer says it runs too; a priority is lossless over the link only where both ends do. app:
    applications to priorities. *_state and *_why: of the machines.
    """

    mode: Mode
    ets: EtsTable
    pfc_enable: int
    pfc_agreed: int
    app: tuple[AppEntry, ...]
    ets_state: State
    pfc_state: State
    app_state: State
    ets_why: str
    pfc_why: str
    app_why: str

    @property
    def pfc_priorities(self) -> tuple[int, ...]:
        """Priorities with PFC."""
        return bits(self.pfc_enable)

    @property
    def lossless_priorities(self) -> tuple[int, ...]:
        """Priorities with PFC at both ends."""
        return bits(self.pfc_agreed)

    def differs(self, other: Operational) -> tuple[str, ...]:
        """Which of "mode", "ets", "pfc", "app", "agreed" differ in what is run; states and reasons do not count."""
        pairs = (
            ("mode", self.mode, other.mode),
            ("ets", self.ets, other.ets),
            ("pfc", self.pfc_enable, other.pfc_enable),
            ("app", self.app, other.app),
            ("agreed", self.pfc_agreed, other.pfc_agreed),
        )
        return tuple(name for name, mine, theirs in pairs if mine != theirs)


def configuration_tlvs(
    settings: DcbxSettings, ets: EtsTable, pfc_enable: int, app: tuple[AppEntry, ...]
) -> tuple[EtsConfiguration, EtsRecommendation | None, PfcConfiguration, ApplicationPriority | None]:
    """What a port sends: ETS, PFC and applications are those that it runs, the rest is as set."""
    symmetric = settings.app_dialect is AppDialect.SYMMETRIC
    willing_bit = 0x80 if symmetric and settings.app_willing else 0
    return (
        EtsConfiguration(ets, settings.ets_willing, settings.cbs, settings.max_tcs),
        EtsRecommendation(settings.recommendation) if settings.recommendation is not None else None,
        PfcConfiguration(pfc_enable, settings.pfc_willing, settings.mbc, settings.pfc_cap),
        ApplicationPriority(app, willing_bit) if app or symmetric else None,
    )
