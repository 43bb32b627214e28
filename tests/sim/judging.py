"""Looks for a world in which what a test has broken shows."""

from __future__ import annotations

from collections.abc import Sequence

from .world import Options, run

#: Worlds in which it has to.
_FEW = 30


def found(scenario: str, invariant: str = "", *, faults: Sequence[str] | None = (), first: int = 0) -> str:
    """The first violation of this invariant, or of any, in some of a few worlds; empty for none. `faults`: of these, or
    None for those that a seed draws. `first`: a seed with which it has shown, to be tried before others."""
    for seed in dict.fromkeys((first, *range(_FEW))):
        options = Options(seed=seed, scenario=scenario, faults=None if faults is None else tuple(faults))
        for violation in run(options).violations:
            if violation.startswith(invariant):
                return violation
    return ""
