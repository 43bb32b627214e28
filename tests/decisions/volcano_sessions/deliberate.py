"""Where a session differs from Volcano's on purpose, each by a rule with its reason.

A rule says of a path of a case whether a difference there is meant. What it is meant for stands with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.decisions.volcano_sessions.recording import Case

Rule = Callable[[Case, str], bool]


def _faulty_tree(case: Case, path: str) -> bool:
    """The metrics of a tree of queues with a fault: Volcano stops in the middle of setting them, at a place that depends
    on the order of a map. That nothing is admitted, allocated or reclaimed then is the same here."""
    if not re.search(r"\.queues\..*\.gauges", path):
        return False
    option = case.conf.option("capacity")
    return option is not None and option.enabled("enableHierarchy") and _has_fault(case)


def _has_fault(case: Case) -> bool:
    parents = {
        queue["metadata"]["name"]: queue["spec"].get("parent") or "root" for queue in case.input["queues"]
    }
    inner = set(parents.values())
    missing = any(parent not in parents for parent in parents.values())
    return missing or any(group["spec"].get("queue") in inner for group in case.input["podGroups"])


RULES: tuple[Rule, ...] = (_faulty_tree,)


def is_meant(case: Case, difference: str) -> bool:
    """`difference` begins with its path."""
    return any(rule(case, difference.split(":", 1)[0]) for rule in RULES)
