"""The kind Job of `config/crd`, compared with the answers of an API server with Volcano's definition."""

from __future__ import annotations

import json
import re

from agent_scheduler.objects.job import jobs
from tests.decisions.volcano_webhooks.recording import read_cases
from tests.support.batched import install
from tests.support.embedded import embedded_cluster

#: A field at the beginning of its message.
_FIELD = re.compile(r"(?<![\w.])(?:spec|metadata)(?:\.\w+|\[\d+\])+(?=: )")
#: A template is not validated here, while Volcano's definition repeats all of a pod's: the review validates it.
_IN_A_TEMPLATE = ".template."


async def test_the_definition_refuses_what_volcanos_refuses_by_the_same_fields() -> None:
    differ, checked = [], 0
    async with embedded_cluster() as cluster:
        await install(cluster)
        await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "plain-ns"}})
        for case in read_cases():
            if case.path != "/jobs/validate" or (said := case.crd_dry_run) is None:
                continue
            path = f"{jobs(case.request['namespace'])}?dryRun=All"
            answer = await cluster.call("POST", path, case.object)
            ours = _fields(json.loads(answer.body)["message"]) if answer.status == 422 else set()
            theirs = {each for each in _fields(said.get("message", "")) if _IN_A_TEMPLATE not in each}
            # A pod's template alone is no reason here.
            code = 201 if said["code"] == 422 and not theirs else said["code"]
            checked += 1
            if (answer.status, ours) != (code, theirs):
                differ.append(f"{case}: ours {answer.status} {answer.body!r}, theirs {said}")
    assert not differ, "\n".join(differ)
    assert checked


def _fields(message: str) -> set[str]:
    return set(_FIELD.findall(message))
