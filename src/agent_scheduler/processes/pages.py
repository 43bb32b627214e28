"""What the supervisor's pages show of its children: each is asked, and their answers are put together.

A child that does not answer in time is left out, as one that has ended is: what the others say is still of use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agent_scheduler.fastpath.explaining import ELSEWHERE
from agent_scheduler.serving.http import DebugPage, DebugQuery, NotReady, Sources

#: Pages that a child is asked for.
METRICS, QUEUE, CACHE, EXPLAIN, CHECK = "metrics", "queue", "cache", "explain", "check"

#: Process number -> its answer.
Answers = Mapping[int, Any]


def answer(sources: Sources, page: str, arguments: Mapping[str, Any]) -> tuple[Any, str]:
    """A child's side: what is asked for as plain data, or why it cannot be told yet."""
    shown: Any = None
    if page == METRICS:
        body, _ = _at_once(sources.metrics())
        shown = body.decode()
    elif page == EXPLAIN and sources.explain is not None:
        try:
            shown = _at_once(sources.explain(arguments["namespace"], arguments["name"]))
        except NotReady as error:
            return None, str(error)
    else:
        source = {QUEUE: sources.queue, CACHE: sources.cache}[page]
        assert source is not None, "a scheduler has all pages"
        shown = _at_once(source(msgspec.convert(dict(arguments), DebugQuery)))
        shown = {"summary": shown.summary, "items": list(shown.items)}
    return msgspec.to_builtins(shown), ""


def _at_once(shown: Any) -> Any:
    return shown


def queue_page(answers: Answers) -> DebugPage:
    """Pods of all, those of the first process first; counts are added up."""
    pending: dict[str, int] = {}
    for each in answers.values():
        for place, number in each["summary"]["pending"].items():
            pending[place] = pending.get(place, 0) + number
    return DebugPage({"pending": pending}, _items(answers))


def cache_page(answers: Answers) -> DebugPage:
    """Each process has a picture of the whole cluster; that of the first is shown, and beside it how all differ."""
    first = min(answers, default=None)
    processes = {str(number): each["summary"] for number, each in answers.items()}
    if first is None:
        return DebugPage({"processes": processes}, ())
    return DebugPage({**answers[first]["summary"], "processes": processes}, answers[first]["items"])


def explanation(answers: Answers) -> tuple[bool, Mapping[str, Any]]:
    """Of the process that sees to the pod."""

    def knows(number: int) -> tuple[bool, bool, int]:
        known, told = answers[number]
        return known, told["place"] != ELSEWHERE, len(told.get("attempts", ()))

    number = max(sorted(answers), key=knows)
    known, told = answers[number]
    return known, {**told, "process": number}


def checked(answers: Answers) -> Mapping[str, Any]:
    """What all found, each difference with its process."""

    found = [answer for _, answer in sorted(answers.items())]
    kinds = sorted({kind for each in found for kind in each["checked"]})
    return {
        "leading": any(each["leading"] for each in found),
        "seconds": max(each["seconds"] for each in found),
        "differences": [
            {**each, "process": number}
            for number, answer in sorted(answers.items())
            for each in answer["differences"]
        ],
        "unsettled": sorted({name for each in found for name in each["unsettled"]}),
        "not_listed": {kind: why for each in found for kind, why in each["not_listed"].items()},
        "checked": {kind: max(each["checked"].get(kind, 0) for each in found) for kind in kinds},
    }


def _items(answers: Answers) -> Iterable[Mapping[str, Any]]:
    return ({"process": number, **item} for number, each in sorted(answers.items()) for item in each["items"])


def merged(expositions: Sequence[tuple[str, str]]) -> str:
    """Texts of metrics as one: each sample gets the label `process`, and each family stands in one place.

    `expositions`: the label's value, and a text in the format 0.0.4 that tells of a family before its samples.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for process, text in expositions:
        comments: list[str] = []
        samples: list[str] = []
        for line in text.splitlines():
            if line.startswith("#"):
                _, what, name = line.split(" ", 3)[:3]
                comments, samples = families.setdefault(name, ([], []))
                if not any(each.startswith(f"# {what} ") for each in comments):
                    comments.append(line)
            elif line:
                samples.append(_labelled(line, process))
    return "".join(f"{line}\n" for comments, samples in families.values() for line in (*comments, *samples))


def _labelled(sample: str, process: str) -> str:
    """Label values may have spaces and braces: the name ends before either."""
    brace, space = sample.find("{"), sample.find(" ")
    if 0 <= brace < space:
        return f'{sample[:brace]}{{process="{process}",{sample[brace + 1 :]}'
    return f'{sample[:space]}{{process="{process}"}}{sample[space:]}'
