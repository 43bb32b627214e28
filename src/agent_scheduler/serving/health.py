"""Health checks with the responses of a Kubernetes component.

The response is `ok` with 200, or 500 and a line for each check. `?verbose` returns the lines in both cases,
`?exclude=NAME` skips a check, and `/readyz/NAME` runs a single one (k8s.io/apiserver, `healthz`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple


class Check(NamedTuple):
    """A health check. `problem` returns None, or a short public description, immediately. It must not raise."""

    name: str
    problem: Callable[[], str | None]


#: Succeeds if the server responds at all. It is the first in every list, so no list is empty.
PING = Check("ping", lambda: None)


#: The `problem` of kinds whose watch is stale.
SILENT = "the API server is silent about"


def named(problem: str, kinds: Collection[str]) -> str | None:
    """Return a `problem` with the names of the affected kinds; None if there are none."""
    return f"{problem}: {', '.join(sorted(kinds))}" if kinds else None


class HealthAnswer(NamedTuple):
    healthy: bool
    text: str


def examine(
    name: str, checks: Sequence[Check], *, verbose: bool = False, excluded: Collection[str] = ()
) -> HealthAnswer:
    """Run `checks` for the endpoint `name` (healthz, livez, readyz)."""
    lines: list[str] = []
    failed: list[str] = []
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        problem = check.problem()
        if problem is None:
            lines.append(f"[+]{check.name} ok")
        else:
            lines.append(f"[-]{check.name} failed: {problem}")
            failed.append(check.name)
    unknown = [item for item in excluded if item not in {check.name for check in checks}]
    if unknown:
        lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(sorted(unknown))}")
    if failed:
        return HealthAnswer(False, "\n".join([*lines, f"{name} check failed", ""]))
    if verbose:
        return HealthAnswer(True, "\n".join([*lines, f"{name} check passed", ""]))
    return HealthAnswer(True, "ok")
