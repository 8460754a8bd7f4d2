"""The key `telemetry` of the config file: what is measured how often, when an alarm is raised, where it is published.

Models only; no I/O. Without the key nothing is polled, but for the counters of storm control where a port has it.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from controller.values import no_bool

DEFAULT_ADDRESS = "127.0.0.1"


def _number(low: int, high: int) -> Any:
    return Annotated[int, BeforeValidator(no_bool), Field(ge=low, le=high)]


def _endpoint(value: object) -> str:
    """`9464` or `127.0.0.1:9464` or `[::1]:9464` -> host:port."""
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('a port such as 9464, or "127.0.0.1:9464" is wanted')
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else DEFAULT_ADDRESS
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{host!r} is not an IPv4 or IPv6 address") from None
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"{port!r} is not a port 0..65535")
    return f"[{address}]:{int(port)}" if address.version == 6 else f"{address}:{int(port)}"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Thresholds(_Model):
    """When an alarm is raised; the defaults are those of the deployment article (requirement R21).

    pfc_per_second: XOFF frames of one priority through one port, each way. latency_us, recovery_us: the quantile
    (`quantile`, per cent) of an interval. hops: the largest number that is still good.
    """

    pfc_per_second: _number(1, 10**9) = 1000  # type: ignore[valid-type]
    latency_us: _number(1, 10**9) = 50  # type: ignore[valid-type]
    recovery_us: _number(1, 10**9) = 5  # type: ignore[valid-type]
    hops: _number(1, 1000) = 2  # type: ignore[valid-type]
    quantile: _number(1, 100) = 99  # type: ignore[valid-type]


class Hysteresis(_Model):
    """An alarm is raised by `raise_after` intervals at the threshold or beyond in a row, and cleared by `clear_after`
    intervals below `clear_percent` of it in a row."""

    raise_after: _number(1, 1000) = 1  # type: ignore[valid-type]
    clear_after: _number(1, 1000) = 3  # type: ignore[valid-type]
    clear_percent: _number(1, 100) = 80  # type: ignore[valid-type]


class Telemetry(_Model):
    """interval_ms: of polling. prometheus: where `/metrics` is served (absent: nowhere). events: a file for them."""

    interval_ms: _number(10, 3_600_000) = 1000  # type: ignore[valid-type]
    thresholds: Thresholds = Thresholds()
    hysteresis: Hysteresis = Hysteresis()
    prometheus: Annotated[str, BeforeValidator(_endpoint)] | None = None
    prometheus_remote: bool = False
    events: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _loopback(self) -> Self:
        if self.prometheus is not None and not self.prometheus_remote:
            host, _ = self.endpoint
            if not ipaddress.ip_address(host).is_loopback:
                raise ValueError(f"prometheus: {self.prometheus} is not loopback; prometheus_remote: true allows it")
        return self

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of `prometheus`."""
        assert self.prometheus is not None
        host, _, port = self.prometheus.rpartition(":")
        return host.strip("[]"), int(port)
