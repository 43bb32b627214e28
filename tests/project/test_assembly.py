"""Each process is assembled in one place from complete parts; `tests.project.assembly` defines the faults."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.project.assembly import Fault, faults, house, late, optional, unbound, wide

#: What the rules find and is no wiring: the state of work in progress.
NO_WIRING: Final[Mapping[str, frozenset[str]]] = {
    "unbound": frozenset(
        {
            *("Connection._answer", "Connection._inflow", "RowAnswers.deferred"),
            # Opened while a process runs, as its transport is; its metrics are made before.
            *("ObjectHandling._file", "ObjectHandling._events", "ObjectHandling._now"),
        }
    )
}


def names(kind: str) -> frozenset[str]:
    return frozenset(each.name for each in faults() if each.kind == kind) - NO_WIRING.get(kind, frozenset())


@pytest.mark.parametrize("kind", ["late", "optional", "unbound", "wide"])
def test_a_process_is_assembled_from_complete_parts(kind: str) -> None:
    new = names(kind)
    assert not new, "\n".join(str(each) for each in faults() if each.kind == kind and each.name in new)


# ---- the rules


def found(tmp_path: Path, source: str) -> list[str]:
    """Return the faults of a source, as kind and name."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "__init__.py").write_text("")
    file = tmp_path / "made" / "parts.py"
    file.write_text(textwrap.dedent(source))
    ast.parse(file.read_text())
    all_ = house([tmp_path / "made"])
    listed: list[Fault] = [*wide(all_), *optional(all_), *late(all_), *unbound(all_)]
    return [f"{each.kind} {each.name}" for each in listed]


def test_arguments_of_constructors_are_counted(tmp_path: Path) -> None:
    source = """
        from typing import NamedTuple

        class Queue:
            def pop(self): ...

        class Wide:
            def __init__(self, a, b, c, *, d, e, f, g, h): ...

        class Narrow:
            def __init__(self, a, b, c, *, d, e, f, g): ...

        class Value(NamedTuple):
            a: int
            b: int
            c: int
            d: int
            e: int
            f: int
            g: int
            h: Queue
    """
    assert found(tmp_path, source) == ["wide Wide"]


def test_a_collaborator_that_every_call_gives_is_required(tmp_path: Path) -> None:
    source = """
        class Queue:
            def pop(self): ...

        class Binder:
            def __init__(self, queue: Queue | None = None, name: str | None = None, other: Queue | None = None): ...

        Binder(queue=Queue(), name="a")
        Binder(Queue(), "b", other=Queue())
    """
    assert found(tmp_path, source) == ["optional Binder.queue"]


def test_callbacks_are_given_at_construction(tmp_path: Path) -> None:
    source = """
        from collections.abc import Callable

        class Usage:
            def __init__(self) -> None:
                self.on_room: Callable[[], object] = lambda: None
                self.seen: list[Callable[[], object]] = []
                self.count = 0

        class Owner:
            def __init__(self, usage: Usage) -> None:
                usage.on_room = print
                usage.seen.append(print)
                usage.count = 1
    """
    assert found(tmp_path, source) == ["late usage.on_room", "late usage.seen"]


def test_collaborators_are_bound_at_construction(tmp_path: Path) -> None:
    source = """
        class Queue:
            def pop(self): ...

        class Feed:
            def __init__(self) -> None:
                self._queue: Queue | None = None
                self._last: Queue | None = None

            def attach(self, queue: Queue) -> None:
                self._queue = queue

            def run(self) -> None:
                self._last = Queue()
    """
    assert found(tmp_path, source) == ["unbound Feed._queue"]
