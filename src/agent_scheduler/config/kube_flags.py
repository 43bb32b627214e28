"""Flags of kube-scheduler that are not in `flags`: each is refused by its name, with the reason and what to do instead.

A value that asks for what happens anyway is accepted. Those of the last table are read and become settings of ours.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agent_scheduler.config.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Refused:
    why: str
    #: Values that change nothing.
    harmless: tuple[str, ...] = ()


_REVIEWS = (
    "is not supported: who may read metrics is asked of the API server that pods come from; "
    "leave it out and set serving.authorizeMetrics in the file"
)
_NO_FRONT_PROXY = "is not supported: callers show a bearer token, and no proxy speaks for them; leave it out"
_METRICS = "is not supported: every metric is always served; leave it out, and drop series when scraping"
_STDERR = "is not supported: every line goes to standard error at once; leave it out"
_NO_PROFILING = "no profiling is served; leave it out, and attach a profiler from outside"

REFUSED: Mapping[str, Refused] = {
    "--master": Refused("is not supported: name the server in a kubeconfig, and give --kubeconfig"),
    "--profiling": Refused(_NO_PROFILING, ("false",)),
    "--contention-profiling": Refused(_NO_PROFILING, ("false",)),
    "--leader-elect-resource-lock": Refused(
        "the lock is always a Lease; allowed: leases, or leave it out", ("leases",)
    ),
    "--kube-api-content-type": Refused(
        "requests are JSON; allowed: application/json, or leave it out", ("application/json",)
    ),
    "--show-hidden-metrics-for-version": Refused(_METRICS, ("",)),
    "--disabled-metrics": Refused(_METRICS, ("",)),
    "--allow-metric-labels": Refused(_METRICS, ("",)),
    "--allow-metric-labels-manifest": Refused(_METRICS, ("",)),
    "--authentication-kubeconfig": Refused(_REVIEWS, ("",)),
    "--authentication-skip-lookup": Refused(_REVIEWS),
    "--authentication-token-webhook-cache-ttl": Refused(_REVIEWS),
    "--authentication-tolerate-lookup-failure": Refused(_REVIEWS, ("false",)),
    "--authorization-always-allow-paths": Refused(_REVIEWS, ("/healthz,/readyz,/livez",)),
    "--authorization-kubeconfig": Refused(_REVIEWS, ("",)),
    "--authorization-webhook-cache-authorized-ttl": Refused(_REVIEWS),
    "--authorization-webhook-cache-unauthorized-ttl": Refused(_REVIEWS),
    "--client-ca-file": Refused(
        "is not supported: callers show a bearer token, not a certificate; leave it out", ("",)
    ),
    "--requestheader-allowed-names": Refused(_NO_FRONT_PROXY),
    "--requestheader-client-ca-file": Refused(_NO_FRONT_PROXY, ("",)),
    "--requestheader-extra-headers-prefix": Refused(_NO_FRONT_PROXY),
    "--requestheader-group-headers": Refused(_NO_FRONT_PROXY),
    "--requestheader-uid-headers": Refused(_NO_FRONT_PROXY),
    "--requestheader-username-headers": Refused(_NO_FRONT_PROXY),
    "--cert-dir": Refused(
        "no certificate is made here; give --tls-cert-file and --tls-private-key-file, or serve HTTP"
    ),
    "--tls-sni-cert-key": Refused("is not supported: there is one certificate; see --tls-cert-file"),
    "--tls-cipher-suites": Refused("is not supported: those of OpenSSL for TLS 1.2 and newer; leave it out"),
    "--tls-curve-preferences": Refused("is not supported: those of OpenSSL; leave it out"),
    "--tls-min-version": Refused("it is TLS 1.2; allowed: VersionTLS12, or leave it out", ("VersionTLS12",)),
    "--disable-http2-serving": Refused("it is HTTP/1.1 that is served; leave it out", ("true",)),
    "--http2-max-streams-per-connection": Refused("it is HTTP/1.1 that is served; leave it out"),
    "--permit-address-sharing": Refused(
        "is not supported: the port is this process's alone; leave it out", ("false",)
    ),
    "--permit-port-sharing": Refused(
        "is not supported: the port is this process's alone; leave it out", ("false",)
    ),
    "--emulated-version": Refused("is not supported: there is one version of the rules; leave it out"),
    "--min-compatibility-version": Refused(
        "is not supported: there is one version of the rules; leave it out"
    ),
    "--log-flush-frequency": Refused(_STDERR),
    "--log-json-info-buffer-size": Refused(_STDERR, ("0",)),
    "--log-json-split-stream": Refused(_STDERR, ("false",)),
    "--log-text-info-buffer-size": Refused(_STDERR, ("0",)),
    "--log-text-split-stream": Refused(_STDERR, ("false",)),
    "--vmodule": Refused("is not supported: one level holds for all; see --log-level"),
}

#: From this verbosity on kube-scheduler says of each pod what becomes of it, as our level debug does.
_DEBUG = 4


def _level(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ConfigurationError(f"--v: found {text!r}; allowed: a whole number, as in kube-scheduler")
    return "debug" if int(text) >= _DEBUG else "info"


def _format(text: str) -> str:
    formats = {"json": "json", "text": "console"}
    if text not in formats:
        raise ConfigurationError(f"--logging-format: found {text!r}; allowed: {', '.join(formats)}")
    return formats[text]


@dataclass(frozen=True, slots=True)
class Translated:
    """`instead` is our own flag for the same."""

    names: tuple[str, ...]
    path: tuple[str, ...]
    read: Callable[[str], str]
    instead: str


TRANSLATED = (
    Translated(("--v", "-v"), ("logging", "level"), _level, "--log-level"),
    Translated(("--logging-format",), ("logging", "format"), _format, "--log-format"),
)


def add_kube_arguments(parser: argparse.ArgumentParser) -> None:
    """They do not show in the help: who writes a command anew has no use for them."""
    for name in REFUSED:
        parser.add_argument(name, nargs="?", const="true", help=argparse.SUPPRESS)
    for flag in TRANSLATED:
        parser.add_argument(*flag.names, dest=_dest(flag.names[0]), help=argparse.SUPPRESS)


def refuse(args: argparse.Namespace) -> None:
    """Raises ConfigurationError for the first that asks for what is not there."""
    for name, refused in REFUSED.items():
        text = getattr(args, _dest(name), None)
        if text is not None and text not in refused.harmless:
            raise ConfigurationError(f"{name}: {refused.why}")


def translated(args: argparse.Namespace) -> Iterator[tuple[Translated, str]]:
    """Those that were given, each with the value for its path. Raises ConfigurationError."""
    for flag in TRANSLATED:
        text = getattr(args, _dest(flag.names[0]), None)
        if text is None:
            continue
        if getattr(args, _dest(flag.instead), None) is not None:
            raise ConfigurationError(f"{flag.names[0]}: {flag.instead} says the same; give one of them")
        yield flag, flag.read(text)


def _dest(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
