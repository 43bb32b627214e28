"""Refuses requests that a page of another site makes a browser send.

A browser on the machine reaches loopback ports. Such a page can send requests to them, which names its own origin, or
have its own name resolved to 127.0.0.1 to read the responses (DNS rebinding), which names its own host.
"""

from __future__ import annotations

from ipaddress import ip_address


def host_problem(host: str) -> str:
    """Return what is wrong with a `Host` header for a page on a loopback address; empty if nothing is.

    An IP address is allowed: no name was resolved, and a proxy beside the process passes on the one it was asked by.
    """
    name = _without_port(host).rstrip(".").lower()
    if not name or name == "localhost" or name.endswith(".localhost") or _is_address(name):
        return ""
    return f"Host: found {host!r}; allowed on a loopback address: localhost, or an IP address"


def origin_problem(origin: str, host: str) -> str:
    """Return what is wrong with an `Origin` header; empty if it is absent or that of this server."""
    if not origin:
        return ""
    scheme, _, place = origin.lower().partition("://")
    default = {"http": ":80", "https": ":443"}.get(scheme, "")
    if place and place.removesuffix(default) == host.lower().removesuffix(default):
        return ""
    return f"Origin: found {origin!r}; allowed: that of this server"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and ":" not in name else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
