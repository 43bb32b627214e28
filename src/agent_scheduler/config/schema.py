"""The configuration: every setting, its default and its bounds, in the shape of a KubeSchedulerConfiguration.

The structs are what a file is checked against, and, once loaded, what the rest of the program reads: frozen,
complete, with every default filled in. Durations are seconds here and Go durations (`15s`) in a file. A setting's flag
(`flag`) and whether it takes effect while the process runs (`LIVE`) stand beside its bounds. docs/configuration.md
explains each setting.
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
_OWN_NAMESPACE = "the namespace that the process runs in, or kube-system"

#: Feature gates that something reads, and what they are when not given.
FEATURE_GATES: Mapping[str, bool] = {
    "GangScheduling": True,
    "SchedulerPopFromBackoffQ": True,
    "SchedulerPreQueueingHints": True,
    "SchedulingGatesQueueAdmission": True,
}


class PluginRef(Section, frozen=True, kw_only=True):
    name: Name
    #: Of scores; 0 as if it were not given.
    weight: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class DisabledPlugin(Section, frozen=True, kw_only=True):
    #: "*" stands for all.
    name: Name


class PluginSet(Section, frozen=True, kw_only=True):
    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[DisabledPlugin, ...] = ()


class Plugins(Section, frozen=True, kw_only=True):
    """What is changed at each extension point; `engine.framework.points` has the rules."""

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
    """How the pods with one schedulerName are scheduled."""

    scheduler_name: Name = DEFAULT_SCHEDULER_NAME
    #: What `plugins` changes: `agent` packs, `default-scheduler` spreads as kube-scheduler does.
    base: Literal["agent", "default-scheduler"] = "agent"
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ClientConnection(Section, frozen=True, kw_only=True):
    """How the API server is reached. The rate is for binds; status writes and events have rates of their own."""

    kubeconfig: Annotated[
        str,
        flag(
            "--kubeconfig",
            "file that says how to reach the API server "
            "(default: $KUBECONFIG, the pod's service account, ~/.kube/config)",
            "FILE",
        ),
    ] = ""
    qps: Annotated[Rate, LIVE, flag("--kube-api-qps", "binds a second; 0: no limit")] = 0.0
    burst: Annotated[
        PositiveInt | None,
        LIVE,
        flag("--kube-api-burst", "binds that may be saved up (default: twice the qps)"),
    ] = None


class StatusWrites(Section, frozen=True, kw_only=True):
    """Budget of PodScheduled conditions."""

    qps: Annotated[Rate, LIVE] = 100.0
    burst: Annotated[PositiveInt | None, LIVE] = None
    concurrency: PositiveInt = 8


class Events(Section, frozen=True, kw_only=True):
    """Budget of Kubernetes events, which are dropped and counted when `buffer` is full."""

    enabled: bool = True
    qps: Annotated[Rate, LIVE] = 100.0
    burst: Annotated[PositiveInt | None, LIVE] = None
    buffer: PositiveInt = 10_000


class LeaderElection(Section, frozen=True, kw_only=True):
    leader_elect: Annotated[
        bool | None,
        flag(
            "--leader-elect",
            "schedule only while holding a lease, so that replicas take over from one another (default: yes; no with "
            "--scheduler-sharding-mode, where the lease of the shard does it)",
            "true|false",
        ),
    ] = None
    lease_duration: Annotated[
        Duration, flag("--leader-elect-lease-duration", "how long a lease is good for", "DURATION")
    ] = 15.0
    renew_deadline: Annotated[
        Duration,
        flag(
            "--leader-elect-renew-deadline",
            "how long the leader tries to renew before it gives up",
            "DURATION",
        ),
    ] = 10.0
    retry_period: Annotated[
        Duration, flag("--leader-elect-retry-period", "time between two tries", "DURATION")
    ] = 2.0
    resource_name: Annotated[
        str, flag("--leader-elect-resource-name", "name of the lease (default: the scheduler's)", "NAME")
    ] = ""
    resource_namespace: Annotated[
        str,
        flag(
            "--leader-elect-resource-namespace",
            f"namespace of the lease (default: {_OWN_NAMESPACE})",
            "NAMESPACE",
        ),
    ] = ""


class Sharding(Section, frozen=True, kw_only=True):
    """How the cluster's nodes are shared with other schedulers, by NodeShards. Changes need a restart."""

    mode: Annotated[
        Literal["none", "soft", "hard"],
        flag(
            "--scheduler-sharding-mode",
            "none: use all nodes; soft: those of the shard first; hard: no others",
            "MODE",
        ),
    ] = "none"
    name: Annotated[
        str,
        flag(
            ("--scheduler-sharding-name", "--agent_scheduler_sharding_name"),
            "name of the NodeShard (default: the scheduler's)",
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
    #: As long as the API server may work at a request, which is a minute unless it is told otherwise
    #: (`--request-timeout`).
    fence_period: Annotated[
        Duration,
        flag(
            "--sharding-fence-period",
            "how long after the end of another shard's lease its nodes are left alone",
            "DURATION",
        ),
    ] = 60.0


class Serving(Section, frozen=True, kw_only=True):
    """The HTTP server for health, metrics and debugging."""

    bind_address: Annotated[str, flag("--bind-address", "address of the HTTP server", "IP")] = "127.0.0.1"
    port: Annotated[Port, flag("--port", "port of the HTTP server; 0: none")] = 10251
    #: Whether everything but health asks for a token that the API server accepts and authorizes.
    authorize_metrics: bool = False
    tls_cert_file: Annotated[
        str,
        flag(
            "--tls-cert-file",
            "PEM file with which the server speaks HTTPS (default: it speaks HTTP)",
            "FILE",
        ),
    ] = ""
    tls_private_key_file: Annotated[
        str, flag("--tls-private-key-file", "PEM file of the certificate's key", "FILE")
    ] = ""
    #: Whether there is a console for browsers at /ui.
    console: Annotated[bool, flag("--console", "serve a console for browsers at /ui", "BOOL")] = False


class Logging(Section, frozen=True, kw_only=True):
    level: Annotated[LogLevel, LIVE, flag("--log-level", "debug, info, warning or error", "LEVEL")] = "info"
    format: Annotated[LogFormat, flag("--log-format", "json or console", "FORMAT")] = "json"


class Tracing(Section, frozen=True, kw_only=True):
    """OpenTelemetry, as Kubernetes' TracingConfiguration has it. Needs the extra `tracing`."""

    #: URL of a collector that takes OTLP over HTTP; empty: as the environment's OTEL_EXPORTER_OTLP_* say.
    endpoint: str = ""
    #: Pods of a million whose way through the scheduler is traced.
    sampling_rate_per_million: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class Configuration(Section, frozen=True, kw_only=True):
    """The whole."""

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
            "how long a refused pod waits to be tried again though no event woke it",
            "DURATION",
        ),
    ] = 300.0
    worker_count: Annotated[
        int,
        Meta(ge=1, le=1024),
        flag(
            ("--scheduler-worker-count", "--agent_scheduler_worker_count"),
            "workers that decide concurrently",
        ),
    ] = 1
    candidate_node_count: Annotated[int, Meta(ge=1, le=1024), LIVE] = 3
    conflict_policy: Annotated[Literal["revalidate", "strict"], LIVE] = "revalidate"
    max_urgent_retries: Annotated[int, Meta(ge=0), LIVE] = 5
    client_connection: ClientConnection = ClientConnection()
    bind_concurrency: Annotated[int, Meta(ge=1, le=65535)] = 64
    #: 0: a pod that was let past the gate of its queue keeps its room there for ever.
    queue_reservation_timeout: Duration = 0.0
    #: `auto`: where nodes are shared with other schedulers, with a batch scheduler alone; else yes.
    gate_removal: Annotated[
        Literal["auto", "always", "never"],
        flag(
            "--gate-removal",
            "whether this process removes gates of queues' capacity; auto: where nodes are shared by NodeShards, only "
            "with a batch scheduler",
            "WHEN",
        ),
    ] = "auto"
    gate_removal_worker_num: Annotated[
        int,
        Meta(ge=1, le=1024),
        flag(("--gate-removal-worker-num",), "gates of queues' capacity that are removed at a time"),
    ] = 64
    status_writes: StatusWrites = StatusWrites()
    events: Events = Events()
    leader_election: LeaderElection = LeaderElection()
    sharding: Sharding = Sharding()
    #: None: no pod is scheduled in sessions.
    batch: Batch | None = None
    serving: Serving = Serving()
    #: How long binds under way may take to end once the process was asked to stop.
    shutdown_grace_period: Annotated[Duration, LIVE] = 20.0
    feature_gates: dict[str, bool] = field(default_factory=dict)
    logging: Logging = Logging()
    #: None: nothing is traced.
    tracing: Tracing | None = None
