"""What an ended session concludes about the pods that it did not place."""

from __future__ import annotations

import pytest

from agent_scheduler.batch.conclusions import refusals_of
from agent_scheduler.batch.waiting import NOT_TRIED, kind_of
from tests.support.terms import beside, pod_term
from tests.unit.engine.session.scene import conf, finished, has, runs, sized


@pytest.mark.parametrize(
    ("limits", "found_before"), [((), "NodeResourcesFit"), (("capacity",), NOT_TRIED)], ids=["nodes", "queue"]
)
def test_plugins_that_reject_nodes_when_pods_are_to_be_evicted_count_beside_what_rejected_the_pod_before(
    limits: tuple[str, ...], found_before: str
) -> None:
    """Without room on the nodes or in the queue, no further reason is found until then."""
    scene = sized(1)
    scene.more["priorities"] = {"high": 9}
    lonely = {"affinity": beside("podAffinity", pod_term("nobody"))}
    scene.holding(runs("low", "n0"), has("high", lonely, priorityClassName="high", phase="Inqueue"))
    session, _ = scene.run(conf("priority", "gang", "predicates", *limits, actions="allocate preempt"))
    key = scene.groups[1].key
    kind = kind_of(key, scene.members[key][0])
    assert finished(refusals_of(session))[kind] == {found_before, "InterPodAffinity"}
