"""Where a session differs from Volcano's on purpose, each by a rule with its reason.

A rule says of a path of a case whether a difference there is meant. What it is meant for stands with it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.decisions.volcano_sessions.recording import Case

Rule = Callable[[Case, str], bool]


#: None so far: in what was recorded without evictions there is nothing that has to be decided otherwise.
RULES: tuple[Rule, ...] = ()


def is_meant(case: Case, difference: str) -> bool:
    """`difference` begins with its path."""
    return any(rule(case, difference.split(":", 1)[0]) for rule in RULES)
