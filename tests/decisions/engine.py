"""The engine under test, on a cluster in the form of the recordings and the plain rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agent_scheduler.engine.decide.decide import ClassViews, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.plugin import PodUnrankable, Profile
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.state.namespaces import Namespaces
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.objects import wire
from tests.decisions.plain import Obj, World
from tests.support.handles import handle_of

DEFAULT = build_profile(ProfileSpec(scheduler_name="default-scheduler", base="default-scheduler"))
AGENT = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="agent"))


@dataclass(frozen=True)
class EngineDecision:
    """A decision like `plain.Decision`, without preemption. Plugins that score 0 everywhere may be missing."""

    feasible: tuple[str, ...]
    message: str | None = None
    plugins: frozenset[str] = frozenset()
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    final: dict[str, int] = field(default_factory=dict)
    #: The cached order of nodes: `final` up to a constant that all nodes share.
    ranked: dict[str, int] = field(default_factory=dict)
    #: Nodes in the order in which the engine would try them.
    candidates: tuple[str, ...] = ()

    @property
    def best(self) -> frozenset[str]:
        """Return the nodes with the best score, between which any choice is right."""
        most = max(self.final.values(), default=0)
        return frozenset(node for node, total in self.final.items() if total == most)


class Engine:
    """Columns, snapshot and views of one world."""

    def __init__(self, world: World, profile: Profile = DEFAULT, catalogue: Catalogue | None = None) -> None:
        self.profile = profile
        self.ledger = Ledger()
        self.namespaces = Namespaces()
        self.classes = PodClasses(images_for=("", "default-scheduler"))
        for name, labels in world.namespaces.items():
            self.namespaces.set(name, labels)
        for node in world.nodes:
            self.set_node(node)
        for number, pod in enumerate(world.pods):
            self.ledger.set_pod(self.read(pod, f"placed-{number}"), pod["spec"]["nodeName"])
        handle = handle_of(self.ledger, namespaces=self.namespaces, catalogue=catalogue)
        self.snapshot = Snapshot(self.ledger, handle)
        self.views = ClassViews(profile, self.snapshot)

    def set_node(self, node: Obj) -> None:
        self.ledger.set_node(node_info(msgspec.convert(node, wire.Node), images=True))

    def read(self, pod: Obj, uid: str) -> PodInfo:
        metadata: Mapping[str, Any] = {"namespace": "default", **pod["metadata"], "uid": uid}
        return PodReader(self.classes)(msgspec.json.encode({**pod, "metadata": metadata}))

    def waiting(self, pod: Obj) -> PodInfo:
        """Return the pod as it waits; one that names its node requests it, although the product counts it as placed."""
        info, called = self.read(pod, "pending"), pod["spec"].get("nodeName")
        if not called:
            return info
        spec = msgspec.json.decode(msgspec.json.encode(pod["spec"]), type=wire.PodSpec)
        known = {key: getattr(info, key) for key in ("namespace", "name", "labels")}
        return msgspec.structs.replace(info, cls=self.classes.of(spec, node_name=called, **known))

    def decide(self, pod: Obj) -> EngineDecision:
        info = self.waiting(pod)
        assert not info.cls.error, info.cls.error
        self.snapshot.refresh()
        view = self.views.of(self.snapshot.handle.class_of(info))
        columns = self.snapshot.columns
        try:
            decision = decide(view, columns, candidates=len(columns.nodes))
        except PodUnrankable as why:
            return EngineDecision((), str(why))
        if isinstance(decision, Refusal):
            return EngineDecision((), decision.message, decision.plugins)
        rows = view.feasible_rows(columns)
        names = tuple(columns.nodes[row].name for row in rows.tolist())
        scores: dict[str, dict[str, int]] = {name: {} for name in names}
        for plugin, values in view.plugin_scores(columns, rows).items():
            for name, value in zip(names, values.tolist(), strict=True):
                scores[name][plugin] = value
        return EngineDecision(
            names,
            scores=scores,
            ranked=dict(zip(names, view.ranked(columns)[rows].tolist(), strict=True)),
            final={name: sum(of.values()) for name, of in scores.items()},
            candidates=tuple(candidate.node_name for candidate in decision.candidates),
        )
