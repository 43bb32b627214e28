"""NodeName: a pod that names its node goes there or nowhere. From `plugins/nodename`."""

from __future__ import annotations

from tests.decisions.plain.world import Obj, Refusal, World, name


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    if pod["spec"].get("nodeName") not in (None, "", name(node)):
        return Refusal(("node(s) didn't match the requested node name",), unresolvable=True)
    return None
