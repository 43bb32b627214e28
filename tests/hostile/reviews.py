"""Reviews of hostile objects by the functions of the webhook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from agent_scheduler.admission import jobs, podgroups, pods, queues
from agent_scheduler.admission.jobs import JobRules
from agent_scheduler.admission.pods import PodRules
from agent_scheduler.admission.queues import QueueRules
from agent_scheduler.admission.review import Reviewer, read_review, review, write_review
from agent_scheduler.objects.batch import Queue

from .objects import Hostile

_NAMES: Final = ("root", "default")
_QUEUES: Final = {name: msgspec.convert({"metadata": {"name": name}}, Queue) for name in _NAMES}
_PODS, _RULES = PodRules(schedulers=frozenset({"volcano"}), gates=True), QueueRules()
_JOBS = JobRules(scheduler="volcano")
#: Resource -> what the webhook asks about it.
REVIEWERS: Final[dict[str, tuple[Reviewer, ...]]] = {
    "pods": (lambda asked: pods.mutate(asked, _PODS),),
    "podgroups.scheduling.volcano.sh": (
        lambda asked: podgroups.mutate(asked, {}),
        lambda asked: podgroups.validate(asked, _QUEUES, {}),
    ),
    "queues.scheduling.volcano.sh": (queues.mutate, lambda asked: queues.validate(asked, _QUEUES, _RULES)),
    "jobs.batch.volcano.sh": (
        lambda asked: jobs.mutate(asked, _JOBS),
        lambda asked: jobs.validate(asked, _QUEUES, _JOBS, {}),
    ),
}


def reviews(each: Hostile) -> Iterator[Callable[[], bytes]]:
    """Yield the reviews of its creation, of an update that changes nothing, and of its deletion."""
    found = each.stored
    for operation, new, old in (("CREATE", found, b"null"), ("UPDATE", found, found), ("DELETE", b"null", found)):
        body = (
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"%s",'
            b'"name":"%s","namespace":"default","object":%s,"oldObject":%s}}'
        ) % (operation.encode(), each.name.encode(), new, old)
        for reviewer in REVIEWERS[each.kind.resource]:
            yield lambda body=body, reviewer=reviewer: _reviewed(body, reviewer)  # type: ignore[misc]


def _reviewed(body: bytes, reviewer: Reviewer) -> bytes:
    request = read_review(body)
    return write_review(request, review(reviewer, request))
