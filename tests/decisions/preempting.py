"""The engine's preemption for a pod that fits nowhere, on a cluster in the form of the recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import mod
from typing import Any, NamedTuple

import msgspec

from agent_scheduler.engine.decide.decide import CandidateNodes, decide
from agent_scheduler.engine.framework.args import DefaultPreemptionArgs
from agent_scheduler.engine.framework.plugin import PodUnrankable
from agent_scheduler.engine.plugins.default_preemption import DefaultPreemption
from agent_scheduler.engine.preemption.dry_run import Candidate
from agent_scheduler.engine.preemption.evaluator import Evaluator, with_preemption
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.preemption.pdbs import PDBs, read_pdb
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.objects.selecting import PodDisruptionBudget
from tests.decisions.engine import DEFAULT, Engine
from tests.decisions.plain import Obj


class Attempt(NamedTuple):
    """The whole message, with the sentence about preemption if that found no victims; and its victims."""

    message: str
    candidate: Candidate | None


def attempts(engine: Engine, pending: Obj, budgets: Sequence[Obj] = ()) -> Iterator[Attempt]:
    """Yield the result of preemption from each node at which it may begin; none if the pod fits.

    If the nodes of a pod cannot be ranked, the result has the reason.
    """
    pod = engine.waiting(pending)
    engine.snapshot.refresh()
    view = engine.views.of(engine.snapshot.handle.class_of(pod))
    columns = engine.snapshot.columns
    try:
        decision = decide(view, columns, candidates=columns.size)
    except PodUnrankable as why:
        yield Attempt(str(why), None)
        return
    if isinstance(decision, CandidateNodes):
        return
    nobody: Nominator = Nominator(is_pending=lambda _uid: True)
    nominations = Nominations(nobody, engine.ledger, engine.snapshot, lambda _name: DEFAULT)
    selection = Evaluator(engine.ledger, columns, pdbs_of(budgets), nominations)
    wanted = DefaultPreemption(DefaultPreemptionArgs()).wanted
    for start in range(columns.size):
        offset = partial(mod, start)
        found = selection.preempt(pod, view, view.refused(columns), wanted=wanted, offset=offset)
        yield Attempt(with_preemption(decision.message, found.message), found.candidate)


def message(engine: Engine, pending: Obj) -> str | None:
    """Return the whole message about a pod, None if it fits."""
    first = next(attempts(engine, pending), None)
    return None if first is None else first.message


def pdbs_of(given: Sequence[Obj]) -> PDBs:
    budgets = PDBs()
    for each in given:
        metadata: dict[str, Any] = {"namespace": "default", **each["metadata"]}
        budgets.set(read_pdb(msgspec.convert({**each, "metadata": metadata}, PodDisruptionBudget)))
    return budgets
