"""Whether a chosen node may still be taken: the pure half of the conflict-aware binder.

A worker decided on a snapshot; since then another worker's pod, a foreign scheduler or the node itself may have
changed a row. Candidates are tried in order under one of two policies:

- `revalidate`: a candidate is good if its version is unchanged, or if the pod still passes every filter on the
  live ledger. Only a node that has really become unfit is passed over.
- `strict`: the design's numbered rules. A candidate is good only if no bind was accepted on its node since the
  version that the worker saw. What other events did to the row is still checked, since a rule about versions
  alone would let a foreign pod's room be taken twice.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from ..framework.plugin import Depends
from ..state.columns import Columns
from ..state.ledger import Ledger
from .compiled import CompiledFilter
from .decide import Candidate


class ConflictPolicy(enum.StrEnum):
    REVALIDATE = "revalidate"
    STRICT = "strict"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The accepted candidate, if any, and what it took to get there."""

    candidate: Candidate | None
    #: Candidates passed over; the index of the accepted one.
    conflicts: int
    #: Live re-checks that the pod passed, and that it did not.
    revalidated: int
    outdated: int


def judge(
    ledger: Ledger,
    candidates: Sequence[Candidate],
    filters: Sequence[CompiledFilter],
    policy: ConflictPolicy,
    *,
    seen: int = -1,
) -> Verdict:
    """The first candidate that may be taken now. Changes nothing; the caller assumes at once or not at all.

    `seen`: the ledger's sequence at the time of the decision. If it has gone on, filters that look at other rows are
    asked again even where the candidate's own row is as it was.
    """
    columns = ledger.columns
    elsewhere = ledger.sequence != seen and any(entry.plugin.depends is Depends.CLUSTER for entry in filters)
    revalidated = outdated = 0
    for index, candidate in enumerate(candidates):
        row = candidate.row
        node = columns.nodes[row]
        if node is None or node.name != candidate.node_name:
            continue
        if columns.version[row] == candidate.version and not elsewhere:
            return Verdict(candidate, index, revalidated, outdated)
        if policy is ConflictPolicy.STRICT and ledger.used(row, candidate.version):
            continue
        if _passes(columns, filters, candidate):
            return Verdict(candidate, index, revalidated + 1, outdated)
        outdated += 1
    return Verdict(None, len(candidates), revalidated, outdated)


def _passes(columns: Columns, filters: Sequence[CompiledFilter], candidate: Candidate) -> bool:
    row = candidate.row
    same_row = columns.version[row] == candidate.version
    same_node = columns.spec_version[row] <= candidate.version
    for entry in filters:
        depends = entry.plugin.depends
        if (same_node and depends is Depends.NODE) or (same_row and depends in (Depends.ROOM, Depends.USAGE)):
            # It let the pod pass when the candidate was chosen, and has nothing new to look at.
            continue
        if not entry.feasible_row(columns, row):
            return False
    return True
