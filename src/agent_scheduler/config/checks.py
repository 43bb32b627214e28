"""The rules between settings, each with the reason why the scheduler could not work otherwise."""

from __future__ import annotations

import ipaddress
import re
from importlib.util import find_spec
from urllib.parse import urlsplit

from agent_scheduler.config.batch import check_sessions
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.config.schema import Configuration, LeaderElection, Serving, Sharding, Tracing
from apimachinery.codec import Warn, silent
from apimachinery.errors import Invalid

#: Retries are jittered by this factor, so a renewal may start that much later (client-go's JitterFactor).
_JITTER = 1.2
#: Names of leases and namespaces (RFC 1123 subdomain).
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check(configuration: Configuration, warn: Warn = silent) -> None:
    """Check all rules, for which the profiles are built. Raises `Invalid` for the first violation."""
    initial, maximum = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if maximum != 0 and maximum < initial:
        raise Invalid(
            ("podMaxBackoffSeconds",),
            f"found {maximum:g}; allowed: 0 (no backoff), or podInitialBackoffSeconds ({initial:g}) and more",
        )
    if configuration.pod_max_in_unschedulable_pods_duration <= 0:
        raise Invalid(("podMaxInUnschedulablePodsDuration",), "must be above 0s")
    check_election(configuration.leader_election)
    _check_sharding(configuration.sharding)
    check_serving(configuration.serving)
    if configuration.tracing is not None:
        _check_tracing(configuration.tracing, warn)
    seen: dict[str, int] = {}
    for index, profile in enumerate(configuration.profiles):
        first = seen.setdefault(profile.scheduler_name, index)
        if first != index:
            raise Invalid(
                ("profiles", index, "schedulerName"),
                f"found {profile.scheduler_name!r}, which profiles[{first}] is called already; names are unique",
            )
    if configuration.batch is not None:
        name = configuration.batch.scheduler_name
        if name in seen:
            raise Invalid(
                ("batch", "schedulerName"),
                f"found {name!r}, which profiles[{seen[name]}] is called already; names are unique",
            )
        check_sessions(configuration.batch, warn, ("batch",))
    build_profiles(configuration, warn=warn)


def check_election(election: LeaderElection) -> None:
    """Check the times and names of the lease. Raises `Invalid`."""
    at = "leaderElection"
    if election.retry_period <= 0:
        raise Invalid((at, "retryPeriod"), "must be above 0s")
    if election.renew_deadline <= election.retry_period * _JITTER:
        raise Invalid(
            (at, "renewDeadline"),
            f"found {election.renew_deadline:g}s; allowed: more than {_JITTER} times retryPeriod "
            f"({election.retry_period:g}s), so that a failed renewal can be retried",
        )
    if election.lease_duration <= election.renew_deadline:
        raise Invalid(
            (at, "leaseDuration"),
            f"found {election.lease_duration:g}s; allowed: more than renewDeadline ({election.renew_deadline:g}s), "
            "so that a leader stops before another may start",
        )
    if election.lease_duration < 1 or election.lease_duration != int(election.lease_duration):
        raise Invalid((at, "leaseDuration"), "must be whole seconds: a Lease holds nothing finer")
    if election.leader_elect:
        _check_name((at, "resourceName"), election.resource_name)
        check_namespace((at, "resourceNamespace"), election.resource_namespace)


def _check_sharding(sharding: Sharding) -> None:
    if sharding.mode == "none":
        return
    # The name of its lease has the additional prefix `nodeshard-`.
    _check_name(("sharding", "name"), sharding.name, limit=243)
    check_namespace(("sharding", "leaseNamespace"), sharding.lease_namespace)


def check_namespace(at: tuple[str, ...], name: str) -> None:
    """Check the namespace of a lease. Raises `Invalid`."""
    if not name:
        raise Invalid(
            at,
            "is missing and unknown: in this pod neither $POD_NAMESPACE nor the service account's "
            "namespace file exists; set it, identically for all replicas",
        )
    _check_name(at, name)


def _check_name(at: tuple[str, ...], name: str, *, limit: int = 253) -> None:
    if not _OBJECT_NAME.fullmatch(name) or len(name) > limit:
        raise Invalid(
            at,
            f"found {name!r}; allowed: an object's name: lower case letters, digits, - and ., "
            f"at most {limit} characters",
        )


def check_serving(serving: Serving) -> None:
    """Check address and certificate. Raises `Invalid`."""
    try:
        ipaddress.ip_address(serving.bind_address)
    except ValueError:
        raise Invalid(
            ("serving", "bindAddress"), f"found {serving.bind_address!r}; allowed: an IP address; 0.0.0.0 or :: for all"
        ) from None
    if bool(serving.tls_cert_file) != bool(serving.tls_private_key_file):
        missing = "tlsPrivateKeyFile" if serving.tls_cert_file else "tlsCertFile"
        raise Invalid(("serving", missing), "is missing: a certificate needs its key, and a key its certificate")
    if serving.self_signed_certificate and not serving.tls_cert_file and find_spec("cryptography") is None:
        raise Invalid(
            ("serving", "selfSignedCertificate"),
            "needs the library cryptography; install agent-scheduler[tls], or set tlsCertFile and tlsPrivateKeyFile",
        )


def _check_tracing(tracing: Tracing, warn: Warn) -> None:
    if not tracing.sampling_rate_per_million:
        warn(("tracing", "samplingRatePerMillion"), "is 0 or missing: no pod is traced")
    if not tracing.endpoint:
        return
    at = ("tracing", "endpoint")
    allowed = "allowed: the http:// or https:// URL of a collector that takes OTLP over HTTP, by default on port 4318"
    try:
        url = urlsplit(tracing.endpoint)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url or tracing.endpoint.split() != [tracing.endpoint]:
        raise Invalid(at, f"found {tracing.endpoint!r}; {allowed}")
    if url.username is not None or url.password is not None:
        # The URL is not quoted, because it may contain a secret.
        raise Invalid(at, "has a user or a password; set OTEL_EXPORTER_OTLP_HEADERS in the environment instead")
    if url.query or url.fragment:
        raise Invalid(at, f"found {tracing.endpoint!r}; allowed: a URL without a query")
