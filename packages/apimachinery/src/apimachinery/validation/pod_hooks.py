"""Checks lifecycle hooks and probes of containers.

The words are those of Kubernetes' `validateLifecycle` and `validateProbe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from apimachinery.wire import Wire

from .field_problems import invalid, more_than_one, not_negative, port, required, unsupported

_HEADER: Final = re.compile("[-A-Za-z0-9]+")


class _Exec(Wire, frozen=True):
    command: tuple[str, ...] = ()


class _Header(Wire, frozen=True):
    name: str = ""


class _HttpGet(Wire, frozen=True):
    port: int | str = 0
    scheme: str = "HTTP"
    http_headers: tuple[_Header, ...] = ()


class _Socket(Wire, frozen=True):
    port: int | str = 0


class _Grpc(Wire, frozen=True):
    port: int = 0


class _Sleep(Wire, frozen=True):
    seconds: int = 0


class _Handler(Wire, frozen=True):
    """A handler; exactly one of the fields is set."""

    exec: _Exec | None = None
    http_get: _HttpGet | None = None
    tcp_socket: _Socket | None = None
    grpc: _Grpc | None = None
    sleep: _Sleep | None = None


class Probe(_Handler, frozen=True):
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
    termination_grace_period_seconds: int | None = None


class Lifecycle(Wire, frozen=True):
    post_start: _Handler | None = None
    pre_stop: _Handler | None = None


def lifecycle_problems(lifecycle: Lifecycle, field: str, grace: int) -> Iterator[str]:
    """Check lifecycle hooks. `grace` is the pod's termination grace period in seconds."""
    for name, hook in (("postStart", lifecycle.post_start), ("preStop", lifecycle.pre_stop)):
        if hook is not None:
            yield from _of_handler(hook, f"{field}.{name}", grace)


def probe_problems(probe: Probe, at: str, grace: int) -> Iterator[str]:
    yield from _of_handler(probe, at, grace)
    yield from _of_probe(probe, at)
    given = probe.termination_grace_period_seconds
    if at.endswith(".readinessProbe"):
        if given is not None:
            detail = "must not be set for readinessProbes"
            yield invalid(f"{at}.terminationGracePeriodSeconds", given, detail)
    elif probe.success_threshold not in (0, 1):
        yield invalid(f"{at}.successThreshold", probe.success_threshold, "must be 1")


def _of_probe(probe: Probe, at: str) -> Iterator[str]:
    yield from not_negative(f"{at}.initialDelaySeconds", probe.initial_delay_seconds)
    yield from not_negative(f"{at}.timeoutSeconds", probe.timeout_seconds)
    yield from not_negative(f"{at}.periodSeconds", probe.period_seconds)
    yield from not_negative(f"{at}.successThreshold", probe.success_threshold)
    yield from not_negative(f"{at}.failureThreshold", probe.failure_threshold)
    grace = probe.termination_grace_period_seconds
    if grace is not None and grace <= 0:
        yield invalid(f"{at}.terminationGracePeriodSeconds", grace, "must be greater than 0")


def _of_handler(handler: _Handler, at: str, grace: int) -> Iterator[str]:
    kinds = {
        "exec": handler.exec,
        "httpGet": handler.http_get,
        "tcpSocket": handler.tcp_socket,
        "grpc": handler.grpc,
        "sleep": handler.sleep,
    }
    given = {kind: said for kind, said in kinds.items() if said is not None}
    if not given:
        yield required(at, "must specify a handler type")
        return
    kind, first = next(iter(given.items()))
    yield from _of_kind(first, f"{at}.{kind}", grace)
    yield from more_than_one(at, given, "may not specify more than 1 handler type")


def _of_kind(handler: object, at: str, grace: int) -> Iterator[str]:
    match handler:
        case _Exec():
            if not handler.command:
                yield required(f"{at}.command")
        case _HttpGet():
            yield from port(f"{at}.port", handler.port)
            if handler.scheme not in ("", "HTTP", "HTTPS"):
                yield unsupported(f"{at}.scheme", handler.scheme, ("HTTP", "HTTPS"))
            for header in handler.http_headers:
                if not _HEADER.fullmatch(header.name):
                    detail = "a valid HTTP header must consist of alphanumeric characters or '-'"
                    yield invalid(f"{at}.httpHeaders", header.name, detail)
        case _Socket() | _Grpc():
            yield from port(f"{at}.port", handler.port)
        case _Sleep(seconds=seconds) if not 0 <= seconds <= grace:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield invalid(at, seconds, detail)
