"""PreFilter and PreScore states that are shared by classes which differ only in their requests.

A plugin declares whether its `prepare` reads requests (`Filter.reads_requests`). The states of the others hold for
every class with the same `PodClass.key_without_requests`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from ..framework.handle import Handle
from ..framework.plugin import Filter, PodUnrankable, Profile, Score
from ..state.podclass import PodClass
from .compiled import CompiledFilter, CompiledScore, FilterPart, ScorePart, every_filter, filters_of, scores_of
from .rowanswers import OF_A_ROW, OF_NODES, NodeAnswers


@dataclass(slots=True, weakref_slot=True, eq=False)
class SharedPreFilter:
    """The plugins of a profile in their order.

    Each is compiled, left out because it does not apply, or still to be compiled for each class.
    """

    filters: Sequence[FilterPart]
    scores: Sequence[ScorePart]
    #: The answers of the plugins that read nodes alone; None if some of these are still to be compiled.
    answers: NodeAnswers | None = None


class SharedPreFilters:
    """The shared states of one profile on one snapshot. Each lives as long as a class holds it."""

    def __init__(self, profile: Profile) -> None:
        self._filters = every_filter(profile)
        self._scores = profile.scores
        #: Identities of the plugins that may take more of a node than capacity.
        self.reserving = frozenset(map(id, profile.reserves))
        #: The profile with nothing compiled.
        self._blank = SharedPreFilter(self._filters, self._scores)
        plugins: tuple[Filter | Score, ...] = (*self._filters, *(each.plugin for each in self._scores))
        #: Whether no plugin that reads nodes alone reads amounts.
        self._answers_hold = not any(each.reads_requests and each.depends in OF_NODES for each in plugins)
        #: Shared answers by their key; each lives as long as a class holds it.
        self._answers: WeakValueDictionary[Hashable, NodeAnswers] = WeakValueDictionary()
        self._kept: WeakValueDictionary[Hashable, SharedPreFilter] = WeakValueDictionary()

    def of(self, pod: PodClass, handle: Handle, reads: Collection[object]) -> SharedPreFilter:
        """Return the shared states for `pod`'s class.

        `reads` is filled by `Handle.reads`. States that were compiled from other objects hold for `pod` alone.
        """
        found = self._kept.get(pod.key_without_requests)
        if found is None:
            found = self._make(pod, handle, reads)
            if not reads:
                self._kept[pod.key_without_requests] = found
        return found

    def answers(
        self,
        filters: Iterable[CompiledFilter],
        scores: Iterable[CompiledScore],
        *,
        rejected: bool,
        reads: Collection[object],
    ) -> NodeAnswers:
        """Return the answers of the plugins that read nodes alone.

        `rejected` is true if a filter rejects the class on every node.
        """
        answers = NodeAnswers(filters, scores, rejected=rejected)
        # A state compiled from other objects may equal one that was compiled before they changed.
        key = None if reads else answers.key()
        return answers if key is None else self._answers.setdefault(key, answers)

    def _make(self, pod: PodClass, handle: Handle, reads: Collection[object]) -> SharedPreFilter:
        filters: list[FilterPart] = []
        for plugin in self._filters:
            if plugin.reads_requests:
                filters.append(plugin)
                continue
            compiled, rejection = filters_of((plugin,), pod, handle)
            if rejection is not None:
                # The first filter to reject may also be one that reads amounts.
                return self._blank
            filters += compiled
        scores: list[ScorePart] = []
        for weighted in self._scores:
            try:
                scores += (weighted,) if _is_of_one(weighted.plugin) else scores_of((weighted,), pod, handle)
            except PodUnrankable:
                return self._blank
        if not self._answers_hold:
            return SharedPreFilter(filters, scores)
        answers = self.answers(
            (each for each in filters if isinstance(each, CompiledFilter)),
            (each for each in scores if isinstance(each, CompiledScore)),
            rejected=False,
            reads=reads,
        )
        return SharedPreFilter(filters, answers.with_own(scores), answers)


def _is_of_one(score: Score) -> bool:
    """Return whether each class needs its own: because of its amounts, or for the raw scores that are kept by row."""
    return score.reads_requests or (score.normalize is not None and score.depends in OF_A_ROW)
