"""Selects the proxy for a server from HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as Go's `httpproxy` does.

kubectl and all clients of client-go use the same rules. The variable is that of the server's scheme, in upper case
before lower case; a value without scheme is an HTTP proxy. `localhost` and loopback addresses are never proxied.
NO_PROXY is a list, separated by commas, of: `*`; an address or a CIDR; a domain, which includes its subdomains;
`.domain` or `*.domain`, which match subdomains only. All but CIDRs may end with a port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_SCHEMES = ("http", "https", "socks5", "socks5h")


def proxy_for(url: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the proxy's URL and the name of its variable; both "" for none."""
    parts = urlsplit(url)
    for name in (f"{parts.scheme}_proxy".upper(), f"{parts.scheme}_proxy"):
        proxy = environ.get(name, "")
        if proxy:
            break
    else:
        return "", ""
    excluded = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not _is_proxied(parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0), excluded):
        return "", ""
    if not proxy.lower().startswith(tuple(f"{scheme}://" for scheme in _SCHEMES)):
        proxy = f"http://{proxy}"
    return proxy, name


def _is_proxied(host: str, port: int, excluded: str) -> bool:
    ip = _address(host)
    if host == "localhost" or (ip is not None and ip.is_loopback):
        return False
    host = _ascii(host.lower())
    return not any(_matches(entry.strip().lower(), host, ip, port) for entry in excluded.split(","))


def _matches(entry: str, host: str, ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    prefix, slash, bits = entry.partition("/")
    if slash and bits.isdecimal() and _address(prefix) is not None:
        try:
            return ip is not None and ip in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted = _split(entry)
    if not name or (wanted and wanted != str(port)):
        return False
    given = _address(name)
    if given is not None:
        return given == ip
    name = _ascii(name.removeprefix("*") if name.startswith("*.") else name)
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def _split(entry: str) -> tuple[str, str]:
    """Return host and port of `host:port` or `[address]:port`; without a port, the whole text and ""."""
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        return (host, rest[1:]) if bracket and rest.startswith(":") else (entry, "")
    host, colon, port = entry.partition(":")
    return (host, port) if colon and ":" not in port else (entry, "")


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host
