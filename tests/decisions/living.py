"""A cluster that changes, with one engine that keeps its caches from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_scheduler.engine.framework.plugin import Profile
from tests.decisions import clusters, podparts
from tests.decisions.clusters import MOST_NODES, Drawn
from tests.decisions.drawing import Choices
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj, World
from tests.decisions.plain.world import name

#: Labels that a namespace may get.
_TEAMS: tuple[dict[str, str], ...] = ({"team": "x"}, {"team": "y"}, {})


class Living:
    """The engine, and the objects that it has received so far."""

    def __init__(self, drawn: Drawn, about: frozenset[str], profile: Profile) -> None:
        self.engine = Engine(World((), (), drawn.world.namespaces), profile)
        self._about = about
        self._nodes: dict[str, Obj] = {}
        self._pods: dict[str, Obj] = {}
        self._namespaces = dict(drawn.world.namespaces)
        self._numbers = iter(range(10_000))
        for node in drawn.world.nodes:
            self._set_node(node)
        for pod in drawn.world.pods:
            self._set_pod(f"u{next(self._numbers)}", pod)

    @property
    def world(self) -> World:
        """Return the current world."""
        return World(tuple(self._nodes.values()), tuple(self._pods.values()), dict(self._namespaces))

    def step(self, choices: Choices, pending: Obj) -> str:
        """Make a change and return its name."""
        happening: Callable[[Choices, Obj], None] = choices.pick(
            (
                *(self._bind,) * 4,
                *(self._run, self._change_pod, self._relabel_pod, self._end_pod, self._delete_pod),
                *(self._change_node, self._set_new_node, self._delete_node),
                *(self._relabel_namespace, self._relabel_namespace, self._refuse_bind),
            )
        )
        happening(choices, pending)
        return happening.__name__

    def _bind(self, _choices: Choices, pending: Obj) -> None:
        """Bind the pod to the engine's choice, if any node fits."""
        if uid := self._assume(pending):
            self.engine.ledger.confirm(uid)

    def _refuse_bind(self, _choices: Choices, pending: Obj) -> None:
        if uid := self._assume(pending):
            self.engine.ledger.forget(uid)
            del self._pods[uid]

    def _assume(self, pending: Obj) -> str:
        candidates = self.engine.decide(pending).candidates
        if not candidates:
            return ""
        uid, node = f"u{next(self._numbers)}", candidates[0]
        pod = {**pending, "spec": {**pending["spec"], "nodeName": node}}
        self.engine.ledger.assume(self.engine.read(pod, uid), self.engine.ledger.rows[node])
        self._pods[uid] = pod
        return uid

    def _run(self, choices: Choices, _pending: Obj) -> None:
        """Bind another scheduler's pod; its node may not exist (yet)."""
        uid = f"u{next(self._numbers)}"
        self._set_pod(uid, podparts.placed(choices, uid, MOST_NODES, self._about))

    def _change_pod(self, choices: Choices, _pending: Obj) -> None:
        """Replace a pod by a different one with the same UID, on the same node or, after a lost bind, on another."""
        if uid := self._some(choices, self._pods):
            pod = podparts.placed(choices, uid, MOST_NODES, self._about)
            if choices.below(4):
                pod["spec"]["nodeName"] = self._pods[uid]["spec"]["nodeName"]
            self._set_pod(uid, pod)

    def _relabel_pod(self, choices: Choices, _pending: Obj) -> None:
        if uid := self._some(choices, self._pods):
            self._mark_pod(uid, labels=choices.pick(podparts.LABELS))

    def _end_pod(self, choices: Choices, _pending: Obj) -> None:
        """Mark a pod as being deleted; it still exists."""
        if uid := self._some(choices, self._pods):
            self._mark_pod(uid, deletionTimestamp="2026-01-01T00:00:00Z")

    def _mark_pod(self, uid: str, **marks: Any) -> None:
        pod = self._pods[uid]
        self._set_pod(uid, {**pod, "metadata": {**pod["metadata"], **marks}})

    def _delete_pod(self, choices: Choices, _pending: Obj) -> None:
        if uid := self._some(choices, self._pods):
            self.engine.ledger.remove_pod(uid)
            del self._pods[uid]

    def _change_node(self, choices: Choices, _pending: Obj) -> None:
        if called := self._some(choices, self._nodes):
            self._set_node(clusters.node(choices, called, self._about))

    def _set_new_node(self, choices: Choices, _pending: Obj) -> None:
        called = f"n{choices.below(MOST_NODES)}"
        self._set_node(clusters.node(choices, called, self._about))

    def _delete_node(self, choices: Choices, _pending: Obj) -> None:
        if called := self._some(choices, self._nodes):
            self.engine.ledger.remove_node(called)
            del self._nodes[called]

    def _relabel_namespace(self, choices: Choices, _pending: Obj) -> None:
        called, labels = choices.pick(tuple(self._namespaces)), choices.pick(_TEAMS)
        self.engine.namespaces.set(called, labels)
        self._namespaces[called] = labels

    @staticmethod
    def _some(choices: Choices, among: dict[str, Obj]) -> str:
        return choices.pick(tuple(among)) if among else ""

    def _set_node(self, node: Obj) -> None:
        self.engine.set_node(node)
        self._nodes[name(node)] = node

    def _set_pod(self, uid: str, pod: Obj) -> None:
        self.engine.ledger.set_pod(self.engine.read(pod, uid), pod["spec"]["nodeName"])
        self._pods[uid] = pod
