"""Answers about jobs: when two of them say the same.

A patch is compared by what it makes of the object: Volcano writes all tasks anew, with what Go's types leave empty.

Problems are compared by Volcano's words, which ours have after the field and before what is allowed there. Volcano runs
them together and puts what is allowed at the end of all.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from embedded_kubernetes.patch import json_patch
from tests.decisions.volcano_webhooks.recording import Case, Obj

_FIELD = re.compile(r"^((?:spec|metadata)\S*(?:, spec\S*)*): ")
_ALLOWED = re.compile(r"; allowed: [^;]*")
#: Which task there is not, or which wait for one another.
_NO_DAG = re.compile(r"(?<=\(DAG\)): [^;]*")
_VALID = re.compile(r",? valid (?:events|actions) are \[.*?\]")
#: Volcano takes the number of the task for that of a pod.
_POD = re.compile(r"(create pod with name \S+-)\d+ ")
#: What Volcano's message has between its problems.
_BETWEEN = re.compile(
    r"[\s;.*]|\d+ errors? occurred:|spec(?:\.tasks)?\.policies: |"
    r"(?:spec\.tasks?\[\d+\]\.)?(?:template|metadata)\.[\w.\[\]]+: "
)


def is_equal(case: Case, answer: Obj, response: Obj) -> bool:
    if answer["allowed"]:
        return made(case, answer) == made(case, response)
    missing, more = compared(answer["message"], response["message"])
    return not missing and not more


def made(case: Case, answer: Obj) -> Any:
    """The object after the patch."""
    patch = [{**each, "op": "add"} for each in answer.get("patch") or ()]
    return _plain(json_patch(deepcopy(case.object), patch))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _plain(each) for key, each in value.items()}
        empty = {"metadata": {}, "resources": {}, "minPartitions": 0}
        return {key: each for key, each in kept.items() if each not in (None, empty.get(key))}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def compared(ours: str, theirs: str) -> tuple[str, list[str]]:
    """What of their message ours does not say, and which of our problems theirs does not have."""
    rest = _VALID.sub("", _POD.sub(r"\1N ", theirs.replace("spec.task[", "spec.tasks[")))
    ours = _POD.sub(r"\1N ", ours.replace("spec.task[", "spec.tasks["))
    for extra in (_ALLOWED, _VALID, _NO_DAG):
        ours = extra.sub("", ours)
    more = []
    for problem in ours.split("; "):
        words = _FIELD.sub("", problem)
        said = next((each for each in (problem, words) if each in rest), None)
        if said is None:
            more.append(problem)
        else:
            rest = rest.replace(said, "", 1)
    return _BETWEEN.sub("", rest), more
