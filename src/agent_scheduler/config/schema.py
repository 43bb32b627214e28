"""The configuration: every setting with default and bounds, in the form of a KubeSchedulerConfiguration.

The structs are the schema of a file and, once loaded, the settings that the program uses: frozen and complete with
all defaults. Durations are seconds here and Go durations (`15s`) in a file. A setting's flag (`flag`) and whether it
takes effect while the process runs (`LIVE`) are next to its bounds. docs/configuration.md explains each setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from agent_scheduler.config.batch import Batch
from agent_scheduler.telemetry.logs import LogFormat, LogLevel
from apimachinery.values import LIVE, Duration, Name, Port, PositiveInt, Rate, Section, flag

API_VERSION = "agent-scheduler/v1"
KIND = "SchedulerConfiguration"
DEFAULT_SCHEDULER_NAME = "agent-scheduler"
_OWN_NAMESPACE = "the namespace that the process runs in, or agent-scheduler"

#: Supported feature gates with their defaults.
FEATURE_GATES: Mapping[str, bool] = {
    "GangScheduling": True,
    "SchedulerPopFromBackoffQ": True,
    "SchedulerPreQueueingHints": True,
    "SchedulingGatesQueueAdmission": True,
}


class PluginRef(Section, frozen=True, kw_only=True):
    name: Name
    #: For scores; 0 means the default.
    weight: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class DisabledPlugin(Section, frozen=True, kw_only=True):
    #: "*" means all.
    name: Name


class PluginSet(Section, frozen=True, kw_only=True):
    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[DisabledPlugin, ...] = ()


class Plugins(Section, frozen=True, kw_only=True):
    """The changes at each extension point; `engine.framework.points` has the rules."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()


class PluginConfig(Section, frozen=True, kw_only=True):
    name: Name
    args: dict[str, Any] = field(default_factory=dict)


class ProfileConfig(Section, frozen=True, kw_only=True):
    """The scheduling of pods with one schedulerName."""

    scheduler_name: Name = DEFAULT_SCHEDULER_NAME
    #: The plugins that `plugins` changes: `agent` packs, `default-scheduler` spreads like kube-scheduler.
    base: Literal["agent", "default-scheduler"] = "agent"
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ClientConnection(Section, frozen=True, kw_only=True):
    """The connection to the API server. The rate is for binds; status writes and events have their own."""

    kubeconfig: Annotated[
        str,
        flag(
            "--kubeconfig",
            "kubeconfig file for the API server (default: $KUBECONFIG, the pod's service account, ~/.kube/config)",
            "FILE",
        ),
    ] = ""
    qps: Annotated[Rate, LIVE, flag("--kube-api-qps", "binds per second; 0: no limit")] = 0.0
    burst: Annotated[
        PositiveInt | None, LIVE, flag("--kube-api-burst", "the maximum burst of binds (default: twice the qps)")
    ] = None


class StatusWrites(Section, frozen=True, kw_only=True):
    """The budget of PodScheduled conditions."""

    qps: Annotated[Rate, LIVE] = 100.0
    burst: Annotated[PositiveInt | None, LIVE] = None
    concurrency: PositiveInt = 8


class Events(Section, frozen=True, kw_only=True):
    """The budget of Kubernetes events, which are dropped and counted when `buffer` is full."""

    enabled: bool = True
    qps: Annotated[Rate, LIVE] = 100.0
    burst: Annotated[PositiveInt | None, LIVE] = None
    buffer: PositiveInt = 10_000
    #: Whether each pod that a session binds with its PodGroup gets an event `Scheduled`, as in Volcano. If off, the
    #: PodGroup gets one event for all of them.
    members: bool = False


class LeaderElection(Section, frozen=True, kw_only=True):
    leader_elect: Annotated[
        bool | None,
        flag(
            "--leader-elect",
            "schedule only while holding a lease, so that one replica works at a time (default: yes; no with "
            "--scheduler-sharding-mode, where the lease of the shard does it)",
            "true|false",
        ),
    ] = None
    lease_duration: Annotated[
        Duration, flag("--leader-elect-lease-duration", "the duration of a lease", "DURATION")
    ] = 15.0
    renew_deadline: Annotated[
        Duration,
        flag(
            "--leader-elect-renew-deadline", "how long the leader retries a renewal before it stops leading", "DURATION"
        ),
    ] = 10.0
    retry_period: Annotated[Duration, flag("--leader-elect-retry-period", "time between two attempts", "DURATION")] = (
        2.0
    )
    resource_name: Annotated[
        str, flag("--leader-elect-resource-name", "name of the lease (default: the scheduler's name)", "NAME")
    ] = ""
    resource_namespace: Annotated[
        str,
        flag("--leader-elect-resource-namespace", f"namespace of the lease (default: {_OWN_NAMESPACE})", "NAMESPACE"),
    ] = ""


class Sharding(Section, frozen=True, kw_only=True):
    """Sharing of the cluster's nodes with other schedulers by NodeShards. Changes need a restart."""

    mode: Annotated[
        Literal["none", "soft", "hard"],
        flag(
            "--scheduler-sharding-mode",
            "none: use all nodes; soft: prefer nodes of the shard; hard: use only nodes of the shard",
            "MODE",
        ),
    ] = "none"
    name: Annotated[
        str,
        flag(
            ("--scheduler-sharding-name", "--agent_scheduler_sharding_name"),
            "name of the NodeShard (default: the scheduler's name)",
            "NAME",
        ),
    ] = ""
    lease_namespace: Annotated[
        str,
        flag(
            "--sharding-lease-namespace",
            f"namespace of the leases of all shards (default: {_OWN_NAMESPACE})",
            "NAMESPACE",
        ),
    ] = ""
    #: At least the API server's limit for a request, by default a minute (`--request-timeout`).
    fence_period: Annotated[
        Duration,
        flag(
            "--sharding-fence-period",
            "how long nodes of another shard stay unused after the end of its lease",
            "DURATION",
        ),
    ] = 60.0


class Serving(Section, frozen=True, kw_only=True):
    """The HTTP server for health, metrics and debugging."""

    bind_address: Annotated[str, flag("--bind-address", "address of the HTTP server", "IP")] = "127.0.0.1"
    port: Annotated[Port, flag("--port", "port of the HTTP server; 0: none")] = 10251
    #: Whether everything except health requires a token that the API server accepts and authorizes.
    authorize_metrics: bool = False
    tls_cert_file: Annotated[
        str,
        flag("--tls-cert-file", "PEM file with the certificate for HTTPS (default: HTTP without encryption)", "FILE"),
    ] = ""
    tls_private_key_file: Annotated[
        str, flag("--tls-private-key-file", "PEM file of the certificate's key", "FILE")
    ] = ""
    self_signed_certificate: Annotated[
        bool,
        flag(
            "--self-signed-certificate",
            "without --tls-cert-file: HTTPS with a certificate that the process creates in memory",
            "BOOL",
        ),
    ] = False
    #: Whether there is a console for browsers at /ui.
    console: Annotated[bool, flag("--console", "serve a console for browsers at /ui", "BOOL")] = False

    @property
    def has_tls(self) -> bool:
        return bool(self.tls_cert_file or self.self_signed_certificate)


class Logging(Section, frozen=True, kw_only=True):
    level: Annotated[LogLevel, LIVE, flag("--log-level", "debug, info, warning or error", "LEVEL")] = "info"
    format: Annotated[LogFormat, flag("--log-format", "json or console", "FORMAT")] = "json"


class Tracing(Section, frozen=True, kw_only=True):
    """OpenTelemetry settings, as in Kubernetes' TracingConfiguration. Needs the extra `tracing`."""

    #: The URL of a collector for OTLP over HTTP; if empty, the environment's OTEL_EXPORTER_OTLP_* apply.
    endpoint: str = ""
    #: The number of traced pods per million.
    sampling_rate_per_million: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class Configuration(Section, frozen=True, kw_only=True):
    """The whole configuration."""

    api_version: Literal["agent-scheduler/v1"]
    kind: Literal["SchedulerConfiguration"]
    profiles: Annotated[tuple[ProfileConfig, ...], LIVE] = ()
    pod_initial_backoff_seconds: Annotated[float, Meta(gt=0), LIVE] = 1.0
    #: 0: no backoff.
    pod_max_backoff_seconds: Annotated[float, Meta(ge=0), LIVE] = 10.0
    pod_max_in_unschedulable_pods_duration: Annotated[
        Duration,
        LIVE,
        flag(
            "--pod-max-in-unschedulable-pods-duration",
            "how long an unschedulable pod waits for a retry without an event",
            "DURATION",
        ),
    ] = 300.0
    worker_count: Annotated[
        int,
        Meta(ge=1, le=1024),
        flag(("--scheduler-worker-count", "--agent_scheduler_worker_count"), "the number of concurrent workers"),
    ] = 1
    candidate_node_count: Annotated[int, Meta(ge=1, le=1024), LIVE] = 3
    conflict_policy: Annotated[Literal["revalidate", "strict"], LIVE] = "revalidate"
    max_urgent_retries: Annotated[int, Meta(ge=0), LIVE] = 5
    client_connection: ClientConnection = ClientConnection()
    bind_concurrency: Annotated[int, Meta(ge=1, le=65535)] = 64
    #: 0: a pod that has passed the gate of its queue keeps its reservation indefinitely.
    queue_reservation_timeout: Duration = 0.0
    #: `auto`: yes, except in processes without a batch scheduler if nodes are shared with other schedulers.
    gate_removal: Annotated[
        Literal["auto", "always", "never"],
        flag(
            "--gate-removal",
            "whether this process removes gates of queues; auto: yes, but if nodes are shared by NodeShards, only "
            "with a batch scheduler",
            "WHEN",
        ),
    ] = "auto"
    gate_removal_worker_num: Annotated[
        int,
        Meta(ge=1, le=1024),
        flag(("--gate-removal-worker-num",), "the number of gates of queues that are removed concurrently"),
    ] = 64
    status_writes: StatusWrites = StatusWrites()
    events: Events = Events()
    leader_election: LeaderElection = LeaderElection()
    sharding: Sharding = Sharding()
    #: None: no sessions.
    batch: Batch | None = None
    serving: Serving = Serving()
    #: Where the process remembers the objects whose handling ended it; it survives restarts. Empty: nowhere.
    state_directory: Annotated[
        str,
        flag(
            "--state-directory",
            "directory that outlives restarts, in which the process notes which object it handles; an object that "
            "ended it twice is set aside (default: none)",
            "DIRECTORY",
        ),
    ] = ""
    #: How long binds in progress may take at shutdown.
    shutdown_grace_period: Annotated[Duration, LIVE] = 20.0
    feature_gates: dict[str, bool] = field(default_factory=dict)
    logging: Logging = Logging()
    #: None: no traces.
    tracing: Tracing | None = None
