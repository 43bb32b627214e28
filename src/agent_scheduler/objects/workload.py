"""Pods and workloads, as far as controllers need them."""

from __future__ import annotations

from apimachinery.wire import Resources, Wire

from .wire import Affinity, Metadata, SchedulingGroup


class Requirements(Wire, frozen=True):
    requests: Resources | None = None
    limits: Resources | None = None


class TemplateContainer(Wire, frozen=True):
    restart_policy: str | None = None
    resources: Requirements = Requirements()


class TemplateSpec(Wire, frozen=True):
    """The spec of a pod or a pod template. `resources` are those of the pod as a whole (KEP-2837)."""

    scheduler_name: str = ""
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None
    affinity: Affinity | None = None
    containers: tuple[TemplateContainer, ...] | None = None
    init_containers: tuple[TemplateContainer, ...] | None = None
    overhead: Resources | None = None
    resources: Requirements | None = None
    scheduling_group: SchedulingGroup | None = None


class MemberStatus(Wire, frozen=True):
    phase: str = ""


class MemberPod(Wire, frozen=True):
    """A pod (v1) that may need a group."""

    metadata: Metadata
    spec: TemplateSpec = TemplateSpec()
    status: MemberStatus = MemberStatus()


class ReplicasSpec(Wire, frozen=True):
    replicas: int = 1


class Replicated(Wire, frozen=True):
    """A ReplicaSet or a StatefulSet (apps/v1)."""

    metadata: Metadata
    spec: ReplicasSpec = ReplicasSpec()
