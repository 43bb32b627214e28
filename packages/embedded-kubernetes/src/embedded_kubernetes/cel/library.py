"""CEL functions that Kubernetes adds for strings, addresses and URLs, beyond those of `apimachinery.celtypes`.

Names and semantics are those of k8s.io/apiserver/pkg/cel/library. A URL, an address or a network is
represented by bytes, a letter for the type and the text, because cel-expr-python has no user-defined types.
Invalid input raises ValueError, which fails the expression.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from apimachinery.celtypes import Function, quantity_value, version_value
from apimachinery.quantity import parse

from ..quantities import canonical_quantity
from .macros import OWN

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


# ---- strings


def _found(text: str, pattern: str, most: int = -1) -> list[str]:
    every = [match[0] for match in re.finditer(pattern, text)]
    return every if most < 0 else every[:most]


def _find(text: str, pattern: str) -> str:
    return next(iter(_found(text, pattern)), "")


def _in_range(place: int, text: str) -> int:
    if not 0 <= place <= len(text):
        raise ValueError(f"index out of range: {place}")
    return place


def _char_at(text: str, place: list[int]) -> str:
    start = _in_range(place[0], text)
    return text[start : start + 1]


def _substring(text: str, places: list[int]) -> str:
    if len(places) > 1 and places[0] > places[1]:
        raise ValueError(f"invalid substring range. start: {places[0]}, end: {places[1]}")
    start, *end = (_in_range(place, text) for place in places)
    return text[start : end[0] if end else None]


# ---- quantities and versions; errors have Go's wording


def _quantity(text: str) -> bytes:
    canonical_quantity(text)
    return quantity_value(parse(text).nano)


def _version(text: str, normalize: bool = False) -> bytes:
    found = version_value(text, normalize=normalize)
    if found is None:
        raise ValueError(_version_problem(text))
    return found


def _version_problem(text: str) -> str:
    if not text:
        return "Version string empty"
    numbers = text.split(".", 2)
    if len(numbers) < 3:
        return "No Major.Minor.Patch elements found"
    numbers[2] = re.split("[-+]", numbers[2])[0]
    for name, number in zip(("major", "minor", "patch"), numbers, strict=True):
        if not re.fullmatch("[0-9]*", number):
            return f'Invalid character(s) found in {name} number "{number}"'
        if len(number) > 1 and number[0] == "0":
            return f'{name.capitalize()} number must not contain leading zeroes "{number}"'
    return f"{text!r} is not a semantic version"


# ---- addresses and networks


def _parsed_address(text: str) -> _Address:
    found = ip_address(text)
    if isinstance(found, IPv6Address) and (found.ipv4_mapped is not None or found.scope_id):
        raise ValueError
    return found


def _is_address(text: str) -> bool:
    try:
        _parsed_address(text)
    except ValueError:
        return False
    return True


def _address(text: str) -> bytes:
    if not _is_address(text):
        why = f'ParseAddr("{text}"): unable to parse IP'
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {why}')
    return b"i%s" % str(_parsed_address(text)).encode()


def _address_of(value: bytes) -> _Address:
    if value[:1] != b"i":
        raise ValueError("no such overload")
    return ip_address(value[1:].decode())


def _global(address: _Address) -> bool:
    """Return whether Go's IsGlobalUnicast holds, which counts private addresses as global."""
    broadcast = isinstance(address, IPv4Address) and int(address) == 2**32 - 1
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (broadcast or special)


def _link_local_multicast(address: _Address) -> bool:
    if isinstance(address, IPv4Address):
        return address in IPv4Network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def _is_network(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isdecimal() or (len(bits) > 1 and bits[0] == "0") or not _is_address(address):
        return False
    return int(bits) <= _parsed_address(address).max_prefixlen


def _network(text: str) -> bytes:
    if not _is_network(text):
        why = f"netip.ParsePrefix(\"{text}\"): no '/'" if "/" not in text else f'netip.ParsePrefix("{text}")'
        raise ValueError(f"network address parse error during conversion from string: {why}")
    return b"c%s" % text.encode()


def _network_of(value: bytes) -> _Network:
    if value[:1] != b"c":
        raise ValueError("no such overload")
    return ip_network(value[1:].decode(), strict=False)


def _contains_address(network: bytes, address: bytes | str) -> bool:
    return _address_of(_address(address) if isinstance(address, str) else address) in _network_of(network)


def _contains_network(network: bytes, other: bytes | str) -> bool:
    outer, inner = _network_of(network), _network_of(_network(other) if isinstance(other, str) else other)
    return outer.version == inner.version and inner.prefixlen >= outer.prefixlen and inner.network_address in outer


def _masked(network: bytes) -> bytes:
    return b"c%s" % str(_network_of(network)).encode()


# ---- URLs


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    bad = re.search(r"[\x00-\x20\x7f]|%(?![0-9A-Fa-f]{2})", text)
    return not bad and (text.startswith("/") or bool(parts.scheme)) and (port is None or port >= 0)


def url_problem(text: str) -> str:
    """Return why the text is not a request URL; empty if it is one."""
    return "" if _is_url(text) else f'parse "{text}": invalid URI for request'


def _url(text: str) -> bytes:
    if problem := url_problem(text):
        raise ValueError(f"URL parse error during conversion from string: {problem}")
    return b"u%s" % text.encode()


def _parts(value: bytes) -> Any:
    if value[:1] != b"u":
        raise ValueError("no such overload")
    return urlsplit(value[1:].decode())


def _host(value: bytes) -> str:
    host: str = _parts(value).netloc.rpartition("@")[2]
    return host


def _hostname(value: bytes) -> str:
    return re.sub(r":\d*$", "", _host(value)).strip("[]")


def _query(value: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, one in parse_qsl(_parts(value).query, keep_blank_values=True):
        found.setdefault(name, []).append(one)
    return found


FUNCTIONS = (
    Function("quantity", ("string",), "opaque", _quantity, is_method=False),
    Function("semver", ("string",), "opaque", _version, is_method=False),
    Function("semver", ("string", "bool"), "opaque", _version, is_method=False),
    Function("find", ("string", "string"), "string", _find),
    Function("findAll", ("string", "string"), "list", _found),
    Function("findAll", ("string", "string", "int"), "list", _found),
    Function(f"{OWN}charAt", ("string", "list"), "string", _char_at),
    Function(f"{OWN}substring", ("string", "list"), "string", _substring),
    Function("isIP", ("string",), "bool", _is_address, is_method=False),
    Function("ip", ("string",), "opaque", _address, is_method=False),
    Function(
        "ip.isCanonical", ("string",), "bool", lambda text: _address(text) == b"i%s" % text.encode(), is_method=False
    ),
    Function("family", ("opaque",), "int", lambda value: _address_of(value).version),
    Function("isUnspecified", ("opaque",), "bool", lambda value: _address_of(value).is_unspecified),
    Function("isLoopback", ("opaque",), "bool", lambda value: _address_of(value).is_loopback),
    Function("isLinkLocalMulticast", ("opaque",), "bool", lambda value: _link_local_multicast(_address_of(value))),
    Function("isLinkLocalUnicast", ("opaque",), "bool", lambda value: _address_of(value).is_link_local),
    Function("isGlobalUnicast", ("opaque",), "bool", lambda value: _global(_address_of(value))),
    Function("isCIDR", ("string",), "bool", _is_network, is_method=False),
    Function("cidr", ("string",), "opaque", _network, is_method=False),
    *(Function("containsIP", ("opaque", kind), "bool", _contains_address) for kind in ("opaque", "string")),
    *(Function("containsCIDR", ("opaque", kind), "bool", _contains_network) for kind in ("opaque", "string")),
    Function("ip", ("opaque",), "opaque", lambda value: _address(value[1:].decode().partition("/")[0])),
    Function("masked", ("opaque",), "opaque", _masked),
    Function("prefixLength", ("opaque",), "int", lambda value: _network_of(value).prefixlen),
    Function("isURL", ("string",), "bool", _is_url, is_method=False),
    Function("url", ("string",), "opaque", _url, is_method=False),
    Function("getScheme", ("opaque",), "string", lambda value: _parts(value).scheme),
    Function("getHost", ("opaque",), "string", _host),
    Function("getHostname", ("opaque",), "string", _hostname),
    Function("getPort", ("opaque",), "string", lambda value: str(_parts(value).port or "")),
    Function("getEscapedPath", ("opaque",), "string", lambda value: _parts(value).path),
    Function("getQuery", ("opaque",), "map", _query),
)
