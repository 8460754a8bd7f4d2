"""Keys of a port that say how it takes and makes PFC frames: storm control, dialect, asymmetric PFC. Models only.

`controller.config` has the keys, `controller.desired` makes entries of them (docs/contract.md, 2: `pfc_policy`,
`pfc_tx_dialect`, the meter `pfc_rx_meter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from controller.values import U32_MAX, no_bool
from dcb.pfc import DIALECTS, Dialect

DialectName = Literal["standard", "clear-bit", "until-resumed", "both"]
STORM_ACTIONS = {"alarm": 1, "ignore": 2}
_Count = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=U32_MAX)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StormControl(_Model):
    """A limit on the PFC frames that a port receives: `rate` frames a second, `burst` frames at once.

    action: what a frame beyond it gets. ignore: counted and not obeyed; alarm: counted and obeyed.
    """

    rate: _Count
    burst: _Count = 100
    action: Literal["ignore", "alarm"] = "ignore"


class PortDialect(_Model):
    """The dialect of the PFC frames that a port receives (rx) and sends (tx)."""

    rx: DialectName = "standard"
    tx: DialectName = "standard"


def _tag(value: object) -> str | None:
    if isinstance(value, str):
        return "scalar"
    return "mapping" if isinstance(value, Mapping | BaseModel) else None


DialectKey = Annotated[
    Annotated[DialectName, Tag("scalar")] | Annotated[PortDialect, Tag("mapping")],
    Discriminator(
        _tag,
        custom_error_type="choice",
        custom_error_message="standard, clear-bit, until-resumed, both, or {rx: ..., tx: ...} is wanted",
    ),
]


def dialects(key: Any) -> tuple[Dialect, Dialect]:
    """(rx, tx) of the key `pfc_dialect`."""
    rx, tx = names(key)
    return DIALECTS[rx], DIALECTS[tx]


def names(key: Any) -> tuple[str, str]:
    """The same as names."""
    return (key.rx, key.tx) if isinstance(key, PortDialect) else (key, key)
