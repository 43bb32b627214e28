"""What a node is worth to preemption, and which one is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ..state.podcounts import Countable
from .lesser import started

#: Makes priorities positive, so that one victim more always adds to their sum.
LIFT: Final = 2**31


class Rank(NamedTuple):
    """Less is better, in this order."""

    #: Victims that a budget would not let go.
    violations: int
    #: The priority of the most important victim.
    highest: int
    #: Of the victims' priorities, each raised by `LIFT`.
    total: int
    victims: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and who would have to leave it: at least one, the most important first."""

    node_name: str
    row: int
    victims: tuple[Countable, ...]
    #: How many of them a budget would not let go.
    violations: int

    @property
    def rank(self) -> Rank:
        priorities = [victim.priority for victim in self.victims]
        return Rank(self.violations, priorities[0], sum(priorities) + LIFT * len(priorities), len(priorities))

    @property
    def longest(self) -> str:
        """When the longest running of the most important victims started. Of equal ranks the latest is better."""
        return started(self.victims[0])

    def candidate(self) -> Candidate:
        return self


class Prospect(Protocol):
    """A candidate, or what becomes one when it is chosen."""

    @property
    def rank(self) -> Rank: ...
    @property
    def longest(self) -> str: ...
    def candidate(self) -> Candidate: ...


def best_of(prospects: Sequence[Prospect]) -> Candidate:
    """The one to choose; the first of those that tie in every rule."""
    ranks = [each.rank for each in prospects]
    least = min(ranks)
    ties = [each for each, rank in zip(prospects, ranks, strict=True) if rank == least]
    return max(ties, key=lambda each: each.longest).candidate()
