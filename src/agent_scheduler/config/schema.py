"""The configuration: every setting, its default and its bounds, in the shape of a KubeSchedulerConfiguration.

The structs are what a file is checked against, and, once loaded, what the rest of the program reads: frozen,
complete, with every default filled in. Durations are seconds here and Go durations (`15s`) in a file.
docs/configuration.md explains each setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from agent_scheduler.config.values import Duration, Name, Port, PositiveInt, Rate, Section
from agent_scheduler.telemetry.logs import LogFormat, LogLevel

API_VERSION = "agent-scheduler/v1"
KIND = "SchedulerConfiguration"
DEFAULT_SCHEDULER_NAME = "agent-scheduler"

#: Feature gates that something reads, and what they are when not given.
FEATURE_GATES: Mapping[str, bool] = {"SchedulerPopFromBackoffQ": True, "SchedulerPreQueueingHints": True}


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

    #: Empty: $KUBECONFIG, the pod's service account, ~/.kube/config, in this order.
    kubeconfig: str = ""
    #: Requests a second; 0 is no limit.
    qps: Rate = 0.0
    #: Requests that may be saved up; twice the qps if not given.
    burst: PositiveInt | None = None


class StatusWrites(Section, frozen=True, kw_only=True):
    """Budget of PodScheduled conditions."""

    qps: Rate = 100.0
    burst: PositiveInt | None = None
    concurrency: PositiveInt = 8


class Events(Section, frozen=True, kw_only=True):
    """Budget of Kubernetes events, which are dropped and counted when `buffer` is full."""

    enabled: bool = True
    qps: Rate = 100.0
    burst: PositiveInt | None = None
    buffer: PositiveInt = 10_000


class LeaderElection(Section, frozen=True, kw_only=True):
    #: Not given in a file: yes, unless the lease of the shard says already which replica works.
    leader_elect: bool | None = None
    lease_duration: Duration = 15.0
    renew_deadline: Duration = 10.0
    retry_period: Duration = 2.0
    #: Empty in a file: the name of the first profile.
    resource_name: str = ""
    #: Empty in a file: the namespace that this process runs in, or kube-system.
    resource_namespace: str = ""


class Sharding(Section, frozen=True, kw_only=True):
    """How the cluster's nodes are shared with other schedulers, by NodeShards. Changes need a restart."""

    mode: Literal["none", "soft", "hard"] = "none"
    #: Of the NodeShard. Empty in a file: the name of the first profile.
    name: str = ""
    #: Where the leases of all shards are. Empty in a file: the namespace that this process runs in, or kube-system.
    lease_namespace: str = ""
    #: How long after the end of another shard's lease its nodes are left alone: as long as the API server may work at
    #: a request, which is a minute unless it is told otherwise (`--request-timeout`).
    fence_period: Duration = 60.0


class Serving(Section, frozen=True, kw_only=True):
    """The HTTP server for health, metrics and debugging."""

    bind_address: str = "127.0.0.1"
    #: 0: no server.
    port: Port = 10251
    #: Whether everything but health asks for a token that the API server accepts and authorizes.
    authorize_metrics: bool = False
    #: PEM files; with both the server speaks TLS.
    tls_cert_file: str = ""
    tls_private_key_file: str = ""


class Logging(Section, frozen=True, kw_only=True):
    level: LogLevel = "info"
    format: LogFormat = "json"


class Configuration(Section, frozen=True, kw_only=True):
    """The whole."""

    api_version: Literal["agent-scheduler/v1"]
    kind: Literal["SchedulerConfiguration"]
    profiles: tuple[ProfileConfig, ...] = ()
    pod_initial_backoff_seconds: Annotated[float, Meta(gt=0)] = 1.0
    #: 0: no backoff.
    pod_max_backoff_seconds: Annotated[float, Meta(ge=0)] = 10.0
    pod_max_in_unschedulable_pods_duration: Duration = 300.0
    worker_count: Annotated[int, Meta(ge=1, le=1024)] = 1
    candidate_node_count: Annotated[int, Meta(ge=1, le=1024)] = 3
    conflict_policy: Literal["revalidate", "strict"] = "revalidate"
    max_urgent_retries: Annotated[int, Meta(ge=0)] = 5
    client_connection: ClientConnection = ClientConnection()
    bind_concurrency: Annotated[int, Meta(ge=1, le=65535)] = 64
    status_writes: StatusWrites = StatusWrites()
    events: Events = Events()
    leader_election: LeaderElection = LeaderElection()
    sharding: Sharding = Sharding()
    serving: Serving = Serving()
    #: How long binds under way may take to end once the process was asked to stop.
    shutdown_grace_period: Duration = 20.0
    feature_gates: dict[str, bool] = field(default_factory=dict)
    logging: Logging = Logging()
