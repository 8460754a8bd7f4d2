"""The state machines of DCBX (IEEE 802.1Q clause 38.4): asymmetric (ETS) and symmetric (PFC) attributes.

A machine is its variables, by the standard's names, and `run`, which moves it to the state that they call for. It has
no timers and no input but the variables: whoever owns it sets them and calls `run`. `why` says what decided.

    asymmetric  Init -> RxRecommend while LocalWilling and there is a RemoteParam (the peer's Recommendation)
    symmetric   Init -> RxRecommend while LocalWilling, there is a RemoteParam, and the peer is not willing
                or is willing too and loses nothing: its MAC address is the numerically lower one

In Init, OperParam is LocalAdminParam; in RxRecommend it is RemoteParam. open-lldp decides the tie the other way round
(higher MAC address keeps its own): `TieBreak.HIGHER_MAC` is for links to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class State(Enum):
    """States of both machines."""

    INIT = "Init"
    RX_RECOMMEND = "RxRecommend"


class TieBreak(Enum):
    """Who keeps its own configuration where both ends are willing."""

    LOWER_MAC = "lower-mac"
    HIGHER_MAC = "higher-mac"


@dataclass(slots=True)
class AsymmetricMachine(Generic[T]):
    """An attribute whose ends may differ. remote_param: what the peer recommends, None for nothing."""

    local_admin_param: T
    local_willing: bool
    remote_param: T | None = None
    state: State = State.INIT
    why: str = "no Recommendation received"

    @property
    def oper_param(self) -> T:
        """OperParam."""
        if self.state is State.RX_RECOMMEND and self.remote_param is not None:
            return self.remote_param
        return self.local_admin_param

    def run(self) -> None:
        """Move to the state that the variables call for."""
        self.state = State.INIT
        if self.remote_param is None:
            self.why = "no Recommendation received"
        elif not self.local_willing:
            self.why = "not willing"
        else:
            self.state = State.RX_RECOMMEND
            self.why = "willing, and the peer recommends"


@dataclass(slots=True)
class SymmetricMachine(Generic[T]):
    """An attribute that both ends should run alike. remote_param: what the peer runs, None for nothing."""

    local_admin_param: T
    local_willing: bool
    local_mac: bytes
    tie_break: TieBreak = TieBreak.LOWER_MAC
    remote_param: T | None = None
    remote_willing: bool = False
    remote_mac: bytes = b""
    state: State = State.INIT
    why: str = "no Configuration received"

    @property
    def oper_param(self) -> T:
        """OperParam."""
        if self.state is State.RX_RECOMMEND and self.remote_param is not None:
            return self.remote_param
        return self.local_admin_param

    @property
    def local_wins_tie(self) -> bool:
        """Whether this end keeps its own where both are willing. Equal addresses (a looped port): it does."""
        if self.tie_break is TieBreak.LOWER_MAC:
            return self.local_mac <= self.remote_mac
        return self.local_mac >= self.remote_mac

    def run(self) -> None:
        """Move to the state that the variables call for."""
        self.state = State.INIT
        if self.remote_param is None:
            self.why = "no Configuration received"
        elif not self.local_willing:
            self.why = "not willing"
        elif not self.remote_willing:
            self.state = State.RX_RECOMMEND
            self.why = "willing, and the peer is not"
        else:
            winner = "lower" if self.tie_break is TieBreak.LOWER_MAC else "higher"
            if self.local_wins_tie:
                self.why = f"both willing, this end has the {winner} MAC address"
            else:
                self.state = State.RX_RECOMMEND
                self.why = f"both willing, the peer has the {winner} MAC address"
