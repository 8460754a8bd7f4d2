"""DCQCN parameter sets as scenarios use them: reaction point and the marking that belongs to it, for a link's rate.

`paper`: SIGCOMM'15 at its 40 Gb/s exactly as printed (Kmin 5 KB, Kmax 200 KB, Pmax 1%, R_AI 40 Mb/s); at another rate
thresholds and increments are in proportion to it. `cx4`: HPCC's run.py for the vendor's form (Kmin 100 KB, Kmax 400 KB
for each 25 Gb/s, Pmax 0.2).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final

from hosts.nic_config import Dcqcn
from topologies.settings import Ecn

PAPER_RATE_BPS: Final = 40_000_000_000
PAPER_ECN: Final = Ecn(kmin_bytes=5_000, kmax_bytes=200_000, pmax=0.01)
VENDOR_RATE_BPS: Final = 25_000_000_000
VENDOR_ECN: Final = Ecn(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.2)
PROFILES: Final = ("paper", "cx4")


def dcqcn_of(profile: str, rate_bps: int) -> Dcqcn:
    """The reaction point. ValueError for a profile that is not in PROFILES."""
    made = Dcqcn.named(profile, rate_bps)
    if profile != "paper":
        return made
    ratio = Fraction(rate_bps, PAPER_RATE_BPS)
    return replace(made, ai_bps=round(made.ai_bps * ratio), hai_bps=round(made.hai_bps * ratio))


def ecn_of(profile: str, rate_bps: int) -> Ecn:
    """The marking of switches. KeyError for a profile that is not in PROFILES."""
    ecn, made_for = {"paper": (PAPER_ECN, PAPER_RATE_BPS), "cx4": (VENDOR_ECN, VENDOR_RATE_BPS)}[profile]
    ratio = Fraction(rate_bps, made_for)
    return replace(ecn, kmin_bytes=round(ecn.kmin_bytes * ratio), kmax_bytes=round(ecn.kmax_bytes * ratio))
