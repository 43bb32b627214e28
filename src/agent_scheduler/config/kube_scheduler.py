"""What kube-scheduler's flags and files have and nothing here does: refused by its name, or read with a warning.

RefusedField is what would change where pods go if it were left out, or what asks for something that nothing here does.
Read with a warning is what only says how kube-scheduler should go about its work. A value that asks for what happens
anyway is read in silence, so that a file which kube-scheduler wrote with all its defaults says little.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct

from agent_scheduler.config.schema import (
    ClientConnection,
    Configuration,
    LeaderElection,
    Logging,
    ProfileConfig,
)
from apimachinery.codec import ForeignKey
from apimachinery.errors import ConfigurationError

# ---- keys of a KubeSchedulerConfiguration


def _idle(reason: str, *harmless: object) -> ForeignKey:
    return ForeignKey(f"has no effect: {reason}", harmless=harmless)


def _unsupported(reason: str, *harmless: object) -> ForeignKey:
    return ForeignKey(f"is not supported: {reason}", refused=True, harmless=harmless)


_EVERY_NODE = _idle("every node is looked at for every pod", 0, 100)
_NO_PROFILING = _idle("no profiling is served", False)
_OTHER_ADDRESS = _unsupported("see serving.bindAddress and serving.port", [], "")

FOREIGN: Mapping[type[Struct], Mapping[str, ForeignKey]] = {
    Configuration: {
        "percentageOfNodesToScore": _EVERY_NODE,
        "parallelism": _idle("a cycle looks at all nodes at once; see workerCount"),
        "extenders": _unsupported(
            "there are no scheduler extenders, and without theirs other nodes would be chosen; see docs/plugins.md",
            [],
            "",
        ),
        "delayCacheUntilActive": _idle(
            "a standby keeps its view of the cluster, to take over at once", False
        ),
        "enableProfiling": _NO_PROFILING,
        "enableContentionProfiling": _NO_PROFILING,
        "healthzBindAddress": _OTHER_ADDRESS,
        "metricsBindAddress": _OTHER_ADDRESS,
    },
    ProfileConfig: {"percentageOfNodesToScore": _EVERY_NODE},
    ClientConnection: {
        "contentType": _idle("requests are JSON", "", "application/json"),
        "acceptContentTypes": _idle("answers are JSON", "", "application/json"),
    },
    LeaderElection: {
        "resourceLock": _unsupported("the lock is always a Lease; allowed: leases", "", "leases"),
    },
    Logging: {
        "verbosity": _idle("see logging.level"),
        "flushFrequency": _idle("every line is written at once"),
    },
}

#: What the headers of kube-scheduler's own files say, with what to write instead.
KUBE_API_GROUP = "kubescheduler.config.k8s.io/"
BRING_YOUR_FILE = (
    "a KubeSchedulerConfiguration is read after three changes: apiVersion: agent-scheduler/v1, "
    "kind: SchedulerConfiguration, and base: default-scheduler in its profiles"
)

# ---- flags

_ONLY_BEARERS = "is not supported: callers show a bearer token, not a certificate; leave it out"
_HTTP_1 = "it is HTTP/1.1 that is served; leave it out"
#: By reason: the flags, each with the value that changes nothing; None if every value would.
_REFUSED: Mapping[str, Mapping[str, str | None]] = {
    "is not supported: name the server in a kubeconfig, and give --kubeconfig": {"--master": None},
    "no profiling is served; leave it out, and attach a profiler from outside": {
        "--profiling": "false",
        "--contention-profiling": "false",
    },
    "the lock is always a Lease; allowed: leases, or leave it out": {
        "--leader-elect-resource-lock": "leases"
    },
    "requests are JSON; allowed: application/json, or leave it out": {
        "--kube-api-content-type": "application/json"
    },
    "is not supported: every metric is always served; leave it out, and drop series when scraping": {
        "--show-hidden-metrics-for-version": "",
        "--disabled-metrics": "",
        "--allow-metric-labels": "",
        "--allow-metric-labels-manifest": "",
    },
    "is not supported: who may read metrics is asked of the API server that pods come from; "
    "leave it out and set serving.authorizeMetrics in the file": {
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
    "is not supported: callers show a bearer token, and no proxy speaks for them; leave it out": {
        "--requestheader-allowed-names": None,
        "--requestheader-client-ca-file": "",
        "--requestheader-extra-headers-prefix": None,
        "--requestheader-group-headers": None,
        "--requestheader-uid-headers": None,
        "--requestheader-username-headers": None,
    },
    "no certificate is made here; give --tls-cert-file and --tls-private-key-file, or serve HTTP": {
        "--cert-dir": None
    },
    "is not supported: there is one certificate; see --tls-cert-file": {"--tls-sni-cert-key": None},
    "is not supported: those of OpenSSL for TLS 1.2 and newer; leave it out": {"--tls-cipher-suites": None},
    "is not supported: those of OpenSSL; leave it out": {"--tls-curve-preferences": None},
    "it is TLS 1.2; allowed: VersionTLS12, or leave it out": {"--tls-min-version": "VersionTLS12"},
    _HTTP_1: {"--disable-http2-serving": "true", "--http2-max-streams-per-connection": None},
    "is not supported: the port is this process's alone; leave it out": {
        "--permit-address-sharing": "false",
        "--permit-port-sharing": "false",
    },
    "is not supported: there is one version of the rules; leave it out": {
        "--emulated-version": None,
        "--min-compatibility-version": None,
    },
    "is not supported: every line goes to standard error at once; leave it out": {
        "--log-flush-frequency": None,
        "--log-json-info-buffer-size": "0",
        "--log-json-split-stream": "false",
        "--log-text-info-buffer-size": "0",
        "--log-text-split-stream": "false",
    },
    "is not supported: one level holds for all; see --log-level": {"--vmodule": None},
}


@dataclass(frozen=True, slots=True)
class RefusedField:
    why: str
    #: Values that change nothing.
    harmless: tuple[str, ...] = ()


#: By flag.
REFUSED: Mapping[str, RefusedField] = {
    name: RefusedField(why, () if harmless is None else (harmless,))
    for why, names in _REFUSED.items()
    for name, harmless in names.items()
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
    """A flag that becomes a setting of ours. `instead` is our own flag for the same."""

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
