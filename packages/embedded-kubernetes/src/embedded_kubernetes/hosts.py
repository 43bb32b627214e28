"""The addresses of the server: those that only this host reaches, and the one that other hosts use."""

from __future__ import annotations

import socket
from ipaddress import ip_address

#: An address of documentation (RFC 5737), to which nothing is sent.
_ELSEWHERE = ("192.0.2.1", 9)


def is_loopback(host: str) -> bool:
    """Return whether only processes of this host reach `host`. Other names than localhost count as reachable."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def advertised(host: str) -> str:
    """Return the address for clients of a server that listens on `host`.

    For all addresses this is the address of the default route, as for kube-apiserver, or this host's name.
    """
    try:
        if not ip_address(host).is_unspecified:
            return host
    except ValueError:
        if host:
            return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
