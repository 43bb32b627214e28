"""DynamicResources, as far as a pod without claims meets it: every node scores 0.

Its other trace is the first half of a refusal's second sentence (`REFUSED`): its PostFilter runs before
preemption and says so when there is no claim that it could release. Pods with claims are no business of this
reading.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.decisions.plain.world import Obj, World, name

REFUSED = "no new claims to deallocate"


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    if pod["spec"].get("resourceClaims"):
        raise NotImplementedError("a pod with resource claims")
    return {name(node): 0 for node in feasible}
