"""Flags and keys of kube-scheduler that have no equivalent here: rejected by name, or read with a warning.

Rejected are those whose omission would change the placement of pods, or that request missing functions. The others
only configure how kube-scheduler works, and are read with a warning. Values that request the existing behavior anyway
cause no warning, so a file that kube-scheduler wrote with all its defaults causes few.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct

from agent_scheduler.config.schema import ClientConnection, Configuration, LeaderElection, Logging, ProfileConfig
from apimachinery.codec import ForeignKey
from apimachinery.errors import ConfigurationError

# ---- keys of a KubeSchedulerConfiguration


def _idle(reason: str, *harmless: object) -> ForeignKey:
    return ForeignKey(f"has no effect: {reason}", harmless=harmless)


def _unsupported(reason: str, *harmless: object) -> ForeignKey:
    return ForeignKey(f"is not supported: {reason}", refused=True, harmless=harmless)


_EVERY_NODE = _idle("every node is checked for every pod", 0, 100)
_NO_PROFILING = _idle("no profiling is served", False)
_OTHER_ADDRESS = _unsupported("see serving.bindAddress and serving.port", [], "")

FOREIGN: Mapping[type[Struct], Mapping[str, ForeignKey]] = {
    Configuration: {
        "percentageOfNodesToScore": _EVERY_NODE,
        "parallelism": _idle("a cycle evaluates all nodes together; see workerCount"),
        "extenders": _unsupported(
            "there are no scheduler extenders, and without them other nodes would be selected; see docs/plugins.md",
            [],
            "",
        ),
        "delayCacheUntilActive": _idle("a standby keeps its view of the cluster, to take over immediately", False),
        "enableProfiling": _NO_PROFILING,
        "enableContentionProfiling": _NO_PROFILING,
        "healthzBindAddress": _OTHER_ADDRESS,
        "metricsBindAddress": _OTHER_ADDRESS,
    },
    ProfileConfig: {"percentageOfNodesToScore": _EVERY_NODE},
    ClientConnection: {
        "contentType": _idle("requests are JSON", "", "application/json"),
        "acceptContentTypes": _idle("responses are JSON", "", "application/json"),
    },
    LeaderElection: {"resourceLock": _unsupported("the lock is always a Lease; allowed: leases", "", "leases")},
    Logging: {"verbosity": _idle("see logging.level"), "flushFrequency": _idle("every line is written immediately")},
}

#: The API group in the header of kube-scheduler's files, and what to write instead.
KUBE_API_GROUP = "kubescheduler.config.k8s.io/"
BRING_YOUR_FILE = (
    "a KubeSchedulerConfiguration is read after three changes: apiVersion: agent-scheduler/v1, "
    "kind: SchedulerConfiguration, and base: default-scheduler in its profiles"
)

# ---- flags

_ONLY_BEARERS = "is not supported: clients authenticate with a bearer token instead of a certificate; remove it"
_HTTP_1 = "the server supports only HTTP/1.1; remove it"
#: For each reason: the flags, each with its value that has no effect; None if every value has one.
_REFUSED: Mapping[str, Mapping[str, str | None]] = {
    "is not supported: set the server in a kubeconfig, and use --kubeconfig": {"--master": None},
    "there is no profiling endpoint; remove it, and attach an external profiler": {
        "--profiling": "false",
        "--contention-profiling": "false",
    },
    "the lock is always a Lease; allowed: leases, or remove it": {"--leader-elect-resource-lock": "leases"},
    "requests are JSON; allowed: application/json, or remove it": {"--kube-api-content-type": "application/json"},
    "is not supported: every metric is always served; remove it, and drop series when scraping": {
        "--show-hidden-metrics-for-version": "",
        "--disabled-metrics": "",
        "--allow-metric-labels": "",
        "--allow-metric-labels-manifest": "",
    },
    "is not supported: the API server of the pods decides who may read metrics; "
    "remove it and set serving.authorizeMetrics in the file": {
        "--authentication-kubeconfig": "",
        "--authentication-skip-lookup": None,
        "--authentication-token-webhook-cache-ttl": None,
        "--authentication-tolerate-lookup-failure": "false",
        "--authorization-always-allow-paths": "/healthz,/readyz,/livez",
        "--authorization-kubeconfig": "",
        "--authorization-webhook-cache-authorized-ttl": None,
        "--authorization-webhook-cache-unauthorized-ttl": None,
    },
    _ONLY_BEARERS: {"--client-ca-file": ""},
    "is not supported: clients authenticate with a bearer token, and no proxy authenticates for them; remove it": {
        "--requestheader-allowed-names": None,
        "--requestheader-client-ca-file": "",
        "--requestheader-extra-headers-prefix": None,
        "--requestheader-group-headers": None,
        "--requestheader-uid-headers": None,
        "--requestheader-username-headers": None,
    },
    "no certificate is stored; set --self-signed-certificate, or --tls-cert-file and --tls-private-key-file": {
        "--cert-dir": None
    },
    "is not supported: there is one certificate; see --tls-cert-file": {"--tls-sni-cert-key": None},
    "is not supported: the defaults of OpenSSL for TLS 1.2 and newer apply; remove it": {"--tls-cipher-suites": None},
    "is not supported: the defaults of OpenSSL apply; remove it": {"--tls-curve-preferences": None},
    "the minimum is TLS 1.2; allowed: VersionTLS12, or remove it": {"--tls-min-version": "VersionTLS12"},
    _HTTP_1: {"--disable-http2-serving": "true", "--http2-max-streams-per-connection": None},
    "is not supported: the port belongs to one process; remove it": {
        "--permit-address-sharing": "false",
        "--permit-port-sharing": "false",
    },
    "is not supported: there is one version of the rules; remove it": {
        "--emulated-version": None,
        "--min-compatibility-version": None,
    },
    "is not supported: every line goes to standard error immediately; remove it": {
        "--log-flush-frequency": None,
        "--log-json-info-buffer-size": "0",
        "--log-json-split-stream": "false",
        "--log-text-info-buffer-size": "0",
        "--log-text-split-stream": "false",
    },
    "is not supported: one level applies to all files; see --log-level": {"--vmodule": None},
}


@dataclass(frozen=True, slots=True)
class RefusedField:
    why: str
    #: Values that change nothing.
    harmless: tuple[str, ...] = ()


#: Indexed by flag.
REFUSED: Mapping[str, RefusedField] = {
    name: RefusedField(why, () if harmless is None else (harmless,))
    for why, names in _REFUSED.items()
    for name, harmless in names.items()
}

#: From this verbosity on kube-scheduler logs the result of each pod, as our level debug does.
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
    """A flag that becomes one of our settings. `instead` is our own flag for it."""

    names: tuple[str, ...]
    path: tuple[str, ...]
    read: Callable[[str], str]
    instead: str


TRANSLATED = (
    Translated(("--v", "-v"), ("logging", "level"), _level, "--log-level"),
    Translated(("--logging-format",), ("logging", "format"), _format, "--log-format"),
)


def add_kube_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of kube-scheduler, without help texts because new command lines do not need them."""
    for name in REFUSED:
        parser.add_argument(name, nargs="?", const="true", help=argparse.SUPPRESS)
    for flag in TRANSLATED:
        parser.add_argument(*flag.names, dest=_dest(flag.names[0]), help=argparse.SUPPRESS)


def refuse(args: argparse.Namespace) -> None:
    """Raise ConfigurationError for the first flag that requests a missing function."""
    for name, refused in REFUSED.items():
        text = getattr(args, _dest(name), None)
        if text is not None and text not in refused.harmless:
            raise ConfigurationError(f"{name}: {refused.why}")


def translated(args: argparse.Namespace) -> Iterator[tuple[Translated, str]]:
    """Yield the given flags, each with the value for its path. Raises ConfigurationError."""
    for flag in TRANSLATED:
        text = getattr(args, _dest(flag.names[0]), None)
        if text is None:
            continue
        if getattr(args, _dest(flag.instead), None) is not None:
            raise ConfigurationError(f"{flag.names[0]}: {flag.instead} is the same setting; use one of them")
        yield flag, flag.read(text)


def _dest(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
