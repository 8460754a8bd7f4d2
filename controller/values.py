"""Values of the config: MAC addresses, prefixes and numbers with their ranges, as pydantic types.

Sans-IO; every rule says in words what is wanted, since the message reaches the user as `field: value: rule`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from dcb.units import format_rate, parse_rate

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def parse_mac(value: object) -> str:
    """A MAC address as six hexadecimal octets with colons; lower case comes back."""
    if not isinstance(value, str):
        raise ValueError('a MAC address is a quoted string such as "02:01:00:00:01:01"')
    text = value.strip().lower().replace("-", ":")
    if _MAC.fullmatch(text) is None:
        raise ValueError('a MAC address is six octets such as "02:01:00:00:01:01"')
    return text


def _unicast_mac(value: object) -> str:
    text = parse_mac(value)
    if int(text[:2], 16) & 1:
        raise ValueError("a unicast MAC address is wanted: the lowest bit of the first octet is 0")
    return text


def no_bool(value: object) -> object:
    """Refuse true and false where a number is wanted."""
    # YAML reads yes, no, on and off as booleans, and pydantic would take those as 1 and 0
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")
    return value


def _prefix(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a prefix is a string such as 10.1.0.0/16 or fd00:1::/64")
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f"an IPv4 or IPv6 prefix without host bits is wanted ({error})") from None


def _prefix4(value: object) -> str:
    text = _prefix(value)
    if ipaddress.ip_network(text).version != 4:
        raise ValueError("an IPv4 prefix is wanted")
    return text


def _port_range(value: object) -> str:
    text = str(value)
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
    if isinstance(value, bool) or match is None:
        raise ValueError('a port or a range such as "4791" or "1000-2000" is wanted')
    low, high = int(match[1]), int(match[2] or match[1])
    if not low <= high <= 65535:
        raise ValueError("a range is low-high with low <= high <= 65535")
    return text


U32_MAX = 2**32 - 1
MAX_DATA_PORT = 509  # 510 is the CPU port, 511 drops (contract, section 1)
MAX_RATE_BPS = 800_000_000_000  # of a port of dcbswitch

Priority = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=7)]
Dscp = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=63)]
Bytes = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=U32_MAX)]
PortNumber = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=MAX_DATA_PORT)]
U8 = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=255)]
U16 = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=65535)]
Weight = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=100)]
Rate = Annotated[int, BeforeValidator(parse_rate), Field(le=MAX_RATE_BPS), PlainSerializer(format_rate)]
Mac = Annotated[str, BeforeValidator(_unicast_mac)]
Prefix = Annotated[str, BeforeValidator(_prefix)]
Prefix4 = Annotated[str, BeforeValidator(_prefix4)]
PortRange = Annotated[str, BeforeValidator(_port_range)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
