"""NodeUnschedulable: a cordoned node takes only pods that tolerate the taint of cordoned nodes.

From `plugins/nodeunschedulable`; the rule asks for a toleration of `node.kubernetes.io/unschedulable:NoSchedule`
whether or not the node has that taint.
"""

from __future__ import annotations

from tests.decisions.plain.tolerations import tolerated
from tests.decisions.plain.world import Obj, Refusal, World

TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    cordoned = (node.get("spec") or {}).get("unschedulable")
    if cordoned and not tolerated(TAINT, pod["spec"].get("tolerations") or []):
        return Refusal(("node(s) were unschedulable",), unresolvable=True)
    return None
