"""What a Job's group says of quotas."""

from __future__ import annotations

import msgspec

from agent_scheduler.controllers.jobs.group import group_for, renewal
from agent_scheduler.engine.state.quotause import quota_parts
from agent_scheduler.objects.batch import QUOTA_PARTS, PodGroup
from agent_scheduler.objects.job import Job
from tests.support.objects import container, job, stored, task


def test_pods_that_quotas_count_apart_are_told_apart_where_some_have_to_end_by_a_time() -> None:
    pods = {"containers": [container(requests={"cpu": "1"})]}
    plain = task("a", 2, template=pods)
    ends = task("b", 1, template={**pods, "activeDeadlineSeconds": 9, "priorityClassName": "low"})
    one, other = (
        msgspec.json.decode(
            msgspec.json.encode(stored(job("j", *tasks, minimum=3, priorityClassName="high"))), type=Job
        )
        for tasks in ([plain, plain | {"name": "b"}], [plain, ends])
    )
    before, after = group_for(one, {}, ()), group_for(other, {}, ())
    assert QUOTA_PARTS not in before["metadata"]["annotations"]
    said = after["metadata"]["annotations"][QUOTA_PARTS]
    parts = {(each.scoped.scopes, each.scoped.priority_class): each.amounts["pods"] for each in quota_parts(said)}
    assert parts == {((), "high"): 2 * 10**9, (("Terminating",), "low"): 10**9}
    known = msgspec.convert(stored(before), PodGroup)
    assert (renewal(known, after) or {})["metadata"]["annotations"][QUOTA_PARTS] == said
